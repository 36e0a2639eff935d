"""The owner's yes: what it is bound to, how it is kept, and what of it survives crashes, restarts and meddling."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.convert.tasks import task_from_proto, task_to_proto
from fedplcc.shared.errors import (
    CodeNotAllowed,
    FailedPrecondition,
    FedplccError,
    InvalidConfig,
    MalformedRequest,
    StoreUnavailable,
)
from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.types import BlobRef, Payload, RunSpec, Task, TaskKind
from fedplcc.shared.version import VERSION
from fedplcc.trainer.owner.approval import deciding, packages
from fedplcc.trainer.owner.approval import kept as kept_files
from fedplcc.trainer.owner.approval.decisions import Decision, Ruling
from fedplcc.trainer.owner.approval.gate import GRACE_S, LOOK_S, AwaitsApproval, Gate, RunRejected, RunWithdrawn
from fedplcc.trainer.owner.approval.kept import MAX_ASKED, Kept
from fedplcc.trainer.owner.approval.words import lines_of
from fedplcc.trainer.owner.in_force import keep_policy
from fedplcc.trainer.owner.policy import Policy
from tests.support import of_kind, present
from tests.support.failpoints import killed_at


def a_task(run_id: str = "run-1", *, payload: Payload | None = None, **run: Any) -> Task:
    document: dict[str, Any] = {
        "run": {"method": "fedplcc", "rounds": 3, "clients": ["ann"], **run},
        "model": {"name": "cnn4"},
        "data": {"classes": ["a", "b"], "image_size": 16},
    }
    config = parse_run_config(document)
    spec = RunSpec(run_id=run_id, config_json=config.canonical_json, config_hash="what somebody says")
    return Task(kind=TaskKind.TRAIN, run=spec, round=1, total_rounds=3, payload=payload or Payload())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """The files of a site whose trainer runs with the default policy."""
    keep_policy(tmp_path, tmp_path / "policy.toml", Policy())
    return Kept(tmp_path)


def refused(kept: Kept, task: Task, rule: str | None = "each") -> FedplccError | None:
    """Why a trainer that has just started refuses a task; None if it does it."""
    try:
        Gate(Kept(kept.folder.parent), rule).check(task)
    except FedplccError as error:
        return error
    return None


def approved(kept: Kept, run_id: str) -> Decision:
    """Approve what a run asks for, or asked for when it was decided."""
    asked, last = kept.asked(run_id), kept.decisions().of(run_id)
    document = asked.document_sha256 if asked else last and (last.document or deciding.NO_DOCUMENT)
    return deciding.approve(kept, run_id, document or "")


def test_a_run_waits_until_its_owner_approves_it_and_a_restart_keeps_that(kept: Kept) -> None:
    why = of_kind(AwaitsApproval, refused(kept, a_task()))
    assert (why.reason, why.detail) == (OwnersWord.AWAITED, "the owner of this site has not approved the run")
    (facts,) = deciding.waiting(kept)
    assert (facts["run_id"], facts["rounds"], facts["started_by"]) == ("run-1", 3, None)
    made = deciding.approve(kept, "run-1", facts["document_sha256"])
    assert refused(kept, a_task()) is None
    assert deciding.waiting(kept) == []
    assert approved(kept, "run-1") == made
    assert [each.ruling for each in kept.decisions().entries] == [Ruling.APPROVED], "twice is once"


def test_without_a_policy_and_with_always_nothing_waits_and_a_withdrawal_holds(kept: Kept) -> None:
    assert refused(kept, a_task(), rule=None) is None
    assert not kept.folder.exists(), "nothing is written for a site without a policy"
    assert refused(kept, a_task(), rule="always") is None
    deciding.refuse(kept, "run-1", "no longer")
    for rule in (None, "always", "matching", "each"):
        why = of_kind(RunWithdrawn, refused(kept, a_task(), rule=rule))
        assert why.detail == "the owner of this site has withdrawn the run: no longer"
    assert refused(kept, a_task("run-2"), rule=None) is None


def test_another_document_or_other_code_needs_another_approval(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    assert refused(kept, a_task("run-2")) is not None, "of another run"
    longer = present(refused(kept, a_task(rounds=4)))
    assert longer.detail.endswith("has not approved the run: its document changed since")
    assert refused(kept, a_task()) is None, "the approved document holds"
    monkeypatch.setattr(packages, "VERSION", "0.2.1")
    newer = present(refused(kept, a_task()))
    assert newer.detail.endswith("its code changed since")
    approved(kept, "run-1")
    assert refused(kept, a_task()) is None


def test_a_matching_run_differs_in_name_and_seed_and_has_no_more_rounds(kept: Kept) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    assert refused(kept, a_task("run-2", name="again", seed=7, rounds=2), "matching") is None
    assert isinstance(refused(kept, a_task("run-2", rounds=4), "matching"), AwaitsApproval)
    assert isinstance(refused(kept, a_task("run-2", clients=["ann", "bob"]), "matching"), AwaitsApproval)
    assert isinstance(refused(kept, a_task("run-2", seed=7), "each"), AwaitsApproval)
    deciding.refuse(kept, "run-1")
    assert isinstance(refused(kept, a_task("run-3"), "matching"), AwaitsApproval), "what was withdrawn covers nothing"


def test_a_rejected_run_stays_rejected_until_it_is_approved(kept: Kept) -> None:
    refused(kept, a_task())
    deciding.refuse(kept, "run-1", "not for this study")
    of_kind(RunRejected, refused(kept, a_task()))
    assert deciding.waiting(kept) == []
    assert deciding.refuse(kept, "run-1").reason == "not for this study"
    approved(kept, "run-1")
    assert refused(kept, a_task()) is None


@pytest.mark.parametrize(
    ("decide", "error", "says"),
    [
        (lambda kept: approved(kept, "run-9"), InvalidConfig, "no run 'run-9' waits here"),
        (lambda kept: approved(kept, "../run-1"), InvalidConfig, "no id of a run"),
        (lambda kept: deciding.refuse(kept, "../run-1"), InvalidConfig, "no id of a run"),
        (lambda kept: deciding.approve(kept, "waits", "0" * 64), FailedPrecondition, "nothing was approved"),
        (lambda kept: deciding.approve(kept, "waits", ""), FailedPrecondition, "nothing was approved"),
        (lambda kept: approved(kept, "waits"), None, ""),
        (lambda kept: deciding.refuse(kept, "waits", "x" * 501), InvalidConfig, "at most 500"),
        (lambda kept: deciding.refuse(kept, "waits", "a\nb"), InvalidConfig, "printable"),
    ],
)
def test_what_cannot_be_decided_is_refused_with_what_to_do(
    kept: Kept, decide: Any, error: type[FedplccError] | None, says: str
) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    refused(kept, a_task("waits"))
    if error is None:
        decide(kept)
        return
    with pytest.raises(error, match=says):
        decide(kept)
    assert len(kept.decisions().entries) == 1


def _changed(lines: list[str], number: int, **values: Any) -> list[str]:
    entry = {**json.loads(lines[number]), **values}
    return [*lines[:number], json.dumps(entry), *lines[number + 1 :]]


MEDDLING: dict[str, Callable[[list[str]], list[str]]] = {
    "another run": lambda lines: _changed(lines, 0, run_id="run-2"),
    "a rejection turned": lambda lines: _changed(lines, 1, ruling="approved"),
    "another document": lambda lines: _changed(lines, 0, document="0" * 64),
    "more rounds": lambda lines: _changed(lines, 0, rounds=1000),
    "a line left out": lambda lines: lines[1:],
    "lines in another order": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a line twice": lambda lines: [*lines, lines[-1]],
    "half a line": lambda lines: [*lines[:-1], lines[-1][:40]],
    "no JSON": lambda lines: ["nothing", *lines],
}


ALL_RULES = (None, "always", "matching", "each")


@pytest.mark.parametrize("meddling", MEDDLING)
def test_changed_decisions_approve_nothing_and_a_no_that_can_be_read_stays(kept: Kept, meddling: str) -> None:
    for run_id in ("run-1", "run-2", "run-3"):
        refused(kept, a_task(run_id))
    approved(kept, "run-1")
    deciding.refuse(kept, "run-2")
    approved(kept, "run-3")
    path = kept.folder / "decisions.jsonl"
    path.write_text("\n".join(MEDDLING[meddling](path.read_text().splitlines())) + "\n")
    was, is_no = path.read_bytes(), meddling != "a rejection turned"
    for rule in ALL_RULES:
        why = of_kind(AwaitsApproval, refused(kept, a_task("run-1"), rule))
        assert "was changed, damaged or removed. No approval counts" in why.detail
        assert isinstance(refused(kept, a_task("run-2"), rule), RunRejected if is_no else AwaitsApproval)
    approved(Kept(kept.folder.parent), "run-1")
    for rule in ALL_RULES:
        assert refused(kept, a_task("run-1"), rule) is None
        assert isinstance(refused(kept, a_task("run-2"), rule), RunRejected if is_no else AwaitsApproval)
        assert isinstance(refused(kept, a_task("run-3"), rule), AwaitsApproval), "its decision may be lost"
        assert isinstance(refused(kept, a_task("run-4"), rule), AwaitsApproval), "a lost line may have said no to it"
    aside = kept.folder / "decisions.jsonl.damaged-1"
    assert aside.read_bytes() == was, "what did not hold is put aside"
    assert not kept.decisions().trouble
    assert aside.name in kept.decisions().notice
    aside.unlink()
    assert refused(kept, a_task("run-4"), "always") is None, "the owner has said that nothing else is lost"
    assert isinstance(refused(kept, a_task("run-2"), None), RunRejected) is is_no


def test_a_second_damage_is_put_aside_beside_the_first_and_a_lost_secret_forgets_no_no(kept: Kept) -> None:
    deciding.refuse(kept, "run-1", "enough")
    path = kept.folder / "decisions.jsonl"
    (kept.folder / "secret").unlink()
    deciding.refuse(kept, "run-2")
    path.write_bytes(path.read_bytes() + b"half a li")
    deciding.refuse(kept, "run-3")
    assert sorted(each.name for each in kept.folder.glob("*.damaged*")) == [f"{path.name}.damaged-{n}" for n in (1, 2)]
    for run_id in ("run-1", "run-2", "run-3"):
        assert isinstance(refused(kept, a_task(run_id), "always"), RunWithdrawn)
    assert [(each.by == "", each.reason) for each in kept.decisions().entries] == [(True, ""), (False, ""), (False, "")]


def _told_all(kept: Kept) -> None:
    for decision, _ in Gate(kept, "each").look(None).reports:
        kept.told(decision)


@pytest.mark.parametrize("lost", ["the last line", "the file", "all but an older copy of the folder"])
def test_decisions_that_lack_what_the_aggregator_was_told_do_not_hold(kept: Kept, lost: str, tmp_path: Path) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    path = kept.folder / "decisions.jsonl"
    older = path.read_bytes()
    shutil.copytree(kept.folder, tmp_path / "older")
    deciding.refuse(kept, "run-1")
    _told_all(kept)
    if lost == "the file":
        path.unlink()
    elif lost == "the last line":
        path.write_bytes(older)
    else:
        shutil.rmtree(kept.folder)
        shutil.copytree(tmp_path / "older", kept.folder)
    for rule in ALL_RULES:
        assert isinstance(refused(kept, a_task(), rule), AwaitsApproval)
    deciding.refuse(kept, "run-1")
    assert isinstance(refused(kept, a_task(), "always"), RunRejected)
    assert not Kept(kept.folder.parent).decisions().trouble, "the new chain names what was told"
    assert [each.ruling for each, _ in Gate(kept, "each").look(None).reports] == [Ruling.REJECTED]
    _told_all(kept)
    assert not Kept(kept.folder.parent).decisions().trouble
    assert isinstance(refused(kept, a_task("run-2"), None), AwaitsApproval)


def test_another_secret_and_none_make_no_decision_hold(kept: Kept) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    secret = kept.folder / "secret"
    assert (secret.stat().st_mode & 0o777, (kept.folder / "decisions.jsonl").stat().st_mode & 0o777) == (0o600, 0o600)
    secret.write_bytes(bytes(32))
    assert Kept(kept.folder.parent).decisions().trouble
    secret.unlink()
    assert isinstance(refused(kept, a_task()), AwaitsApproval)


def test_a_kill_at_any_step_leaves_the_decision_made_or_not_and_the_same_again_makes_it_once(tmp_path: Path) -> None:
    def whole(folder: Path) -> None:
        Kept(folder).say_page("http://127.0.0.1:1/")
        refused(Kept(folder), a_task())
        made = approved(Kept(folder), "run-1")
        (report,) = Gate(Kept(folder), "each").look(None).reports
        Kept(folder).told(report[0])
        assert report[0] == made
        Kept(folder).say_page(None)

    for at in itertools.count(1):
        folder = tmp_path / str(at)
        with killed_at(at) as passed:
            whole(folder)
        if len(passed) < at:
            break
        name = passed[-1]
        before = Kept(folder).decisions()
        assert not before.trouble, name
        assert len(before.entries) <= 1
        assert (refused(Kept(folder), a_task()) is None) is (len(before.entries) == 1), name
        approved(Kept(folder), "run-1")
        assert [each.ruling for each in Kept(folder).decisions().entries] == [Ruling.APPROVED], name
        for decision, _problem in Gate(Kept(folder), "each").look(None).reports:
            Kept(folder).told(decision)
        assert Gate(Kept(folder), "each").look(None).reports == []
    assert at > 20


def test_a_kill_at_any_step_after_damage_loses_no_no_and_gives_no_yes(tmp_path: Path) -> None:
    def damaged(folder: Path, *, is_missing: bool) -> Kept:
        refused(Kept(folder), a_task())
        approved(Kept(folder), "run-1")
        deciding.refuse(Kept(folder), "run-2")
        _told_all(Kept(folder))
        path = folder / "approval" / "decisions.jsonl"
        path.unlink() if is_missing else path.write_bytes(path.read_bytes() + b"half a li")
        return Kept(folder)

    for is_missing in (False, True):
        for at in itertools.count(1):
            kept = damaged(tmp_path / f"{is_missing}-{at}", is_missing=is_missing)
            with killed_at(at) as passed:
                deciding.refuse(kept, "run-3")
            if len(passed) < at:
                assert any("aside" in each for each in passed)
                break
            name = passed[-1]
            for rule in ALL_RULES:
                assert isinstance(refused(kept, a_task("run-1"), rule), AwaitsApproval), name
                assert isinstance(refused(kept, a_task("run-2"), rule), AwaitsApproval if is_missing else RunWithdrawn)
            deciding.refuse(kept, "run-3")
            assert isinstance(refused(kept, a_task("run-1"), None), AwaitsApproval), name
            assert isinstance(refused(kept, a_task("run-3"), None), RunWithdrawn), name
            assert len(list(kept.folder.glob("*.damaged*"))) == 1, name


def test_a_look_ends_the_run_that_is_withdrawn_and_tells_each_decision_until_it_is_no(kept: Kept) -> None:
    refused(kept, a_task())
    gate, run = Gate(kept, "each"), a_task().run
    assert gate.look(run) == gate.look(None)
    approved(kept, "run-1")
    deciding.refuse(kept, "run-1", "enough")
    found = gate.look(run)
    assert found.is_ended
    assert not gate.look(a_task("run-2").run).is_ended
    assert [(each.reason, each.is_fatal) for _, each in found.reports] == [
        (OwnersWord.APPROVED, False),
        (OwnersWord.WITHDRAWN, True),
    ]
    assert found.reports[1][1].detail.endswith(": enough")
    gate.told(found.reports[0][0])
    assert [each.ruling for each, _ in gate.look(run).reports] == [Ruling.WITHDRAWN]


def test_a_task_beyond_the_rounds_that_were_approved_is_refused(kept: Kept) -> None:
    refused(kept, a_task())
    approved(kept, "run-1")
    assert refused(kept, replace(a_task(), round=3)) is None
    for rule in ("each", "matching"):
        why = of_kind(MalformedRequest, refused(kept, replace(a_task(), round=4, total_rounds=1000), rule))
        assert "round 4" in why.detail
    assert refused(kept, replace(a_task(), round=4), "always") is None, "the policy is the yes"


def test_a_round_asked_for_again_with_other_models_counts_against_the_rounds_that_were_approved(kept: Kept) -> None:
    def with_model(number: int, kind: TaskKind = TaskKind.TRAIN, **run: Any) -> Task:
        blob = BlobRef(role="model", sha256=f"{number:064}", size_bytes=1000)
        return replace(a_task("run-1", payload=Payload(tensor_groups=(blob,)), **run), kind=kind)

    refused(kept, a_task())
    approved(kept, "run-1")
    for _ in range(2):  # a lost answer, a restart, an aggregator that was put back
        assert [refused(kept, with_model(number)) for number in range(3)] == [None] * 3
    assert refused(kept, with_model(0, TaskKind.EVALUATE)) is None, "training leaves the evaluations of its rounds"
    why = of_kind(AwaitsApproval, refused(kept, with_model(3)))
    assert "as often as its owner has approved rounds" in why.detail
    assert [refused(kept, with_model(number), "matching") for number in range(3)] == [None] * 3
    (facts,) = deciding.waiting(kept)
    assert facts["why"] == why.detail
    assert refused(kept, with_model(3), "always") is None, "the policy is the yes"
    approved(kept, "run-1")
    assert [refused(kept, with_model(number)) is None for number in range(3, 7)] == [True, True, True, False]
    refused(kept, a_task("run-2", rounds=6))
    approved(kept, "run-2")
    went_on = [refused(kept, with_model(number, rounds=6), "matching") for number in range(6)]
    assert went_on == [None] * 6, "a run that goes on to as many rounds as another one has that was approved"


def test_a_withdrawal_is_seen_from_within_a_task_without_a_heartbeat(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, now = a_task(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    refused(kept, task)
    approved(kept, "run-1")
    gate = Gate(kept, "each")
    gate.check(task)
    assert task.run is not None
    assert not gate.has_ended(task.run)
    deciding.refuse(kept, "run-1")
    now[0] += LOOK_S
    assert not gate.has_ended(task.run), "a heartbeat ends it first"
    now[0] += GRACE_S
    assert gate.has_ended(task.run)


def test_what_waits_is_bounded_and_is_forgotten_when_its_run_is_over(kept: Kept) -> None:
    for number in range(MAX_ASKED + 3):
        gate = Gate(kept, "each", clock=partial(float, number))
        with pytest.raises(AwaitsApproval):
            gate.check(a_task(f"run-{number}"))
    found = [facts["run_id"] for facts in deciding.waiting(kept)]
    assert found == [f"run-{number}" for number in range(3, MAX_ASKED + 3)]
    gate.forget(but_of=["run-5", "run-6"])
    assert [facts["run_id"] for facts in deciding.waiting(kept)] == ["run-5", "run-6"]


def test_versions_of_torch_and_timm_are_told_and_another_timm_needs_another_approval_for_its_models(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"timm": "1.0.9", "torch": "2.8.0"}
    monkeypatch.setattr(metadata, "version", versions.__getitem__)

    def of_timm(run_id: str = "run-1") -> Task:
        task = a_task(run_id)
        assert task.run is not None
        document = {**json.loads(task.run.config_json), "model": {"name": "timm:test_resnet"}}
        return replace(task, run=replace(task.run, config_json=json.dumps(document)))

    refused(kept, of_timm())
    refused(kept, a_task("run-2"))
    told = [dict(lines_of(facts))["code"] for facts in deciding.waiting(kept)]
    ours = f"fedplcc {VERSION}"
    assert told == [f"{ours}, timm 1.0.9; on torch 2.8.0", f"{ours}; on torch 2.8.0"]
    assert (approved(kept, "run-1").torch, approved(kept, "run-2").torch) == ("2.8.0", "2.8.0")
    versions["torch"] = "2.9.0"
    assert refused(kept, of_timm()) is None
    versions["timm"] = "1.1.0"
    assert refused(kept, a_task("run-2")) is None
    why = present(refused(kept, of_timm()))
    assert why.detail.endswith("its code changed since")


def test_who_started_a_run_is_told_and_no_approval_is_bound_to_it(kept: Kept) -> None:
    def begun_by(words: str) -> Task:
        task = a_task()
        assert task.run is not None
        return task_from_proto(task_to_proto(replace(task, run=replace(task.run, started_by=words))))

    refused(kept, begun_by("ward round (run)\x1b[2J\u202e" + 200 * "x"))
    (facts,) = deciding.waiting(kept)
    assert facts["started_by"] == "ward round (run)?[2J?" + 99 * "x"
    assert dict(lines_of(facts))["started by"].endswith("x, says the aggregator")
    approved(kept, "run-1")
    assert refused(kept, begun_by("somebody else")) is None


def test_documents_that_wait_are_bounded_together_and_one_without_room_says_so(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(kept, a_task())
    size = (kept.folder / "asked" / "run-1.json").stat().st_size
    most = 3 * size + 100  # the time of asking has more digits or fewer
    monkeypatch.setattr(kept_files, "MAX_ASKED_BYTES", most)
    refused(kept, a_task("run-2"))
    refused(kept, a_task("run-3"))
    why = of_kind(AwaitsApproval, refused(kept, a_task("run-4")))
    assert f"{most:,} bytes are the most of all. Decide about those first: fedplcc site pending" in why.detail
    assert sum(path.stat().st_size for path in (kept.folder / "asked").iterdir()) <= most
    deciding.refuse(kept, "run-2")
    assert isinstance(refused(kept, a_task("run-2")), RunRejected)
    assert "cannot be shown" not in str(refused(kept, a_task("run-4"))), "what was rejected takes no room"
    assert [facts["run_id"] for facts in deciding.waiting(kept)] == ["run-1", "run-3", "run-4"]


def test_the_code_of_other_packages_is_part_of_what_is_approved(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "their_models"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('nothing imports this')\n")
    (package / "sub" / "nets.py").write_text("one\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = a_task()
    assert task.run is not None
    document = {**json.loads(task.run.config_json), "model": {"name": "their_models.sub.nets:Net"}}
    task = replace(task, run=replace(task.run, config_json=json.dumps(document)))
    refused(kept, task)
    (facts,) = deciding.waiting(kept)
    assert list(facts["code"]) == ["fedplcc", "their_models"]
    assert facts["code_named"] == ["their_models.sub.nets:Net"]
    approved(kept, "run-1")
    assert refused(kept, task) is None
    (package / "sub" / "nets.py").write_text("two\n")
    changed = present(refused(kept, task))
    assert changed.detail.endswith("its code changed since")
    (package / "sub" / "nets.py").unlink()
    (package / "sub").rmdir()
    (package / "__init__.py").unlink()
    package.rmdir()
    assert isinstance(refused(kept, task), CodeNotAllowed)


def test_what_has_no_end_in_the_place_of_decisions_is_refused_and_not_waited_for(kept: Kept) -> None:
    kept.folder.mkdir()
    for name in ("decisions.jsonl", "secret"):
        os.mkfifo(kept.folder / name)
        with pytest.raises(StoreUnavailable, match="no regular file"):
            kept.decisions()
        (kept.folder / name).unlink()
