"""Tasks done to the end against a aggregator in memory: real data, real model, real training, no wire."""

import contextlib
import itertools
import resource
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import (
    BlobCorrupt,
    BlobNotFound,
    BlobTooLarge,
    DiskFull,
    FedplccError,
    FirstModelDiffers,
    InvalidModel,
    MalformedRequest,
    MalformedUpdate,
    RoundClosed,
    StaleRound,
    Unavailable,
    UpdateLost,
    WeightsMissing,
)
from fedplcc.shared.methods.parts import prototypes as prototype_part
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.tensors import (
    from_bytes,
    prototypes_from_bytes,
    prototypes_to_bytes,
    sha256_hex,
    to_bytes,
)
from fedplcc.shared.types import (
    FEATURE_DIM,
    GLOBAL_CLUSTER,
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    Client,
    ClientActivity,
    ClientProblem,
    CommittedUpdate,
    ForgottenRun,
    Membership,
    Payload,
    PrototypeSet,
    RunSpec,
    Task,
    TaskKind,
    Update,
)
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent
from fedplcc.trainer.owner.policy import Leaves, Policy
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task import work
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.failures import OutOfMemory
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.inputs import TaskInputs
from fedplcc.trainer.task.manifest import manifest_in
from fedplcc.trainer.task.models.initial_model import UnfitInitialModel
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.parts.prototypes import TooManyPrototypes
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support.failpoints import hooked
from tests.support.hosts.failing_disk import Killed
from tests.support.later import later
from tests.unit.trainer.builders import a_spec, config_of, npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator

timm = later("timm")

CLASSES = ("a", "b", "c")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight images of "a" and five of "c"; none of "b"."""
    rng = np.random.default_rng(0)
    labels = np.array([0] * 8 + [1] * 5)
    images = (rng.integers(0, 60, (13, 16, 16, 3)) + 150 * labels[:, None, None, None]).astype(np.uint8)
    tests = images[::3] + np.uint8(1)  # no copies, which are told
    return npz(tmp_path_factory.mktemp("data") / "images.npz", images, labels, ["a", "c"], tests=(tests, labels[::3]))


def a_run(method_name: str = "fedplcc", /, **sections: Any) -> RunSpec:
    document: dict[str, Any] = {
        "run": {"method": method_name, "rounds": 3, "clients": ["ann"]},
        "model": {"name": "cnn4"},
        "data": {"classes": list(CLASSES), "image_size": 16},
        "training": {"local_steps": 2, "batch_size": 4},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    config = parse_run_config(document)
    return a_spec(config)


def a_runner(data: str, folder: Path | None = None, device: str = "cpu", **options: Any) -> TaskRunner:
    """A client's runner on a state folder; a new one beside the data if none is given."""
    states = ClientStates(folder or Path(tempfile.mkdtemp(dir=Path(data.partition(":")[2]).parent)))
    facts = {name: options.pop(name) for name in ("samples_per_class", "consent", "policy") if name in options}
    return TaskRunner(ClientSite.at("ann", "hospital", data, device=device, **facts), states, **options)


def first_model(data: str, run: RunSpec, consent: Consent = NO_CONSENT) -> tuple[Update, bytes]:
    aggregator = MemoryAggregator()
    a_runner(data, consent=consent).perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), aggregator)
    ((_, update),) = aggregator.updates
    return update, aggregator.stored[update.payload.tensor_group(MODEL).sha256][0]


def a_train_task(
    aggregator: MemoryAggregator,
    data: str,
    run: RunSpec,
    prototypes: PrototypeSet | None = None,
    round_number: int = 1,
    consent: Consent = NO_CONSENT,
) -> Task:
    _, model = first_model(data, run, consent)
    groups = (aggregator.offer(MODEL, model),)
    sets: tuple[Any, ...] = ()
    if "fedplcc" in run.config_json:
        sets = (aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(prototypes or PrototypeSet.empty())),)
    payload = Payload(tensor_groups=groups, prototype_sets=sets)
    return Task(kind=TaskKind.TRAIN, run=run, round=round_number, total_rounds=3, payload=payload)


