"""Every method of the table in real federations: the same bytes after interruptions in every round, and over gRPC.

A method is tried because it is in the table; so are the settings under which a round goes another way. Clients train real
torch models on tiny data. The federation of processes, an aggregator and two trainers, is one for all methods: it does
their runs one after another, as a deployed one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedplcc.method_contract.settings import Setting
from fedplcc.shared.documents import Event
from fedplcc.shared.methods import METHODS
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, sha256_hex
from fedplcc.shared.types import BATCH_NORM
from fedplcc.simulation import Observers, Simulation
from fedplcc.trainer.cancellation import Cancelled, ShouldStop, never
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.grpc_client import RunControl
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.method_settings import PUBLIC_DATA, of_methods, of_settings, public_of, with_a_length

pytestmark = pytest.mark.slow

RUN_S = 120.0
ROUNDS = (1, 2, 3)
ASKS_BETWEEN_INTERRUPTIONS = 17
"""How often a simulation may ask whether it is to stop before it is: more than one task asks, so that it gets on."""
BATCHES_PER_PASS = 3
"""Of a client's samples: each batch of a phase of so many passes asks too."""
MOST_INTERRUPTIONS = 60

every_part = of_settings(lambda setting: not setting.hyper or setting.goes_another_way, cover=True)
every_method_that_trains = of_methods(
    lambda method: bool(method.phases(method.config())), kept=("feddyn", "fedrep", "fedplcc")
)
"""For what a run has whatever its method: `make test` tries state on both sides, phases, and prototypes."""
every_method_with_a_neutral_setting = of_methods(lambda method: method.neutral is not None)
every_method_that_needs_an_earlier_round = of_methods(lambda method: method.needs_earlier_round(method.config()))
every_method_whose_server_keeps_something = of_methods(lambda method: method.keeps_server_state(method.config()))
every_method_that_acts_at_once = of_methods(
    lambda method: (
        method.name != "fedavg"
        and not method.needs_earlier_round(method.config())
        and not method.keeps_server_state(method.config())
    )
)


@dataclass(frozen=True)
class Outcome:
    """What runs that are the same agree on: a line of metrics for each round, and the bytes of what the last one made.

    The lines have the SHA-256 of every round's model and prototypes, the losses and the accuracies.
    """

    lines: tuple[str, ...]
    model: bytes
    prototypes: bytes

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def models(self) -> list[str]:
        return [line["model_sha256"] for line in self.rounds]


def document(data: Path, method: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Three rounds of two clients under these hyper-parameters, with a model that has what clients are to keep."""
    values = tiny_federation.document(data, method, run={"rounds": len(ROUNDS)}, training={"local_steps": 2})
    own = {**values.get("method", {}), **hyper}
    if Setting(METHODS[method], own).personal_part == BATCH_NORM:
        values["model"] = {"name": "resnet10"}
    return {**values, "method": own, **public_of(method, own)}


def simulated(
    values: dict[str, Any],
    folder: Path,
    should_stop: ShouldStop = never,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Outcome:
    """A simulation in this folder, or what is left of it."""
    simulation = Simulation(
        tiny_federation.federation(values), folder, request_id="r", device="cpu", observers=Observers(on_event=on_event)
    )
    try:
        simulation.run_to_end(should_stop)
        model, prototypes = (simulation.artifact(kind)[1].read_bytes() for kind in ("model", "prototypes"))
        return Outcome(tuple(simulation.record().metrics_lines), model, prototypes)
    finally:
        simulation.close()


Undisturbed = Callable[..., Outcome]


@pytest.fixture(scope="module")
def undisturbed(data: Path) -> Undisturbed:
    """What a method's run comes to if nothing happens to it; computed once."""
    known: dict[str, Outcome] = {}

    def of(method: str, hyper: Mapping[str, Any]) -> Outcome:
        values = document(data, method, hyper)
        key = json.dumps(values["method"]) + method
        if key not in known:
            with memory_folder() as path:
                known[key] = simulated(values, Path(path))
        return known[key]

    return of


@pytest.fixture(scope="module")
def processes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunControl]:
    """An aggregator and two trainers, each a process of its own."""
    clients = tiny_federation.document(data)["clients"]
    with deployed(tmp_path_factory.mktemp("processes"), clients, "--public-data", PUBLIC_DATA) as running:
        yield running.control


