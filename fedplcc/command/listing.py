"""The group of all `fedplcc` commands: its help has headings, and slow commands are built when they are called."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from typer.core import TyperGroup

from fedplcc.command.exit_codes import ExitCode, say
from fedplcc.command.old_names import answer_to
from fedplcc.command.shared_options import kept, names_in, split

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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the shared options first, and answer to an old name; a service's options are all its own."""
        shared, others = split(args)
        if others and others[0] in self.built_when_called:
            ctx.obj = names_in(split(args[: args.index(others[0])])[0])
            return super().parse_args(ctx, args)
        if (answer := answer_to(others)) is not None and not ctx.resilient_parsing:
            say(answer)
            ctx.exit(int(ExitCode.USAGE))
        ctx.obj = names_in(shared)
        if not ctx.resilient_parsing:
            for sentence in (*self._given_twice(others), *_misspelt()):
                say(sentence)
        return super().parse_args(ctx, [*shared, *others])

    def _given_twice(self, words: Sequence[str]) -> Iterator[str]:
        """Yield a sentence on each option with a value that stands twice on a command line, where the last one counts."""
        command: Any = self
        for word in words:
            below = getattr(command, "commands", {}).get(word)
            if below is None:
                break
            command = below
        once = {
            name
            for each in command.params
            if each.param_type_name == "option" and not (each.multiple or each.is_flag or each.count)
            for name in each.opts
        }
        before = words[: words.index("--")] if "--" in words else words
        for name, count in Counter(word.partition("=")[0] for word in before).items():
            if count > 1 and name in once:
                yield f"{name} stands there {count} times, and the last one counts"

    def invoke(self, ctx: Any) -> Any:
        """Call the command that is named, and forget the shared options afterwards."""
        with kept():
            return super().invoke(ctx)

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


def _misspelt() -> list[str]:
    """Return a sentence on each environment variable that is nearly one of ours and that nothing reads."""
    if not any(name.startswith("FEDPLCC_") for name in os.environ):
        return []
    from fedplcc.shared.config.settings.variables import unknown_variables

    return unknown_variables(os.environ, misspelt=True)
