"""A question before what cannot be undone: asked on a terminal, answered by --yes in a script."""

from __future__ import annotations

import sys

from fedplcc.shared.errors import InvalidConfig

YES = frozenset(("y", "yes"))


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def agreed(question: str, *, yes: bool, what: str) -> bool:
    """Ask on the terminal and return the answer; True at once where it was given before.

    Args:
        question: The question, with what is lost.
        yes: Whether it was answered on the command line.
        what: What is to be done, for the sentence where nobody can be asked.

    Raises:
        InvalidConfig: Nobody sits at a terminal, and the answer was not given.
    """
    if yes:
        return True
    if not is_terminal():
        raise InvalidConfig(f"nobody can be asked here: add --yes to {what}")
    # To stderr: stdout is for results.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in YES
