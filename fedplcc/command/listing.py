"""How the `fedplcc` command lists its parts, and how one that is slow to describe is made only when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from typer.core import TyperGroup

TRY = "Try it on this machine"
PREPARE = "Prepare and check"
SERVE = "Run a federation"
STEER = "Steer runs of a federation"
USE = "Use what a run leaves"
KEEP = "Keep the state safe"
PANELS = (TRY, PREPARE, SERVE, STEER, USE, KEEP)
"""Headings of the help, in this order."""


class FrontDoor(TyperGroup):
    """The group of all commands: listed by heading, and with commands that are made when they are called."""

    made_when_called: ClassVar[dict[str, Callable[[], Any]]] = {}
    """For a listed command, by its name, what makes the one with all its options."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the headings; within one in the order in which they were added."""

        def place(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return PANELS.index(panel) if panel in PANELS else len(PANELS)

        return sorted(super().list_commands(ctx), key=place)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, whole; also asked by the shell's completion."""
        name, command, rest = super().resolve_command(ctx, args)
        make = self.made_when_called.get(name or "")
        return name, command if make is None else make(), rest
