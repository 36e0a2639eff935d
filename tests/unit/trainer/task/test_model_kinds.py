"""Clients with their own kind of model: where it begins, what is kept of it, and where it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import CodeNotAllowed, ModelKindRefused, WeightsMissing
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, MODEL, BlobRef, Payload, PrototypeSet, RunSpec, Task, TaskKind
from fedplcc.trainer.models import build_model, state_arrays
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support import present
from tests.support.later import later
from tests.unit.trainer.builders import a_config, a_model, a_spec, config_of, eighteen_images
from tests.unit.trainer.memory_aggregator import MemoryAggregator

timm = later("timm")

RESNET, CNN5 = ModelSection(name="resnet10", stem="cifar3x3"), ModelSection(name="cnn5")
DIM = 128
"""Feature size of the runs' cnn4."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return eighteen_images(tmp_path_factory.mktemp("data"))


def a_run(method: str = "fedproto", **sections: Any) -> RunSpec:
    hyper = {"share_model": False} if method == "fedproto" else {}
    config = a_config(method, method=hyper, **sections)
    return a_spec(config)


def a_runner(data: str, folder: Path, model: ModelSection | None = RESNET) -> TaskRunner:
    return TaskRunner(ClientSite.at("ann", "hospital", data, device="cpu", model=model), ClientStates(folder))


def a_task(aggregator: MemoryAggregator, kind: TaskKind, number: int, run: RunSpec | None = None) -> Task:
    run = run or a_run()
    config = config_of(run)
    sets: tuple[BlobRef, ...] = ()
    if config.algorithm.has_prototypes:
        sets = (aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(PrototypeSet.empty())),)
    model = to_bytes(state_arrays(a_model(a_config())))
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, model),), prototype_sets=sets)
    return Task(kind=kind, run=run, round=number, total_rounds=3, payload=payload)


def trained(data: str, folder: Path, *rounds: int, model: ModelSection | None = RESNET) -> MemoryAggregator:
    """An aggregator to which a client has committed these rounds, each with a trainer of its own."""
    aggregator = MemoryAggregator()
    for number in rounds:
        a_runner(data, folder, model).perform(a_task(aggregator, TaskKind.TRAIN, number), aggregator)
    return aggregator


def kept_names(folder: Path) -> set[str]:
    state = present(ClientStates(folder).state("run-1"))
    return set(state)


class TestTraining:
    def test_the_first_model_is_of_its_kind_and_the_runs_seed_and_nothing_is_downloaded(
        self, data: str, tmp_path: Path
    ) -> None:
        aggregator = trained(data, tmp_path, 1)
        assert MODEL not in aggregator.fetched
        own = build_model(RESNET, 3, 16, 0, feature_dim=DIM)
        assert kept_names(tmp_path) == set(state_arrays(own))
        ((_, update),) = aggregator.updates
        assert not update.payload.tensor_groups
        (sent,) = update.payload.prototype_sets
        assert prototypes_from_bytes(aggregator.stored[sent.sha256][0]).vectors.shape == (3, DIM)

    def test_the_kind_of_the_run_named_as_its_own_gives_the_runs_bytes(self, data: str, tmp_path: Path) -> None:
        runs, own = (
            trained(data, tmp_path / name, 1, 2, model=model)
            for name, model in {"run": None, "own": ModelSection(name="cnn4")}.items()
        )
        assert [update.payload.blobs for _, update in runs.updates] == [
            update.payload.blobs for _, update in own.updates
        ]

    def test_its_own_model_is_evaluated_and_without_one_the_global_one(self, data: str, tmp_path: Path) -> None:
        aggregator = trained(data, tmp_path, 1)
        a_runner(data, tmp_path).perform(a_task(aggregator, TaskKind.EVALUATE, 1), aggregator)
        a_runner(data, tmp_path / "new").perform(
            a_task(aggregator, TaskKind.EVALUATE, 1),
            MemoryAggregator(blobs=aggregator.blobs, evaluations=aggregator.evaluations),
        )
        assert [[each.model for each in report.counts] for _, report in aggregator.evaluations] == [
            ["local"],
            ["global"],
        ]

    def test_round_0_is_the_runs_kind_whoever_makes_it(self, data: str, tmp_path: Path) -> None:
        aggregator, run = MemoryAggregator(), a_run()
        task = Task(kind=TaskKind.INIT, run=run, round=0, total_rounds=3, payload=Payload())
        a_runner(data, tmp_path).perform(task, aggregator)
        ((_, update),) = aggregator.updates
        assert update.payload.tensor_group(MODEL).sha256 == sha256_hex(to_bytes(state_arrays(a_model(a_config()))))

    def test_the_kind_is_announced(self, data: str, tmp_path: Path) -> None:
        assert a_runner(data, tmp_path).announce().model_kind == "resnet10 cifar3x3"
        assert a_runner(data, tmp_path, CNN5).client_for(a_run()).model_kind == "cnn5"
        assert not a_runner(data, tmp_path, None).announce().model_kind

    def test_the_same_tasks_give_the_same_bytes_with_a_trainer_for_each_and_with_one_for_all(
        self, data: str, tmp_path: Path
    ) -> None:
        apart = trained(data, tmp_path / "apart", 1, 2)
        together, runner = MemoryAggregator(), a_runner(data, tmp_path / "together")
        for number in (1, 2):
            runner.perform(a_task(together, TaskKind.TRAIN, number), together)
        assert [update.payload for _, update in apart.updates] == [update.payload for _, update in together.updates]
        first, second = (ClientStates(tmp_path / name).manifest.promoted["run-1"] for name in ("apart", "together"))
        assert first == second