@every_part
def test_a_run_trains_reports_and_leaves_what_its_method_says(setting: Setting, undisturbed: Undisturbed) -> None:
    method, outcome = setting.method, undisturbed(setting.method.name, setting.hyper)
    assert [line["round"] for line in outcome.rounds] == list(ROUNDS)
    assert outcome.models[-1] == sha256_hex(outcome.model)
    assert from_bytes(outcome.model)
    trains = bool(method.phases(setting.config))
    assert len(set(outcome.models)) == (len(ROUNDS) if method.shares_model(setting.config) else 1) or not trains
    num_prototypes = len(prototypes_from_bytes(outcome.prototypes))
    for line in outcome.rounds:
        assert (line["prototypes"]["local"] > 0) == (line["prototypes"]["global"] > 0) == method.has_prototypes
        assert 0 <= line["accuracy"]["worst"] <= line["accuracy"]["mean"] <= 1
        assert ("accuracy_local" in line) == ("local" in method.evaluated_models(setting.config))
    assert outcome.rounds[-1]["prototypes"]["global"] == num_prototypes
    terms = [list(line["loss"]) for line in outcome.rounds]
    assert all("ce" in names if trains else not names for names in terms)
    # Whatever is not FedAvg has terms of its own, or a server or clients that keep something.
    assert (
        method.name == "fedavg"
        or method.keeps_server_state(setting.config)
        or method.personal_part(setting.config) != "none"
        or all(len(names) > 1 for names in terms[1:])
    )


@every_part
def test_interruptions_in_every_round_change_nothing(
    setting: Setting, data: Path, folder: Path, undisturbed: Undisturbed
) -> None:
    """Before, within and between tasks; whoever goes on has nothing but what lies in the folder."""
    interrupted_in: list[int] = []
    passes = sum(phase.epochs or 0 for phase in setting.method.phases(setting.config))
    most_asked = ASKS_BETWEEN_INTERRUPTIONS + BATCHES_PER_PASS * passes
    asked, latest = 0, -1

    def stop_now() -> bool:
        nonlocal asked
        asked += 1
        return asked > most_asked

    def remember(event: Event) -> None:
        nonlocal latest
        latest = latest if event.round is None else event.round

    outcome = None
    while outcome is None:
        assert len(interrupted_in) < MOST_INTERRUPTIONS, "it does not get on"
        asked = 0
        try:
            outcome = simulated(document(data, setting.method.name, setting.hyper), folder, stop_now, remember)
        except Cancelled:
            interrupted_in.append(latest)
    assert set(interrupted_in) >= set(ROUNDS)
    assert outcome == undisturbed(setting.method.name, setting.hyper)


@every_part
def test_processes_give_the_bytes_of_the_simulation(
    setting: Setting, data: Path, processes: RunControl, undisturbed: Undisturbed
) -> None:
    lines = processes.run_to_end(document(data, setting.method.name, setting.hyper))
    assert lines == undisturbed(setting.method.name, setting.hyper).lines


def test_rounds_that_are_not_evaluated_train_the_same_simulated_and_as_processes(
    data: Path, folder: Path, processes: RunControl, undisturbed: Undisturbed
) -> None:
    """FedCCL, whose clients evaluate a model of their own from their last committed update."""
    values = {**document(data, "fedccl", {}), "evaluation": {"every": 2, "last": 1}}
    outcome, often = simulated(values, folder), undisturbed("fedccl", {})
    assert (outcome.models, outcome.model, outcome.prototypes) == (often.models, often.model, often.prototypes)
    assert outcome.rounds[0]["accuracy"] is outcome.rounds[0]["accuracy_local"] is None
    assert outcome.lines[1:] == often.lines[1:]
    assert processes.run_to_end(values) == outcome.lines


