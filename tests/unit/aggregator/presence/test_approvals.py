"""Runs of clients whose owners have not approved them, and of those whose owners end their part."""

from __future__ import annotations

import pytest

from fedplcc.aggregator.coordinator.approvals import MAX_AUDITED
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.shared.reasons import Dropped, DropReason, OwnersWord, WaitsForApproval, sentence_of
from fedplcc.shared.steering import AdmitClient, QuarantineClient, RetireClient
from fedplcc.shared.types import ClientProblem, RunStatus, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.unit.aggregator.coordinator.test_audited_changes import Audited
from tests.unit.aggregator.presence.test_deadlines import DEADLINE_S, NO_QUORUM, TICK_S, Scene

PENDING = Dropped(DropReason.APPROVAL, "waits for zoe's approval")
FEDERATION = Audited
JOINED = tuple(map(NumpyClient, ("ann", "bob", "zoe")))


def says(scene: Scene, name: str, word: OwnersWord) -> None:
    """A trainer reports what the owner of its site says."""
    problem = ClientProblem(reason=word.value, detail="its owner's word", is_fatal=word is not OwnersWord.APPROVED)
    scene.federation.heartbeat(scene.federation.clients[name], run_id=scene.run_id, problem=problem)


def wait(scene: Scene, seconds: float, *idle: str) -> None:
    """Let time pass while trainers that wait for their owners live."""
    for _ in range(int(seconds / TICK_S)):
        for name in idle:
            scene.federation.heartbeat(scene.federation.clients[name])
        scene.clock.now += TICK_S
        scene.tick()


def audited(federation: LocalFederation) -> list[tuple[str, str]]:
    assert isinstance(federation, Audited)
    return [(method, target) for method, target, _ in federation.records if method not in ("Join", "CreateRun")]


