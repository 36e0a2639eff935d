"""A client that said that it has nothing to train on: it reports on every round, and nobody waits for an update of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.shared.errors import NotInCohort
from fedplcc.shared.types import Run, RunStatus, TaskKind
from tests.support import of_kind, present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

ZOE = NumpyClient("zoe", size=3, counts=(0, 0, 0))


def a_federation(folder: Path) -> LocalFederation:
    federation = LocalFederation.small(folder)
    federation.clients["zoe"] = ZOE
    return federation


def lines(federation: LocalFederation, run: Run) -> list[dict[str, object]]:
    return [json.loads(line) for line in federation.metrics_lines(run.run_id)]


@pytest.mark.parametrize("method", ["fedavg", "feddyn", "fedplcc"])
def test_the_model_is_that_of_the_others_and_its_domain_is_told(folder: Path, tmp_path: Path, method: str) -> None:
    with LocalFederation.small(tmp_path / "without") as without:
        without.join()
        plain = lines(without, without.run_to_end(without.create(method).run_id))
    with a_federation(folder) as federation:
        federation.join()
        run = federation.run_to_end(federation.create(method).run_id)
        assert run.status is RunStatus.COMPLETED
        for line, of_others in zip(lines(federation, run), plain, strict=True):
            assert line["model_sha256"] == of_others["model_sha256"]
            assert line["cohort"] == ["ann", "bob"]
            assert line["num_examples"] == of_others["num_examples"]
            accuracy = of_kind(dict, line["accuracy"])
            assert accuracy["zoe-domain"] is not None
        committed = {event.client_id for event in federation.events(run.run_id, "update_committed")}
        assert committed == {"ann", "bob"}
        evaluating = federation.events(run.run_id, "round_evaluating")
        assert [event.data["evaluators"] for event in evaluating] == [["zoe"], ["zoe"]]


def test_its_task_is_to_report_also_after_a_restart_and_an_update_of_it_is_refused(folder: Path) -> None:
    with a_federation(folder) as federation:
        federation.join()
        run = federation.create("fedavg")
        federation.step(["zoe"])
        assert federation.task(ZOE).kind is TaskKind.WAIT
        federation.step(["ann"])  # the first model
        federation.restart()
        task = federation.task(federation.clients["bob"])
        assert (task.kind, task.round) == (TaskKind.TRAIN, 1)
        model = present(federation.fetch(federation.clients["bob"], task))
        update, blobs = federation.clients["bob"].work(task, model)
        with pytest.raises(NotInCohort, match="client zoe said that it evaluates only"):
            federation.submit(ZOE, task, replace(update, client_id="zoe"), blobs)
        federation.step(["ann", "bob"])
        assert federation.task(ZOE).kind is TaskKind.EVALUATE
        federation.step(["ann", "bob"])
        assert federation.coordinator.get_run(run.run_id).round_number == 1  # its report is waited for
        federation.step(["zoe"])
        assert federation.coordinator.get_run(run.run_id).round_number == 2


def test_a_run_that_waits_for_clients_counts_those_that_train(folder: Path) -> None:
    document = a_document("fedavg", run={"min_clients": 2, "rounds": 1})
    del document["run"]["clients"]
    with a_federation(folder) as federation:
        for name in ("ann", "zoe"):
            federation.coordinator.join(federation.clients[name].record, federation.clients[name].token)
        run = federation.coordinator.create_run("the run", document)
        assert run.status is RunStatus.PENDING
        federation.join()
        ended = federation.run_to_end(run.run_id)
        assert (ended.status, ended.roster) == (RunStatus.COMPLETED, ("ann", "bob", "zoe"))
