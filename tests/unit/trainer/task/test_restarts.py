"""Finished updates and client states that outlive their trainer, and runs that go on after kills and losses."""

import contextlib
import itertools
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import pytest

from fedplcc.shared.errors import (
    BlobNotFound,
    BlobTooLarge,
    DiskFull,
    FedplccError,
    MalformedUpdate,
    RoundClosed,
    StaleRound,
)
from fedplcc.shared.types import ClientActivity, ClientProblem, CommittedUpdate, ForgottenRun, Task, Update
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.manifest import manifest_in
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.support.failpoints import hooked
from tests.support.hosts.failing_disk import Killed
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_run, a_runner, a_train_task


def raising(error: Exception) -> Callable[..., Never]:
    def function(*_arguments: object) -> Never:
        raise error

    return function


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


@pytest.mark.parametrize(
    "steps",
    [
        [("first", 1), ("another", 2)],
        [("first", 1), ("another", 2), ("first", 3)],
        [("first", 1), ("first", 2), ("first", 2)],
        [("first", 1), ("first", 2), ("first", 1)],
    ],
    ids=[
        "a lost folder",
        "another trainer acted meanwhile",
        "a restored aggregator",
        "one restored to an earlier round",
    ],
)
def test_a_state_of_another_update_than_the_last_one_is_reported_and_not_used(
    data: str, tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    aggregator = MemoryAggregator()
    tasks = moon_tasks(data, aggregator)
    runners = {folder: a_runner(data, tmp_path / folder) for folder, _ in steps}
    for folder, number in steps:
        problems: list[ClientProblem] = []
        aggregator.updates = [entry for entry in aggregator.updates if entry[0] < number]
        runners[folder].perform(tasks[number - 1], aggregator, on_problem=problems.append)
    (problem,) = problems
    assert (problem.reason, problem.is_fatal) == ("CLIENT_STATE_LOST", False)
    assert "--state-dir" in problem.hint
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


def test_a_method_without_client_state_asks_for_nothing_and_leaves_the_record_of_its_data_alone(
    data: str, tmp_path: Path
) -> None:
    aggregator = MemoryAggregator()
    runner, task = a_runner(data, tmp_path), a_train_task(aggregator, data, a_run("fedavg"))
    for number in (1, 2):
        runner.perform(replace(task, round=number), aggregator)
    assert aggregator.num_joined == 0
    assert left_in(tmp_path) == []


def test_a_run_goes_on_with_the_images_it_began_with_whatever_its_owner_sets_now(data: str, tmp_path: Path) -> None:
    aggregator = MemoryAggregator(failures={"store": [Killed("store")]})
    task = a_train_task(aggregator, data, a_run("fedavg"))
    with pytest.raises(Killed):
        a_runner(data, tmp_path).perform(task, aggregator)
    a_runner(data, tmp_path, samples_per_class=3).perform(task, aggregator)
    whole = MemoryAggregator()
    a_runner(data, tmp_path / "other").perform(a_train_task(whole, data, a_run("fedavg")), whole)
    assert aggregator.updates[0][1].num_examples == whole.updates[0][1].num_examples


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
