"""Examples under a command's help. A test parses each of them."""

from __future__ import annotations

PROMPT = "$ "
LINE_END = "  \n"
"""Help is Markdown: without the spaces, lines flow together."""


def examples(*lines: str) -> str:
    """The end of a help text with these command lines, as typed after a prompt.

    Give it to `app.command(epilog=...)`. Lines of more than 76 characters wrap on a terminal of 80.
    """
    heading = "Examples:" if len(lines) > 1 else "Example:"
    return LINE_END.join((heading, *(PROMPT + line for line in lines)))


def examples_of(epilog: str) -> list[str]:
    """The command lines at the end of a help text."""
    return [line.removeprefix(PROMPT).rstrip(" ") for line in epilog.split("\n") if line.startswith(PROMPT)]
