"""An error in one run's own step parks that run, with its cause, and touches no other run."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.rounds import results
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.reasons import Parked
from fedplcc.shared.steering import QuarantineClient, ResumeRun, StopRun
from fedplcc.shared.types import RoundPhase, Run, RunStatus, TaskKind
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.wedged_runs import OVERFLOWS, store_a_number_of_an_earlier_version, until
from tests.support.oracles.federation_result import expected
from tests.support.records.builders import an_update

CLIENTS = ("ann", "bob")


def undisturbed(rounds: int = 2) -> str:
    config = parse_run_config(a_document(run={"rounds": rounds}))
    return expected(config, [NumpyClient(name) for name in CLIENTS]).models[-1]


def named(federation: LocalFederation, name: str, **sections: object) -> Run:
    document = a_document(run={"name": name, **sections})
    return federation.coordinator.create_run(name, document)


def goes_on(federation: LocalFederation, run: Run) -> None:
    """The run ends, in the bytes of an undisturbed one."""
    after = federation.run_to_end(run.run_id)
    assert after.status is RunStatus.COMPLETED
    assert after.model is not None
    assert after.model.sha256 == undisturbed()


@pytest.fixture
def wedged(folder: Path) -> Iterator[tuple[LocalFederation, Run, Run]]:
    """An aggregator that starts on a run of the last version, which waits for its last report, and on an honest run."""
    with LocalFederation(folder, map(NumpyClient, CLIENTS)) as federation:
        federation.join()
        hit = named(federation, "hit")
        until(federation, hit, RoundPhase.EVALUATING)
        honest = named(federation, "honest")
        federation.store.close()
        store_a_number_of_an_earlier_version(folder, hit.run_id)
        federation.restart()
        yield federation, hit, honest


def reason_of(federation: LocalFederation, run: Run) -> Parked:
    after = federation.coordinator.get_run(run.run_id)
    assert after.status is RunStatus.PAUSED
    assert isinstance(after.reason, Parked)
    return after.reason


class TestANumberOfAnEarlierVersion:
    def test_the_honest_reporter_is_thanked_and_the_culprit_named(
        self, wedged: tuple[LocalFederation, Run, Run]
    ) -> None:
        federation, hit, _honest = wedged
        for _ in range(4):
            federation.step()
        reason = reason_of(federation, hit)
        assert reason.clients == ("bob",)
        assert "'ce' is 1.7e+308" in reason.detail
        (event,) = federation.events(hit.run_id, "run_parked")
        assert event.data["clients"] == ["bob"]
        assert {e.client_id for e in federation.events(hit.run_id, "evaluation_reported")} == set(CLIENTS)

    def test_quarantine_and_resume_end_it(self, wedged: tuple[LocalFederation, Run, Run]) -> None:
        federation, hit, _honest = wedged
        federation.run_to_end(hit.run_id)
        federation.coordinator.steer(hit.run_id, QuarantineClient("bob"))
        assert federation.coordinator.get_run(hit.run_id).status is RunStatus.PAUSED
        federation.restart()
        assert reason_of(federation, hit).clients == ("bob",), "the quarantine alone resumes nothing"
        federation.coordinator.steer(hit.run_id, ResumeRun())
        after = federation.run_to_end(hit.run_id)
        assert after.status is RunStatus.COMPLETED
        line = json.loads(federation.metrics_lines(hit.run_id)[0])
        assert line["loss"] == {"ce": 1.0}
        removed = federation.events(hit.run_id, "update_removed", "report_removed")
        assert [(event.type, event.client_id) for event in removed] == [
            ("update_removed", "bob"),
            ("report_removed", "bob"),
        ]

    def test_a_run_that_had_all_its_reports_is_parked_at_recovery(self, folder: Path) -> None:
        """An aggregator died in the step that failed: every report is stored, and nothing after it."""
        with LocalFederation(folder, map(NumpyClient, CLIENTS)) as federation:
            federation.join()
            hit = named(federation, "hit")
            until(federation, hit, RoundPhase.EVALUATING)
            report(federation, federation.clients["ann"])
            federation.store.close()
            store = SqlStore.in_folder(folder)
            current = present(store.find_round(hit.run_id, 1))
            with store.transaction() as transaction:
                transaction.add_evaluation(hit.run_id, 1, replace(current.evaluations["ann"], client_id="bob"))
            store.close()
            store_a_number_of_an_earlier_version(folder, hit.run_id)
            federation.restart()
            assert reason_of(federation, hit).clients == ("bob",)
            goes_on(federation, named(federation, "honest"))

    def test_resume_alone_parks_it_again(self, wedged: tuple[LocalFederation, Run, Run]) -> None:
        federation, hit, _honest = wedged
        federation.run_to_end(hit.run_id)
        federation.coordinator.steer(hit.run_id, ResumeRun())
        assert reason_of(federation, hit).clients == ("bob",)
        assert len(federation.events(hit.run_id, "run_parked")) == 2

    def test_stop_ends_it(self, wedged: tuple[LocalFederation, Run, Run]) -> None:
        federation, hit, _honest = wedged
        federation.run_to_end(hit.run_id)
        federation.coordinator.steer(hit.run_id, StopRun())
        assert federation.run_to_end(hit.run_id).status is RunStatus.STOPPED


def report(federation: LocalFederation, client: NumpyClient) -> None:
    task = federation.task(client)
    assert task.kind is TaskKind.EVALUATE
    model = present(federation.fetch(client, task))
    assert task.run is not None
    made = client.evaluation(task, model)
    federation.coordinator.report_evaluation(client.client_id, client.token, task.run.run_id, task.round, made)


class TestTheDoor:
    @pytest.mark.parametrize("where", ["losses", "timings", "scalars"])
    @pytest.mark.parametrize("value", [OVERFLOWS, -OVERFLOWS, 3.5e38])
    def test_a_number_that_may_overflow_is_refused_by_name(
        self, federation: LocalFederation, where: str, value: float
    ) -> None:
        run = named(federation, "run")
        federation.step(["ann"])
        ann = federation.clients["ann"]
        task, update, blobs = federation.work(ann)
        wrong = {
            "losses": replace(update, losses={"ce": value}),
            "timings": replace(update, timings={"ce": value}),
            "scalars": replace(update, payload=replace(update.payload, scalars={"ce": value})),
        }
        with pytest.raises(MalformedUpdate) as refusal:
            federation.submit(ann, task, wrong[where], blobs)
        assert refusal.value.metadata["check"] == "bound"
        refused = federation.coordinator.get_run(run.run_id).rejections
        assert refused["ann"].check == "bound"
        goes_on(federation, run)

    def test_a_report_with_a_number_that_may_overflow_is_refused_by_name(self, federation: LocalFederation) -> None:
        run = named(federation, "run")
        until(federation, run, RoundPhase.EVALUATING)
        ann = federation.clients["ann"]
        task = federation.task(ann)
        model = present(federation.fetch(ann, task))
        wrong = replace(ann.evaluation(task, model), timings={"evaluate": OVERFLOWS})
        with pytest.raises(MalformedUpdate) as refusal:
            federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 1, wrong)
        assert refusal.value.metadata["check"] == "bound"
        goes_on(federation, run)

    def test_a_feature_size_beyond_reason_is_refused_by_name(self, federation: LocalFederation) -> None:
        run = named(federation, "run")
        ann = federation.clients["ann"]
        task = federation.task(ann)
        update, blobs = ann.work(task, None)
        wrong = replace(update, payload=replace(update.payload, int_lists={"feature_dim": (2**62,)}))
        with pytest.raises(MalformedUpdate) as refusal:
            federation.submit(ann, task, wrong, blobs)
        assert refusal.value.metadata["check"] == "bound"
        goes_on(federation, run)


def fails_for(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, hit: str) -> None:
    """Let a function raise for one run, as a bug does."""
    real = getattr(owner, name)

    def raising(*arguments: object, **keywords: object) -> object:
        if any(getattr(argument, "run_id", argument) == hit for argument in arguments):
            raise ZeroDivisionError("a bug")
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, raising)


class TestABug:
    """No client is the cause; the others' runs go on all the same."""

    @pytest.mark.parametrize(
        ("module", "function"),
        [
            ("fedplcc.aggregator.ledger.ledger", "is_looked_at"),
            ("fedplcc.aggregator.ledger.consequences", "settled"),
            ("fedplcc.aggregator.rounds.tasks", "_start"),
        ],
    )
    def test_an_error_in_one_run_parks_it_and_the_other_ends_in_its_bytes(
        self, federation: LocalFederation, monkeypatch: pytest.MonkeyPatch, module: str, function: str
    ) -> None:
        hit, honest = named(federation, "hit"), named(federation, "honest")
        federation.step(["ann"])
        with monkeypatch.context() as patch:
            fails_for(patch, importlib.import_module(module), function, hit.run_id)
            goes_on(federation, honest)
            reason = reason_of(federation, hit)
            assert reason.clients == ()
            assert "ZeroDivisionError" in reason.detail
        federation.coordinator.steer(hit.run_id, ResumeRun())
        goes_on(federation, hit)

    def test_what_follows_a_commit_never_answers_with_an_error(
        self, federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_arguments: object, **_keywords: object) -> None:
            raise ZeroDivisionError("a bug")

        federation.coordinator.subscribe(broken)
        monkeypatch.setattr(federation.metrics.rounds, "stepped", broken)
        monkeypatch.setattr("fedplcc.aggregator.ledger.ledger.log_event", broken)
        goes_on(federation, named(federation, "run"))

    def test_metrics_that_fail_stop_no_tick(self, federation: LocalFederation, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_arguments: object, **_keywords: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(federation.metrics.runs, "follow", broken)
        monkeypatch.setattr(federation.metrics.clients, "follow", broken)
        goes_on(federation, named(federation, "run"))

    def test_a_parked_run_that_waited_for_its_roster_waits_again_when_resumed(
        self, federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting = federation.coordinator.create_run("waits", a_document(clients=("ann", "bob", "cat")))
        with monkeypatch.context() as patch:
            fails_for(patch, federation.coordinator._ledger._deadlines, "stalled_s", waiting.run_id)
            federation.coordinator.tick()
        assert reason_of(federation, waiting).is_pending
        after = federation.coordinator.steer(waiting.run_id, ResumeRun())
        assert after.status is RunStatus.PENDING


def test_a_mean_of_finite_numbers_is_finite() -> None:
    updates = [an_update(name, num_examples=2, losses={"ce": OVERFLOWS}) for name in CLIENTS]
    assert results.mean_losses(updates) == {"ce": OVERFLOWS}
