"""An update counts once: a duplicate is answered as the first time, and what does not belong is refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.incoming.transfers import Receiver
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.store.database import rows
from fedplcc.shared import errors
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.steering import QuarantineClient, StopRun, Verb
from fedplcc.shared.types import BlobRef, EvaluationCounts, Run, RunStatus, TaskKind
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.oracles.federation_result import expected
from tests.support.records.builders import a_blob, an_evaluation, an_update

NAMES = ("ann", "bob")
LIMITS = Limits(max_chunk_bytes=200, max_blob_bytes=5000)


@pytest.fixture
def bob(federation: LocalFederation) -> NumpyClient:
    return federation.clients["bob"]


def assert_undisturbed(federation: LocalFederation, run: Run) -> None:
    """The run goes on to the end it would have had."""
    after = federation.run_to_end(run.run_id)
    right = expected(parse_run_config(a_document("fedplcc")), [NumpyClient(name) for name in NAMES])
    assert after.status is RunStatus.COMPLETED
    assert after.model is not None
    assert after.prototypes is not None
    assert (after.model.sha256, after.prototypes.sha256) == (right.models[-1], right.prototypes[-1])


def refused(federation: LocalFederation, run: Run) -> list[tuple[int, str, str]]:
    events = federation.events(run.run_id, "update_refused")
    return [(event.round, event.client_id, event.data["reason"]) for event in events]


# Once and again


@pytest.mark.parametrize(
    ("verb", "gone", "refusal"),
    [
        (StopRun(), errors.PayloadCorrupt("the models of the run are collected"), errors.RunEnded),
        (QuarantineClient("ann"), FileNotFoundError("its uploads are dropped"), errors.ClientQuarantined),
        (QuarantineClient("bob"), FileNotFoundError("its uploads gave way on a full disk"), errors.BlobNotFound),
    ],
)
def test_what_goes_while_an_update_is_checked_is_no_damage_and_no_crash(
    federation: LocalFederation,
    monkeypatch: pytest.MonkeyPatch,
    verb: Verb,
    gone: Exception,
    refusal: type[errors.FedplccError],
) -> None:
    run, ann = federation.create(), federation.clients["ann"]
    task, update, blobs = federation.work(ann)
    commits = federation.coordinator._commits

    def checked(*_facts: object) -> None:
        federation.coordinator.steer(run.run_id, verb)
        raise gone

    monkeypatch.setattr(commits, "_checked", checked)
    with pytest.raises(refusal):
        federation.submit(ann, task, update, blobs)


@pytest.mark.parametrize("rounds_later", [0, 1, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_duplicate_is_answered_however_late_it_comes(
    federation: LocalFederation, run: Run, ann: NumpyClient, rounds_later: int, restarts: bool
) -> None:
    task, update, blobs = federation.work(ann)
    first = federation.submit(ann, task, update, blobs)
    if rounds_later == 1:
        federation.step(["bob", "ann"])
        federation.step(["bob", "ann"])
        assert federation.coordinator.get_run(run.run_id).round_number == 2
    elif rounds_later == 2:
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
    if restarts:
        federation.restart()
    before = federation.coordinator.get_run(run.run_id)
    assert federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update) == first
    assert federation.coordinator.get_run(run.run_id) == before
    assert refused(federation, run) == []
    assert_undisturbed(federation, run)


def test_a_different_update_of_the_same_client_is_a_conflict(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    federation.submit(ann, task, update, blobs)
    for other in (replace(update, losses={"ce": 7.0}), replace(update, num_examples=11, class_counts=(4, 3, 4))):
        with pytest.raises(errors.UpdateConflict):
            federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, other)
    assert federation.metric("client_updates_total", outcome="update_conflict") == 2
    assert federation.metric("run_updates_refused_total", run=run.run_id) == 2
    assert refused(federation, run) == [(1, "ann", "UPDATE_CONFLICT")], "named once"
    assert_undisturbed(federation, run)


def test_a_report_counts_once_and_its_repetition_is_answered_however_late(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    federation.step(["ann", "bob"])
    task = federation.task(ann)
    model = present(federation.fetch(ann, task))
    report = ann.evaluation(task, model)
    nothing = replace(report, counts=tuple(replace(counts, correct=(0, 0, 0)) for counts in report.counts))
    for said in (report, report, nothing):
        federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 1, said)
    assert federation.metric("client_reports_total", outcome="accepted") == 1
    assert federation.metric("client_reports_total", outcome="duplicate") == 2
    assert federation.coordinator.list_evaluations(run.run_id, 1) == [(1, report)]
    federation.run_to_end(run.run_id)
    federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 1, nothing)
    assert federation.coordinator.list_evaluations(run.run_id, 1)[0] == (1, report)
    assert_undisturbed(federation, run)


def test_the_totals_of_a_run_are_those_of_the_first_report(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    federation.step(["ann", "bob"])  # trains
    federation.step(["ann", "bob"])  # reports
    (_, first), *_ = federation.coordinator.list_evaluations(run.run_id, 1)
    federation.step(["ann", "bob"])
    assert federation.task(ann).kind is TaskKind.EVALUATE
    liars = tuple(replace(each, correct=(1 << 27,) * 3, total=(1 << 27,) * 3, confusion=()) for each in first.counts)
    with pytest.raises(errors.MalformedUpdate, match="first report") as refused:
        federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 2, replace(first, counts=liars))
    assert refused.value.metadata["check"] == "totals"
    late = replace(first, counts=(*first.counts, replace(liars[0], set_name="validation")))
    with pytest.raises(errors.MalformedUpdate, match="has at most 100000"):  # a set that the first report had not
        federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 2, late)
    assert not federation.coordinator.list_evaluations(run.run_id, 2)
    federation.run_to_end(run.run_id)
    assert_undisturbed(federation, run)


def test_the_domain_of_a_report_is_the_one_the_client_joined_with(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    federation.step(["ann", "bob"])
    task = federation.task(ann)
    model = present(federation.fetch(ann, task))
    report = replace(ann.evaluation(task, model), domain="bob-domain")
    federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 1, report)
    assert federation.coordinator.list_evaluations(run.run_id, 1)[0][1].domain == "ann-domain"


# What does not belong


@pytest.mark.parametrize(
    ("number", "reason"), [(0, "STALE_ROUND"), (2, "FUTURE_ROUND"), (99, "FUTURE_ROUND"), (-1, "STALE_ROUND")]
)
def test_an_update_for_another_round_is_refused(
    federation: LocalFederation, run: Run, ann: NumpyClient, number: int, reason: str
) -> None:
    task, update, blobs = federation.work(ann)
    federation.upload(ann, task, blobs)
    with pytest.raises(errors.RoundClosed):
        federation.coordinator.commit_update("ann", ann.token, run.run_id, number, update)
    assert refused(federation, run) == [(number, "ann", reason)]
    assert_undisturbed(federation, run)


def test_an_update_of_the_round_before_is_stale(federation: LocalFederation, run: Run, ann: NumpyClient) -> None:
    task, update, blobs = federation.work(ann)
    federation.submit(ann, task, update, blobs)
    federation.step(["bob", "ann"])
    federation.step(["bob", "ann"])
    late = replace(update, losses={"ce": 7.0})
    with pytest.raises(errors.StaleRound, match="the latest round is 2"):
        federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, late)
    with pytest.raises(errors.StaleRound):
        federation.upload(ann, task, {a_blob("late"): b"late"})
    assert federation.metric("client_updates_total", outcome="stale_round") == 2
    assert federation.metric("run_updates_refused_total", run=run.run_id) == 0, "when it came is not what it is"
    assert refused(federation, run) == [(1, "ann", "STALE_ROUND")]
    assert_undisturbed(federation, run)


def test_an_update_of_a_client_that_was_not_asked_is_refused(
    federation: LocalFederation, run: Run, bob: NumpyClient
) -> None:
    eve = NumpyClient("eve")
    federation.coordinator.join(eve.record, eve.token)
    task, _update, _blobs = federation.work(bob)
    update, blobs = eve.work(task, federation.fetch(bob, task))
    with pytest.raises(errors.NotInCohort):
        federation.upload(eve, task, blobs)
    with pytest.raises(errors.NotInCohort):
        federation.coordinator.commit_update("eve", eve.token, run.run_id, 1, update)
    assert federation.metric("client_updates_total", outcome="not_in_cohort") == 2
    assert refused(federation, run) == [(1, "eve", "NOT_IN_COHORT")]
    assert not (federation.folder / "incoming" / "eve").exists()
    assert_undisturbed(federation, run)


def test_who_only_claims_to_be_a_client_is_counted_and_says_nothing_in_its_history(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, _blobs = federation.work(ann)
    for token, reason in (("another instance of ann 0123456789", "client_id_taken"), ("", "unauthenticated")):
        with pytest.raises((errors.ClientIdTaken, errors.Unauthenticated)):
            federation.coordinator.commit_update("ann", token, run.run_id, task.round, update)
        with pytest.raises((errors.ClientIdTaken, errors.Unauthenticated)):
            federation.coordinator.report_evaluation("ann", token, run.run_id, 1, an_evaluation("ann"))
        assert federation.metric("client_updates_total", outcome=reason) == 1
        assert federation.metric("client_reports_total", outcome=reason) == 1
    assert refused(federation, run) == []
    assert_undisturbed(federation, run)


def test_a_report_that_does_not_belong_is_refused_counted_and_named(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    eve = NumpyClient("eve")
    federation.coordinator.join(eve.record, eve.token)

    def report(client: NumpyClient, number: int, reason: str) -> None:
        before = federation.metric("client_reports_total", outcome=reason.lower())
        with pytest.raises(errors.FedplccError) as caught:
            federation.coordinator.report_evaluation(
                client.client_id, client.token, run.run_id, number, an_evaluation(client.client_id)
            )
        assert caught.value.reason == reason
        assert federation.metric("client_reports_total", outcome=reason.lower()) == (before or 0) + 1

    report(ann, 1, "EARLY_REPORT")
    report(ann, 1, "EARLY_REPORT")
    report(ann, 0, "STALE_ROUND")
    report(ann, 7, "FUTURE_ROUND")
    report(eve, 1, "NOT_IN_COHORT")
    federation.step()  # now reports are asked for
    wrong = replace(an_evaluation("ann"), counts=(EvaluationCounts("test", "global", (9,), (1,)),))
    with pytest.raises(errors.MalformedUpdate):
        federation.coordinator.report_evaluation("ann", ann.token, run.run_id, 1, wrong)
    assert federation.metric("client_reports_total", outcome="malformed_update") == 1
    named = [(event.client_id, event.data["reason"]) for event in federation.events(run.run_id, "report_refused")]
    assert named[:3] == [("ann", "EARLY_REPORT"), ("ann", "STALE_ROUND"), ("ann", "FUTURE_ROUND")], "each once"
    assert named[3:] == [("eve", "NOT_IN_COHORT"), ("ann", "MALFORMED_UPDATE")]
    assert_undisturbed(federation, run)
    assert federation.metric("client_reports_total", outcome="accepted") == 4


def test_what_a_client_makes_up_about_rounds_does_not_fill_the_history(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    _task, update, _blobs = federation.work(ann)
    for number in range(2, 50):
        with pytest.raises(errors.RoundClosed):
            federation.coordinator.commit_update("ann", ann.token, run.run_id, number, update)
    assert len(refused(federation, run)) == 1
    assert federation.metric("client_updates_total", outcome="future_round") == 48


# Blobs


def test_an_update_whose_blobs_were_not_uploaded_is_refused(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    model, prototypes = blobs
    with pytest.raises(errors.BlobNotFound) as caught:
        federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update)
    assert caught.value.metadata == {"sha256": model.sha256}
    federation.upload(ann, task, {model: blobs[model]})
    with pytest.raises(errors.BlobNotFound) as caught:
        federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update)
    assert caught.value.metadata == {"sha256": prototypes.sha256}
    assert federation.metric("client_updates_total", outcome="blob_not_found") == 2
    assert_undisturbed(federation, run)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_client_can_neither_claim_nor_probe_for_nor_fetch_anothers_blobs(
    federation: LocalFederation, run: Run, ann: NumpyClient, bob: NumpyClient, is_committed: bool
) -> None:
    task, update, blobs = federation.work(ann)
    federation.upload(ann, task, blobs)
    if is_committed:
        federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update)
    federation.task(bob)
    transfers = federation.coordinator.transfers
    for blob in blobs:
        assert transfers.upload_status("bob", bob.token, run.run_id, 1, blob) == (0, False)
        with pytest.raises(errors.BlobNotFound):
            transfers.open_download("bob", bob.token, blob.sha256)
        with pytest.raises(errors.BlobNotFound):
            transfers.open_download("ann", ann.token, blob.sha256)
    with pytest.raises(errors.BlobNotFound):
        federation.coordinator.commit_update("bob", bob.token, run.run_id, 1, replace(update, client_id="bob"))
    assert_undisturbed(federation, run)


def test_only_the_present_tasks_blobs_can_be_fetched(federation: LocalFederation, run: Run, ann: NumpyClient) -> None:
    task, update, blobs = federation.work(ann)
    transfers = federation.coordinator.transfers
    model, prototypes = task.payload.blobs
    for blob, kind in ((model, "model"), (prototypes, "prototypes")):
        assert transfers.open_download("ann", ann.token, blob.sha256)[:2] == (blob, kind)
    with pytest.raises(errors.BlobNotFound):
        transfers.open_download("ann", ann.token, "0" * 64)
    federation.submit(ann, task, update, blobs)
    assert federation.task(ann).kind is TaskKind.WAIT
    with pytest.raises(errors.BlobNotFound):
        transfers.open_download("ann", ann.token, model.sha256)


def test_a_blob_that_the_client_committed_before_is_not_sent_again(
    federation: LocalFederation, run: Run, ann: NumpyClient, bob: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    federation.submit(ann, task, update, blobs)
    federation.step(["bob", "ann"])
    federation.step(["bob", "ann"])
    task = federation.task(ann)
    assert task.round == 2
    transfers = federation.coordinator.transfers
    for blob in blobs:
        assert transfers.upload_status("ann", ann.token, run.run_id, 2, blob) == (blob.size_bytes, True)
        assert transfers.begin_upload("ann", ann.token, run.run_id, 2, blob) is None
        bigger = replace(blob, size_bytes=blob.size_bytes + 1)
        assert transfers.upload_status("ann", ann.token, run.run_id, 2, bigger) == (0, False)
        assert transfers.upload_status("bob", bob.token, run.run_id, 2, blob) == (0, False)
    federation.coordinator.commit_update("ann", ann.token, run.run_id, 2, update)
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_two_streams_of_one_upload_race_and_the_sender_is_not_blamed(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    """As over a link that doubles what passes: each stream is ended by the other one, or sends what has arrived."""
    task, update, blobs = federation.work(ann)
    (model, data), *_rest = blobs.items()
    transfers = federation.coordinator.transfers

    def begun() -> Receiver:
        receiver = present(transfers.begin_upload("ann", ann.token, run.run_id, 1, model))
        return receiver

    first = begun()
    first.write(0, data[:100])
    second = begun()
    with pytest.raises(errors.UploadSuperseded, match="begin it again"):
        first.write(100, data[100:200])
    with pytest.raises(errors.ChunkOutOfOrder):
        second.write(0, data[:100])
    third = begun()
    third.write(100, data[100:150])
    with pytest.raises(errors.BlobIncomplete, match="ended at byte 150"):
        third.finish()
    with pytest.raises(errors.UploadSuperseded):
        second.finish()
    for receiver in (first, second, third):
        receiver.close()
    federation.upload(ann, task, blobs)  # what the client's next attempt does
    federation.submit(ann, task, update, blobs)
    assert refused(federation, run) == []
    counted = federation.registry.collect()
    outcomes = {
        sample.labels["outcome"]: sample.value
        for family in counted
        for sample in family.samples
        if sample.name == "fedplcc_client_updates_total"
    }
    assert {name for name, value in outcomes.items() if value} == {"accepted"}
    assert_undisturbed(federation, run)


def test_a_stream_whose_upload_was_committed_and_forgotten_meanwhile_is_told_so(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    (model, data), *_rest = blobs.items()
    transfers = federation.coordinator.transfers
    stream = present(transfers.begin_upload("ann", ann.token, run.run_id, 1, model))
    for begin in range(0, len(data), 200):
        stream.write(begin, data[begin : begin + 200])
    federation.coordinator._blobs.uploads.forget("ann")
    with pytest.raises(errors.UploadSuperseded):
        stream.finish()
    stream.close()
    assert federation.coordinator._ledger.write_trouble.reason() is None, "the disk is well"
    federation.submit(ann, task, update, blobs)
    assert refused(federation, run) == []
    assert_undisturbed(federation, run)


def test_an_upload_that_is_open_at_its_client_s_commit_ends_there_and_holds_no_room(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    model = next(iter(blobs))
    other = BlobRef(model.role, a_blob("another model").sha256, model.size_bytes)
    stream = present(federation.coordinator.transfers.begin_upload("ann", ann.token, run.run_id, 1, other))
    stream.write(0, bytes(200))
    federation.submit(ann, task, update, blobs)
    assert not removed_files_still_open(federation)
    with pytest.raises(errors.UploadSuperseded):
        stream.write(200, b"x")
    stream.close()
    assert refused(federation, run) == []
    assert_undisturbed(federation, run)


def removed_files_still_open(federation: LocalFederation) -> list[str]:
    """Files of uploads that have no name and take room all the same."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    uploads = str(federation.folder / "incoming")
    return [path for path in found if path.startswith(uploads) and path.endswith(" (deleted)")]


