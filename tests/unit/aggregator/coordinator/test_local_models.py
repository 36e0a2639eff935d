"""Rounds whose clients have models of their own: beside the global one, or, where no model is shared, in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.doctor.aggregator_state import examine_state
from fedplcc.doctor.findings import Status, Subject
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig, MalformedUpdate
from fedplcc.shared.tensors import blob_ref, prototypes_to_bytes, to_bytes
from fedplcc.shared.types import (
    MODEL,
    BlobRef,
    EvaluationCounts,
    Payload,
    PrototypeSet,
    RoundPhase,
    Run,
    RunStatus,
    TaskKind,
    Update,
)
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.oracles.federation_result import expected

OWN = {"share_model": False}
"""FedProto as published: models stay with their clients."""
SETTINGS = [("fedccl", {}), ("fedproto", OWN), ("fedproto", {})]
BOB = NumpyClient("bob", counts=(2, 0, 7))
JOINED = (NumpyClient("ann"), BOB)


def created(federation: LocalFederation, method: str, hyper: dict[str, Any], rounds: int = 2) -> Run:
    document = {**a_document(method, run={"rounds": rounds}), "method": hyper}
    return federation.coordinator.create_run(f"request {len(federation.coordinator.list_runs(limit=100))}", document)


def begun(federation: LocalFederation, method: str, hyper: dict[str, Any], phase: RoundPhase) -> Run:
    """A run whose first round waits for bob in this phase."""
    run = created(federation, method, hyper)
    federation.step(["ann"])
    federation.step(["ann"])
    if phase is RoundPhase.EVALUATING:
        federation.step(["bob"])
        federation.step(["ann"])
    run = federation.coordinator.get_run(run.run_id)
    assert run.current_round is not None
    assert (run.current_round.number, run.current_round.phase) == (1, phase)
    return run


def lines_of(federation: LocalFederation, run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in federation.metrics_lines(run.run_id)]


def accuracy_in(federation: LocalFederation, run: Run, number: int, model: str) -> dict[str, float]:
    """Of each domain, from the reports."""
    return {
        report.domain: sum(counts.correct) / sum(counts.total)
        for _, report in federation.coordinator.list_evaluations(run.run_id, number)
        for counts in report.counts
        if counts.model == model
    }


@pytest.mark.parametrize(("method", "hyper"), SETTINGS)
def test_a_run_ends_in_what_numpy_says_whenever_the_aggregator_is_killed(
    federation: LocalFederation, method: str, hyper: dict[str, Any]
) -> None:
    run = created(federation, method, hyper, 3)
    while federation.step(["bob", "ann"]):
        federation.restart()
    run = federation.coordinator.get_run(run.run_id)
    right = expected(parse_run_config(json.loads(run.config_json)), list(federation.clients.values()))
    found = federation.coordinator.list_rounds(run.run_id)
    assert run.status is RunStatus.COMPLETED
    assert [current.model.sha256 for current in found if current.model] == list(right.models)
    assert [current.prototypes.sha256 for current in found if current.prototypes] == list(right.prototypes)
    assert (len(set(right.models)) == 1) is (hyper == OWN), "the first model stays the model where none is sent"


def test_the_accuracy_of_local_models_stands_beside_that_of_the_global_one(federation: LocalFederation) -> None:
    run = federation.run_to_end(created(federation, "fedccl", {}).run_id)
    for line in lines_of(federation, run):
        assert "accuracy_of" not in line
        for key, model in (("accuracy", "global"), ("accuracy_local", "local")):
            of_domains = accuracy_in(federation, run, line["round"], model)
            mean, worst = sum(of_domains.values()) / 2, min(of_domains.values())
            assert line[key] == {**of_domains, "mean": pytest.approx(mean), "worst": worst}
        assert line["accuracy"] != line["accuracy_local"]


def test_what_joining_is_worth_stands_beside_the_accuracies_where_clients_report_on_their_images_alone(
    federation: LocalFederation,
) -> None:
    run = federation.run_to_end(created(federation, "classsums", {}).run_id)
    for line in lines_of(federation, run):
        own, alone = (accuracy_in(federation, run, line["round"], model) for model in ("local", "alone"))
        assert {name: line["accuracy_alone"][name] for name in alone} == alone
        gains = {name.removesuffix("-domain"): own[name] - alone[name] for name in own}
        assert line["joining"] == pytest.approx(gains)
        assert any(gains.values())


def test_with_statistics_of_the_site_every_method_has_local_models_and_trains_as_without(
    federation: LocalFederation,
) -> None:
    document = a_document("fedavg", run={"rounds": 2})
    run = federation.coordinator.create_run("site", {**document, "evaluation": {"batch_norm": "site"}})
    lines = lines_of(federation, federation.run_to_end(run.run_id))
    for line in lines:
        of_domains = accuracy_in(federation, run, line["round"], "local")
        assert {name: line["accuracy_local"][name] for name in of_domains} == of_domains
        assert line["accuracy"] != line.pop("accuracy_local")
    assert lines == lines_of(federation, federation.run_to_end(created(federation, "fedavg", {}).run_id))


def test_where_no_model_is_shared_the_accuracy_is_that_of_the_local_ones_and_says_so(
    federation: LocalFederation,
) -> None:
    run = federation.run_to_end(created(federation, "fedproto", OWN).run_id)
    for line in lines_of(federation, run):
        assert line["accuracy_of"] == "local"
        assert line["accuracy"] == line["accuracy_local"]
        of_domains = accuracy_in(federation, run, line["round"], "local")
        assert {name: line["accuracy"][name] for name in of_domains} == of_domains
        assert not accuracy_in(federation, run, line["round"], "global")


@pytest.mark.parametrize(
    ("method", "hyper", "count"), [("fedproto", OWN, 1), ("fedproto", {}, 0), ("fedccl", {}, 0), ("fedplcc", {}, 0)]
)
def test_prototypes_of_the_round_come_with_its_evaluation_only_where_they_name_classes(
    federation: LocalFederation, method: str, hyper: dict[str, Any], count: int
) -> None:
    run = begun(federation, method, hyper, RoundPhase.EVALUATING)
    task = federation.task(BOB)
    assert task.kind is TaskKind.EVALUATE
    assert run.current_round is not None
    assert task.payload.prototype_sets == (run.current_round.prototypes,) * count
    assert run.current_round.prototypes != run.prototypes, "not those that it trained with"
    assert task.payload.tensor_groups == (run.current_round.model,)


def test_a_round_without_models_moves_few_bytes_is_computed_again_and_is_found_whole(
    federation: LocalFederation, folder: Path
) -> None:
    run = federation.run_to_end(created(federation, "fedproto", OWN, 4).run_id)
    federation.coordinator.garbage_collection.collect()
    for current in federation.coordinator.list_rounds(run.run_id, after=0):
        whole = federation.whole_round(run.run_id, current.number)
        sizes = [blob.size_bytes for update in whole.updates.values() for blob in update.payload.prototype_sets]
        assert json.loads(current.timings_json)["bytes_received"] == sum(sizes) > 0
    again = replay(folder, run.run_id, 4)
    assert (again.is_equal, again.computed["model"]) == (True, run.model)
    findings = list(examine_state(Subject(state=folder)))
    assert [finding.sentence for finding in findings if finding.status is not Status.OK] == []


def test_a_limit_on_models_that_nobody_sends_is_refused() -> None:
    document = a_document("fedproto", admission={"max_update_norm": 5.0})
    with pytest.raises(InvalidConfig, match="max_update_norm limits the models that clients send, and in this run"):
        parse_run_config({**document, "method": OWN})
    assert parse_run_config(document).admission.max_update_norm == 5.0


# -- What a bad client may try -----------------------------------------------------------------------------------------

Poison = Callable[[Update, dict[BlobRef, bytes]], tuple[Update, dict[BlobRef, bytes]]]


def with_a_model(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    data = to_bytes(BOB.first_model())
    group = blob_ref(MODEL, data)
    return replace(update, payload=replace(update.payload, tensor_groups=(group,))), {**blobs, group: data}


def without_a_model(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    kept = {blob: data for blob, data in blobs.items() if blob.role != MODEL}
    return replace(update, payload=replace(update.payload, tensor_groups=())), kept


def without_prototypes(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    kept = {blob: data for blob, data in blobs.items() if blob.role == MODEL}
    return replace(update, payload=replace(update.payload, prototype_sets=())), kept


def with_nothing(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    return replace(update, payload=Payload()), {}


def with_prototypes_of_another_size(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    data = prototypes_to_bytes(PrototypeSet.of([(1.0, 2.0)] * 2, [0, 2], [2, 7]))
    summary = blob_ref(update.payload.prototype_sets[0].role, data)
    return replace(update, payload=replace(update.payload, prototype_sets=(summary,))), {summary: data}


def with_many_voices(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    """Counts add up; but in a plain mean over clients each row would weigh as much as another client's only one."""
    data = prototypes_to_bytes(PrototypeSet.of([(9.0,) * 6] * 8, [0] + [2] * 7, [2] + [1] * 7))
    summary = blob_ref(update.payload.prototype_sets[0].role, data)
    kept = {blob: data for blob, data in blobs.items() if blob.role == MODEL}
    return replace(update, payload=replace(update.payload, prototype_sets=(summary,))), {**kept, summary: data}


