"""Models of a client's own: trained on, kept, and judged beside the global one, whatever becomes of the trainer."""

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel, MalformedRequest, RoundClosed
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.references import ReferenceModels
from fedplcc.shared.methods.step import ClientStep, Term
from fedplcc.shared.process import failpoints
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, to_bytes
from fedplcc.shared.types import (
    GLOBAL_CLUSTER,
    MODEL,
    ClientActivity,
    EvaluationCounts,
    PrototypeSet,
    RunSpec,
    Task,
    TaskKind,
)
from fedplcc.trainer.data import load_dataset
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import collect_features, evaluate
from fedplcc.trainer.models import load_arrays, state_arrays
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.support import present
from tests.support.hosts.failing_disk import Killed
from tests.unit.trainer.builders import (
    CPU,
    WITHOUT_NORMS,
    a_config,
    a_model,
    a_spec,
    config_of,
    digest,
    eighteen_images,
    some_data,
    some_prototypes,
    train,
)
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_task, global_model

OWN = {"share_model": False}
"""FedProto as published: models stay with their clients."""
KEPT_HEAD = {"upload_head": False, "head_epochs": 1}
"""FedRep as published: heads stay with their clients."""
DIM = 128


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return eighteen_images(tmp_path_factory.mktemp("data"))


def a_run(method: str, **hyper: Any) -> RunSpec:
    config = a_config(method, method=hyper)
    return a_spec(config)


def a_runner(data: str, folder: Path) -> TaskRunner:
    return TaskRunner(
        ClientSite.at("ann", "hospital", data, device="cpu", consent=Consent.to(WITHOUT_NORMS)), ClientStates(folder)
    )


def reported(aggregator: MemoryAggregator) -> Any:
    """The counts of the last report, by model."""
    return {counts.model: counts for counts in aggregator.evaluations[-1][1].counts}


def kept_model(folder: Path) -> Mapping[str, np.ndarray]:
    state = present(ClientStates(folder).state("run-1"))
    return state


def images_of(data: str, config: RunConfig, part: str) -> DeviceImages:
    whole = load_dataset(data, contract=config.data, samples_per_class=None, seed=0)
    return DeviceImages.put(getattr(whole, part), config.data, CPU)


def counts_of(arrays: Mapping[str, np.ndarray], run: RunSpec, data: str, **options: Any) -> EvaluationCounts:
    """What a model comes to on the client's test set, by the evaluation alone."""
    config = config_of(run)
    model = a_model(config)
    load_arrays(model, arrays)
    return evaluate(model, images_of(data, config, "test"), config, **options)


class TestReports:
    def test_the_clients_own_model_is_judged_beside_the_global_one_on_the_same_images(
        self, data: str, tmp_path: Path
    ) -> None:
        aggregator, run = MemoryAggregator(), a_run("fedccl")
        runner, other = a_runner(data, tmp_path), global_model(seed=5)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        activities = []
        task = a_task(aggregator, run, TaskKind.EVALUATE, 1, model=other)
        runner.perform(task, aggregator, on_activity=lambda *step: activities.append(step))
        ((_, update),) = aggregator.updates
        trained = from_bytes(aggregator.stored[update.payload.tensor_group(MODEL).sha256][0])
        counts = reported(aggregator)
        assert list(counts) == ["global", "local"]
        assert counts["global"] == counts_of(from_bytes(other), run, data)
        assert counts["local"] == counts_of(trained, run, data, model_name="local")
        assert counts["local"].total == counts["global"].total == (3, 3, 3)
        shares = [share for activity, share in activities if activity is ClientActivity.EVALUATING]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0

    @pytest.mark.parametrize(("method", "hyper"), [("fedccl", {}), ("fedproto", OWN), ("fedrep", KEPT_HEAD)])
    def test_a_client_without_a_model_of_its_own_reports_on_the_global_one_alone(
        self, data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
    ) -> None:
        """It was dropped from the first round, and helps with a report."""
        aggregator, run = MemoryAggregator(), a_run(method, **hyper)
        a_runner(data, tmp_path).perform(a_task(aggregator, run, TaskKind.EVALUATE, 1), aggregator)
        assert list(reported(aggregator)) == ["global"]

    @pytest.mark.parametrize(("method", "hyper"), [("fedproto", {}), ("moon", {})])
    def test_other_methods_report_on_the_global_model_alone(
        self, data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
    ) -> None:
        aggregator, run = MemoryAggregator(), a_run(method, **hyper)
        runner = a_runner(data, tmp_path)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        joined = aggregator.num_joined
        runner.perform(a_task(aggregator, run, TaskKind.EVALUATE, 1), aggregator)
        assert list(reported(aggregator)) == ["global"]
        assert aggregator.num_joined == joined, "what is kept is no matter of this report"


