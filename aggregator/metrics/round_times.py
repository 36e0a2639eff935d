"""Durations of a round's eight phases, derived from what the aggregator observes. Pure; times are arguments.

| phase | from | until |
| --- | --- | --- |
| select | the round opens, its cohort chosen | the first client of the cohort takes its task |
| broadcast | then | the last client has its inputs: its last download ended, or it first reported training |
| train | then | the last client begins to upload, or first reported it |
| collect | then | the round has the updates that it waits for |
| aggregate | then | the new global model is folded and on the disk |
| cluster | then | the global prototypes are clustered and on the disk |
| evaluate | then | the round has the reports that it waits for |
| commit | then | the round's results are on the disk |

"The last client" is the last of those whose updates the round accepted; time spent waiting for a dropped client is part of
`collect`. A phase whose end was not observed has duration 0, and its time is part of the next one. Late heartbeats and
methods without prototypes therefore leave no gaps: the phases sum to the duration of the round. No time passes for a round
while its run is paused. A round that the aggregator found open when it was started has an age, and no durations of phases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from fedplcc.shared.types import ClientActivity, Round, RoundPhase


class Phase(StrEnum):
    """Phases of a round, in order."""

    SELECT = "select"
    BROADCAST = "broadcast"
    TRAIN = "train"
    COLLECT = "collect"
    AGGREGATE = "aggregate"
    CLUSTER = "cluster"
    EVALUATE = "evaluate"
    COMMIT = "commit"


_TRAINS = (ClientActivity.TRAINING, ClientActivity.SUMMARISING)


@dataclass(slots=True)
class RoundTimes:
    """Times observed in one open round; the first observation of each kind counts, of downloads the last.

    Methods that record an observation may be called from any thread: each changes one entry.
    """

    number: int
    opened_at: float
    is_found: bool = False
    """Whether the aggregator found the round open when it was started."""
    taken_at: float | None = None
    folded_at: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each pause of the run; a lasting pause has an infinite end."""
    _fetched: dict[str, float] = field(default_factory=dict)
    _training: dict[str, float] = field(default_factory=dict)
    _uploading: dict[str, float] = field(default_factory=dict)
    _updated: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, current: Round, *, is_found: bool) -> RoundTimes:
        """Return the times of an open round, from now on."""
        opened_at = min(current.phase_started_at.values(), default=0.0)
        return cls(current.number, opened_at, is_found)

    def task_taken(self, now: float) -> None:
        """Record that a client took its task."""
        if self.taken_at is None:
            self.taken_at = now

    def fetched(self, client_id: str, now: float) -> None:
        """Record the end of a client's download; only downloads before training are its inputs."""
        if client_id not in self._training and client_id not in self._uploading:
            self._fetched[client_id] = now

    def record_activity(self, client_id: str, activity: ClientActivity, now: float) -> None:
        """Record a client's reported activity."""
        if activity in _TRAINS:
            self._training.setdefault(client_id, now)
        elif activity is ClientActivity.UPLOADING:
            self.uploads(client_id, now)

    def uploads(self, client_id: str, now: float) -> None:
        """Record the begin of a client's upload."""
        self._uploading.setdefault(client_id, now)

    def has_updates(self, clients: Iterable[str], now: float) -> None:
        """Record the clients whose updates the round has."""
        for client_id in clients:
            self._updated.setdefault(client_id, now)

    def folded(self, now: float) -> None:
        """Record that the new model is on the disk; after a repeated fold the last time counts."""
        self.folded_at = now

    def paused(self, now: float) -> None:
        """Record the begin of a pause."""
        if not self.is_paused:
            self.pauses.append((now, math.inf))

    def resumed(self, now: float) -> None:
        """Record the end of a pause."""
        if self.is_paused:
            self.pauses[-1] = (self.pauses[-1][0], now)

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused."""
        return bool(self.pauses) and math.isinf(self.pauses[-1][1])

    def age_s(self, now: float) -> float:
        """Return the seconds for which the round has been open, without pauses."""
        return max(0.0, self._passed(now) - self._passed(self.opened_at))

    def seconds(self, current: Round, now: float) -> dict[Phase, float]:
        """Return the seconds of each phase of a committed round; they sum to its age.

        Only for a round that this process opened: it does not know what clients did before its start.
        """
        last = {phase: current.phase_started_at.get(phase.value) for phase in RoundPhase}
        given = [last[RoundPhase.AGGREGATING], last[RoundPhase.EVALUATING], last[RoundPhase.COMMITTED]]
        clients = list(current.updates)
        ends = [
            self.taken_at,
            _last(self._began(client_id) for client_id in clients),
            _last(self._uploading.get(client_id, self._updated.get(client_id)) for client_id in clients),
            given[0],
            self.folded_at,
            given[1],
            given[2],
            now,
        ]
        latest = [self._passed(now)] * len(ends)
        for index in reversed(range(len(ends))):
            # A client's report ends no phase later than the round's own record does.
            after = latest[index + 1] if index + 1 < len(ends) else latest[index]
            own = ends[index] if index in (3, 5, 6) else None
            latest[index] = after if own is None else min(after, self._passed(own))
        seconds, begin = {}, self._passed(self.opened_at)
        for phase, end, most in zip(Phase, ends, latest, strict=True):
            until = begin if end is None else max(begin, min(self._passed(end), most))
            seconds[phase], begin = until - begin, until
        return seconds

    def phases(self, current: Round, now: float) -> dict[Phase, tuple[float, float]]:
        """Return begin and end of each phase of a committed round, of which `seconds` is the length without pauses."""
        found, begin = {}, self._passed(self.opened_at)
        for phase, seconds in self.seconds(current, now).items():
            found[phase] = self._at(begin, now), self._at(begin + seconds, now)
            begin += seconds
        return found

    def _at(self, passed: float, now: float) -> float:
        """Return the time within the round at which the clock of `_passed` shows this."""
        for begin, end in self.pauses:
            if passed > begin:
                passed += end - begin
        return max(self.opened_at, min(passed, now))

    def _began(self, client_id: str) -> float | None:
        """Return when a client had its inputs for training, or None if that was not observed."""
        for seen in (self._fetched, self._training, self._uploading, self._updated):
            if client_id in seen:
                return seen[client_id]
        return None

    def _passed(self, at: float) -> float:
        """Return a time as shown by a clock that stops while the run is paused."""
        return at - sum(max(0.0, min(at, end) - begin) for begin, end in self.pauses)


def _last(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)
