"""Tasks done to the end against a aggregator in memory: real data, real model, real training, no wire."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.errors import (
    BlobCorrupt,
    FirstModelDiffers,
    InvalidModel,
    MalformedRequest,
    Unavailable,
    UpdateLost,
    WeightsMissing,
)
from fedplcc.shared.methods.parts import prototypes as prototype_part
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import (
    FEATURE_DIM,
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    Client,
    ClientActivity,
    Membership,
    Payload,
    RunSpec,
    Task,
    TaskKind,
    Update,
)
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.owner.policy import Leaves, Policy
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task import work
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.failures import OutOfMemory
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.inputs import TaskInputs
from fedplcc.trainer.task.models.initial_model import UnfitInitialModel
from fedplcc.trainer.task.parts.prototypes import TooManyPrototypes
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support.later import later
from tests.unit.trainer.builders import config_of, write_pictures
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_run, a_runner, a_train_task, first_model

timm = later("timm")


def test_the_first_model_depends_on_specification_and_seed_alone(data: str) -> None:
    run = a_run()
    update, model = first_model(data, run)
    assert update.num_examples == 0
    assert update.payload.int_lists[FEATURE_DIM] == (from_bytes(model)["classifier.weight"].shape[1],)
    assert first_model(data, a_run("fedavg"))[1] == model
    assert first_model(data, a_run(run={"seed": 1}))[1] != model


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"data": {"classes": ["a", "c"]}}, "model 'cnn4' with 3 classes: tensor 'classifier"),
        (
            {"model": {"name": "resnet10", "stem": "cifar3x3"}},
            "model 'cnn4' with 3 classes: the tensors are of another",
        ),
    ],
)
def test_a_run_cannot_begin_with_a_model_of_another_kind(data: str, sections: dict[str, Any], said: str) -> None:
    _, made = first_model(data, a_run(**sections))
    aggregator = MemoryAggregator()
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, made),))
    task = Task(kind=TaskKind.INIT, run=a_run(), payload=payload, total_rounds=3)
    with pytest.raises(UnfitInitialModel) as refused:
        a_runner(data).perform(task, aggregator)
    assert said in refused.value.detail
    assert not aggregator.updates
    assert "initial_model" in HINTS[refused.value.reason]


def test_every_client_makes_the_first_model_of_the_weights_that_a_run_begins_with(data: str, tmp_path: Path) -> None:
    consent = Consent(weights=WeightsStore(tmp_path / "weights"))
    weights = {
        name: value.numpy() for name, value in timm.create_model("test_resnet", num_classes=0).state_dict().items()
    }
    kept = consent.weights.add(weights, name="net", model="timm:test_resnet", source=Source(place="here"))
    named = {"name": "timm:test_resnet", "weights": "net", "weights_sha256": kept.sha256}
    run, aggregator = a_run("fedavg", model=named), MemoryAggregator()
    task = a_train_task(aggregator, data, run, consent=consent)
    with pytest.raises(WeightsMissing, match="this site has no backbone 'net'"):
        a_runner(data).perform(task, aggregator)
    a_runner(data, consent=consent).perform(task, aggregator)
    assert len(aggregator.updates) == 1
    with pytest.raises(WeightsMissing):
        first_model(data, run)
    drawn = a_train_task(aggregator, data, a_run("fedavg", model={"name": "timm:test_resnet"}))
    with pytest.raises(FirstModelDiffers):
        a_runner(data, consent=consent).perform(replace(task, payload=drawn.payload), aggregator)


def test_a_training_task_ends_in_a_committed_update_that_adds_up(data: str) -> None:
    aggregator = MemoryAggregator()
    activities = []
    task = a_train_task(aggregator, data, a_run())
    a_runner(data).perform(task, aggregator, on_activity=lambda activity, _: activities.append(activity))
    ((number, update),) = aggregator.updates
    assert (number, update.client_id, update.num_examples, update.class_counts) == (1, "ann", 13, (8, 0, 5))
    vectors, is_prototypes = aggregator.stored[update.payload.prototype_set(LOCAL_CLUSTER).sha256]
    prototypes = prototypes_from_bytes(vectors)
    assert is_prototypes
    assert set(prototypes.class_ids.tolist()) == {0, 2}
    assert prototypes.weights.sum() == 13 - update.num_excluded
    assert len(prototypes) == update.num_prototypes
    received = task.payload.tensor_group(MODEL)
    assert received is not None
    before = from_bytes(aggregator.blobs[received.sha256])
    after = from_bytes(aggregator.stored[update.payload.tensor_group(MODEL).sha256][0])
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert {"ce"} <= update.losses.keys()
    assert {"download_seconds", "train_seconds", "summarise_seconds", "upload_seconds"} <= update.timings.keys()
    assert update.timings["retries"] == 2.0
    in_order = list(dict.fromkeys(activities))
    assert in_order == [
        ClientActivity.DOWNLOADING,
        ClientActivity.TRAINING,
        ClientActivity.SUMMARISING,
        ClientActivity.UPLOADING,
    ]


def test_a_finished_update_that_could_not_be_sent_is_sent_without_training_again(data: str) -> None:
    aggregator = MemoryAggregator(failures={"store": [Unavailable("away")], "commit": [Unavailable("away")]})
    runner, activities = a_runner(data), []
    task = a_train_task(aggregator, data, a_run())
    for _ in range(2):
        with pytest.raises(Unavailable):
            runner.perform(task, aggregator, on_activity=lambda *step: activities.append(step))
    runner.perform(task, aggregator, on_activity=lambda *step: activities.append(step))
    assert len(aggregator.updates) == 1
    assert activities.count((ClientActivity.SUMMARISING, 0.0)) == 1
    undisturbed = MemoryAggregator()
    a_runner(data).perform(a_train_task(undisturbed, data, a_run()), undisturbed)
    assert undisturbed.updates[0][1].same_content(aggregator.updates[0][1])


def test_a_finished_update_is_not_sent_for_a_task_with_other_numbers(data: str) -> None:
    """They decide the loss."""
    aggregator = MemoryAggregator(failures={"commit": [Unavailable("away")]})
    runner, task = a_runner(data), a_train_task(aggregator, data, a_run("feddyn"))
    with pytest.raises(Unavailable):
        runner.perform(replace(task, payload=replace(task.payload, scalars={"alpha": 0.0})), aggregator)
    runner.perform(replace(task, payload=replace(task.payload, scalars={"alpha": 1.0})), aggregator)
    ((_, update),) = aggregator.updates
    assert list(update.losses) == ["ce", "prox"]


@pytest.mark.parametrize("method", ["fedplcc", "moon"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "restarted"])
def test_a_committed_update_that_is_asked_for_again_is_sent_without_training(
    data: str, tmp_path: Path, method: str, restarted: bool
) -> None:
    aggregator, activities = MemoryAggregator(), []
    task = a_train_task(aggregator, data, a_run(method))
    runner = TaskRunner(ClientSite.at("ann", "hospital", data), ClientStates(tmp_path, keeps_sent=True))
    runner.perform(task, aggregator)
    blobs = dict(aggregator.stored)
    ((_, first),) = aggregator.updates
    aggregator.stored.clear()
    aggregator.updates.clear()
    if restarted:
        runner = TaskRunner(ClientSite.at("ann", "hospital", data), ClientStates(tmp_path, keeps_sent=True))
    again = replace(task, missing=(first.payload.blobs[0].sha256,), times_asked=1)
    for _ in range(2):  # it may get damaged twice
        runner.perform(again, aggregator, on_activity=lambda activity, _: activities.append(activity))
    assert ClientActivity.TRAINING not in activities
    assert all(update.same_content(first) for _, update in aggregator.updates)
    assert aggregator.stored == blobs
    runner.perform(replace(task, round=2), aggregator)
    kept = ClientStates(tmp_path).manifest.sent["run-1"]
    assert kept.round == 2, "one update of a run is kept"


def test_a_client_that_no_longer_has_its_update_trains_it_again_or_says_so(data: str, tmp_path: Path) -> None:
    for method in ("fedavg", "moon"):
        folder = tmp_path / method
        aggregator = MemoryAggregator()
        task = a_train_task(aggregator, data, a_run(method))
        runner = TaskRunner(ClientSite.at("ann", "hospital", data), ClientStates(folder, keeps_sent=True))
        runner.perform(task, aggregator)
        ((_, first),) = aggregator.updates
        lost = first.payload.blobs[0].sha256
        state = ClientStates(folder).manifest.promoted.get("run-1")
        if state is None or state.state is None or state.state.sha256 != lost:
            (folder / lost).unlink()
        else:
            (folder / lost).write_bytes(b"damaged")
        again = replace(task, missing=(lost,), times_asked=1)
        if method == "moon":
            with pytest.raises(UpdateLost):
                runner.perform(again, aggregator)
            assert UpdateLost.reason in HINTS
        else:
            runner.perform(again, aggregator)
            assert aggregator.updates[-1][1].same_content(first)


def test_a_stop_ends_training_before_the_next_batch_and_leaves_nothing_behind(data: str) -> None:
    aggregator, steps = MemoryAggregator(), []
    run = a_run(training={"local_steps": 50})

    def on_activity(activity: ClientActivity, progress: float) -> None:
        if activity is ClientActivity.TRAINING and progress:
            steps.append(progress)

    runner, task = a_runner(data), a_train_task(aggregator, data, run)
    with pytest.raises(Cancelled):
        runner.perform(task, aggregator, should_stop=lambda: len(steps) >= 3, on_activity=on_activity)
    assert len(steps) == 3
    assert aggregator.updates == []
    runner.perform(task, aggregator)
    undisturbed = MemoryAggregator()
    a_runner(data).perform(a_train_task(undisturbed, data, run), undisturbed)
    assert undisturbed.updates[0][1].same_content(aggregator.updates[0][1])


def test_the_model_that_was_evaluated_is_not_downloaded_again_for_the_next_round(data: str) -> None:
    def num_fetched(**options: Any) -> tuple[int, Update]:
        aggregator = MemoryAggregator()
        train = a_train_task(aggregator, data, a_run("fedavg"))
        evaluate = replace(train, kind=TaskKind.EVALUATE, payload=Payload(tensor_groups=train.payload.tensor_groups))
        runner = a_runner(data, **options)
        for task in (evaluate, replace(train, round=2), replace(evaluate, round=2), replace(evaluate, round=3)):
            runner.perform(task, aggregator)
        return aggregator.fetched.count(MODEL), aggregator.updates[-1][1]

    # Training consumes what was kept: the second evaluation downloads, the third has it.
    (kept, update), (fetched, same) = num_fetched(keeps_evaluated=True), num_fetched()
    assert (kept, fetched) == (2, 4)
    assert update.same_content(same)


def test_bytes_that_are_not_what_they_are_called_are_fetched_once_more(data: str) -> None:
    class Flaky(MemoryAggregator):
        bad = 1

        def fetch(self, blob: BlobRef) -> bytes:
            self.bad -= 1
            return b"something else" if self.bad >= 0 else super().fetch(blob)

    aggregator = Flaky()
    task = a_train_task(aggregator, data, a_run())
    a_runner(data).perform(task, aggregator)
    assert len(aggregator.updates) == 1
    aggregator.bad = 2
    with pytest.raises(BlobCorrupt, match="SHA-256"):
        a_runner(data).perform(task, aggregator)
    endless = replace(task, payload=Payload(tensor_groups=(BlobRef(MODEL, "0" * 64, 2**60),)))
    with pytest.raises(OutOfMemory, match="than are free here"):
        a_runner(data).perform(endless, MemoryAggregator())


def test_another_model_than_the_runs_is_refused_before_training(data: str) -> None:
    aggregator = MemoryAggregator()
    task = a_train_task(aggregator, data, a_run(), round_number=2)
    other = aggregator.offer(MODEL, to_bytes({"classifier.weight": np.zeros((3, 7), np.float32)}))
    with pytest.raises(InvalidModel, match="another model"):
        a_runner(data).perform(replace(task, payload=replace(task.payload, tensor_groups=(other,))), aggregator)


@pytest.mark.parametrize("missing", ["tensor_groups", "prototype_sets"])
def test_a_payload_without_what_the_method_needs_is_refused(data: str, missing: str) -> None:
    aggregator = MemoryAggregator()
    task = a_train_task(aggregator, data, a_run())
    lacking: dict[str, Any] = {missing: ()}
    payload = replace(task.payload, **lacking)
    with pytest.raises(MalformedRequest, match="comes with"):
        a_runner(data).perform(replace(task, payload=payload), aggregator)


def test_the_hash_of_another_configuration_brings_that_one_not_back(data: str) -> None:
    """The owner's yes is to the text: what was read before of another must not be done in its name."""
    runner, other = a_runner(data), a_run(training={"local_steps": 50})
    runner.client_for(other)
    run = replace(a_run(), config_hash=other.config_hash)
    with pytest.raises(MalformedRequest, match="SHA-256"):
        runner.perform(Task(kind=TaskKind.INIT, run=run), MemoryAggregator())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", "[" * 100_000, "1" * 5000, '{"run": []}', '{"run": {"method": "fedavg", "rounds": 1e999}}'],
)
def test_a_text_that_is_no_document_is_refused_and_no_crash(data: str, text: str) -> None:
    run = RunSpec(run_id="run-1", config_json=text, config_hash=sha256_hex(text.encode()))
    with pytest.raises(MalformedRequest, match="no configuration"):
        a_runner(data).perform(Task(kind=TaskKind.INIT, run=run), MemoryAggregator())


