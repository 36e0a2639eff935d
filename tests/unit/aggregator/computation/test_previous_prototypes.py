"""docs/algorithms.md, rule 1.16: the global set of the round before, in runs that are interrupted, extended and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.steering import ExtendRun
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import Run, RunStatus
from fedplcc.state.replay import Collected, replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.failing_disk import Disk, Killed
from tests.unit.aggregator.computation.test_proto_staleness import NAMES, OneOfEach, by_hand, pooled

ROUNDS = 8


class Of3(LocalFederation):
    """Clients that each have a class of their own."""

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Start in a folder that may not be there yet."""
        folder.mkdir(exist_ok=True)
        return cls(folder, clients())


class KeepsTwo(Of3):
    """Keeps what two rounds need to be computed again."""

    keep = Keep(models=1, prototypes=0, updates=2)


def clients() -> list[NumpyClient]:
    return [
        OneOfEach(name, counts=tuple(4 if index == NAMES.index(name) else 0 for index in range(3))) for name in NAMES
    ]


def document(rounds: int = ROUNDS, method: str = "fedproc") -> dict[str, Any]:
    """A run that draws one of three clients for each round; each has a class of its own."""
    values = a_document(method, NAMES, run={"rounds": rounds, "cohort_size": 1, "seed": 4})
    return {**values, "method": {"anneal_rounds": 4} if method == "fedproc" else {}}


def whole_run(federation: LocalFederation, rounds: int = ROUNDS) -> Run:
    federation.join()
    return federation.run_to_end(federation.coordinator.create_run("the run", document(rounds)).run_id)


@pytest.fixture
def right(tmp_path: Path) -> list[str]:
    """The metrics lines of a run that nothing happens to, with the SHA-256 of every round's prototypes."""
    with Of3.at(tmp_path / "undisturbed") as federation:
        return federation.metrics_lines(whole_run(federation).run_id)


def test_a_class_that_nobody_reports_keeps_its_prototype_from_round_to_round(folder: Path) -> None:
    with Of3.at(folder) as federation:
        run = whole_run(federation)
        found = [pooled(federation, run, number) for number in range(1, ROUNDS + 1)]
        assert found == [by_hand(run, number, ROUNDS) for number in range(1, ROUNDS + 1)]
        assert found[0] == {"bob": 1}
        assert found[-1] == {"bob": 1, "ann": 5, "zoe": 8}


def test_a_method_that_does_not_use_them_keeps_none(folder: Path) -> None:
    with Of3.at(folder) as federation:
        federation.join()
        run = federation.run_to_end(federation.coordinator.create_run("fpl", document(method="fpl")).run_id)
        _blob, path = federation.coordinator.artifact(run.run_id, ROUNDS, "prototypes")
        assert prototypes_from_bytes(path.read_bytes()).class_ids.tolist() == [NAMES.index("zoe")]


def test_a_restart_and_a_collection_after_every_step_change_nothing(folder: Path, right: list[str]) -> None:
    with KeepsTwo.at(folder) as federation:
        federation.join()
        run = federation.coordinator.create_run("the run", document())
        while federation.coordinator.get_run(run.run_id).status is not RunStatus.COMPLETED:
            assert federation.step()
            federation.coordinator.garbage_collection.collect()
            federation.restart()
        assert federation.metrics_lines(run.run_id) == right


def test_an_aggregator_killed_between_any_two_later_steps_on_disk_ends_in_the_undisturbed_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregation that is done twice reads the same set both times; test_crash_recovery.py kills in the first half."""
    disk = Disk(monkeypatch)
    with Of3.at(folder / "undisturbed") as federation:
        disk.revive()
        right = federation.metrics_lines(whole_run(federation, rounds=2).run_id)
        steps = list(disk.steps)
    assert len(steps) > 10
    for step, name in list(enumerate(steps, start=1))[len(steps) // 2 :]:
        with Of3.at(folder / str(step)) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                whole_run(federation, rounds=2)
            disk.revive()
            federation.restart()
            found = federation.metrics_lines(whole_run(federation, rounds=2).run_id)
            assert found == right, f"killed before step {step}, {name}"


def test_more_rounds_go_on_from_the_set_of_the_last_one(folder: Path, right: list[str]) -> None:
    with Of3.at(folder) as federation:
        run = whole_run(federation, rounds=4)
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=ROUNDS))
        assert federation.metrics_lines(federation.run_to_end(run.run_id).run_id) == right


def test_a_round_is_computed_again_from_the_set_before_it(folder: Path) -> None:
    with KeepsTwo.at(folder) as federation:
        run = whole_run(federation)
        federation.coordinator.garbage_collection.collect()
        for number in (ROUNDS - 1, ROUNDS):
            assert replay(folder, run.run_id, number).is_equal
        before = federation.coordinator.list_rounds(run.run_id)[ROUNDS - 3]
        assert before.number == ROUNDS - 3
        with pytest.raises(Collected):
            replay(folder, run.run_id, ROUNDS - 2)
