"""Errors and interruptions become one sentence and a documented exit code."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import subprocess
import sys
import tomllib

import pytest
import typer

from fedplcc.command.exit_codes import ExitCode, exit_code_of, explains_errors
from fedplcc.extras import EXTRAS
from fedplcc.interruption import Interrupted, interruptible, run_interruptibly
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FedplccError,
    InvalidConfig,
    InvalidData,
    InvalidTransition,
    RunNotFound,
    StoreUnavailable,
)
from tests.support import ROOT

README = ROOT / "fedplcc" / "README.md"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidConfig("x"), ExitCode.USAGE),
        (InvalidData("x"), ExitCode.USAGE),
        (AggregatorUnavailable("x"), ExitCode.UNREACHABLE),
        (StoreUnavailable("x"), ExitCode.STORAGE),
        (RunNotFound("x"), ExitCode.FAILED),
        (InvalidTransition("x"), ExitCode.FAILED),
    ],
)
def test_every_error_has_the_exit_code_of_its_kind(error: FedplccError, code: ExitCode) -> None:
    assert exit_code_of(error) == code


def test_the_readme_names_every_exit_code_with_its_meaning() -> None:
    rows = [f"| {code:d} | {code.meaning} |" for code in ExitCode]
    assert "\n".join(rows) in README.read_text(encoding="utf-8")


def ended(error: BaseException | None, result: int | None = None) -> int:
    @explains_errors
    def command() -> int | None:
        if error is not None:
            raise error
        return result

    with pytest.raises(typer.Exit) as caught:
        command()
    return caught.value.exit_code


def test_an_error_is_one_sentence_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(RunNotFound("there is no run 'x'")) == 1
    captured = capsys.readouterr()
    assert captured.err == "fedplcc: there is no run 'x'\n"
    assert captured.out == ""


def test_a_file_that_is_nested_without_end_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    @explains_errors
    def command() -> None:
        json.loads("[" * 100_000)

    with pytest.raises(typer.Exit):
        command()
    assert capsys.readouterr().err.startswith("fedplcc: a file has lists or tables nested deeper")
    with pytest.raises(RecursionError):  # of a bug, or of a person's own code
        ended(RecursionError("maximum recursion depth exceeded"))


def test_a_sentence_stays_on_its_line_whatever_a_file_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(InvalidConfig("cannot read a\nb\x1b[31m\u2028\udcff: größer, 猫 👩\u200d🔬 c:\\x")) == 2
    assert capsys.readouterr().err == "fedplcc: cannot read a\\nb\\x1b[31m\\u2028\\udcff: größer, 猫 👩\u200d🔬 c:\\x\n"


def test_an_interruption_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Interrupted("the same command goes on")) == 130
    assert ended(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "fedplcc: the same command goes on\nfedplcc: interrupted\n"


def test_a_full_disk_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(OSError(errno.ENOSPC, "full", "a.json")) == ExitCode.STORAGE
    assert capsys.readouterr().err == "fedplcc: cannot write a.json: no space left on device\n"
    with pytest.raises(IsADirectoryError):
        ended(IsADirectoryError(errno.EISDIR, "a folder"))


@pytest.mark.parametrize(
    ("out", "encoding", "code", "error"),
    [
        ("/dev/full", "utf-8", ExitCode.STORAGE, "fedplcc: cannot write the output: no space left on device\n"),
        ("/dev/null", "ascii", ExitCode.OK, ""),
    ],
)
def test_an_output_that_takes_not_all_letters_or_none_is_no_traceback(
    out: str, encoding: str, code: int, error: str
) -> None:
    text = (
        "from fedplcc.command import all_commands as a; from fedplcc.command.exit_codes import explains_errors as e; "
    )
    text += "a.app = lambda prog_name: __import__('typer').run(e(lambda: print('\\u732b' * 9))); a.main()"
    with open(out, "w") as file:
        done = subprocess.run(
            [sys.executable, "-c", text],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            check=False,
        )
    assert (done.returncode, done.stderr) == (code, error)


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (
            "fedplcc join 0<&-",
            ExitCode.USAGE,
            "fedplcc: this is no invitation; it is one line that begins with fedplcc1_\n",
        ),
        ("fedplcc join 0<&- 2>&- 1>&2", ExitCode.USAGE, ""),
        *((f"fedplcc.{name} --state-dir /dev/null/x 2>&-", ExitCode.STORAGE, "") for name in ("aggregator", "trainer")),
    ],
)
def test_a_process_that_is_started_with_closed_streams_works(command: str, code: int, error: str) -> None:
    line = f"exec {sys.executable} -m {command}"
    given = {**os.environ, "FEDPLCC_CLIENT": "north", "FEDPLCC_DATA": "digits:mnist", "FEDPLCC_INSECURE": "true"}
    done = subprocess.run(["sh", "-c", line], env=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", error)


def test_a_package_that_is_not_installed_is_named_with_what_installs_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(ModuleNotFoundError("No module named 'torch'", name="torch")) == 2
    assert "torch, which is not installed: pip install 'fedplcc[trainer]'" in capsys.readouterr().err
    assert ended(ModuleNotFoundError("No module named 'mlxtend.data'", name="mlxtend.data")) == 2
    assert "pip install 'fedplcc[demo]'" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        ended(ModuleNotFoundError("No module named 'fedplcc.nothing'", name="fedplcc.nothing"))


def test_the_extras_that_are_named_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {"PIL": "pillow", "sqlalchemy": "SQLAlchemy"}
    for extra, modules in EXTRAS.items():
        listed = {re.split(r"[\[>=<]", requirement)[0] for requirement in extras[extra]}
        assert {distributions.get(module, module) for module in modules} <= listed


def test_a_bug_keeps_its_traceback() -> None:
    @explains_errors
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


def test_the_first_signal_is_a_wish_and_the_second_interrupts() -> None:
    def interrupt_twice() -> None:
        with interruptible() as wished:
            assert not wished.is_set()
            os.kill(os.getpid(), signal.SIGINT)
            assert wished.wait(5)
            os.kill(os.getpid(), signal.SIGINT)
            assert wished.wait(5)  # the interpreter runs handlers between instructions

    found = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a library that a test before loaded may have its own
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_twice()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_a_coroutine_which_may_put_things_in_order(number: signal.Signals) -> None:
    steps = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("in order")

    with pytest.raises(Interrupted):
        run_interruptibly(work())
    assert steps == ["in order"]


def test_a_library_that_memory_does_not_hold_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """As the loader of shared libraries says it under `ulimit -v`."""
    assert ended(ImportError("libtorch_cuda.so: failed to map segment from shared object")) == 2
    assert "too little memory" in capsys.readouterr().err
    with pytest.raises(ImportError):
        ended(ImportError("cannot import name 'nothing'"))