BAD_UPDATES: dict[str, tuple[dict[str, Any], Poison, str, str]] = {
    "a model where none is shared": (OWN, with_a_model, "roles", "no tensor group in this run: its clients keep"),
    "no prototypes where they are all": (OWN, with_nothing, "roles", r"needs the prototype sets \['class_mean'\]"),
    "prototypes that no model could have": (OWN, with_prototypes_of_another_size, "dim", "2 features, the model 6"),
    "a class seven times": (OWN, with_many_voices, "count", "7 means of class 2, and a client has one per class"),
    "a class seven times beside a model": ({}, with_many_voices, "count", "7 means of class 2"),
    "no model where it is shared": ({}, without_a_model, "roles", "exactly one tensor group, the model"),
    "a model alone": ({}, without_prototypes, "roles", r"needs the prototype sets \['class_mean'\]"),
}


@pytest.mark.parametrize("bad", BAD_UPDATES)
def test_a_bad_update_is_refused_with_its_reason_and_the_run_is_unharmed(federation: LocalFederation, bad: str) -> None:
    hyper, poison, check, sentence = BAD_UPDATES[bad]
    run = begun(federation, "fedproto", hyper, RoundPhase.COLLECTING)
    task = federation.task(BOB)
    update, blobs = poison(*BOB.work(task, federation.fetch(BOB, task)))
    with pytest.raises(MalformedUpdate, match=sentence) as refused:
        federation.submit(BOB, task, update, blobs)
    assert refused.value.metadata["check"] == check
    assert_ends_right(federation, run)


