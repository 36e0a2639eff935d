"""`fedplcc site`: the state directory that it is about, what left the site, and what its releases cost."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.command.site.state_dir import trainer_folder
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.privacy.guarantee import mu_of
from fedplcc.trainer.owner.egress.log import LOG_FILE, EgressLog, Message, What
from fedplcc.trainer.privacy.budget import LIMIT, PRIVACY_FOLDER, Budget, Charge
from tests.support import commands

typed = partial(commands.called, "site")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one state directory of a trainer on this host, of which three messages left."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "fedplcc-state" / "trainer-north"
    folder.mkdir(parents=True)
    log = EgressLog(folder, clock=lambda: 0.0)
    log.write(Message.whole(What.JOIN, b"join"), None, lambda: 0.0)
    for run in ("one", "two"):
        message = Message.whole(What.COMMIT, b"update", run=run, round=3, roles=("model", "local_cluster"))
        log.write(message, "site", lambda: 0.75)
    return folder


def test_the_only_state_directory_is_found_and_of_several_one_is_chosen(state: Path, tmp_path: Path) -> None:
    assert trainer_folder(None).resolve() == state
    other = tmp_path / "fedplcc-state" / "trainer"
    other.mkdir()
    with pytest.raises(InvalidConfig, match=r"choose one with --state-dir: .*trainer, .*trainer-north"):
        trainer_folder(None)
    assert trainer_folder(other) == other
    with pytest.raises(InvalidConfig, match="is no folder"):
        trainer_folder(tmp_path / "gone")


def test_without_a_state_directory_the_command_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = typed("log")
    assert (code, "name it with --state-dir" in error) == (ExitCode.USAGE, True)


def test_the_lines_are_shown_for_people_and_for_programs(state: Path) -> None:
    code, shown, _ = typed("log")
    assert code == ExitCode.OK
    joined, one, two = shown.splitlines()
    assert joined.startswith("1970-01-01T00:00:00.000Z  join  4 bytes  ")
    assert "commit (model, local_cluster)  run one  round 3  claim site  6 bytes" in one
    assert two.endswith("epsilon 0.75")
    assert typed("log", "--last", "1")[1].splitlines() == [two]
    assert typed("log", "--run", "one", "--state-dir", str(state))[1].splitlines() == [one]
    assert typed("log", "--run", "none")[1] == "nothing left this site for the run none\n"
    kept = [json.loads(line) for line in (state / LOG_FILE).read_text().splitlines()]
    assert [json.loads(line) for line in typed("log", "--json")[1].splitlines()] == kept


def test_a_damaged_line_is_said_and_a_name_moves_no_cursor(state: Path) -> None:
    with (state / LOG_FILE).open("a") as file:
        file.write("{}\n")
    log = EgressLog(state)
    log.write(Message.whole(What.REPORT, b"", run="\x1b[2Jevil", round=1), "none", lambda: None)
    code, shown, error = typed("log")
    assert code == ExitCode.FAILED
    assert "\x1b" not in shown
    assert "1 lines in" in error


def test_the_budget_has_the_limit_of_the_trainer_and_the_cost_of_each_run(state: Path) -> None:
    assert "older copy, without its last releases: it has 0 of the 1" in typed("log", "--budget")[2]
    (state / LOG_FILE).unlink()
    assert typed("log", "--budget")[1] == "epsilon 0 of 0 releases, delta 1e-05, no limit\n"
    budget = Budget(state / PRIVACY_FOLDER, epsilon=3.0, delta=1e-6)
    budget.keep_limit()
    mu = mu_of(1.0, 1e-6)
    for run, number in (("one", 1), ("one", 2), ("two", 1)):
        budget.charge(
            Charge(
                name=f"{run}-{number}", mu=mu, clip=0.1, noise=1.0, run_hash=run, run_id=run, round=number, claim="site"
            ),
            most_of_run=2,
        )
    code, shown, _ = typed("log", "--budget")
    assert code == ExitCode.OK
    all_runs, one, two = shown.splitlines()
    assert all_runs.endswith("of 3 releases, delta 1e-06, limit 3")
    assert one.split() == ["one", "epsilon", "1.45", "claim", "site", "rounds", "1,", "2"]
    assert two.split() == ["two", "epsilon", "1", "claim", "site", "rounds", "1"]
    told = json.loads(typed("log", "--budget", "--json")[1])
    assert (told["limit"], told["delta"], told["releases"]) == (3.0, 1e-6, 3)
    assert told["epsilon"] == pytest.approx(budget.spent_epsilon)
    assert [each["run"] for each in told["runs"]] == ["one", "two"]
    (state / PRIVACY_FOLDER / LIMIT).write_text("{")
    assert typed("log", "--budget")[0] == ExitCode.STORAGE
