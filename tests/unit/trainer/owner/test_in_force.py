"""The policy that a trainer started with, as its state directory and the doctor have it."""

from __future__ import annotations

import hmac
import json
from pathlib import Path

import pytest

from fedplcc.doctor.findings import Status
from fedplcc.doctor.trainer_state import examine_trainer_state
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.in_force import KEPT, InForce, keep_policy, policy_in_force
from fedplcc.trainer.owner.policy import NO_POLICY, read_policy
from tests.support.hosts.failing_disk import Disk, Killed

TEXT = 'approve = "always"\nruns.methods = ["fedavg"]\nprivacy.epsilon = 3\nleaves.losses = false'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def said(state: Path) -> tuple[Status, str]:
    (finding,) = [each for each in examine_trainer_state(state) if each.check == "policy"]
    return finding.status, finding.sentence


def test_the_doctor_says_which_policy_is_in_force(file: Path, state: Path) -> None:
    assert said(state) == (Status.OK, "the trainer has no policy: whoever may start runs decides what it takes part in")
    keep_policy(state, file, read_policy(file))
    assert policy_in_force(state) == InForce(file, read_policy(file))
    status, sentence = said(state)
    assert status is Status.OK
    assert sentence.startswith(f"{file} is in force: Runs may have these methods: fedavg.")
    keep_policy(state, None, NO_POLICY)
    assert policy_in_force(state) is None
    assert not list(state.iterdir())


def test_the_doctor_warns_of_a_file_that_no_longer_says_what_is_in_force(file: Path, state: Path) -> None:
    keep_policy(state, file, read_policy(file))
    file.write_text(f"{TEXT}\nruns.most_rounds = 3")
    assert said(state) == (
        Status.WARNING,
        f"{file} has changed since the trainer started; it holds from its next start on",
    )
    file.write_text("runs.most = 3")
    status, sentence = said(state)
    assert (status, "until it is mended the trainer does not start again" in sentence) == (Status.WARNING, True)
    file.unlink()
    assert "No such file" in said(state)[1]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"file": "x", "policy": {"runs": 1}}', b"\xff", b"[" * 100_000]
)
def test_what_is_kept_and_damaged_is_told_as_such(content: bytes, state: Path) -> None:
    (state / KEPT).write_bytes(content)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        policy_in_force(state)
    assert said(state)[0] is Status.WARNING


@pytest.mark.parametrize("step", range(1, 4))
def test_a_start_that_is_killed_leaves_the_policy_before_it_or_the_new_one(
    step: int, file: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_policy(file)
    keep_policy(state, file, before)
    file.write_text("runs.most_rounds = 1")
    disk = Disk(monkeypatch)
    disk.kill_before(step)
    with pytest.raises(Killed):
        keep_policy(state, file, read_policy(file))
    disk.revive()
    known = policy_in_force(state)
    assert known is not None
    assert known.policy in (before, read_policy(file))
    disk.fail_at(1)
    with pytest.raises(StoreUnavailable, match="cannot use the state directory"):
        keep_policy(state, file, read_policy(file))


def test_decisions_of_before_versions_were_recorded_hold(state: Path) -> None:
    key, kept = bytes(32), Kept(state)
    facts = {
        "before": "", "by": "user 0", "code": "c", "document": "d", "number": 1, "reason": "", "rounds": 3,
        "ruling": "withdrawn", "run_id": "run-1", "terms": "t", "time": 1.0,
    }  # fmt: skip
    mac = hmac.digest(key, json.dumps(facts, sort_keys=True, separators=(",", ":")).encode(), "sha256").hex()
    kept.folder.mkdir()
    (kept.folder / "secret").write_bytes(key)
    (kept.folder / "decisions.jsonl").write_text(json.dumps({**facts, "mac": mac}) + "\n")
    assert (kept.decisions().trouble, len(kept.decisions().entries)) == ("", 1)
