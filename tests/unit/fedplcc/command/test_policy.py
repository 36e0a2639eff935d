"""`fedplcc config init --policy` and `config check` of a policy: the file to start from, and what a policy allows."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode
from tests.support import commands

RUN = """
run = { method = "fedavg", rounds = 3, clients = ["ann"] }
model = { name = "cnn4" }
data = { classes = ["a", "b"], image_size = 16 }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)


called = partial(commands.called, "config")


def test_a_written_policy_forbids_nothing_and_is_not_written_over() -> None:
    code, _, said = called("init", "--policy")
    assert (code, "fedplcc config check policy.toml" in said) == (ExitCode.OK, True)
    before = Path("policy.toml").read_text()
    code, out, _ = called("check", "policy.toml", "--run", "run.toml")
    assert code == ExitCode.OK
    assert "Runs of every method, model and length may take part." in out
    assert out.endswith("run.toml: the policy lets the site take part.\n")
    code, _, said = called("init", "--policy")
    assert (code, Path("policy.toml").read_text()) == (ExitCode.USAGE, before)
    assert "is there already" in said


def test_a_run_that_does_not_pass_is_told_with_each_key_and_both_values() -> None:
    Path("policy.toml").write_text('runs.methods = ["fedplcc"]\nruns.most_rounds = 2\nleaves.losses = false')
    code, out, said = called("check", "--run", "run.toml")
    assert code == ExitCode.FAILED
    assert "Runs may have these methods: fedplcc." in out
    assert "What stays at the site: losses." in out
    assert 'runs.methods = ["fedplcc"], and the run has run.method = "fedavg"' in said
    assert "runs.most_rounds = 2, and the run has 3 rounds" in said
    code, out, _ = called("check", "--run", "run.toml", "--json")
    answer: dict[str, Any] = json.loads(out)
    assert (code, len(answer["forbids"])) == (ExitCode.FAILED, 2)
    assert answer["policy"]["runs"]["most_rounds"] == 2
    assert "forbids" not in json.loads(called("check", "policy.toml", "--json")[1])


def test_what_is_wrong_with_either_file_is_said() -> None:
    Path("policy.toml").write_text("runs.most_round = 2")
    assert called("check", "policy.toml")[0] == ExitCode.USAGE
    assert "did you mean 'runs.most_rounds'?" in called("check", "policy.toml")[2]
    Path("policy.toml").write_text("")
    Path("run.toml").write_text(RUN.replace("rounds = 3", "rounds = 0"))
    code, _, said = called("check", "--run", "run.toml")
    assert (code, "run.rounds = 0: it must be at least 1" in said) == (ExitCode.USAGE, True)
