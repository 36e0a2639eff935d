"""`fedplcc site pending`, `approve` and `reject`, and what `fedplcc doctor` says of a site's approvals."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.doctor import state_folder
from fedplcc.doctor.trainer_state import examine_trainer_state
from fedplcc.trainer.owner.approval.gate import AwaitsApproval
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.in_force import keep_policy
from fedplcc.trainer.owner.policy import NO_POLICY, Policy
from tests.unit.trainer.owner.test_approval import a_task, approved, refused


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only trainer's state directory below the working directory."""
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "fedplcc-state" / "trainer-north"
    state.mkdir(parents=True)
    keep_policy(state, tmp_path / "policy.toml", Policy())
    return state


def called(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["site", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def doctor(state: Path) -> tuple[str, str]:
    (found,) = [each for each in examine_trainer_state(state) if each.check == "approval"]
    return found.status.value, found.sentence


def test_doctor_says_that_a_copy_without_modes_shows_secrets_to_other_users(state: Path) -> None:
    def open_to_others() -> list[str]:
        return [each.sentence for each in state_folder.open_secrets(state)]

    refused(Kept(state), a_task())
    approved(Kept(state), "run-1")
    (state / "identity.pem").write_text("a key")
    for folder in (state, state / "approval"):
        folder.chmod(0o755)
    (state / "approval" / "secret").chmod(0o644)
    (state / "identity.pem").chmod(0o600)
    (said,) = open_to_others()
    assert said.endswith(f"can read {state}/approval/secret: chmod -R o= {state}")
    state.chmod(0o750)
    assert open_to_others() == []


def test_a_withdrawal_under_an_id_that_nothing_here_has_says_so(state: Path) -> None:
    code, text = called("reject", "run-1x")
    assert (code, "no run run-1x waits, and nothing that left this site was for it" in text) == (ExitCode.OK, True)
    refused(Kept(state), a_task())
    approved(Kept(state), "run-1")
    assert "nothing that left" not in called("reject", "run-1")[1]


def test_a_no_before_a_run_asked_is_taken_back_by_a_line_that_is_printed(state: Path) -> None:
    called("reject", "run-1")
    for wrong in ("", "0" * 64):
        code, text = called("approve", "run-1", "--document", wrong)
        assert (code, "nothing was approved; to take the no back" in text) == (ExitCode.FAILED, True)
    text = called("pending", "--all")[1]
    line = text[text.index("fedplcc site approve") :].split()[2:]
    code, text = called(*line)
    assert (code, text.startswith("the no to run run-1 is taken back")) == (ExitCode.OK, True)
    assert "approved: " not in called("pending")[1]
    assert isinstance(refused(Kept(state), a_task()), AwaitsApproval)
    called("approve", "run-1", "--document", "none")
    assert isinstance(refused(Kept(state), a_task()), AwaitsApproval), "it allows nothing"


def test_a_run_that_asks_again_is_not_listed_as_approved(state: Path) -> None:
    refused(Kept(state), a_task())
    approved(Kept(state), "run-1")
    refused(Kept(state), a_task(rounds=4))
    text = called("pending")[1]
    assert ("its document changed since" in text, "approved: run-1" in text) == (True, False)


def test_a_run_is_shown_approved_and_withdrawn(state: Path) -> None:
    assert called("pending") == (ExitCode.OK, 'no run waits for approval (approve = "each")')
    refused(Kept(state), a_task())
    code, text = called("pending")
    assert (code, "method: fedplcc" in text, "claim: none: no noise, no guarantee" in text) == (ExitCode.OK, True, True)
    assert doctor(state) == (
        "ok",
        f'approve = "each", and 0 approvals of the owner hold; 1 wait for it: fedplcc site pending --state-dir {state}',
    )
    (facts,) = json.loads(called("pending", "--json")[1])["pending"]
    assert called("approve", "run-1")[0] == ExitCode.USAGE
    code, shown = called("approve", "run-1", "--document", facts["document_sha256"][:63])
    assert (code, "nothing was approved" in shown) == (ExitCode.FAILED, True)
    line = text[text.index("fedplcc site approve") :].split()[2:]
    assert called(*line)[1].startswith("run run-1 is approved")
    assert "was approved already" in called(*line)[1]
    assert called("pending")[1].endswith("approved: run-1")
    assert called("reject", "run-1", "--reason", "enough")[0] == ExitCode.OK
    code, text = called(*line)
    assert "takes part again from the next round on" in text
    assert (code, "fedplcc run client admit run-1 CLIENT" in text) == (ExitCode.OK, True)
    refused(Kept(state), a_task("run-2"))
    assert called("reject", "run-2", "--reason", "no")[1] == "run run-2 is rejected: this client leaves it"
    assert "is rejected" in called("reject", "run-2")[1], "it stays what it was"
    assert called("reject", "../run-3")[0] == ExitCode.USAGE


def test_what_does_not_hold_and_a_site_without_a_policy_are_told(state: Path) -> None:
    refused(Kept(state), a_task())
    approved(Kept(state), "run-1")
    decisions = state / "approval" / "decisions.jsonl"
    decisions.write_text(decisions.read_text().replace("run-1", "run-2"))
    assert "No approval counts" in called("pending")[1]
    assert (doctor(state)[0], "No approval counts" in doctor(state)[1]) == ("warning", True)
    called("reject", "run-3")
    assert "decisions.jsonl.damaged-1" in called("pending")[1]
    assert (doctor(state)[0], "decisions.jsonl.damaged-1" in doctor(state)[1]) == ("warning", True)
    decisions.unlink()
    (state / "approval" / "decisions.jsonl.damaged-1").unlink()
    keep_policy(state, None, NO_POLICY)
    assert "this trainer has no policy, so runs need no approval" in called("pending")[1]
    assert "nobody here is asked" in doctor(state)[1]


def test_all_lists_what_was_decided_with_time_and_who(state: Path) -> None:
    for run_id in ("run-1", "run-2", "run-3"):
        refused(Kept(state), a_task(run_id))
    approved(Kept(state), "run-1")
    called("reject", "run-2", "--reason", "not for this study")
    approved(Kept(state), "run-3")
    called("reject", "run-3")
    text, day = called("pending", "--all")[1], f"{datetime.now(UTC):%Y-%m-%d}"
    user = f"by user {os.getuid()}"
    assert [text.index(each) for each in ("run-3: withdrawn ", "run-2: rejected ", "run-1: approved ")] == sorted(
        text.index(f"run-{number}: ") for number in (3, 2, 1)
    )
    assert (text.count(day), text.count(user), f"{user}: not for this study" in text) == (3, 3, True)
    found = json.loads(called("pending", "--all", "--json")[1])["decided"]
    assert [(each["run_id"], each["ruling"], each["by"]) for each in found] == [
        ("run-3", "withdrawn", user[3:]),
        ("run-2", "rejected", user[3:]),
        ("run-1", "approved", user[3:]),
    ]
    assert "decided" not in json.loads(called("pending", "--json")[1])