def test_bad_chunks_are_refused_by_name_and_the_upload_goes_on(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    _task, _update, blobs = federation.work(ann)
    (model, data), *_rest = blobs.items()
    transfers = federation.coordinator.transfers
    receiver = present(transfers.begin_upload("ann", ann.token, run.run_id, 1, model))
    with pytest.raises(errors.ChunkTooLarge, match="at most 200 bytes, this one 201"):
        receiver.write(0, data[:201])
    with pytest.raises(errors.ChunkOutOfOrder):
        receiver.write(1, data[1:100])
    receiver.write(0, data[:200])
    with pytest.raises(errors.BlobCorrupt):
        receiver.finish()
    newer = present(transfers.begin_upload("ann", ann.token, run.run_id, 1, model))
    with pytest.raises(errors.UploadSuperseded):
        receiver.write(200, data[200:300])
    receiver.close()
    newer.close()
    too_large = BlobRef("model", "0" * 64, 5001)
    with pytest.raises(errors.BlobTooLarge, match="at most 5000 bytes, this one 5001"):
        transfers.begin_upload("ann", ann.token, run.run_id, 1, too_large)
    for outcome in ("chunk_too_large", "blob_too_large"):
        assert federation.metric("client_updates_total", outcome=outcome) == 1, outcome
    assert [reason for _, _, reason in refused(federation, run)] == ["CHUNK_TOO_LARGE", "BLOB_TOO_LARGE"]
    assert_undisturbed(federation, run)


@pytest.mark.parametrize("number", [1, 2], ids=["an earlier round", "the last round"])
def test_a_call_about_rounds_that_are_over_reads_no_other_clients_rows(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It costs the same however many clients there were, so that repeated calls keep nobody waiting."""
    run = federation.run_to_end(federation.create("fedplcc", run={"rounds": 2}).run_id)
    other = federation.run_to_end(federation.create("fedavg", run={"rounds": 2, "clients": ["bob"]}).run_id)
    read: list[str] = []

    def seen(kind: str) -> Callable[[Any], Any]:
        read_row = getattr(rows, kind)

        def read_and_note(row: Any) -> Any:
            read.append(row.client_id)
            return read_row(row)

        return read_and_note

    for kind in ("update_of", "evaluation_of"):
        monkeypatch.setattr(rows, kind, seen(kind))
    token = federation.clients["ann"].token
    report = an_evaluation("ann")
    federation.coordinator.report_evaluation(
        "ann", token, run.run_id, number, report
    )  # as before, so it is a repetition
    assert set(read) == {"ann"}
    read.clear()
    with pytest.raises(errors.RunEnded):
        federation.coordinator.report_evaluation("ann", token, other.run_id, number, report)
    with pytest.raises(errors.RunEnded):
        federation.coordinator.commit_update("ann", token, other.run_id, number, an_update("ann"))
    with pytest.raises(errors.RunEnded):
        federation.coordinator.transfers.upload_status("ann", token, other.run_id, number, a_blob())
    assert not read