def counts(model: str, **changes: Any) -> EvaluationCounts:
    return EvaluationCounts(**{"set_name": "test", "model": model, "correct": (1, 2, 3), "total": (4, 5, 6), **changes})


OF_ANOTHER_TOTAL = (counts("global"), counts("local", total=(5, 5, 5)))
BAD_REPORTS: dict[str, tuple[str, dict[str, Any], tuple[EvaluationCounts, ...], str, str]] = {
    "local counts of other images": ("fedccl", {}, OF_ANOTHER_TOTAL, "counts", "other totals for the model 'local'"),
    "the local model alone": ("fedccl", {}, (counts("local"),), "models", "counts of the model 'local' alone"),
    "the local model of another set": (
        "fedccl",
        {},
        (counts("global"), counts("local", set_name="mine")),
        "models",
        "'mine' has counts of the model 'local' alone",
    ),
    "a local model where there is none": ("fedplcc", {}, (counts("global"), counts("local")), "models", "no models of"),
    "a model of its images alone where there is none": (
        "fedccl",
        {},
        (counts("global"), counts("local"), counts("alone")),
        "models",
        "no models of",
    ),
    "a local model where it is shared": ("fedproto", {}, (counts("global"), counts("local")), "models", "no models of"),
    "both where no model is shared, of other images": ("fedproto", OWN, OF_ANOTHER_TOTAL, "counts", "other totals for"),
    "more right than there are": (
        "fedproto",
        OWN,
        (counts("local", correct=(9, 0, 0)),),
        "counts",
        "more correct than",
    ),
}


@pytest.mark.parametrize("bad", BAD_REPORTS)
def test_a_bad_report_is_refused_with_its_reason_and_the_run_is_unharmed(federation: LocalFederation, bad: str) -> None:
    method, hyper, reported, check, sentence = BAD_REPORTS[bad]
    run = begun(federation, method, hyper, RoundPhase.EVALUATING)
    report = replace(BOB.evaluation(federation.task(BOB), b""), counts=reported)
    with pytest.raises(MalformedUpdate, match=sentence) as refused:
        federation.coordinator.report_evaluation("bob", BOB.token, run.run_id, 1, report)
    assert refused.value.metadata["check"] == check
    assert_ends_right(federation, run)


def test_a_client_that_has_no_model_yet_may_report_on_the_global_one_alone(federation: LocalFederation) -> None:
    """Its domain's local accuracy is unknown then, not zero."""
    for method, hyper in (("fedccl", {}), ("fedproto", OWN)):
        run = begun(federation, method, hyper, RoundPhase.EVALUATING)
        whole = BOB.evaluation(federation.task(BOB), b"")
        report = replace(whole, counts=(replace(whole.counts[0], model="global"),))
        federation.coordinator.report_evaluation("bob", BOB.token, run.run_id, 1, report)
        federation.run_to_end(run.run_id)
        first, second = lines_of(federation, run)
        local = first["accuracy_local"]
        assert local["bob-domain"] is None
        assert local["mean"] == local["worst"] == local["ann-domain"] is not None
        assert second["accuracy_local"]["bob-domain"] is not None


def assert_ends_right(federation: LocalFederation, run: Run) -> None:
    after = federation.run_to_end(run.run_id)
    right = expected(parse_run_config(json.loads(run.config_json)), list(federation.clients.values()))
    assert after.status is RunStatus.COMPLETED
    assert after.model is not None
    assert after.prototypes is not None
    assert (after.model.sha256, after.prototypes.sha256) == (right.models[-1], right.prototypes[-1])