class TestAnotherKindLater:
    @pytest.mark.parametrize("later", [CNN5, None, ModelSection(name="resnet10", stem="imagenet5x5")])
    def test_what_is_kept_of_another_kind_is_not_loaded_and_the_client_begins_anew(
        self, data: str, tmp_path: Path, later: ModelSection | None
    ) -> None:
        aggregator = trained(data, tmp_path, 1)
        problems: list[Any] = []
        task = a_task(aggregator, TaskKind.TRAIN, 2)
        a_runner(data, tmp_path, later).perform(task, aggregator, on_problem=problems.append)
        assert [(problem.reason, problem.is_fatal) for problem in problems] == [("CLIENT_MODEL_CHANGED", False)]
        fresh = MemoryAggregator()
        a_runner(data, tmp_path / "fresh", later).perform(a_task(fresh, TaskKind.TRAIN, 2), fresh)
        assert aggregator.updates[-1][1].payload == fresh.updates[-1][1].payload
        assert kept_names(tmp_path) == kept_names(tmp_path / "fresh")

    def test_one_of_the_runs_kind_is_not_loaded_into_an_own_one(self, data: str, tmp_path: Path) -> None:
        aggregator = trained(data, tmp_path, 1, model=None)
        problems: list[Any] = []
        task = a_task(aggregator, TaskKind.EVALUATE, 1)
        a_runner(data, tmp_path).perform(task, aggregator, on_problem=problems.append)
        assert [problem.reason for problem in problems] == ["CLIENT_MODEL_CHANGED"]
        assert [each.model for each in aggregator.evaluations[-1][1].counts] == ["global"]

    def test_an_update_that_waits_is_trained_again(self, data: str, tmp_path: Path) -> None:
        aggregator = MemoryAggregator(failures={"commit": [ConnectionError("gone")]})
        task = a_task(aggregator, TaskKind.TRAIN, 1)
        with pytest.raises(ConnectionError):
            a_runner(data, tmp_path).perform(task, aggregator)
        waiting = present(ClientStates(tmp_path).manifest.staged)
        a_runner(data, tmp_path, CNN5).perform(task, aggregator)
        ((_, update),) = aggregator.updates
        assert update.payload != waiting.update.payload

    def test_states_of_older_versions_are_of_the_runs_kind(self, data: str, tmp_path: Path) -> None:
        trained(data, tmp_path, 1, model=None)
        path = tmp_path / "manifest.json"
        document = json.loads(path.read_bytes())
        del document["content"]["promoted"]["run-1"]["kind"]
        text = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
        path.write_text(json.dumps({**document, "sha256": sha256_hex(text.encode())}))
        assert ClientStates(tmp_path).manifest.promoted["run-1"].kind == ""


def test_a_kind_that_begins_with_weights_takes_them_from_the_store_of_its_site(data: str, tmp_path: Path) -> None:
    made: Any = timm.create_model("test_resnet", num_classes=0)
    store = WeightsStore(tmp_path / "weights")
    arrays = {name: value.numpy() for name, value in made.state_dict().items()}
    kept = store.add(arrays, name="net", model="timm:test_resnet", source=Source(place="here"))
    kind = ModelSection(name="timm:test_resnet", weights="net", weights_sha256=kept.sha256)
    config = config_of(a_run(data={"image_size": 32}))
    site = ClientSite.at("ann", "hospital", data, device="cpu", model=kind, consent=Consent(weights=store))
    begun = state_arrays(site.new_own_model(config, with_weights=True))
    for name, value in arrays.items():
        (found,) = (array for key, array in begun.items() if key.endswith(f"backbone.{name}"))
        np.testing.assert_array_equal(found, value)
    elsewhere = ClientSite.at("bob", "hospital", data, device="cpu", model=kind, consent=Consent())
    with pytest.raises(WeightsMissing):
        elsewhere.new_own_model(config, with_weights=True)


class TestRefusals:
    @pytest.mark.parametrize("kind", [TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE])
    @pytest.mark.parametrize("method", ["fedavg", "fedplcc"])
    def test_a_run_that_averages_models_is_refused_before_anything_is_built_or_fetched(
        self, data: str, tmp_path: Path, kind: TaskKind, method: str
    ) -> None:
        aggregator = MemoryAggregator()
        task = a_task(aggregator, kind, 1, a_run(method))
        sentence = (
            f"client ann has its own kind of model, resnet10 cifar3x3: method {method} averages models, so every client has "
            "the run's"
        )
        with pytest.raises(ModelKindRefused) as refused:
            a_runner(data, tmp_path).perform(task, aggregator)
        assert (refused.value.detail, refused.value.reason) == (sentence, "MODEL_KIND_REFUSED")
        assert (aggregator.fetched, aggregator.updates, aggregator.evaluations) == ([], [], [])

    def test_a_runs_document_still_names_no_code_that_the_owner_did_not_list(self, data: str, tmp_path: Path) -> None:
        """What the owner names as the client's own kind is no consent to what runs name."""
        name = "tests.unit.trainer.models.test_projected:Net"
        run = a_run(model={"name": name})
        aggregator = MemoryAggregator()
        with pytest.raises(CodeNotAllowed):
            a_runner(data, tmp_path, ModelSection(name=name)).perform(
                a_task(aggregator, TaskKind.TRAIN, 1, run), aggregator
            )