def test_the_first_model_depends_on_specification_and_seed_alone(data: str) -> None:
    run = a_run()
    update, model = first_model(data, run)
    assert update.num_examples == 0
    assert update.payload.int_lists[FEATURE_DIM] == (from_bytes(model)["classifier.weight"].shape[1],)
    assert first_model(data, a_run("fedavg"))[1] == model
    assert first_model(data, a_run(run={"seed": 1}))[1] != model


def test_a_run_that_begins_with_a_model_commits_that_and_no_other(data: str) -> None:
    _, made = first_model(data, a_run(run={"seed": 9}))
    aggregator = MemoryAggregator()
    task = Task(
        kind=TaskKind.INIT,
        run=a_run(),
        payload=Payload(tensor_groups=(aggregator.offer(MODEL, made),)),
        total_rounds=3,
    )
    a_runner(data).perform(task, aggregator)
    ((number, update),) = aggregator.updates
    group = update.payload.tensor_group(MODEL)
    assert (number, update.num_examples) == (0, 0)
    assert aggregator.stored[group.sha256] == (made, False)
    assert update.payload.int_lists[FEATURE_DIM] == (from_bytes(made)["classifier.weight"].shape[1],)


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


def test_clients_of_one_process_fetch_a_model_once_and_report_what_each_receives(data: str) -> None:
    def fetched(latest_models: list[LatestModel] | list[None]) -> tuple[int, list[Update], list[float]]:
        aggregator = MemoryAggregator()
        train = a_train_task(aggregator, data, a_run("fedavg"))
        for latest_model in latest_models:
            a_runner(data, latest_model=latest_model).perform(train, aggregator)
        contents = [replace(update, timings={}) for _, update in aggregator.updates]
        return (
            aggregator.fetched.count(MODEL),
            contents,
            [update.timings["received_bytes"] for _, update in aggregator.updates],
        )

    shared = LatestModel()
    (once, updates, received), (twice, same, expected) = fetched([shared] * 2), fetched([None] * 2)
    assert (once, twice) == (1, 2)
    assert updates == same
    assert received == expected


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
    for name in ("a", "b"):
        for number in range(5):
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(path)
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
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        for number in range(5):
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
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


# -- What outlives the process -----------------------------------------------------------------------------------------


EVERY = 9
"""Which of its steps a trainer is killed at here; test_client_state.py does it at each, without training."""


def hashes(aggregator: MemoryAggregator) -> list[list[str]]:
    return [[blob.sha256 for blob in update.payload.blobs] for _, update in aggregator.updates]


def moon_tasks(data: str, aggregator: MemoryAggregator, rounds: int = 3, **sections: Any) -> list[Task]:
    """A training task of every round, all from the same model: what differs is the round, and what the client kept."""
    first = a_train_task(aggregator, data, a_run("moon", **sections))
    return [replace(first, round=number) for number in range(1, rounds + 1)]


@pytest.fixture(scope="module")
def undisturbed(data: str) -> list[list[str]]:
    """Hashes of three rounds of MOON by one runner that lives through them."""
    aggregator = MemoryAggregator()
    runner = a_runner(data)
    for task in moon_tasks(data, aggregator):
        runner.perform(task, aggregator)
    return hashes(aggregator)


def test_what_a_client_keeps_changes_its_next_update_and_the_first_is_fedavgs(
    data: str, undisturbed: list[list[str]]
) -> None:
    forgetful, plain = MemoryAggregator(), MemoryAggregator()
    for task in moon_tasks(data, forgetful):
        a_runner(data).perform(task, forgetful)
    a_runner(data).perform(a_train_task(plain, data, a_run("fedavg")), plain)
    assert hashes(forgetful)[0] == undisturbed[0] == hashes(plain)[0]
    assert hashes(forgetful)[1] != undisturbed[1]
    assert forgetful.updates[1][1].losses.keys() == {"ce"}