@pytest.mark.parametrize(("method", "hyper"), [("fedproto", OWN), ("fedrep", KEPT_HEAD)])
class TestCommittedState:
    """A report is a function of what was committed, not of what this process happened to live through."""

    @pytest.mark.parametrize("survives", [True, False])
    def test_a_client_whose_update_came_too_late_reports_on_the_model_of_the_one_before(
        self, data: str, tmp_path: Path, method: str, hyper: dict[str, Any], survives: bool
    ) -> None:
        aggregator, run = MemoryAggregator(), a_run(method, **hyper)
        runner = a_runner(data, tmp_path)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        kept = ClientStates(tmp_path).manifest.promoted["run-1"]
        aggregator.failures["commit"] = [RoundClosed("the round has closed")]
        with pytest.raises(RoundClosed):
            runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 2, prototypes=some_prototypes(DIM)), aggregator)
        if not survives:
            runner = a_runner(data, tmp_path)
        task = a_task(aggregator, run, TaskKind.EVALUATE, 2)
        problems: list[Any] = []
        runner.perform(task, aggregator, on_problem=problems.append)
        assert (ClientStates(tmp_path).manifest.promoted["run-1"], problems) == (kept, [])
        config = config_of(run)
        own = present(config.algorithm.own_model(from_bytes(global_model()), kept_model(tmp_path), config.method))
        assert reported(aggregator)["local"] == counts_of(own, run, data, model_name="local"), (
            "no prototypes yet, so logits name classes"
        )

    def test_a_trainer_killed_whenever_what_it_keeps_is_about_to_change_reports_what_one_does_that_lives(
        self, data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
    ) -> None:
        run = a_run(method, **hyper)

        def play(aggregator: MemoryAggregator, folder: Path, kill: Callable[[str], None] | None = None) -> list[Any]:
            """Two rounds; what is committed or reported is not asked for again."""
            runner = a_runner(data, folder)
            failpoints.install(kill)
            try:
                while len(aggregator.evaluations) < 2:
                    number = len(aggregator.evaluations) + 1
                    kind = TaskKind.TRAIN if len(aggregator.updates) < number else TaskKind.EVALUATE
                    task = a_task(aggregator, run, kind, number, prototypes=some_prototypes(DIM))
                    try:
                        runner.perform(task, aggregator)
                    except Killed:
                        runner = a_runner(data, folder)
            finally:
                failpoints.install(None)
            return [evaluation.counts for _, evaluation in aggregator.evaluations]

        whole = play(MemoryAggregator(), tmp_path / "whole")
        assert [entry.model for entry in whole[1]][-1] == "local"
        for at in itertools.count(1):
            passed: list[str] = []

            def kill(name: str, at: int = at, passed: list[str] = passed) -> None:
                if name == "trainer.state.manifest.rename.before":
                    passed.append(name)
                    if len(passed) == at:
                        raise Killed(name)

            assert play(MemoryAggregator(), tmp_path / str(at), kill) == whole, at
            if at > len(passed):
                break
        assert at > 4, "an update is kept, and promoted, in each of two rounds"

    def test_a_model_of_a_round_that_a_restored_aggregator_does_not_know_is_not_reported_on(
        self, data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
    ) -> None:
        aggregator, run = MemoryAggregator(), a_run(method, **hyper)
        runner = a_runner(data, tmp_path)
        problems: list[Any] = []
        for number in (1, 2, 3):
            runner.perform(a_task(aggregator, run, TaskKind.TRAIN, number), aggregator)
        del aggregator.updates[1:]
        task = a_task(aggregator, run, TaskKind.EVALUATE, 1)
        runner.perform(task, aggregator, on_problem=problems.append)
        assert list(reported(aggregator)) == ["global"]
        assert [problem.reason for problem in problems] == ["CLIENT_STATE_LOST"]


