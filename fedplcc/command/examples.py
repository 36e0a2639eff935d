"""Examples under a command's help. A test parses each of them, so that none can rot."""

from __future__ import annotations

import re

PROMPT = "$ "
LINE_END = "  \n"
"""Help is Markdown: without the spaces, lines flow together."""


def examples(*lines: str) -> str:
    """The end of a help text that shows these command lines, each as one would type it.

    Give it to `app.command(epilog=...)`. Lines of more than 76 characters wrap on a terminal of 80.
    """
    heading = "Examples:" if len(lines) > 1 else "Example:"
    return LINE_END.join((heading, *(PROMPT + line for line in lines)))


def examples_of(epilog: str) -> list[str]:
    """The command lines in the end of a help text."""
    return [line.removeprefix(PROMPT) for line in re.split(r" *\n+", epilog) if line.startswith(PROMPT)]