@pytest.mark.parametrize("method", ["fedplcc", "moon"])
@pytest.mark.parametrize(
    ("where", "max_inline_bytes"),
    [
        ("fetch", 0),
        ("store", 0),
        ("commit", 0),
        ("acknowledgement", 0),
        ("commit", 1 << 20),
        ("acknowledgement", 1 << 20),
    ],
)
def test_a_trainer_that_is_killed_between_training_and_acknowledgement_trains_nothing_again(
    data: str, tmp_path: Path, method: str, where: str, max_inline_bytes: int
) -> None:
    class Lossy(MemoryAggregator):
        def commit_update(
            self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
        ) -> CommittedUpdate:
            self.updates = [entry for entry in self.updates if entry[0] != round_number]
            return super().commit_update(run_id, round_number, update, inline)

    aggregator, activities = Lossy(max_inline_bytes=max_inline_bytes), []
    task = a_train_task(aggregator, data, a_run(method))
    aggregator.failures[where] = [Killed(where)]
    with pytest.raises(Killed):
        a_runner(data, tmp_path).perform(task, aggregator)
    runner = a_runner(data, tmp_path)
    runner.perform(task, aggregator, on_activity=lambda activity, _: activities.append(activity))
    assert (ClientActivity.TRAINING in activities) is (where == "fetch")
    whole = MemoryAggregator()
    a_runner(data).perform(a_train_task(whole, data, a_run(method)), whole)
    assert [update.same_content(whole.updates[0][1]) for _, update in aggregator.updates] == [True]
    assert ClientStates(tmp_path).manifest.staged is None
    assert (aggregator.stored == {}) is (max_inline_bytes > 0)


@pytest.mark.parametrize("refusal", [BlobNotFound("unknown"), BlobTooLarge("fewer")])
def test_an_inline_update_is_uploaded_where_the_aggregator_is_another_version_now(
    data: str, tmp_path: Path, refusal: FedplccError
) -> None:
    aggregator = MemoryAggregator(max_inline_bytes=1 << 20)
    task = a_train_task(aggregator, data, a_run("fedavg"))
    aggregator.failures["commit"] = [refusal]
    a_runner(data, tmp_path).perform(task, aggregator)
    ((_, update),) = aggregator.updates
    assert list(aggregator.stored) == [blob.sha256 for blob in update.payload.blobs]
    assert aggregator.inline == [()]


def test_a_trainer_killed_at_any_step_of_its_folder_gives_the_bytes_of_one_that_was_not(
    data: str, undisturbed: list[list[str]], tmp_path: Path
) -> None:
    """Rounds go on as an aggregator's do: what is committed is not asked for again."""
    whole = MemoryAggregator()
    tasks = moon_tasks(data, whole)
    for at in itertools.count(1, step=EVERY):
        aggregator = MemoryAggregator(blobs=whole.blobs)
        passed: list[str] = []

        def kill(name: str, at: int = at, passed: list[str] = passed) -> None:
            passed.append(name)
            if len(passed) == at:
                raise Killed(name)

        runner = a_runner(data, tmp_path / str(at))
        with hooked(kill):
            while len(aggregator.updates) < len(tasks):
                try:
                    runner.perform(tasks[len(aggregator.updates)], aggregator)
                except Killed:
                    runner = a_runner(data, tmp_path / str(at))
        assert hashes(aggregator) == undisturbed, passed[at - 1 : at]
        if at > len(passed):
            break
    assert {name.rsplit(".", 1)[0] for name in passed} >= {
        "trainer.state.folder.mkdir",
        "trainer.state.blob.rename",
        "trainer.state.manifest.rename",
        "trainer.state.blob.remove",
    }


def test_the_state_of_an_update_that_was_refused_is_not_the_clients(data: str, undisturbed: list[list[str]]) -> None:
    aggregator = MemoryAggregator()
    runner, tasks = a_runner(data), moon_tasks(data, aggregator)
    runner.perform(tasks[0], aggregator)
    aggregator.failures["commit"] = [RoundClosed("the round has closed")]
    with pytest.raises(RoundClosed):
        runner.perform(tasks[1], aggregator)
    runner.perform(tasks[2], aggregator)
    straight = MemoryAggregator()
    other = a_runner(data)
    for task in moon_tasks(data, straight)[::2]:
        other.perform(task, straight)
    assert hashes(aggregator) == hashes(straight) != [undisturbed[0], undisturbed[2]]


