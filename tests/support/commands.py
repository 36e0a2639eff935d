"""Commands that are typed within this process."""

from __future__ import annotations

from typer.testing import CliRunner

from fedplcc.command.all_commands import app


def called(*words: object) -> tuple[int, str, str]:
    """Type `fedplcc WORDS`; returns the exit code, stdout and stderr. What no command should raise is raised here."""
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr
