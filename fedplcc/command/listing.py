"""The group of all `fedplcc` commands: its help has headings, and slow commands are built when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from typer.core import TyperGroup

TRY = "Try it on this machine"
PREPARE = "Prepare and check"
SERVE = "Run a federation"
ADMIT = "Admit members to a federation"
STEER = "Steer runs of a federation"
USE = "Use what a run leaves"
KEEP = "Keep the state safe"
PANELS = (TRY, PREPARE, SERVE, ADMIT, STEER, USE, KEEP)
"""Headings of the help, in this order."""


class AllCommands(TyperGroup):
    """All commands, listed under headings; some are built only when they are called."""

    built_when_called: ClassVar[dict[str, Callable[[], Any]]] = {}
    """By name: a function that builds the command with all its options, in place of the listed one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the headings; under one heading in the order of registration."""

        def place(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return PANELS.index(panel) if panel in PANELS else len(PANELS)

        return sorted(super().list_commands(ctx), key=place)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, with all its options; the shell's completion asks too."""
        name, command, rest = super().resolve_command(ctx, args)
        build = self.built_when_called.get(name or "")
        return name, command if build is None else build(), rest