def test_a_client_announces_its_own_classes_and_takes_part_with_the_runs(data: str) -> None:
    runner = a_runner(data, samples_per_class=6)
    announced, present = runner.announce(), runner.client_for(a_run())
    assert announced.class_counts == {"a": 6, "c": 5}
    assert present.class_counts == {"a": 6, "b": 0, "c": 5}
    assert announced.num_examples == present.num_examples == 11
    assert announced.environment.device == "cpu"


def test_other_sample_counts_than_announced_are_announced_before_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path, 10)
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    runner, aggregator = a_runner(f"folder:{tmp_path}"), MemoryAggregator()
    said = runner.announce()
    heard: list[Client] = []
    join = aggregator.announce

    def announce(client: Client) -> Membership:
        heard.append(client)
        return join(client)

    monkeypatch.setattr(aggregator, "announce", announce)
    runner.perform(a_train_task(aggregator, f"folder:{tmp_path}", a_run()), aggregator)
    assert heard[0].num_examples == said.num_examples - 1
    assert runner.announced == heard[0]


def test_a_new_run_at_the_same_trainer_reads_the_folders_as_they_are_then(tmp_path: Path) -> None:
    """A trainer stays up for weeks: what its owner adds, takes away or mends counts from the next run on, and not before."""
    rng = np.random.default_rng(0)

    def put(name: str) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / name)

    for name in ("a", "b"):
        for number in range(5):
            put(f"{name}/{number}.png")
    data, folder = f"folder:{tmp_path}", tmp_path.parent / f"{tmp_path.name}-state"
    runner, aggregator = a_runner(data, folder), MemoryAggregator()
    before = a_train_task(aggregator, data, a_run("fedavg"))
    runner.perform(before, aggregator)
    for number in range(10, 15):
        put(f"b/{number}.png")
    after = replace(before, run=replace(a_run("fedavg"), run_id="run-2"))
    for task in (after, replace(before, round=2), replace(after, round=2)):
        runner.perform(task, aggregator)
    assert [update.class_counts for _, update in aggregator.updates] == [(4, 4, 0), (4, 8, 0), (4, 4, 0), (4, 8, 0)]