@pytest.mark.parametrize(
    ("method", "hyper", "aggregation"),
    [
        ("fedplcc", {}, {"rule": "clipped_mean", "max_weight_share": 0.6}),
        pytest.param("fedopt", {}, {"rule": "median"}, marks=pytest.mark.full),
        pytest.param("classsums", {"shrinkage": 0.3}, {"rule": "median"}, marks=pytest.mark.full),
    ],
)
def test_rules_of_the_fold_give_the_same_bytes_simulated_and_as_processes(
    method: str,
    hyper: Mapping[str, Any],
    aggregation: Mapping[str, Any],
    data: Path,
    folder: Path,
    processes: RunControl,
    undisturbed: Undisturbed,
) -> None:
    values = {**document(data, method, hyper), "aggregation": dict(aggregation)}
    outcome = simulated(values, folder)
    assert outcome.models[-1] != undisturbed(method, hyper).models[-1]
    assert processes.run_to_end(values) == outcome.lines


def attacked(values: dict[str, Any], *attacks: str) -> dict[str, Any]:
    """The same run with adversarial training, evaluated under attacks too."""
    training = {**values["training"], "adversarial": {"epsilon": 0.1, "step_size": 0.05, "steps": 2}}
    return {**values, "training": training, "evaluation": {"attacks": list(attacks)}}


@every_method_that_trains
def test_every_method_trains_on_attacked_images_and_reports_under_attacks(
    method: Any, data: Path, folder: Path, undisturbed: Undisturbed
) -> None:
    outcome = simulated(attacked(document(data, method.name, {}), "fgsm"), folder)
    plain = undisturbed(method.name, {})
    assert outcome.models[0] != plain.models[0]
    for line, clean in zip(outcome.rounds, plain.rounds, strict=True):
        assert list(line["loss"]) == list(clean["loss"])
        assert line["accuracy_attacked"].keys() == {"fgsm"}
        accuracy = line["accuracy_attacked"]["fgsm"]
        assert accuracy.keys() == line["accuracy"].keys()
        assert 0 <= accuracy["worst"] <= accuracy["mean"] <= 1


def test_attacked_images_give_the_same_bytes_in_a_simulation_and_as_processes(
    data: Path, folder: Path, processes: RunControl
) -> None:
    """FedCCL, whose clients report on a model of their own too."""
    values = attacked(shorter(document(data, "fedccl", {})), "fgsm", "pgd20")
    outcome = simulated(values, folder)
    for line in outcome.rounds:
        assert line["accuracy_attacked"].keys() == {"fgsm", "pgd20"}
        assert all(under.keys() == line["accuracy"].keys() for under in line["accuracy_attacked"].values())
    assert processes.run_to_end(values) == outcome.lines


def scheduled(values: dict[str, Any]) -> dict[str, Any]:
    """The same run with AdamW, a warm-up, a cosine of its own length and a lower precision."""
    optimiser = {"optimizer": "adamw", "learning_rate": 0.002, "precision": "bfloat16"}
    schedule = {"schedule": "cosine", "warmup_rounds": 1, "schedule_rounds": 4}
    return {**values, "training": {**values["training"], **optimiser, **schedule}}


@every_method_that_trains
def test_every_method_trains_by_a_schedule_in_the_same_bytes_interrupted_and_as_processes(
    method: Any, data: Path, folder: Path, processes: RunControl, undisturbed: Undisturbed
) -> None:
    """Interrupted once, and one round longer than it was to be."""
    values = scheduled(document(data, method.name, with_a_length(method, {})))
    for name in ("whole", "parts"):
        (folder / name).mkdir()
    whole = simulated(values, folder / "whole")
    assert whole.models[0] != undisturbed(method.name, {}).models[0] or not method.shares_model(
        tiny_federation.federation(values).config.method
    )
    asked = 0

    def once() -> bool:
        nonlocal asked
        asked += 1
        return asked == ASKS_BETWEEN_INTERRUPTIONS

    with pytest.raises(Cancelled):
        simulated(shorter(values), folder / "parts", once)
    assert len(simulated(shorter(values), folder / "parts").lines) == len(ROUNDS) - 1
    assert simulated(values, folder / "parts") == whole
    assert processes.run_to_end(values) == whole.lines