class TestPersonalHead:
    def trained(self, folder: Path, data: str, *rounds: tuple[int, bytes], **hyper: Any) -> MemoryAggregator:
        """What a client sends that trains in these rounds from these models."""
        aggregator, run = MemoryAggregator(), a_run("fedrep", head_epochs=1, **hyper)
        for number, model in rounds:
            a_runner(data, folder).perform(a_task(aggregator, run, TaskKind.TRAIN, number, model=model), aggregator)
        return aggregator

    def sent(self, aggregator: MemoryAggregator) -> Mapping[str, np.ndarray]:
        """The tensors of the last update."""
        _, update = aggregator.updates[-1]
        return from_bytes(aggregator.stored[update.payload.tensor_group(MODEL).sha256][0])

    def test_a_model_that_cannot_be_trained_so_is_refused_before_round_1(self, data: str, tmp_path: Path) -> None:
        config = a_config("fedrep", method={"personal": "batch_norm"}, model={"name": WITHOUT_NORMS.name})
        run = a_spec(config)
        aggregator = MemoryAggregator()
        with pytest.raises(InvalidModel, match=f"'{WITHOUT_NORMS.name}' has no BatchNorm layer for a client to keep"):
            a_runner(data, tmp_path).perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), aggregator)
        assert aggregator.updates == []

    def test_a_client_that_comes_later_begins_with_the_global_head_and_goes_on_with_its_own(
        self, data: str, tmp_path: Path
    ) -> None:
        """Two first models with one base: another head gives another update at first, and none from then on."""
        first, other = from_bytes(global_model(1)), from_bytes(global_model(2))
        mixed = to_bytes({name: other[name] if "classifier" in name else array for name, array in first.items()})
        late = [
            self.sent(self.trained(tmp_path / name, data, (5, model)))
            for name, model in (("one", to_bytes(first)), ("two", mixed), ("three", to_bytes(first)))
        ]
        assert digest_of(late[0]) == digest_of(late[2]) != digest_of(late[1])
        again = [
            self.sent(self.trained(tmp_path / name, data, (6, model)))
            for name, model in (("one", to_bytes(first)), ("three", mixed))
        ]
        assert digest_of(again[0]) == digest_of(again[1]) != digest_of(late[0])

    def test_a_kept_head_is_in_no_update_and_otherwise_changes_nothing(self, data: str, tmp_path: Path) -> None:
        rounds = [(1, global_model()), (2, global_model(2))]
        whole = self.sent(self.trained(tmp_path / "whole", data, *rounds))
        base = self.sent(self.trained(tmp_path / "base", data, *rounds, upload_head=False))
        heads = {"classifier.weight", "classifier.bias"}
        assert base.keys() == whole.keys() - heads
        assert all(np.array_equal(base[name], whole[name]) for name in base)
        for folder in ("whole", "base"):
            kept = kept_model(tmp_path / folder)
            assert kept.keys() == heads
            assert all(np.array_equal(kept[name], whole[name]) for name in heads)


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    return hashlib.sha256(to_bytes(arrays)).hexdigest()