def test_a_commit_whose_refusal_is_all_that_was_heard_of_it_counts_all_the_same(
    data: str, undisturbed: list[list[str]]
) -> None:
    """The acknowledgement was lost, and the retry came when the round had closed."""

    class Closing(MemoryAggregator):
        def commit_update(
            self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
        ) -> CommittedUpdate:
            committed = super().commit_update(run_id, round_number, update, inline)
            if round_number == 2:
                raise RoundClosed("the round has closed")
            return committed

    aggregator = Closing()
    runner = a_runner(data)
    for task in moon_tasks(data, aggregator):
        with contextlib.suppress(RoundClosed):
            runner.perform(task, aggregator)
    assert hashes(aggregator) == undisturbed


@pytest.mark.parametrize("arrives", ["before the other run's task", "while the other run is trained", "never"])
def test_a_commit_of_one_run_that_is_only_heard_of_in_another_still_counts(
    data: str, undisturbed: list[list[str]], arrives: str
) -> None:
    """The first run is paused at once while its commit is on its way, and the client is given work of a second run."""

    class Slow(MemoryAggregator):
        on_its_way: Any = None

        def commit_update(
            self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
        ) -> CommittedUpdate:
            if run_id == "run-2" or self.on_its_way is not None:
                return super().commit_update(run_id, round_number, update, inline)
            self.on_its_way = (round_number, update)
            raise Cancelled

        def arrive(self) -> None:
            self.updates.append(self.on_its_way)

    aggregator, runner = Slow(open_runs=("run-1", "run-2")), a_runner(data)
    first, second, third = moon_tasks(data, aggregator)
    with pytest.raises(Cancelled):
        runner.perform(first, aggregator)
    if arrives == "before the other run's task":
        aggregator.arrive()

    def on_activity(activity: ClientActivity, progress: float) -> None:
        if activity is ClientActivity.TRAINING and progress == 1.0 and arrives == "while the other run is trained":
            aggregator.arrive()

    other = replace(a_run("fedavg"), run_id="run-2")
    runner.perform(replace(first, run=other), aggregator, on_activity=on_activity)
    assert aggregator.updates.pop()[1].losses.keys() == {"ce"}
    for task in (second, third) if aggregator.updates else (first, second, third):
        runner.perform(task, aggregator)
    assert hashes(aggregator) == undisturbed


def left_in(folder: Path) -> list[str]:
    """Names of the blobs that a trainer keeps, but of the record of its data."""
    records = {blob.sha256 for blob in manifest_in(folder).data.values()}
    return sorted({path.name for path in folder.iterdir()} - records - {"manifest.json"})


def test_a_finished_update_of_another_client_is_not_sent_whose_state_directory_this_one_took_over(
    data: str, tmp_path: Path
) -> None:
    aggregator = MemoryAggregator(failures={"store": [Killed("store")]})
    task = a_train_task(aggregator, data, a_run("fedavg"))
    with pytest.raises(Killed):
        a_runner(data, tmp_path).perform(task, aggregator)
    TaskRunner(ClientSite.at("bob", "hospital", data, device="cpu"), ClientStates(tmp_path)).perform(task, aggregator)
    assert aggregator.updates[0][1].client_id == "bob"


def test_an_update_that_the_aggregator_takes_for_wrong_is_sent_again_but_trained_anew_after_a_restart(
    data: str, tmp_path: Path
) -> None:
    wrong = [MalformedUpdate("no") for _ in range(2)]
    aggregator, activities = MemoryAggregator(failures={"commit": list(wrong)}), []
    task = a_train_task(aggregator, data, a_run("fedavg"))
    runner = a_runner(data, tmp_path)
    for _ in wrong:
        with pytest.raises(MalformedUpdate):
            runner.perform(task, aggregator, on_activity=lambda activity, _: activities.append(activity))
    assert activities.count(ClientActivity.DOWNLOADING) == 1
    a_runner(data, tmp_path).perform(task, aggregator, on_activity=lambda activity, _: activities.append(activity))
    assert activities.count(ClientActivity.DOWNLOADING) == 2


def test_a_state_that_is_not_there_is_reported_and_the_client_takes_part_as_if_for_the_first_time(
    data: str, tmp_path: Path
) -> None:
    aggregator, problems = MemoryAggregator(), list[ClientProblem]()
    tasks = moon_tasks(data, aggregator)
    a_runner(data, tmp_path / "first").perform(tasks[0], aggregator)
    a_runner(data, tmp_path / "another").perform(tasks[1], aggregator, on_problem=problems.append)
    (problem,) = problems
    assert (problem.reason, problem.is_fatal) == ("CLIENT_STATE_LOST", False)
    assert "--state-dir" in problem.hint
    assert aggregator.updates[1][1].losses.keys() == {"ce"}