def shorter(values: dict[str, Any]) -> dict[str, Any]:
    """The same run with a round less."""
    return {**values, "run": {**values["run"], "rounds": len(ROUNDS) - 1}}


def validated(values: dict[str, Any]) -> dict[str, Any]:
    """The same run with validation images: left's by the run's rule, right's by its own."""
    left, right = tiny_federation.CLIENTS
    own = {left: values["clients"][left], right: {**values["clients"][right], "validation_per_class": 3}}
    return {**values, "data": {**values["data"], "validation_every": 4}, "clients": own}


@every_part
def test_a_run_that_goes_on_to_more_rounds_is_the_longer_one(
    setting: Setting, data: Path, folder: Path, undisturbed: Undisturbed
) -> None:
    hyper = with_a_length(setting.method, setting.hyper)
    values = document(data, setting.method.name, hyper)
    assert len(simulated(shorter(values), folder).lines) == len(ROUNDS) - 1
    assert simulated(values, folder) == undisturbed(setting.method.name, hyper)


@every_method_that_trains
def test_every_method_reports_on_images_that_it_does_not_train_on(
    method: Any, data: Path, folder: Path, undisturbed: Undisturbed
) -> None:
    outcome = simulated(validated(document(data, method.name, {})), folder)
    assert outcome.models[-1] == sha256_hex(outcome.model)
    for line, plain in zip(outcome.rounds, undisturbed(method.name, {}).rounds, strict=True):
        assert line["accuracy_validation"].keys() == line["accuracy"].keys()
        assert 0 <= line["accuracy_validation"]["worst"] <= line["accuracy_validation"]["mean"] <= 1
        assert "accuracy_validation" not in plain
        # Of 8 images of each of 3 classes, left sets 2 aside and right 3.
        assert (line["num_examples"], plain["num_examples"]) == (2 * 24 - 6 - 9, 2 * 24)


@every_method_with_a_neutral_setting
def test_the_neutral_setting_gives_fedavgs_models(method: Any, undisturbed: Undisturbed) -> None:
    neutral = undisturbed(method.name, method.neutral)
    fedavg = undisturbed("fedavg", {})
    assert neutral.models == fedavg.models
    assert neutral.model == fedavg.model
    assert [line["loss"] for line in neutral.rounds] == [line["loss"] for line in fedavg.rounds]
    assert [line["accuracy"] for line in neutral.rounds] == [line["accuracy"] for line in fedavg.rounds]
    if method.name != "fedavg":
        assert undisturbed(method.name, {}).models != fedavg.models


@every_method_that_needs_an_earlier_round
def test_round_1_is_fedavgs_and_the_next_is_not(method: Any, undisturbed: Undisturbed) -> None:
    """Before the first aggregation there are no prototypes, and no model of a client's own from before."""
    own, fedavg = undisturbed(method.name, {}), undisturbed("fedavg", {})
    assert own.models[0] == fedavg.models[0]
    assert own.rounds[0]["loss"] == fedavg.rounds[0]["loss"]
    assert own.models[1] != fedavg.models[1]


@every_method_that_acts_at_once
def test_terms_that_need_no_earlier_round_act_in_round_1(method: Any, undisturbed: Undisturbed) -> None:
    """Distances to the received model, or to what it says of an image."""
    own, fedavg = undisturbed(method.name, {}), undisturbed("fedavg", {})
    assert own.models[0] != fedavg.models[0]
    assert all(value > 0 for name, value in own.rounds[0]["loss"].items() if name != "ce")


@every_method_whose_server_keeps_something
def test_what_the_server_kept_of_round_1_makes_another_model_in_round_2(method: Any, undisturbed: Undisturbed) -> None:
    """In round 1 a slot is its first value, and what is made of it may be FedAvg's mean."""
    assert undisturbed(method.name, {}).models[1] != undisturbed("fedavg", {}).models[1]