class TestModelsThatStay:
    def test_an_update_is_prototypes_alone_and_training_goes_on_from_the_clients_own_model(
        self, data: str, tmp_path: Path
    ) -> None:
        aggregator, run = MemoryAggregator(), a_run("fedproto", **OWN)
        runner = a_runner(data, tmp_path)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        first = kept_model(tmp_path)
        assert aggregator.fetched == [MODEL, GLOBAL_CLUSTER]
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 2, prototypes=some_prototypes(DIM)), aggregator)
        runner.perform(a_task(aggregator, run, TaskKind.EVALUATE, 2, prototypes=some_prototypes(DIM)), aggregator)
        assert aggregator.fetched[2:] == [GLOBAL_CLUSTER] * 2, "a model that nobody looks at is not downloaded"
        for _, update in aggregator.updates:
            assert update.payload.tensor_groups == ()
            assert [blob.role for blob in update.payload.prototype_sets] == ["class_mean"]
        assert set(aggregator.stored) == {
            blob.sha256 for _, update in aggregator.updates for blob in update.payload.blobs
        }
        assert all(is_prototypes for _, is_prototypes in aggregator.stored.values())

        # The same second round by hand, from the model of the first.
        config = config_of(run)
        model = a_model(config)
        load_arrays(model, first)
        inputs = {"prototypes": some_prototypes(DIM), "round": 2, "client_id": "ann", "client_state": first}
        train(config, model, images_of(data, config, "train"), **inputs)
        second = kept_model(tmp_path)
        expected = state_arrays(model)
        assert all(np.array_equal(second[name], expected[name]) for name in expected)

    def test_the_loss_is_told_where_training_really_starts_and_references_are_the_rounds_model(self) -> None:
        told: dict[str, Any] = {}

        def client_loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
            told.setdefault("start", {name: value.clone() for name, value in step.start.items()})
            told.setdefault("params", {name: value.detach().clone() for name, value in step.params.items()})
            return {"ce": Term(step.task_loss)}

        def reference_models(received: Any, state: Any, config: Any) -> Mapping[str, Any]:
            told["received"] = received
            return {}

        def next_client_state(end: Any, config: Any) -> ClientState:
            told["end"] = end
            return {}

        method = replace(
            METHODS["fedavg"],
            client_loss=client_loss,
            parts=(KeptState(after=next_client_state), ReferenceModels(models=reference_models)),
        )
        config = a_config()
        own, received = a_model(config), state_arrays(a_model(a_config(run={"seed": 7})))
        before = {name: value.detach().clone() for name, value in own.named_parameters()}
        train(config, own, method=method, round=2, received=received)
        for name, value in before.items():
            assert torch.equal(told["start"][name], value)
            assert torch.equal(told["params"][name], value)
        assert told["received"] is received
        assert told["end"].received is received

    def test_the_nearest_prototype_of_the_round_names_the_class(self, data: str, tmp_path: Path) -> None:
        aggregator, run = MemoryAggregator(), a_run("fedproto", **OWN)
        runner, config = a_runner(data, tmp_path), config_of(run)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        model = a_model(config)
        load_arrays(model, kept_model(tmp_path))
        features, labels = collect_features(model, images_of(data, config, "test"), config)
        # The last image's own feature stands for its class, and one far away for class 0; class 1 has none.
        prototypes = PrototypeSet.of(np.stack([features[-1], features[-1] + 100]), [labels[-1], 0], [1, 1])
        runner.perform(a_task(aggregator, run, TaskKind.EVALUATE, 1, prototypes=prototypes), aggregator)
        means = np.full((3, DIM), np.inf)
        means[labels[-1]], means[0] = features[-1], features[-1] + 100
        nearest = ((features[:, None] - means[None]) ** 2).mean(-1).argmin(1)
        right = np.bincount(labels[nearest == labels], minlength=3)
        assert tuple(right) == reported(aggregator)["local"].correct
        assert labels[-1] == 2
        assert right.tolist() == [0, 0, 3], "every image is named as the one whose prototype is near"

    def test_a_report_by_prototypes_needs_them(self, data: str, tmp_path: Path) -> None:
        aggregator, run = MemoryAggregator(), a_run("fedproto", **OWN)
        runner = a_runner(data, tmp_path)
        runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        task = a_task(aggregator, run, TaskKind.EVALUATE, 1)
        with pytest.raises(MalformedRequest, match="comes with prototypes"):
            runner.perform(replace(task, payload=replace(task.payload, prototype_sets=())), aggregator)
        wrong = PrototypeSet.of(np.ones((1, 5)), [0], [1])
        with pytest.raises(InvalidModel, match="5 features"):
            runner.perform(a_task(aggregator, run, TaskKind.EVALUATE, 1, prototypes=wrong), aggregator)


