"""Rounds and runs as they go by: how long they take, phase by phase, and how they end."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import Gauge

from aggregator.metrics.families import Families
from aggregator.metrics.round_times import Phase, RoundTimes
from aggregator.rounds import machine
from shared.process.metrics import PHASE_SECONDS
from shared.reasons import DropReason
from shared.types import ClientActivity, Run, RunStatus, Task, TaskKind

RESULTS = ("committed", "interrupted", "abandoned", "no_quorum", "failed")
"""How a round ends, or an attempt at one: see `result_of`."""


def result_of(before: Run, after: Run) -> str | None:
    """How a step of a run ends its open round, or the present attempt at it; None if it goes on.

    - committed: it has its results.
    - interrupted: its run was paused at once; it begins again when the run is resumed.
    - abandoned: its run was stopped.
    - no_quorum: its run failed, because too few clients were there.
    - failed: its run failed, because what is stored of the round cannot be aggregated or read.
    """
    current = before.current_round
    if current is None or not machine.has_open_round(before):
        return None
    if (
        after.current_round is not None
        and after.current_round.number == current.number
        and not machine.has_open_round(after)
    ):
        return "committed"
    if after.status is before.status:
        return None
    if after.status is RunStatus.PAUSED:
        return "interrupted"
    if after.status is RunStatus.STOPPING:
        return "abandoned"
    if after.status is RunStatus.FAILED:
        return "no_quorum" if machine.lacks_quorum(after) else "failed"
    return None


class Aggregation:
    """One round being aggregated: when it was folded, and what memory the process held meanwhile."""

    def __init__(self, times: RoundTimes | None, resident: Gauge, now: Callable[[], float]) -> None:
        self._times, self._resident, self._now = times, resident, now
        self._most_bytes = 0

    def blocks(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The same blocks, with a look at the memory at each."""
        for block in blocks:
            self._look()
            yield block

    def folded(self) -> None:
        """The new model is on the disk."""
        self._look()
        if self._times is not None:
            self._times.folded(self._now())

    def clustered(self) -> None:
        """The new prototypes have been made."""
        self._look()
        self._resident.set(self._most_bytes)

    def _look(self) -> None:
        self._most_bytes = max(self._most_bytes, anonymous_bytes())


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, in bytes; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize()


class RoundMetrics:
    """What is counted of rounds and runs, and the times of open rounds."""

    def __init__(self, families: Families) -> None:
        self._seconds = families.histogram(
            "round_duration_seconds",
            "From the opening of a round to its commit, less the time in which its run was paused.",
            PHASE_SECONDS,
        )
        self._phase_seconds = families.histogram(
            "round_phase_duration_seconds",
            "Duration of each phase of a committed round; they sum to the round's.",
            PHASE_SECONDS,
            "phase",
        )
        self._ended = families.counter("rounds_total", "Rounds, and attempts at one, that ended, by result.", "result")
        self._runs_ended = families.counter("runs_ended_total", "Runs that ended, by status.", "status")
        self._dropped = families.counter("clients_dropped_total", "Clients that a round went on without.", "reason")
        self._resident = families.gauge(
            "aggregation_resident_bytes",
            "Anonymous memory of the process, at its highest while the last round was aggregated.",
        )
        self._open: dict[str, RoundTimes] = {}
        for phase in Phase:
            self._phase_seconds.labels(phase.value)
        for result in RESULTS:
            self._ended.labels(result)
        for status in RunStatus:
            if status.is_final:
                self._runs_ended.labels(status.value)
        for reason in DropReason:
            self._dropped.labels(reason.value)

    def stepped(self, before: Run, after: Run, *, now: float) -> None:
        """Follow one step of a run; `now` is when it was on the disk."""
        self._count_dropped(before, after)
        if after.status.is_final and not before.status.is_final:
            self._runs_ended.labels(after.status.value).inc()
        self._follow(before, after, now)
        result = result_of(before, after)
        if result is None or before.current_round is None:
            return
        if before.current_round.number or result != "committed":  # the first model is no round of training
            self._ended.labels(result).inc()
        times = self._open.pop(after.run_id, None) if not machine.has_open_round(after) else None
        if (
            result == "committed"
            and times is not None
            and after.current_round is not None
            and after.current_round.number
        ):
            self._seconds.observe(times.age_s(now))
            for phase, seconds in times.seconds(after.current_round, now).items():
                self._phase_seconds.labels(phase.value).observe(seconds)

    def times(self, run_id: str) -> RoundTimes | None:
        """What was seen of the open round of a run."""
        return self._open.get(run_id)

    # What clients and the aggregation do, as it is seen; any thread may call these.

    def task_taken(self, task: Task, *, now: float) -> None:
        """A client was given a task."""
        times = self._trained_for(task)
        if times is not None:
            times.task_taken(now)

    def fetched(self, task: Task, client_id: str, *, now: float) -> None:
        """A client has got a whole blob of its task."""
        times = self._trained_for(task)
        if times is not None:
            times.fetched(client_id, now)

    def heard(self, run_id: str, number: int, client_id: str, activity: ClientActivity, *, now: float) -> None:
        """A client said what it does for a round."""
        times = self._open.get(run_id)
        if times is not None and times.number == number:
            times.heard(client_id, activity, now)

    def uploads(self, run_id: str, number: int, client_id: str, *, now: float) -> None:
        """A client begins to upload a part of its update."""
        times = self._open.get(run_id)
        if times is not None and times.number == number:
            times.uploads(client_id, now)

    def aggregation(self, run_id: str, *, now: Callable[[], float]) -> Aggregation:
        """Who looks on while the open round of a run is aggregated; see `AggregationWatch` in
        aggregator/computation/aggregation.py.
        """
        return Aggregation(self._open.get(run_id), self._resident, now)

    def _trained_for(self, task: Task) -> RoundTimes | None:
        times = None if task.run is None or task.kind is not TaskKind.TRAIN else self._open.get(task.run.run_id)
        return times if times is not None and times.number == task.round else None

    def _follow(self, before: Run, after: Run, now: float) -> None:
        current = after.current_round
        if current is None or after.status.is_final or after.status is RunStatus.STOPPING:
            self._open.pop(after.run_id, None)
            return
        times = self._open.get(after.run_id)
        if times is None or times.number != current.number:
            if not machine.has_open_round(after) and not machine.has_open_round(before):
                return
            is_opened = before.current_round is None or before.current_round.number != current.number
            times = self._open[after.run_id] = RoundTimes.of(current, is_found=not is_opened)
        if after.status is RunStatus.PAUSED:
            times.paused(now if after is not before else after.updated_at)
        else:
            times.resumed(now)
        times.has_updates(current.updates, now)

    def _count_dropped(self, before: Run, after: Run) -> None:
        current, earlier = after.current_round, before.current_round
        if current is None:
            return
        known = earlier.dropped if earlier is not None and earlier.number == current.number else {}
        for client_id in set(current.dropped) - set(known):
            self._dropped.labels(current.dropped[client_id].reason.value).inc()