def test_images_that_are_read_before_their_run_has_an_id_are_read_once_and_leave_the_record_unread(
    data: str, tmp_path: Path
) -> None:
    """A simulation reads its clients' data first, and brings them the record of earlier runs after that."""
    runner, aggregator = a_runner(data, tmp_path / "state"), MemoryAggregator()
    runner.client_for(replace(a_run(), run_id=""))
    read = runner._inputs._loaded
    assert not (tmp_path / "state").exists()
    runner.perform(a_train_task(aggregator, data, a_run()), aggregator)
    assert runner._inputs._loaded is read is not None


def test_a_new_run_reads_the_public_images_anew_too(data: str, tmp_path: Path) -> None:
    """Else a site whose trainer was started since has others, and the run is refused."""
    rng = np.random.default_rng(0)
    (tmp_path / "a").mkdir()
    for number in range(5):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / "a" / f"{number}.png")
    config = config_of(
        a_run(
            "fcclplus",
            public={"data": f"folder:{tmp_path}", "num_images": 4},
            method={"public_batch": 4},
            model={"name": "cnn4"},
        )
    )
    site = ClientSite.at("ann", "hospital", data, device="cpu", consent=Consent(public_data=f"folder:{tmp_path}"))
    inputs = TaskInputs(site, None, keeps_evaluated=False, latest_model=None)
    lists = []
    for anew in (True, False, True):
        inputs.data(config, None, anew=anew)
        lists.append(inputs.public_lists(config))
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / "a" / f"{number - 1}.png")
    assert lists[0] == lists[1] != lists[2]


