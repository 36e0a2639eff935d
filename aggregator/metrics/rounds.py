"""Metrics of rounds and runs: durations, durations of phases, results."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from prometheus_client import Gauge

from fedplcc.aggregator.metrics.families import Families
from fedplcc.aggregator.metrics.round_times import Phase, RoundTimes
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.shared.process import traces
from fedplcc.shared.process.metrics import PHASE_SECONDS
from fedplcc.shared.reasons import DropReason
from fedplcc.shared.types import ClientActivity, Round, Run, RunStatus, Task, TaskKind

RESULTS = ("committed", "interrupted", "abandoned", "no_quorum")
"""Results of a round, or of an attempt at one; see `result_of`."""


def result_of(before: Run, after: Run) -> str | None:
    """Return the result with which a step of a run ends its open round or the attempt at it; None if the round continues.

    - committed: the round has its results.
    - interrupted: the run was paused at once, or parked; the round starts again when the run is resumed.
    - abandoned: the run was stopped.
    - no_quorum: the run failed for lack of clients.
    """
    current = before.current_round
    if current is None or not run_facts.has_open_round(before):
        return None
    if (
        after.current_round is not None
        and after.current_round.number == current.number
        and not run_facts.has_open_round(after)
    ):
        return "committed"
    if after.status is before.status:
        return None
    if after.status is RunStatus.PAUSED:
        return "interrupted"
    if after.status is RunStatus.STOPPING:
        return "abandoned"
    if after.status is RunStatus.FAILED:
        return "no_quorum"
    return None


Blocks = TypeVar("Blocks")


class Aggregation:
    """Observer of one round's aggregation: time of the fold, highest memory of the process."""

    def __init__(self, times: RoundTimes | None, resident: Gauge, now: Callable[[], float]) -> None:
        self._times, self._resident, self._now = times, resident, now
        self._most_bytes = 0

    def blocks(self, blocks: Iterator[Blocks]) -> Iterator[Blocks]:
        """Yield the blocks unchanged, measuring memory at each."""
        for block in blocks:
            self._look()
            yield block

    def folded(self) -> None:
        """Record that the new model is on the disk."""
        self._look()
        if self._times is not None:
            self._times.folded(self._now())

    def clustered(self) -> None:
        """Record that the new prototypes are computed."""
        self._look()
        self._resident.set(self._most_bytes)

    def _look(self) -> None:
        self._most_bytes = max(self._most_bytes, anonymous_bytes())


def anonymous_bytes() -> int:
    """Return the process's resident memory without files' pages, in bytes; 0 where /proc is missing."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize()


class RoundMetrics:
    """Metrics of rounds and runs, and the times of open rounds."""

    def __init__(self, families: Families) -> None:
        self._seconds = families.histogram(
            "round_duration_seconds",
            "Duration from the opening of a round to its commit, without pauses of its run.",
            PHASE_SECONDS,
        )
        self._phase_seconds = families.histogram(
            "round_phase_duration_seconds",
            "Duration of each phase of a committed round; the phases sum to the round's duration.",
            PHASE_SECONDS,
            "phase",
        )
        self._ended = families.counter(
            "rounds_total", "Ended rounds, and ended attempts at a round, by result.", "result"
        )
        self._runs_ended = families.counter("runs_ended_total", "Ended runs, by status.", "status")
        self._dropped = families.counter("clients_dropped_total", "Clients that a round proceeded without.", "reason")
        self._resident = families.gauge(
            "aggregation_resident_bytes",
            "Highest anonymous memory of the process during the last aggregation.",
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
        """Record one step of a run; `now` is the time at which it was on the disk."""
        self._count_dropped(before, after)
        if after.status.is_final and not before.status.is_final:
            self._runs_ended.labels(after.status.value).inc()
        self._follow(before, after, now)
        result = result_of(before, after)
        if result is None or before.current_round is None:
            return
        if before.current_round.number or result != "committed":  # round 0, the first model, is no round of training
            self._ended.labels(result).inc()
        times = self._open.pop(after.run_id, None) if not run_facts.has_open_round(after) else None
        if result == "committed" and times is not None and after.current_round is not None:
            _trace(after, after.current_round, times, now)
        if (
            result == "committed"
            and times is not None
            and not times.is_found  # two processes measured it, and the wall clock between them may have jumped
            and after.current_round is not None
            and after.current_round.number
        ):
            self._seconds.observe(times.age_s(now))
            for phase, seconds in times.seconds(after.current_round, now).items():
                self._phase_seconds.labels(phase.value).observe(seconds)

    def times(self, run_id: str) -> RoundTimes | None:
        """Return the observed times of a run's open round, if there is one."""
        return self._open.get(run_id)

    # Observations of clients and of the aggregation; any thread may call these.

    def task_taken(self, task: Task, *, now: float) -> None:
        """Record that a client took a task."""
        times = self._trained_for(task)
        if times is not None:
            times.task_taken(now)

    def fetched(self, task: Task, client_id: str, *, now: float) -> None:
        """Record that a client has received a whole blob of its task."""
        times = self._trained_for(task)
        if times is not None:
            times.fetched(client_id, now)

    def record_activity(
        self, run_id: str, number: int, client_id: str, activity: ClientActivity, *, now: float
    ) -> None:
        """Record a client's reported activity in a round."""
        times = self._open.get(run_id)
        if times is not None and times.number == number:
            times.record_activity(client_id, activity, now)

    def uploads(self, run_id: str, number: int, client_id: str, *, now: float) -> None:
        """Record that a client begins to upload a blob of its update."""
        times = self._open.get(run_id)
        if times is not None and times.number == number:
            times.uploads(client_id, now)

    def aggregation(self, run_id: str, *, now: Callable[[], float]) -> Aggregation:
        """Return an observer of the aggregation of a run's open round."""
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
        is_followed = times is not None and times.number == current.number
        if times is None or times.number != current.number:
            if not run_facts.has_open_round(after) and not run_facts.has_open_round(before):
                return
            is_opened = before.current_round is None or before.current_round.number != current.number
            times = self._open[after.run_id] = RoundTimes.of(current, is_found=not is_opened)
        if after.status is RunStatus.PAUSED:
            times.paused(now if after is not before else after.updated_at)
        else:
            times.resumed(now)
        earlier = before.current_round if is_followed else None
        if earlier is None or earlier.updates is not current.updates:
            times.has_updates(current.updates.keys() - (() if earlier is None else earlier.updates.keys()), now)

    def _count_dropped(self, before: Run, after: Run) -> None:
        current, earlier = after.current_round, before.current_round
        if current is None:
            return
        known = earlier.dropped if earlier is not None and earlier.number == current.number else {}
        for client_id in set(current.dropped) - set(known):
            self._dropped.labels(current.dropped[client_id].reason.value).inc()


def _trace(run: Run, current: Round, times: RoundTimes, now: float) -> None:
    """Record a committed round as a span, with its phases if this process saw them all."""
    phases = {} if times.is_found or not current.number else times.phases(current, now)
    traces.record(
        traces.Part("round" if current.number else "run start", times.opened_at, now),
        run.run_id,
        current.number,
        parts=[traces.Part(phase.value, begin, end) for phase, (begin, end) in phases.items() if end > begin],
        is_round=True,
        facts={"method": run.method, "updates": len(current.updates), "dropped": len(current.dropped)},
    )
