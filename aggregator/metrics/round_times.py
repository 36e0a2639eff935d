"""Where the time of a round went: eight phases, derived from what the aggregator sees. Pure; times are handed in.

| phase | from | until |
| --- | --- | --- |
| select | the round opens, its cohort chosen | the first client of the cohort takes its task |
| broadcast | that | the last client has what it needs: its last download ended, or it was first heard to train |
| train | that | the last client begins to upload, or was first heard to |
| collect | that | the round has the updates that it waits for |
| aggregate | that | the new global model is folded and on the disk |
| cluster | that | the global prototypes are clustered and on the disk |
| evaluate | that | the round has the reports that it waits for |
| commit | that | the round's results are on the disk |

"The last client" is the last of those whose updates the round took: for how long it waited for one that was dropped shows in
`collect`. A phase whose end nobody saw lasts no time, and what it took is part of the next one: so a client that sends no
heartbeat in time, a method without prototypes, or an aggregator that was started again in the middle make no gaps, and the
phases sum to the duration of the round. What clients did before the aggregator was started is not known to it: of a round
that it found open, `select` and `broadcast` are part of `train`. While its run is paused no time passes for a round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from shared.types import ClientActivity, Round, RoundPhase


class Phase(StrEnum):
    """The phases of a round, in order."""

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
    """What was seen of one open round, and when; only the first time of each thing counts, but for downloads.

    Methods that note something may be called from any thread: each changes one entry.
    """

    number: int
    opened_at: float
    is_found: bool = False
    """Whether the aggregator found the round open when it was started."""
    taken_at: float | None = None
    folded_at: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """From when until when the run was paused; the end of the last one is infinite while it lasts."""
    _fetched: dict[str, float] = field(default_factory=dict)
    _training: dict[str, float] = field(default_factory=dict)
    _uploading: dict[str, float] = field(default_factory=dict)
    _updated: dict[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, current: Round, *, is_found: bool) -> RoundTimes:
        """Begin to follow an open round."""
        opened_at = min(current.phase_started_at.values(), default=0.0)
        times = cls(current.number, opened_at, is_found)
        times._updated.update(dict.fromkeys(current.updates if is_found else ()))
        return times

    def task_taken(self, now: float) -> None:
        """Note that a client took its task."""
        if self.taken_at is None:
            self.taken_at = now

    def fetched(self, client_id: str, now: float) -> None:
        """Note that a download of a client ended; those that it makes before it trains are what it needs for that."""
        if client_id not in self._training and client_id not in self._uploading:
            self._fetched[client_id] = now

    def heard(self, client_id: str, activity: ClientActivity, now: float) -> None:
        """Note what a client says that it does."""
        if activity in _TRAINS:
            self._training.setdefault(client_id, now)
        elif activity is ClientActivity.UPLOADING:
            self.uploads(client_id, now)

    def uploads(self, client_id: str, now: float) -> None:
        """Note that a client begins to upload."""
        self._uploading.setdefault(client_id, now)

    def has_updates(self, clients: Iterable[str], now: float) -> None:
        """Note whose updates the round has."""
        for client_id in clients:
            self._updated.setdefault(client_id, now)

    def folded(self, now: float) -> None:
        """Note that the new model is on the disk; of a fold that was begun again, the last time counts."""
        self.folded_at = now

    def paused(self, now: float) -> None:
        """Note that no time passes from now on."""
        if not self.is_paused:
            self.pauses.append((now, math.inf))

    def resumed(self, now: float) -> None:
        """Note that time passes again."""
        if self.is_paused:
            self.pauses[-1] = (self.pauses[-1][0], now)

    @property
    def is_paused(self) -> bool:
        """Whether no time passes now."""
        return bool(self.pauses) and math.isinf(self.pauses[-1][1])

    def age_s(self, now: float) -> float:
        """For how many seconds the round has been open."""
        return max(0.0, self._passed(now) - self._passed(self.opened_at))

    def seconds(self, current: Round, now: float) -> dict[Phase, float]:
        """Seconds by phase of the round, now that it has committed; they sum to its age."""
        last = {phase: current.phase_started_at.get(phase.value) for phase in RoundPhase}
        given = [last[RoundPhase.AGGREGATING], last[RoundPhase.EVALUATING], last[RoundPhase.COMMITTED]]
        clients = list(current.updates)
        ends = [
            None if self.is_found else self.taken_at,
            None if self.is_found else _last(self._began(client_id) for client_id in clients),
            _last(self._uploading.get(client_id, self._updated.get(client_id)) for client_id in clients),
            given[0],
            self.folded_at,
            given[1],
            given[2],
            now,
        ]
        latest = [self._passed(now)] * len(ends)
        for index in reversed(range(len(ends))):
            # What clients say ends no phase later than the round's own record.
            after = latest[index + 1] if index + 1 < len(ends) else latest[index]
            own = ends[index] if index in (3, 5, 6) else None
            latest[index] = after if own is None else min(after, self._passed(own))
        seconds, begin = {}, self._passed(self.opened_at)
        for phase, end, most in zip(Phase, ends, latest, strict=True):
            until = begin if end is None else max(begin, min(self._passed(end), most))
            seconds[phase], begin = until - begin, until
        return seconds

    def _began(self, client_id: str) -> float | None:
        """When a client had what it needs to train, as far as it was seen."""
        for seen in (self._fetched, self._training, self._uploading, self._updated):
            if seen.get(client_id) is not None:
                return seen[client_id]
        return None

    def _passed(self, at: float) -> float:
        """A time on a clock that stands still while the run is paused."""
        return at - sum(max(0.0, min(at, end) - begin) for begin, end in self.pauses)


def _last(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)
