"""Metrics of clients: their number by state, and the readings of a bounded number of single clients.

A client has series of its own while it is connected, while an open run names it, and for an hour after its last call. The
settings bound their number: clients of open runs come first and replace others; clients beyond the bound have no series.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fedplcc.aggregator.metrics.families import AtScrape, Families
from fedplcc.aggregator.presence.sessions import Session
from fedplcc.shared.process.metrics import PREFIX
from fedplcc.shared.readings import READINGS
from fedplcc.shared.types import ClientActivity, Run

MAX_CLIENTS = 256
"""Default number of clients with series of their own."""
MAX_HOLDERS = 16
"""Most clients whose uploads on the disk are shown: the largest."""
KEEP_LOST_S = 3600.0
"""Seconds for which a lost client keeps its series if no open run names it."""
KEEP_PROBLEM_S = 60.0
"""Seconds for which a problem is shown at least: several scrape intervals."""


@dataclass(slots=True)
class _Shown:
    """Client with series of its own."""

    heard_at: float
    """Time of its last call, or of the aggregator's start."""
    session: Session | None = None
    """Its session, which may have ended."""
    is_connected: bool = False

    @property
    def last_seen(self) -> float:
        return self.heard_at if self.session is None else self.session.last_seen

    @property
    def readings(self) -> Mapping[str, float]:
        return self.session.heartbeat.readings if self.session is not None and self.is_connected else {}

    def has_problem(self, now: float) -> bool:
        """Whether it cannot do its task, or reported a problem within `KEEP_PROBLEM_S`."""
        if self.session is None:
            return False
        return (self.is_connected and self.session.cannot_work) or now - self.session.reported_at < KEEP_PROBLEM_S


class ClientSeries(AtScrape):
    """Series of single clients."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        """Start without series."""
        self._most, self._clock = most, clock
        self._started = clock()
        self._shown: dict[str, _Shown] = {}
        self.held_bytes: Callable[[str], int] = lambda _client_id: 0
        """Returns the bytes of a client's uploads on the disk."""
        self._lock = threading.Lock()

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Set the monotonic clock of the sessions."""
        self._clock, self._started = clock, clock()

    def shown(self) -> frozenset[str]:
        """Return the names of the clients that have series of their own; any thread may call this."""
        with self._lock:
            return frozenset(self._shown)

    def follow(self, sessions: Iterable[Session], roster: Collection[str]) -> None:
        """Update the shown clients from the sessions and the clients of open runs."""
        if not self._most:
            return
        here, now = {session.client.client_id: session for session in sessions}, self._clock()
        with self._lock:
            for name, shown in list(self._shown.items()):
                shown.is_connected = name in here
                if not shown.is_connected and name not in roster and now - shown.last_seen >= KEEP_LOST_S:
                    del self._shown[name]
            for name in sorted(set(roster) - self._shown.keys()):
                if not self._has_room_for_a_member(roster):
                    break
                self._shown[name] = _Shown(self._started)
            for name, session in here.items():
                if name in self._shown or len(self._shown) < self._most:
                    self._shown[name] = _Shown(session.last_seen, session, is_connected=True)

    def _has_room_for_a_member(self, roster: Collection[str]) -> bool:
        """Whether a client of an open run gets series, if necessary those of a client outside open runs."""
        if len(self._shown) >= self._most:
            others = [name for name in self._shown if name not in roster]
            if not others:
                return False
            del self._shown[min(others, key=lambda name: (self._shown[name].is_connected, name))]
        return True

    def collect(self) -> Iterator[Metric]:
        """Yield the present values."""
        connected = GaugeMetricFamily(
            f"{PREFIX}_client_connected", "Whether a client's trainer is connected: 1 or 0.", labels=["client"]
        )
        silence = GaugeMetricFamily(
            f"{PREFIX}_client_silence_seconds",
            "Seconds since the last call of a client, or since the aggregator's start.",
            labels=["client"],
        )
        problem = GaugeMetricFamily(
            f"{PREFIX}_client_has_problem",
            "Whether a client cannot do its task, or reported a problem within the last minute: 1 or 0.",
            labels=["client"],
        )
        held = GaugeMetricFamily(
            f"{PREFIX}_client_held_bytes",
            "Bytes of a client's uploads on the disk that no commit has stored yet; of the largest holders.",
            labels=["client"],
        )
        families = {
            name: GaugeMetricFamily(f"{PREFIX}_{reading.metric}", reading.text, labels=["client"])
            for name, reading in READINGS.items()
        }
        with self._lock:
            shown, now = list(self._shown.items()), self._clock()
        for name, entry in shown:
            labels = (name,)
            connected.add_metric(labels, entry.is_connected)
            silence.add_metric(labels, max(0.0, now - entry.last_seen))
            problem.add_metric(labels, entry.has_problem(now))
            for reading, value in entry.readings.items():
                if reading in families:
                    families[reading].add_metric(labels, value)
        holders = [(self.held_bytes(name), name) for name, _entry in shown]
        for num_bytes, name in sorted(holders, reverse=True)[:MAX_HOLDERS]:
            if num_bytes:
                held.add_metric((name,), num_bytes)
        yield from (connected, silence, problem, held, *families.values())


class ClientMetrics:
    """Metrics of clients by state, and of single clients."""

    def __init__(self, families: Families, most: int) -> None:
        self._states = families.gauge(
            "clients", "Clients by state: ever registered, connected, quarantined in an open run, by activity.", "state"
        )
        self._problems = families.counter("client_problems_total", "Problems that trainers reported.")
        self._stopped = families.gauge(
            "clients_with_problems", "Connected clients that reported that they cannot do their task of a run."
        )
        self.series = ClientSeries(most, time.monotonic)
        families.registry.register(self.series)
        for state in ("registered", "connected", "quarantined", *(activity.value for activity in ClientActivity)):
            self._states.labels(state)

    def registered(self, num_clients: int) -> None:
        """Count clients that joined for the first time."""
        self._states.labels("registered").inc(num_clients)

    def reported_problem(self) -> None:
        """Count a problem that a trainer reported."""
        self._problems.inc()

    def follow(self, sessions: Iterable[Session], runs: Iterable[Run]) -> None:
        """Update the metrics from the sessions and the open runs."""
        connected, open_runs = list(sessions), list(runs)
        activities = [session.heartbeat.activity for session in connected]
        self._states.labels("connected").set(len(connected))
        for activity in ClientActivity:
            self._states.labels(activity.value).set(activities.count(activity))
        self._stopped.set(sum(session.cannot_work for session in connected))
        self._states.labels("quarantined").set(len({name for run in open_runs for name in run.quarantined}))
        self.series.follow(connected, {name for run in open_runs for name in run.roster})
