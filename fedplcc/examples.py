"""Examples under a command's help. A test parses each of them, so that none can rot."""

from __future__ import annotations

PROMPT = "$ "


def examples(*lines: str) -> str:
    """The end of a help text that shows these command lines, each as one would type it.

    Give it to `app.command(epilog=...)`.
    """
    # Typer makes one line of a paragraph: every example is a paragraph of its own.
    return "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *(PROMPT + line for line in lines)))


def examples_of(epilog: str) -> list[str]:
    """The command lines in the end of a help text."""
    return [line.removeprefix(PROMPT) for line in epilog.split("\n\n") if line.startswith(PROMPT)]