def seen_in(
    config: RunConfig,
    data: DeviceImages,
    method: Method | None = None,
    prototypes: PrototypeSet | None = None,
    round_number: int = 1,
) -> tuple[Any, Any, str]:
    """Features and labels that the last pass of a training saw, and what it came to."""
    known = prototypes or PrototypeSet.empty()
    given = {"method": method or config.algorithm, "prototypes": known, "round": round_number, "keeps_seen": True}
    model, result = train(config, data=data, **given)
    assert result.seen is not None
    return *result.seen, digest(model)


class TestFeaturesSeen:
    """`proto_pass = last_epoch`: what training saw is summarised."""

    @pytest.mark.parametrize(
        ("training", "num_seen"),
        [
            ({"local_epochs": 2, "batch_size": 5}, 12),
            ({"local_steps": 2, "batch_size": 4}, 8),
            ({"local_steps": 3, "batch_size": 4}, 12),
        ],
    )
    def test_every_sample_of_the_last_pass_is_there_once_and_training_is_the_same(
        self, training: dict[str, int], num_seen: int
    ) -> None:
        config = a_config("fedplcc", training={"local_steps": None, **training})
        data, model = some_data(12, config), a_model(config)
        features, labels, trained = seen_in(config, data, prototypes=some_prototypes(DIM), round_number=2)
        _, result = train(config, model, data, prototypes=some_prototypes(DIM), round=2)
        assert (digest(model), result.seen) == (trained, None)
        assert features.shape == (num_seen, DIM)
        assert features.dtype == np.float32
        assert len(labels) == num_seen
        if num_seen == 12:
            assert labels.tolist() == data.labels_N.tolist()

    def test_of_a_sample_that_came_twice_the_latest_counts(self) -> None:
        """Three of five steps: the last of them begin in one pass and end in the next."""
        config = a_config("fedplcc", training={"local_steps": 5, "batch_size": 4})
        steps: dict[int, Any] = {}
        data = some_data(12, config)

        def client_loss(step: ClientStep, hyper: Any) -> Mapping[str, Term]:
            steps[len(steps)] = step.features_BD.detach().clone()
            return {"ce": Term(step.task_loss)}

        method = replace(config.algorithm, client_loss=client_loss)
        features, _, _ = seen_in(config, data, method)
        last = [row for number in (2, 3, 4) for row in steps[number].numpy()]
        assert all(any(np.array_equal(row, seen) for row in last) for seen in features)
        assert all(any(np.array_equal(row, seen) for seen in features) for row in steps[4].numpy())
        assert len(features) < 12, "some sample came twice, so another did not come"

    @pytest.mark.parametrize("method", ["fedplcc", "fedproto"])
    def test_samples_that_were_not_seen_count_as_excluded(self, data: str, tmp_path: Path, method: str) -> None:
        aggregator, run = MemoryAggregator(), a_run(method, proto_pass="last_epoch")
        a_runner(data, tmp_path).perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
        ((_, update),) = aggregator.updates
        (blob,) = update.payload.prototype_sets
        weights = prototypes_from_bytes(aggregator.stored[blob.sha256][0]).weights
        assert (update.num_examples, update.num_excluded) == (18, 6), "three steps of four samples"
        assert weights.sum() == 12

    def test_one_step_over_all_samples_sees_the_features_before_it(self) -> None:
        config = a_config("fedplcc", training={"local_steps": 1, "batch_size": 12})
        data, model = some_data(12, config), a_model(config)
        before = model.features(data.batch(torch.arange(12))[0]).detach().numpy()
        np.testing.assert_allclose(seen_in(config, data)[0], before, rtol=1e-5, atol=1e-6)