def test_a_client_that_is_admitted_again_after_its_run_forgot_it_begins_anew_and_has_lost_nothing(
    data: str, tmp_path: Path
) -> None:
    aggregator, problems = MemoryAggregator(), list[ClientProblem]()
    tasks = moon_tasks(data, aggregator)
    runner = a_runner(data, tmp_path)
    runner.perform(tasks[0], aggregator)
    aggregator.forgotten_runs = (ForgottenRun("run-1", 1),)
    runner.forget(aggregator.forgotten_runs)
    runner.perform(tasks[1], aggregator, on_problem=problems.append)
    runner.perform(tasks[2], aggregator, on_problem=problems.append)
    assert problems == []
    assert [update.losses.keys() for _, update in aggregator.updates[1:]] == [{"ce"}, {"ce", "contrast"}]


@pytest.mark.parametrize("rounds", [(1, 2, 2), (1, 2, 1)], ids=["the same round", "an earlier round"])
def test_an_aggregator_that_is_back_at_an_earlier_round_gets_no_state_of_a_later_one(
    data: str, tmp_path: Path, rounds: tuple[int, int, int]
) -> None:
    aggregator, problems = MemoryAggregator(), list[ClientProblem]()
    tasks = moon_tasks(data, aggregator)
    runner = a_runner(data, tmp_path)
    for number in rounds:
        aggregator.updates = [entry for entry in aggregator.updates if entry[0] < number]
        runner.perform(tasks[number - 1], aggregator, on_problem=problems.append)
    assert [problem.reason for problem in problems] == ["CLIENT_STATE_LOST"]
    assert aggregator.updates[-1][1].losses.keys() == {"ce"}


def test_a_task_that_comes_after_its_update_is_committed_takes_no_state_away(
    data: str, undisturbed: list[list[str]]
) -> None:
    """It was on its way to the trainer, on a stream that was opened anew, while the update was acknowledged."""
    aggregator, problems = MemoryAggregator(), list[ClientProblem]()
    runner = a_runner(data)
    for task in moon_tasks(data, aggregator):
        runner.perform(task, aggregator)
        with pytest.raises(StaleRound):
            runner.perform(task, aggregator, on_problem=problems.append)
    assert problems == []
    assert hashes(aggregator) == undisturbed


def test_a_full_disk_keeps_the_finished_update_in_memory_until_there_is_room(data: str, tmp_path: Path) -> None:
    """The limit on the size of this process's files is the kernel's own: a write beyond it fails in the middle."""
    aggregator, activities = MemoryAggregator(), []
    tasks = moon_tasks(data, aggregator)
    runner = a_runner(data, tmp_path)
    runner.perform(tasks[0], aggregator)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        for _ in range(2):
            with pytest.raises(DiskFull):
                runner.perform(tasks[1], aggregator, on_activity=lambda activity, _: activities.append(activity))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert DiskFull.reason in HINTS
    assert len(aggregator.updates) == 1
    assert len(left_in(tmp_path)) == 1, "only the state of the first round is there"
    runner.perform(tasks[1], aggregator, on_activity=lambda activity, _: activities.append(activity))
    assert activities.count(ClientActivity.DOWNLOADING) == 1
    whole = MemoryAggregator()
    other = a_runner(data)
    for task in moon_tasks(data, whole, rounds=2):
        other.perform(task, whole)
    assert hashes(aggregator) == hashes(whole)


def test_a_promotion_that_finds_no_room_waits_and_is_made_up_for_before_the_next_update(
    data: str, undisturbed: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = MemoryAggregator()
    runner, tasks = a_runner(data), moon_tasks(data, aggregator)
    with monkeypatch.context() as patch:
        patch.setattr(ClientStates, "promote", raising(DiskFull("no room")))
        runner.perform(tasks[0], aggregator)
    for task in tasks[1:]:
        runner.perform(task, aggregator)
    assert hashes(aggregator) == undisturbed


def raising(error: Exception) -> Callable[..., Never]:
    def function(*_arguments: object) -> Never:
        raise error

    return function