def test_a_run_that_needs_everybody_waits_for_approval_and_says_whose(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    scene.task("zoe")
    says(scene, "zoe", OwnersWord.AWAITED)
    scene.do("ann", "bob")
    scene.tick()
    assert scene.run.reason == WaitsForApproval(round_number=1, clients=("zoe",), num_clients=1)
    assert sentence_of(scene.run.reason) == "waits for zoe's approval"
    (missing,) = federation.events(scene.run_id, "quorum_missing")
    assert missing.data == {"reason": "waits for zoe's approval", "clients": ["zoe"]}
    wait(scene, 10 * DEADLINE_S, "ann", "bob", "zoe")
    assert sentence_of(scene.run.reason) == "waits for zoe's approval"
    assert (scene.run.status, scene.round.dropped) == (RunStatus.RUNNING, {})
    assert scene.task("zoe").kind is TaskKind.TRAIN, "its trainer knows of the run"
    says(scene, "zoe", OwnersWord.APPROVED)
    scene.tick()
    assert scene.run.reason is None
    assert all(client.problem is None for client in federation.coordinator.list_clients())
    scene.do("zoe")
    scene.aggregate()
    assert scene.phase == "evaluating"
    assert audited(federation) == [("ApproveRun", f"{scene.run_id}/zoe")]


def test_a_run_with_a_quorum_goes_on_at_once_and_takes_the_client_in_when_it_is_approved(
    federation: LocalFederation,
) -> None:
    scene = Scene(federation)
    scene.task("zoe")
    says(scene, "zoe", OwnersWord.AWAITED)
    scene.do("ann", "bob")
    scene.tick()
    assert scene.round.dropped == {"zoe": PENDING}
    assert scene.phase == "aggregating", "no deadline was waited for"
    scene.aggregate()
    scene.do("ann", "bob")
    assert scene.round.number == 2
    scene.tick()
    assert scene.round.dropped == {"zoe": PENDING}
    says(scene, "zoe", OwnersWord.APPROVED)
    scene.task("zoe")
    scene.wait(2 * TICK_S, moving=("zoe",), alive=("ann", "bob"))
    assert scene.round.dropped == {}
    scene.do("zoe", "ann", "bob")
    assert set(scene.round.updates) == {"ann", "bob", "zoe"}


def test_a_client_that_works_for_the_run_no_longer_waits_whatever_came_late(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    scene.task("zoe")
    says(scene, "zoe", OwnersWord.APPROVED)
    says(scene, "zoe", OwnersWord.AWAITED)
    scene.tick()
    assert sentence_of(scene.run.reason) == "waits for zoe's approval"
    scene.say("zoe", further=True)
    scene.tick()
    assert scene.run.reason is None


def test_a_run_that_fails_without_a_quorum_does_not_fail_for_an_approval(federation: LocalFederation) -> None:
    scene = Scene(federation, min_clients=3, on_no_quorum="fail")
    for name in ("ann", "zoe"):
        scene.task(name)
        says(scene, name, OwnersWord.AWAITED)
    scene.do("bob")
    wait(scene, 2 * DEADLINE_S, "ann", "bob", "zoe")
    assert sentence_of(scene.run.reason) == "waits for ann's and zoe's approval"
    scene.clock.now += 10 * DEADLINE_S
    scene.tick()  # nobody is here any more
    assert scene.run.status is RunStatus.FAILED


def test_the_first_model_is_made_by_whoever_is_approved(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False, **NO_QUORUM)
    for name in ("ann", "bob", "zoe"):
        assert scene.task(name).kind is TaskKind.INIT
        says(scene, name, OwnersWord.AWAITED)
        scene.tick()
    assert sentence_of(scene.run.reason) == "waits for ann's, bob's and zoe's approval"
    assert run_facts.waits_for_quorum(scene.run)
    says(scene, "bob", OwnersWord.APPROVED)
    scene.do("bob")
    assert scene.round.number == 1


@pytest.mark.parametrize("word", [OwnersWord.REJECTED, OwnersWord.WITHDRAWN])
def test_an_owner_ends_the_clients_part_whatever_the_run_needs(federation: LocalFederation, word: OwnersWord) -> None:
    scene = Scene(federation, min_clients=3)
    scene.task("zoe")
    says(scene, "zoe", word)
    assert run_facts.is_retired(scene.run, "zoe")
    assert scene.round.dropped == {"zoe": Dropped(DropReason.RETIRED, "its site's owner ended its part")}
    assert scene.task("zoe").kind is TaskKind.WAIT
    for _ in range(MAX_AUDITED + 3):
        says(scene, "zoe", word)
    method = {"RUN_REJECTED": "RejectRun", "RUN_WITHDRAWN": "WithdrawRun"}[word]
    assert audited(federation) == [(method, f"{scene.run_id}/zoe")]
    (zoe,) = [client for client in federation.coordinator.list_clients() if client.client_id == "zoe"]
    assert zoe.problem is not None
    assert (zoe.problem.reason, zoe.problem.is_fatal) == (word, False)
    scene.do("ann", "bob")
    scene.wait(2 * DEADLINE_S, alive=("ann", "bob", "zoe"))
    assert sentence_of(scene.run.reason).startswith("round 1 has no quorum, 2 of the 3 clients that it needs")


def test_when_all_owners_have_ended_their_part_nobody_is_left(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    for name in ("ann", "bob", "zoe"):
        scene.task(name)
        says(scene, name, OwnersWord.WITHDRAWN)
    scene.tick()
    assert sentence_of(scene.run.reason).startswith("round 1 has no quorum, 0 of the 1 clients that it needs")
    assert scene.run.status is RunStatus.RUNNING


@pytest.mark.parametrize("word", [OwnersWord.REJECTED, OwnersWord.WITHDRAWN])
def test_an_owners_new_yes_brings_the_client_back_with_the_next_round(
    federation: LocalFederation, word: OwnersWord
) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    scene.task("zoe")
    says(scene, "zoe", word)
    assert scene.run.retired["zoe"].by_owner
    says(scene, "zoe", OwnersWord.APPROVED)
    assert not run_facts.is_retired(scene.run, "zoe")
    assert scene.task("zoe").kind is TaskKind.WAIT, "the open round stays without it"
    scene.do("ann", "bob")
    scene.aggregate()
    scene.do("ann", "bob")
    assert (scene.round.number, scene.task("zoe").kind) == (2, TaskKind.TRAIN)
    assert [method for method, _ in audited(federation)][-1] == "ApproveRun"


def test_a_run_that_lacks_its_only_client_goes_on_with_the_owners_new_yes(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    for name in ("ann", "bob", "zoe"):
        scene.task(name)
        says(scene, name, OwnersWord.WITHDRAWN)
    scene.tick()
    says(scene, "zoe", OwnersWord.APPROVED)
    wait(scene, 2 * DEADLINE_S, "ann", "bob", "zoe")
    assert scene.run.status is RunStatus.RUNNING
    assert run_facts.eligible(scene.run) == ("zoe",)


def test_an_owners_yes_undoes_no_quarantine_and_no_retirement_of_others(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    steer = federation.coordinator.steer
    steer(scene.run_id, QuarantineClient("ann", reason="wrong labels"))
    says(scene, "ann", OwnersWord.WITHDRAWN)
    says(scene, "ann", OwnersWord.APPROVED)
    assert (run_facts.is_retired(scene.run, "ann"), "ann" in scene.run.quarantined) == (False, True)
    steer(scene.run_id, RetireClient("bob", forgets=False))
    for word in (OwnersWord.APPROVED, OwnersWord.WITHDRAWN, OwnersWord.APPROVED):
        says(scene, "bob", word)
        assert run_facts.is_retired(scene.run, "bob"), "by request, whatever its owner says"
    says(scene, "zoe", OwnersWord.WITHDRAWN)
    steer(scene.run_id, RetireClient("zoe", forgets=False))
    says(scene, "zoe", OwnersWord.APPROVED)
    assert run_facts.is_retired(scene.run, "zoe"), "by both: one yes is not enough"
    assert run_facts.eligible(scene.run) == ()


def test_decisions_in_the_audit_are_bounded_and_others_word_is_none(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=True, **NO_QUORUM)
    for _ in range(3):  # a trainer that dies before it knows that its report came reports again
        says(scene, "zoe", OwnersWord.APPROVED)
    assert audited(federation) == [("ApproveRun", f"{scene.run_id}/zoe")]
    for _ in range(MAX_AUDITED):
        says(scene, "zoe", OwnersWord.WITHDRAWN)
        federation.coordinator.steer(scene.run_id, AdmitClient("zoe"))
        says(scene, "zoe", OwnersWord.APPROVED)
    own = [
        method for method, target in audited(federation) if target == f"{scene.run_id}/zoe" and "Admit" not in method
    ]
    assert own == (["ApproveRun", "WithdrawRun"] * MAX_AUDITED)[:MAX_AUDITED]
    of_two = federation.create("fedavg", run={"clients": ["ann", "bob"]})
    problem = ClientProblem(reason=OwnersWord.WITHDRAWN, detail="", is_fatal=True)
    federation.heartbeat(federation.clients["zoe"], run_id=of_two.run_id, problem=problem)
    assert federation.coordinator.get_run(of_two.run_id).retired == {}
    assert not run_facts.is_retired(scene.run, "zoe")