def test_files_that_cannot_be_read_are_left_out_and_reported(tmp_path: Path) -> None:
    write_pictures(tmp_path, 10)
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    registry = new_registry("trainer")
    problems: list[Any] = []
    runner = a_runner(f"folder:{tmp_path}", metrics=TrainerMetrics(registry))
    client = runner.client_for(a_run(), problems.append)
    assert client.num_examples < runner.announce().num_examples
    (problem,) = problems
    assert (problem.reason, problem.is_fatal) == ("UNREADABLE_FILES", False)
    assert problem.detail.startswith("1 of the data set")
    assert str(tmp_path) not in problem.detail + problem.hint
    assert registry.get_sample_value("fedplcc_unreadable_files") == 1
    assert runner.readings()["unreadable_files"] == 1
    for path in (tmp_path / "a").iterdir():
        path.write_bytes(b"no image")
    told: list[Any] = []
    a_runner(f"folder:{tmp_path}").client_for(a_run(), told.append)
    assert told[0].detail.endswith("left out; no train image of a is left; no test image of a is left")
    withheld = Policy(leaves=Leaves.model_validate({"class_counts": False}))
    a_runner(f"folder:{tmp_path}", policy=withheld).client_for(a_run(), told.append)
    assert told[1].detail.endswith("left out")


