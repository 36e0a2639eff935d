"""Calls of `fedplcc model ...` in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from fedplcc.command.all_commands import app

runner = CliRunner(env={"COLUMNS": "80"})


def called(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    result = runner.invoke(app, ["model", *(str(argument) for argument in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments: object) -> tuple[int, str]:
    """The exit code and the one sentence of a command that gives no result."""
    code, out, error = called(*arguments)
    assert out == ""
    assert error.startswith("fedplcc: ")
    assert error.count("\n") == 1
    return code, error
