"""An aggregator that dies at any moment: the next one goes on, and ends where an undisturbed one ends."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.incoming.transfers import Receiver, Transfers
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.types import RoundPhase, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.hosts.failing_disk import Disk, Killed


def undisturbed(folder: Path, rounds: int = 2) -> tuple[list[str], Counter[tuple[str, int, str]]]:
    state = folder / "undisturbed"
    state.mkdir()
    with LocalFederation.small(state) as federation:
        run = federation.whole_run(rounds=rounds)
        return federation.metrics_lines(run.run_id), federation.happenings(run.run_id)


class Interrupted(Exception):
    """The answer to a call was lost: the aggregator died after it had done what was asked."""


class Interruptible(LocalFederation):
    """A federation whose aggregator dies after one of the calls that it gets."""

    chunk_bytes = 300
    calls, dies_after = 0, 0

    def _start(self) -> None:
        super()._start()
        self.coordinator = _Watched(self.coordinator, self._count)  # type: ignore[assignment]

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.dies_after:
            raise Interrupted


class _Watched:
    """Passes every call on, and says when it has been answered."""

    def __init__(self, inner: object, answered: Callable[[], None]) -> None:
        self._inner, self._answered = inner, answered

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if isinstance(attribute, Transfers):
            return _Watched(attribute, self._answered)

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = attribute(*arguments, **keywords)
            try:
                self._answered()
            except Interrupted:
                if isinstance(result, Receiver):
                    result.close()  # a process that died has closed its files
                raise
            return _Watched(result, self._answered) if isinstance(result, Receiver) else result

        return call


def test_an_aggregator_that_dies_after_any_call_ends_where_an_undisturbed_one_ends(folder: Path) -> None:
    """In one round; test_kept_between_rounds.py goes through later ones."""
    lines, happened = undisturbed(folder, rounds=1)
    for call in range(1, 1000):
        state = folder / str(call)
        state.mkdir()
        with Interruptible.small(state) as federation:
            assert isinstance(federation, Interruptible)
            federation.dies_after = call
            try:
                federation.whole_run(rounds=1)
            except Interrupted:
                federation.restart()
                run = federation.whole_run(rounds=1)
                assert run.status is RunStatus.COMPLETED, f"died after call {call}"
                assert federation.metrics_lines(run.run_id) == lines, f"died after call {call}"
                assert federation.happenings(run.run_id) == happened, f"died after call {call}"
            else:
                break
    assert call > 40, "the calls did not reach through the run"


def steps_of_a_run(folder: Path, disk: Disk) -> list[str]:
    """What an undisturbed run of one round does to the disk, step by step."""
    state = folder / "steps"
    state.mkdir()
    with LocalFederation.small(state) as federation:
        disk.revive()
        federation.whole_run(rounds=1)
        return list(disk.steps)


def test_an_aggregator_killed_between_any_two_steps_on_disk_ends_where_an_undisturbed_one_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, happened = undisturbed(folder, rounds=1)
    disk = Disk(monkeypatch)
    for step, name in enumerate(steps_of_a_run(folder, disk), start=1):
        state = folder / str(step)
        state.mkdir()
        with LocalFederation.small(state) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                federation.whole_run(rounds=1)
            disk.revive()
            assert_named_blobs_are_whole(state)
            federation.restart()
            run = federation.whole_run(rounds=1)
            assert run.status is RunStatus.COMPLETED, f"killed before step {step}, {name}"
            assert federation.metrics_lines(run.run_id) == lines, f"killed before step {step}, {name}"
            assert federation.happenings(run.run_id) == happened, f"killed before step {step}, {name}"


def test_a_disk_that_fails_at_any_step_is_told_and_the_same_aggregator_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, happened = undisturbed(folder, rounds=1)
    disk = Disk(monkeypatch)
    told = set()
    for step, name in enumerate(steps_of_a_run(folder, disk), start=1):
        if name == "committed":
            continue
        state = folder / str(step)
        state.mkdir()
        with LocalFederation.small(state) as federation:
            disk.fail_at(step)
            try:
                run = federation.whole_run(rounds=1)
            except StoreUnavailable:
                told.add(name)
                run = federation.whole_run(rounds=1)
            disk.revive()
            assert run.status is RunStatus.COMPLETED, f"failed at step {step}, {name}"
            assert federation.metrics_lines(run.run_id) == lines, f"failed at step {step}, {name}"
            assert federation.happenings(run.run_id) == happened, f"failed at step {step}, {name}"
    assert told == {"begin", "fsync", "fsync folder", "link", "mkdir", "rename", "unlink"}


def named_blobs(state: Path) -> dict[str, Path]:
    """The blobs that rows of the database name, and where they must be."""
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        rows = connection.execute("SELECT sha256 FROM blobs").fetchall()
    return {sha256: state / "blobs" / sha256[:2] / sha256 for (sha256,) in rows}


def assert_named_blobs_are_whole(state: Path) -> None:
    for sha256, path in named_blobs(state).items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def test_what_is_in_memory_is_what_the_next_start_reads(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.create("fedplcc")
        seen = set()
        while federation.step(["bob"]) or federation.step(["ann"]):
            before = federation.coordinator.get_run(run.run_id)
            federation.restart()
            after = federation.coordinator.get_run(run.run_id)
            assert after.current_round == before.current_round
            assert (after.status, after.model, after.prototypes) == (before.status, before.model, before.prototypes)
            seen.add(after.current_round.phase if after.current_round else None)
        assert seen == {RoundPhase.COLLECTING, RoundPhase.EVALUATING, RoundPhase.COMMITTED}
        assert federation.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED


def test_a_restart_is_counted_and_noted_in_each_open_run_and_in_no_other(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        done = federation.whole_run()
        open_run = federation.create()
        federation.restart()
        assert federation.metric("recoveries_total") == 1
        assert [event.round for event in federation.events(open_run.run_id, "run_recovered")] == [0]
        assert federation.events(done.run_id, "run_recovered") == []
        federation.run_to_end(open_run.run_id)
        federation.restart()
        assert federation.metric("recoveries_total") == 0, "nothing was open"


def test_nobody_is_connected_after_a_restart_until_it_joins_again(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.create()
        federation.store.close()
        federation._start()
        assert [client.is_connected for client in federation.coordinator.list_clients()] == [False, False]
        ann = federation.clients["ann"]
        membership = federation.coordinator.join(ann.record, ann.token)
        assert membership.last_committed is None
        assert federation.run_to_end(run.run_id, ["ann"]).round_number == 1
        committed = federation.coordinator.join(ann.record, ann.token).last_committed
        assert committed is not None
        assert (committed.run_id, committed.round, len(committed.sha256s)) == (run.run_id, 1, 1)


def test_no_duration_over_a_restart_is_told_whatever_the_clock_did(folder: Path) -> None:
    def seconds(federation: LocalFederation, run_id: str, number: int) -> dict[str, float | None]:
        current = federation.whole_round(run_id, number)
        told: dict[str, float | None] = json.loads(current.timings_json)["seconds"]
        return told

    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.create(run={"rounds": 2})
        federation.step(["ann"])
        federation.step(["ann"])
        for jump in (86_400.0, -300.0):
            federation.clock.now += jump  # while the aggregator is away somebody sets the clock
            federation.restart()
        federation.run_to_end(run.run_id)
        first, second = (seconds(federation, run.run_id, number) for number in (1, 2))
        assert first["collecting"] is None
        assert first["total"] is None
        assert first["evaluating"] == 0.0, "one process measured it"
        assert None not in second.values()
        assert federation.metric("round_duration_seconds_count") == 1.0, "of the second round"