def test_training_is_measured(data: str) -> None:
    registry = new_registry("trainer")
    aggregator, runner = MemoryAggregator(), a_runner(data, metrics=TrainerMetrics(registry))
    runner.perform(a_train_task(aggregator, data, a_run()), aggregator)
    assert registry.get_sample_value("fedplcc_training_samples_total") == 8
    assert registry.get_sample_value("fedplcc_training_batch_seconds_count") == 2
    assert registry.get_sample_value("fedplcc_local_prototypes") == aggregator.updates[0][1].num_prototypes
    assert registry.get_sample_value("fedplcc_training_data_seconds_count") == 2
    readings = runner.readings()
    assert 0 <= readings["data_seconds"] < readings["batch_seconds"]
    assert readings["samples_per_second"] == pytest.approx(4 / readings["batch_seconds"])


@pytest.mark.parametrize(("clip_norm", "num_clipped"), [(1e-6, 2), (1e6, 0)])
def test_clipped_steps_are_told_with_the_update_and_counted(
    data: str, clip_norm: float | None, num_clipped: int
) -> None:
    registry = new_registry("trainer")
    aggregator, runner = MemoryAggregator(), a_runner(data, metrics=TrainerMetrics(registry))
    run = a_run(training={"clip_norm": clip_norm})
    runner.perform(a_train_task(aggregator, data, run), aggregator)
    timings = aggregator.updates[0][1].timings
    assert (timings["steps"], timings["clipped_steps"]) == (2.0, float(num_clipped))
    assert registry.get_sample_value("fedplcc_training_clipped_steps_total") == num_clipped


def test_more_prototypes_than_the_aggregator_takes_are_not_sent_and_the_error_says_what_to_do(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prototype_part, "MAX_ROWS_PER_CLASS", 1)
    aggregator = MemoryAggregator()
    task = a_train_task(aggregator, data, a_run(method={"partition": "first"}))
    with pytest.raises(
        TooManyPrototypes, match=r"prototypes of class 0, at most 1 .* partition = \"last\" or a larger"
    ):
        a_runner(data).perform(task, aggregator)
    assert aggregator.updates == []
    assert TooManyPrototypes.reason in HINTS
    a_runner(data).perform(
        a_train_task(aggregator, data, a_run(method={"partition": "first", "min_cluster_size": 8})), aggregator
    )
    assert len(aggregator.updates) == 1


def test_features_that_are_not_finite_are_divergence_and_no_bug_of_the_method(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(*arguments: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        features_ND, labels_N = collect_features(*arguments, **options)
        return np.where(features_ND == features_ND.max(), np.inf, features_ND), labels_N

    monkeypatch.setattr(work, "collect_features", collect)
    aggregator = MemoryAggregator()
    task = a_train_task(aggregator, data, a_run())
    with pytest.raises(
        TrainingDiverged, match=r"diverged: the trained model gives features that are not finite; lower "
    ):
        a_runner(data).perform(task, aggregator)
    assert aggregator.updates == []
