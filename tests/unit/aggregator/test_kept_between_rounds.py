"""What a round leaves for later ones, of every kind, in whole runs: the same bytes whatever dies, is collected or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedplcc.aggregator.garbage.rules import Keep, needed_blobs, rounds_of
from fedplcc.shared.methods import add_methods, remove_method
from fedplcc.shared.reasons import BlobDamaged
from fedplcc.shared.steering import ExtendRun, PauseRun, ResumeRun
from fedplcc.shared.types import Run, RunStatus, state_blobs
from fedplcc.state.backup import make_backup, restore
from fedplcc.state.replay import Collected, replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.failing_disk import Disk, Killed
from tests.unit.aggregator.computation.test_proto_staleness import NAMES, one_of_each
from tests.unit.aggregator.test_crash_recovery import Interrupted, Interruptible, assert_named_blobs_are_whole

AHEAD = "tests.support.records.ahead_method"
ROUNDS = 4


def two_clients() -> list[NumpyClient]:
    return [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]


class Kind(NamedTuple):
    """A kind of state, as the run that has it."""

    method: str
    hyper: dict[str, Any] = {}  # noqa: RUF012
    clients: Callable[[], list[NumpyClient]] = two_clients
    names: tuple[str, ...] = ("ann", "bob")
    sections: dict[str, Any] = {}  # noqa: RUF012

    def begun(self, federation: LocalFederation, rounds: int = ROUNDS) -> Run:
        """Join, and begin the run or go on with it."""
        federation.join()
        sections = {**self.sections, "run": {"rounds": rounds, **self.sections.get("run", {})}}
        document = {**a_document(self.method, self.names, **sections), "method": self.hyper}
        return federation.coordinator.create_run("the run", document)

    def ended(self, federation: LocalFederation, rounds: int = ROUNDS) -> Run:
        run = federation.run_to_end(self.begun(federation, rounds).run_id)
        assert run.status is RunStatus.COMPLETED
        return run

    def undisturbed(self, folder: Path, rounds: int = ROUNDS) -> list[tuple[object, ...]]:
        """What every round comes to where nothing happens."""
        folder.mkdir()
        with LocalFederation(folder, self.clients()) as federation:
            return results(federation, self.ended(federation, rounds))


ARRAYS = {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}
AVERAGE = {"global_average": "ema", "average_decay": 0.9}
MEAN = {"stream": {"stages": 2, "rounds_per_stage": 1, "passes": 2, "epoch_model": "stage_mean"}}
ONE_OF_THREE = {"run": {"cohort_size": 1, "seed": 4}}
STATES = {
    "slots and a start": Kind(AHEAD),
    "arrays": Kind("creff", ARRAYS),
    "averages, windows and domains": Kind("fedplcc", {**AVERAGE, "proto_window": 2, "averaging": "domain"}),
    "the prototypes before": Kind("fedproc", {"anneal_rounds": ROUNDS}, one_of_each, NAMES, ONE_OF_THREE),
}
MEANS = {"means of stages": Kind("fedavg", sections=MEAN)}
KINDS = {
    **STATES,
    **MEANS,
    "slots": Kind("fedopt"),
    "stale prototypes": Kind("fedplcc", {"proto_staleness": 2}, one_of_each, NAMES, ONE_OF_THREE),
    "withheld tensors": Kind("fedrep", {"upload_head": False}),
    "public targets": Kind("fcclplus", clients=lambda: [NumpyClient("ann"), NumpyClient("bob")]),
    "seldom evaluated": Kind("fedplcc", sections={"evaluation": {"every": 3, "last": 1}}),
}
UNNAMED = {
    "an average and a start": Kind("feddyn", AVERAGE),
    "an average and a head": Kind("creff", {**ARRAYS, **AVERAGE}),
    "means and a start": Kind("feddyn", sections=MEAN),
    "means and a head": Kind("creff", ARRAYS, sections=MEAN),
}
"""Their rounds come to a model that is neither their result nor what the next round starts from."""


def of(kinds: dict[str, Kind]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds.values(), ids=kinds.keys())


def results(federation: LocalFederation, run: Run) -> list[tuple[object, ...]]:
    """All that the rounds have made, and their lines."""
    rounds = federation.coordinator.list_rounds(run.run_id)
    return [(each.model, each.start, each.prototypes, each.server_state, each.results_json) for each in rounds]


class Sparse(LocalFederation):
    """Keeps as little as can be."""

    keep = Keep(models=1, prototypes=0, updates=0)


class Kept(LocalFederation):
    """Keeps the results of two rounds and the updates of one."""

    keep = Keep(models=2, prototypes=0, updates=1)


class Whole(LocalFederation):
    """Keeps every model."""

    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


@pytest.fixture(scope="module", autouse=True)
def known_methods() -> Iterator[None]:
    """The method of tests beside those of the package."""
    add_methods([AHEAD])
    yield
    remove_method(AHEAD)


@of(KINDS)
def test_whoever_comes_first_and_whenever_the_aggregator_collects_and_starts_again_it_comes_to_the_same(
    folder: Path, kind: Kind
) -> None:
    right = kind.undisturbed(folder / "undisturbed")
    (folder / "sparse").mkdir()
    with Sparse(folder / "sparse", kind.clients()) as federation:
        run = kind.begun(federation)
        while federation.step(reversed(kind.names)):
            federation.coordinator.garbage_collection.collect()
            federation.restart()
            federation.coordinator.garbage_collection.collect()
        assert results(federation, run) == right


def test_a_run_that_is_paused_after_every_step_comes_to_the_same(folder: Path) -> None:
    kind = STATES["averages, windows and domains"]
    right = kind.undisturbed(folder / "undisturbed")
    (folder / "paused").mkdir()
    with Sparse(folder / "paused", kind.clients()) as federation:
        run = kind.begun(federation)
        while federation.step():
            if federation.coordinator.get_run(run.run_id).status is RunStatus.RUNNING:
                federation.coordinator.steer(run.run_id, PauseRun(now=True))
                federation.coordinator.garbage_collection.collect()
                federation.restart()
                federation.coordinator.steer(run.run_id, ResumeRun())
        assert results(federation, run) == right


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=name, marks=[] if name == "the prototypes before" else pytest.mark.full)
        for name, kind in STATES.items()
    ],
)
def test_an_aggregator_killed_between_any_two_later_steps_on_disk_ends_in_the_undisturbed_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """In the second half of the run, whose rounds have a state before them; test_crash_recovery.py kills in the first."""
    disk = Disk(monkeypatch)
    (folder / "undisturbed").mkdir()
    with LocalFederation(folder / "undisturbed", kind.clients()) as federation:
        disk.revive()
        right = results(federation, kind.ended(federation, rounds=2))
        steps = list(disk.steps)
    assert len(steps) > 10
    for step, name in list(enumerate(steps, start=1))[len(steps) // 2 :]:
        state = folder / str(step)
        state.mkdir()
        with LocalFederation(state, kind.clients()) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                kind.ended(federation, rounds=2)
            disk.revive()
            assert_named_blobs_are_whole(state)
            federation.restart()
            found = results(federation, kind.ended(federation, rounds=2))
            assert found == right, f"killed before step {step}, {name}"


def test_an_aggregator_that_dies_after_any_third_call_ends_in_the_undisturbed_state(folder: Path) -> None:
    """After every call of a round in test_crash_recovery.py, and of two at the steps of the disk above."""
    kind = STATES["slots and a start"]
    right = kind.undisturbed(folder / "undisturbed", rounds=2)
    for call in range(1, 1000, 3):
        with Interruptible.small(folder / str(call)) as federation:
            federation.dies_after = call
            try:
                kind.ended(federation, rounds=2)
            except Interrupted:
                federation.restart()
                assert results(federation, kind.ended(federation, rounds=2)) == right, f"died after call {call}"
            else:
                break
    assert call > 30, "the calls did not reach through the run"


@of(STATES)
def test_more_rounds_go_on_from_the_state_of_the_last_one(folder: Path, kind: Kind) -> None:
    right = kind.undisturbed(folder / "undisturbed")
    (folder / "parts").mkdir()
    with Kept(folder / "parts", kind.clients()) as federation:
        run = kind.ended(federation, rounds=2)
        federation.coordinator.garbage_collection.collect()
        federation.restart()
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=ROUNDS))
        assert results(federation, federation.run_to_end(run.run_id)) == right


def until_round(federation: LocalFederation, kind: Kind, number: int) -> Run:
    run_id = kind.begun(federation).run_id
    while federation.coordinator.get_run(run_id).round_number < number:
        federation.step()
    return federation.coordinator.get_run(run_id)


@of(STATES)
def test_a_restored_backup_goes_on_with_it(folder: Path, kind: Kind) -> None:
    right = kind.undisturbed(folder / "undisturbed")
    (folder / "state").mkdir()
    with Sparse(folder / "state", kind.clients()) as federation:
        until_round(federation, kind, 3)
        federation.coordinator.garbage_collection.collect()
        make_backup(folder / "state", folder / "backup")
    restore(folder / "backup", folder / "restored")
    with LocalFederation(folder / "restored", kind.clients()) as federation:
        assert results(federation, kind.ended(federation)) == right


@of(STATES | MEANS)
def test_a_round_is_computed_again_with_it(folder: Path, kind: Kind) -> None:
    with Kept(folder, kind.clients()) as federation:
        run = kind.ended(federation)
        federation.coordinator.garbage_collection.collect()
        last = federation.coordinator.list_rounds(run.run_id)[-1]
        again = replay(folder, run.run_id, ROUNDS)
        assert again.is_equal
        state = {**({} if last.start is None else {"start": last.start}), **last.server_state}
        assert {name: again.computed[name] for name in state} == state
        with pytest.raises(Collected):
            replay(folder, run.run_id, ROUNDS - 1)


@of(UNNAMED)
def test_what_no_round_names_goes_with_the_next_collection_and_every_round_is_computed_again_without_it(
    folder: Path, kind: Kind
) -> None:
    with Whole(folder, kind.clients()) as federation:
        federation.coordinator.garbage_collection.collect()
        run = kind.ended(federation)
        federation.coordinator.garbage_collection.step()  # and no scan
        stored = {path.name for path in (folder / "blobs").glob("*/*")}
        assert stored == needed_blobs(run, rounds_of(federation.store, run, Whole.keep), Whole.keep)
        federation.coordinator.garbage_collection.collect()
        for number in range(1, ROUNDS + 1):
            assert replay(folder, run.run_id, number).is_equal


@of(STATES)
def test_disk_use_does_not_grow_with_rounds(folder: Path, kind: Kind) -> None:
    with Kept(folder, kind.clients()) as federation:
        run = kind.begun(federation)
        while federation.step():
            federation.coordinator.garbage_collection.collect()
            committed = [each for each in federation.coordinator.list_rounds(run.run_id) if each.results_json]
            kept = {blob.sha256 for each in committed[-2:] for blob in state_blobs(each)}
            of_all = {blob for each in committed for blob in state_blobs(each)}
            assert {blob.sha256 for blob in of_all if federation.path_of(blob).exists()} == kept
        assert len(committed) == ROUNDS


@of({name: STATES[name] for name in ("slots and a start", "arrays")})
@pytest.mark.parametrize("is_new", [True, False], ids=["started again", "running"])
def test_damage_parks_the_run_by_name_and_its_repair_lets_it_go_on(folder: Path, kind: Kind, is_new: bool) -> None:
    right = kind.undisturbed(folder / "undisturbed")
    (folder / "damaged").mkdir()
    with LocalFederation(folder / "damaged", kind.clients()) as federation:
        run = until_round(federation, kind, 2)
        name, blob = next(iter(run.server_state.items()))
        data = federation.path_of(blob).read_bytes()
        federation.path_of(blob).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        if is_new:
            federation.restart()
        found = federation.run_to_end(run.run_id)
        assert (found.status, found.round_number) == (RunStatus.PAUSED, 2)
        assert found.reason == BlobDamaged(round_number=2, role=name, sha256=blob.sha256, client_id="")
        federation.path_of(blob).write_bytes(data)
        federation.coordinator.steer(run.run_id, ResumeRun())
        assert results(federation, federation.run_to_end(run.run_id)) == right
