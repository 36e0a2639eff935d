"""One member's huge update: refused where float32 cannot compute with it, else named in history and warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.rounds.far_updates import FAR, MAX_NAMED, far_updates, newly_far, warning_of
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import UpdateNormExceeded
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.types import ClientProblem, Event, RoundPhase, RunStatus, Task, TaskKind
from tests.support import of_kind, present
from tests.support.federation import numpy_client
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_config, a_document
from tests.support.records.builders import a_round, a_run, an_update

HONEST = ("ann", "bob", "cid")
LIAR = "eve"
DIVERGED = ClientProblem(reason="TRAINING_DIVERGED", detail="the loss 'ce' of step 1 is nan", is_fatal=True)


class Liar(NumpyClient):
    """Sends models that are its honest ones with every weight moved by a number."""

    moved_by = 0.0

    def trained(self, task: Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        honest = super().trained(task, model)
        by = np.float32(self.moved_by)
        return {name: value + by if value.dtype == np.float32 else value for name, value in honest.items()}

    def first_model(self, seed: int = 0) -> dict[str, np.ndarray]:
        by = np.float32(self.moved_by)
        made = super().first_model(seed)
        return {name: value + by if value.dtype == np.float32 else value for name, value in made.items()}


JOINED = (*map(NumpyClient, HONEST), Liar(LIAR))


def create(federation: LocalFederation, rounds: int = 3) -> str:
    clients = [*HONEST, LIAR]
    run = federation.create("fedavg", run={"rounds": rounds, "clients": clients})
    federation.step(["ann"])
    return run.run_id


def lie(federation: LocalFederation, moved_by: float) -> None:
    liar = of_kind(Liar, federation.clients[LIAR])
    liar.moved_by = moved_by


def far_events(federation: LocalFederation, run_id: str) -> list[Event]:
    return federation.events(run_id, "update_far")


def warnings(federation: LocalFederation, run_id: str) -> dict[RunWarningKind, RunWarning]:
    found = federation.coordinator.warnings(federation.coordinator.get_run(run_id))
    return {each.kind: each for each in found}


def until_round(federation: LocalFederation, run_id: str, number: int) -> None:
    while federation.coordinator.get_run(run_id).round_number < number:
        assert federation.step()


def test_norms_are_measured_without_a_limit(federation: LocalFederation) -> None:
    run_id = create(federation)
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED
    measured = [event for event in federation.events(run_id, "update_committed") if event.round > 0]
    assert len(measured) == 3 * 4
    assert all(event.data["update_norm"] > 0 for event in measured)
    assert far_events(federation, run_id) == []
    assert RunWarningKind.UPDATE_FAR not in warnings(federation, run_id)


def test_a_far_update_names_its_sender_once_a_round_and_in_the_status(federation: LocalFederation) -> None:
    run_id = create(federation)
    lie(federation, 1e6)
    until_round(federation, run_id, 2)
    (event,) = far_events(federation, run_id)
    assert (event.client_id, event.round) == (LIAR, 1)
    assert event.data["update_norm"] > FAR * event.data["median_norm"] > 0
    warning = warnings(federation, run_id)[RunWarningKind.UPDATE_FAR]
    assert warning.round == 1
    assert f"{LIAR} in round 1" in warning.sentence
    assert not any(name in warning.sentence for name in HONEST)
    federation.restart()
    assert warnings(federation, run_id)[RunWarningKind.UPDATE_FAR] == warning
    federation.run_to_end(run_id)
    assert [event.round for event in far_events(federation, run_id)] == [1, 2, 3]
    assert f"{LIAR} in round 3" in warnings(federation, run_id)[RunWarningKind.UPDATE_FAR].sentence


@pytest.mark.parametrize("moved_by", [1e19, 3.3e38])
def test_an_update_that_float32_cannot_train_on_is_refused_by_name(
    federation: LocalFederation, moved_by: float
) -> None:
    run_id = create(federation)
    liar = federation.clients[LIAR]
    lie(federation, moved_by)
    task = federation.task(liar)
    assert task.kind is TaskKind.TRAIN
    with pytest.raises(UpdateNormExceeded, match="beyond 1e\\+18 float32 cannot compute with it"):
        federation.perform(liar, task)
    assert federation.coordinator.get_run(run_id).rejections[LIAR].check == "norm"


def test_a_first_model_that_float32_cannot_train_on_is_refused(federation: LocalFederation) -> None:
    federation.create("fedavg", run={"rounds": 1, "clients": [LIAR]})
    liar = federation.clients[LIAR]
    lie(federation, 1e30)
    with pytest.raises(UpdateNormExceeded, match="the first model diverged"):
        federation.perform(liar, federation.task(liar))


def test_a_run_whose_clients_cannot_train_says_who_since_when_and_why(federation: LocalFederation) -> None:
    run_id = create(federation)
    lie(federation, 1e12)
    until_round(federation, run_id, 2)
    assert RunWarningKind.CANNOT_TRAIN not in warnings(federation, run_id)
    for name in HONEST[:2]:
        federation.heartbeat(federation.clients[name], run_id=run_id, round=2, problem=DIVERGED)
    warning = warnings(federation, run_id)[RunWarningKind.CANNOT_TRAIN]
    assert warning.round == 2
    assert "round 2 is without updates of ann, bob since 1970-01-01T00:" in warning.sentence
    assert f"the likely cause, {LIAR} in round 1 (" in warning.sentence
    assert f'initial_model = "run:{run_id}@0"' in warning.sentence
    assert "learning rate" not in warning.sentence
    federation.step(["ann", "bob"])  # they could after all
    assert RunWarningKind.CANNOT_TRAIN not in warnings(federation, run_id)


def test_where_round_1_cannot_train_the_maker_of_the_first_model_is_named(federation: LocalFederation) -> None:
    run_id = create(federation)
    federation.heartbeat(federation.clients["bob"], run_id=run_id, round=1, problem=DIVERGED)
    warning = warnings(federation, run_id)[RunWarningKind.CANNOT_TRAIN]
    assert "the first model, which ann made" in warning.sentence


@pytest.mark.parametrize(
    ("norms", "far"),
    [
        ({}, []),
        ({"a": 1.0, "b": 1e9}, []),  # of two, nobody knows who is wrong
        ({"a": 0.0, "b": 0.0, "c": 5.0}, []),  # no size to compare with
        ({"a": 1.0, "b": 1.0, "c": 10.0}, []),
        ({"a": 1.0, "b": 1.0, "c": 10.1}, ["c"]),
        ({"a": None, "b": None, "c": 10.1}, []),
    ],
)
def test_what_is_far(norms: dict[str, float | None], far: list[str]) -> None:
    updates = {name: replace(an_update(name), norm=norm) for name, norm in norms.items()}
    current = replace(a_round(1), phase=RoundPhase.COLLECTING, updates=updates)
    assert [each.client_id for each in far_updates(current)] == far


@pytest.mark.parametrize(("of_three", "far"), [(16.0, []), (1e6, ["c"])])
def test_who_makes_more_steps_for_more_samples_is_not_far(of_three: float, far: list[str]) -> None:
    updates = {
        name: replace(an_update(name), norm=norm, num_examples=num_examples)
        for name, norm, num_examples in (("a", 1.0, 20), ("b", 1.0, 20), ("c", of_three, 480))
    }
    run = a_run(config_json=a_config(training={"local_epochs": 1}).canonical_json)
    collecting = replace(run, current_round=replace(a_round(1), phase=RoundPhase.COLLECTING, updates=updates))
    closed = replace(run, current_round=replace(a_round(1), phase=RoundPhase.AGGREGATING, updates=updates))
    assert [each.client_id for each in newly_far(collecting, closed)] == far
    steps = a_config().canonical_json
    assert [
        each.client_id for each in newly_far(*(replace(each, config_json=steps) for each in (collecting, closed)))
    ] == ["c"]


@pytest.mark.parametrize(("loss", "far"), [(-1e38, [LIAR]), (100.0, [])])
def test_who_alone_decides_the_shown_mean_loss_is_named(
    federation: LocalFederation, loss: float, far: list[str]
) -> None:
    run_id = create(federation)
    for name, client in federation.clients.items():
        task, update, blobs = federation.work(client)
        losses = {"cross_entropy": loss if name == LIAR else 0.5}
        federation.submit(client, task, replace(update, losses=losses), blobs)
    found = [(event.client_id, event.data["of"]) for event in far_events(federation, run_id)]
    assert found == [(name, "losses") for name in far]
    warning = warnings(federation, run_id).get(RunWarningKind.UPDATE_FAR)
    assert far == [] if warning is None else f"{LIAR} in round 1 (losses: 1e+38," in warning.sentence


def test_how_many_are_named_is_bounded() -> None:
    norms = {f"honest-{number}": 1.0 for number in range(60)} | {f"liar-{number}": 1e6 for number in range(50)}
    updates = {name: replace(an_update(name), norm=norm) for name, norm in norms.items()}
    found = far_updates(replace(a_round(1), updates=updates))
    assert len(found) == MAX_NAMED
    warning = present(warning_of(found))
    assert warning.sentence.endswith("or set admission.max_update_norm in a new run")
    assert " and 6 more clients;" in warning.sentence


class GroupLiar(NumpyClient):
    """Multiplies what its update has beside the model."""

    def _of_features(self, config: RunConfig, task: Task, model: bytes) -> dict[str, ArrayGroup]:
        times = {"sums": 1000, "moment": 1000**2, "weight": 1000}
        made = super()._of_features(config, task, model)
        return {
            name: {key: array * array.dtype.type(times.get(key, 1)) for key, array in group.items()}
            for name, group in made.items()
        }


@pytest.mark.parametrize("liar", [NumpyClient, GroupLiar])
@pytest.mark.parametrize(
    ("method", "hyper", "group"),
    [
        ("classsums", {"head": "means"}, "class_sums"),
        ("classsums", {"head": "lda", "shrinkage": 0.1}, "class_sums"),
        ("creff", {}, "head_gradients"),
    ],
)
def test_whose_groups_beside_the_model_are_far_is_named_and_who_has_much_is_not(
    tmp_path: Path, liar: type[NumpyClient], method: str, hyper: dict[str, object], group: str
) -> None:
    large = NumpyClient(HONEST[0], counts=(300, 200, 100))
    with LocalFederation(tmp_path, [large, *map(NumpyClient, HONEST[1:]), liar(LIAR)]) as federation:
        federation.join()
        document = {**a_document(method, (*HONEST, LIAR)), "method": hyper}
        run_id = federation.coordinator.create_run("request", document).run_id
        federation.run_to_end(run_id)
        named = {(event.client_id, event.data["of"]) for event in far_events(federation, run_id)}
        assert named == ({(LIAR, group)} if liar is GroupLiar else set())
        if liar is GroupLiar:
            warning = warnings(federation, run_id)[RunWarningKind.UPDATE_FAR]
            assert f"{LIAR} in round 2 ({group}: " in warning.sentence
            assert (warning.sentence.rpartition(", ")[2], warning.keys) == ("quarantine a client that is wrong", ())


@pytest.mark.parametrize("times", [1, 12])
@pytest.mark.parametrize("head", ["means", "lda"])
def test_a_site_with_one_class_of_many_is_not_far_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, times: int
) -> None:
    monkeypatch.setattr(numpy_client, "CLASSES", tuple(f"class-{number:03}" for number in range(150)))
    clients = ("ann", "bob", "one-class")
    counts = ((2,) * 150, (2,) * 150, (300 * times, *(0,) * 149))
    with LocalFederation(tmp_path, list(map(NumpyClient, clients, clients, counts))) as federation:
        federation.join()
        document = {**a_document("classsums", clients), "method": {"head": head}}
        run_id = federation.coordinator.create_run("request", document).run_id
        federation.run_to_end(run_id)
        assert far_events(federation, run_id) == []
