"""The expected result of every request of clients and people to a coordinator, computed a second time and plainly.

A judge for tests: it knows neither the state machine of aggregator/rounds/machine/ nor a disk. It holds to the contract of
`RoundService` and `RunService` as their comments state it. Whom an overdue round goes on without, it is told, and checks
that it may (`drop`); what follows from that it says itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

ACCEPTED, DUPLICATE, DONE = "ACCEPTED", "DUPLICATE", "DONE"
ENDED = ("stopped", "completed", "failed")
CLOSED = ("RUN_ENDED", "STALE_ROUND", "FUTURE_ROUND", "LATE_UPDATE")
"""Reasons for which a round takes no update now."""


@dataclass(frozen=True)
class Offer:
    """An update as a client offers it: what it says, the blobs that it names, and whether it keeps the contract."""

    says: Hashable
    blobs: tuple[str, ...]
    is_sound: bool = True


@dataclass
class Presence:
    """A trainer that has joined."""

    token: str
    last_seen: float
    given: str = ""
    """Run of the task that it was last given."""
    is_told_to_stop: bool = False
    works_for: str = ""
    """Run that it says it works for."""


@dataclass
class RunModel:
    """One run."""

    run_id: str
    roster: tuple[str, ...]
    cohorts: list[tuple[str, ...]]
    """Cohort of every round, round 0 first."""
    status: str = "pending"
    min_clients: int | None = None
    """Clients that a round goes on with; its whole cohort if not set."""
    deadline_s: float = 0.0
    is_pause_requested: bool = False
    number: int = -1
    phase: str = ""
    since: float = 0.0
    """When the phase began."""
    dropped: set[str] = field(default_factory=set)
    updates: dict[tuple[int, str], Offer] = field(default_factory=dict)
    reports: set[tuple[int, str]] = field(default_factory=set)
    stopping_since: float | None = None
    """When its stop was first seen, since the aggregator started."""
    unfit: set[str] = field(default_factory=set)
    """Clients whose first model was refused; round 0 asks the next one at once."""

    @property
    def cohort(self) -> tuple[str, ...]:
        """Clients of the open round."""
        return self.cohorts[self.number]

    @property
    def needed(self) -> int:
        """Clients that the phase needs; the first model is made by one."""
        if self.phase == "initialising":
            return 1
        return len(self.cohort) if self.min_clients is None else self.min_clients

    @property
    def with_update(self) -> set[str]:
        """Clients whose update is part of the open round."""
        return {name for number, name in self.updates if number == self.number}

    @property
    def with_report(self) -> set[str]:
        """Clients whose report is."""
        return {name for number, name in self.reports if number == self.number}

    @property
    def done(self) -> set[str]:
        """Clients that did their part in the phase: one that was dropped in training may be back and report."""
        return self.with_report if self.phase == "evaluating" else self.with_update


@dataclass
class Oracle:
    """A whole aggregator. Its methods say what must be answered: DONE, ACCEPTED, DUPLICATE, or the reason of a refusal."""

    lease_s: float
    now: float
    runs: dict[str, RunModel] = field(default_factory=dict)
    present: dict[str, Presence] = field(default_factory=dict)
    uploaded: dict[str, set[str]] = field(default_factory=dict)
    stored: dict[str, set[str]] = field(default_factory=dict)
    requests: dict[str, Hashable] = field(default_factory=dict)
    events: Counter[tuple[str, str, int, str]] = field(default_factory=Counter)
    """By type (with the reason of a refusal), run, round and client; since somebody last cleared it."""
    counters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By metric and outcome, since the aggregator started."""
    named: set[Hashable] = field(default_factory=set)
    turns: dict[str, int] = field(default_factory=dict)
    """The last turn of each run to be aggregated, since the aggregator started."""

    # Who is there

    def join(self, client: str, token: str) -> str:
        known = self.present.get(client)
        if known is not None and known.token != token and self._lives(known):
            return "CLIENT_ID_TAKEN"
        if known is None or known.token != token:
            self.present[client] = Presence(token, self.now)
            self._happened("client_joined", client=client)
        self.present[client].last_seen = self.now
        for run in self.runs.values():
            self._settle(run)
        return DONE

    def call(self, client: str, token: str) -> str:
        """Any call of a trainer: a sign of life if it is who it says."""
        if client not in self.present:
            return "NOT_A_MEMBER"
        if self.present[client].token != token:
            return "CLIENT_ID_TAKEN"
        self.present[client].last_seen = self.now
        return DONE

    def given(self, client: str, run_id: str, *, is_stop: bool) -> None:
        """A task was given, of this run if of any."""
        self.present[client].given, self.present[client].is_told_to_stop = run_id, is_stop

    def heartbeat(self, client: str, token: str, run_id: str) -> str:
        """A trainer says for which run it works; for none if it is idle."""
        answer = self.call(client, token)
        if answer == DONE:
            self.present[client].works_for = run_id
            if not run_id:
                if self.present[client].is_told_to_stop:
                    self.given(client, "", is_stop=False)
                self._end_stopping()
        return answer

    def tick(self) -> None:
        for client in [name for name, found in self.present.items() if not self._lives(found)]:
            del self.present[client]
            self._happened("client_lost", client=client)
        self._end_stopping()

    def drop(self, run: RunModel, cohort: tuple[str, ...], dropped: set[str]) -> str:
        """A tick went on without these clients of a round; says why it may not, or nothing."""
        unfit = run.unfit if run.phase == "initialising" and run.status == "running" else set()
        new, back = dropped - run.dropped, run.dropped - dropped
        goes_on = (new or cohort != run.cohort) and not (new and new <= unfit)
        if goes_on and (run.min_clients is None or run.status != "running"):
            return f"{sorted(new)} were dropped from a round that waits for everybody"
        if goes_on and self.now - run.since < run.deadline_s:
            return f"{sorted(new)} were dropped before the deadline"
        if any(name in self.present for name in new - unfit) or any(name not in self.present for name in back):
            return f"{sorted(new)} were dropped and {sorted(back)} taken back, here are {sorted(self.present)}"
        if cohort != run.cohort:
            if run.phase != "initialising" or not set(cohort) > set(run.cohort):
                return f"the cohort became {cohort}"
            run.cohorts[run.number] = cohort
            run.since = self.now
        elif new and len((set(run.cohort) - dropped) | run.done) < run.needed:
            return f"without {sorted(dropped)} there is no quorum"
        run.dropped = dropped
        self._settle(run)
        return ""

    def restart(self) -> None:
        """The aggregator died and started again: who is there and what was counted is forgotten, nothing else."""
        self.present.clear()
        self.counters.clear()
        self.named.clear()
        self.turns.clear()
        for run in self.runs.values():
            run.stopping_since = None
            if run.status not in ENDED:
                self._happened("run_recovered", run, run.number)

    # Rounds

    def create(self, run: RunModel) -> None:
        self.runs[run.run_id] = run
        self._happened("run_created", run)
        self._settle(run)

    def wanted(self, client: str) -> set[tuple[str, int, str]]:
        """Every work that this client may be given now."""
        kinds = {
            "initialising": ("init", "updates"),
            "collecting": ("train", "updates"),
            "evaluating": ("evaluate", "reports"),
        }
        found = set()
        for run in self.runs.values():
            if run.status == "running" and run.phase in kinds and client in run.cohort:
                kind, part = kinds[run.phase]
                if (run.number, client) not in getattr(run, part):
                    found.add((run.run_id, run.number, kind))
        return found

    def upload(self, client: str, token: str, run_id: str, number: int, blobs: Sequence[str]) -> str:
        """Send blobs of an update for a round."""
        answer = self.call(client, token)
        if answer == DONE:
            run = self.runs.get(run_id)
            if run is None:
                answer = "RUN_NOT_FOUND"
            elif number != run.number or (number, client) not in run.updates:
                answer = self._takes(run, number, client, "update")
                if answer in CLOSED and set(blobs) <= self.stored.get(client, set()):
                    return DONE  # it repeats what the client has committed since
        if answer != DONE:
            return self._refused("update", answer, client, run_id, number)
        missing = set(blobs) - self.stored.get(client, set())
        self.uploaded.setdefault(client, set()).update(missing)
        return DONE

    def commit(
        self, client: str, token: str, run_id: str, number: int, offer: Offer, *, is_inline: bool = False
    ) -> str:
        """Make an update part of its round; its blobs were uploaded, or come with the commit."""
        answer = self.call(client, token)
        run = self.runs.get(run_id)
        if answer == DONE:
            if run is None:
                answer = "RUN_NOT_FOUND"
            elif run.updates.get((number, client)) == offer:
                return self._counted("update", DUPLICATE)
            elif number == run.number and (number, client) in run.updates and run.status not in ("stopping", *ENDED):
                answer = "UPDATE_CONFLICT"
            else:
                answer = self._takes(run, number, client, "update")
        held = self.uploaded.get(client, set()) | self.stored.get(client, set())
        if answer == DONE and not is_inline and not set(offer.blobs) <= held:
            answer = "BLOB_NOT_FOUND"
        if answer == DONE and not offer.is_sound:
            answer = "MALFORMED_UPDATE"
        if answer == "MALFORMED_UPDATE" and run is not None and number == 0:
            run.unfit.add(client)
        if answer != DONE:
            return self._refused("update", answer, client, run_id, number)
        assert run is not None
        run.updates[number, client] = offer
        run.dropped.discard(client)
        self.stored.setdefault(client, set()).update(offer.blobs)
        self.uploaded[client] = set()
        self._happened("update_committed", run, number, client)
        self._settle(run)
        return self._counted("update", ACCEPTED)

    def work(self) -> bool:
        """The aggregator computes the result of one round: of the run that waits longest for a turn, and then of the oldest.

        No time passes while it computes: no run has used more of it than another.
        """
        waiting = [
            run for run in self.runs.values() if run.phase == "aggregating" and run.status in ("running", "paused")
        ]
        if not waiting:
            return False
        run = min(waiting, key=lambda run: self.turns.get(run.run_id, 0))
        self.turns[run.run_id] = 1 + max(self.turns.values(), default=0)
        self._begin(run, "evaluating")
        self._settle(run)
        return True

    def report(self, client: str, token: str, run_id: str, number: int) -> str:
        """Report counts of a round's model."""
        answer = self.call(client, token)
        run = self.runs.get(run_id)
        if answer == DONE:
            if run is None:
                answer = "RUN_NOT_FOUND"
            elif (number, client) in run.reports:
                return self._counted("report", DUPLICATE)
            else:
                answer = self._takes(run, number, client, "report")
        if answer != DONE:
            return self._refused("report", answer, client, run_id, number)
        assert run is not None
        run.reports.add((number, client))
        if client in run.with_update:
            run.dropped.discard(client)
        self._happened("evaluation_reported", run, number, client)
        self._settle(run)
        return self._counted("report", ACCEPTED)

    # What people ask for

    def steer(self, action: str, run_id: str, *, now: bool = False, key: str = "", ends: bool = True) -> str:
        """Pause, resume or stop; without `ends` a stop that the aggregator did not live to see the end of."""
        wish = (action, run_id, now)
        if key in self.requests:
            return DONE if self.requests[key] == wish else "REQUEST_ID_REUSED"
        run = self.runs[run_id]
        allowed = {"pause": ("running", "paused"), "resume": ("running", "paused"), "stop": (*RUN_STATUSES,)}[action]
        if run.status not in allowed:
            return "INVALID_TRANSITION"
        if key:
            self.requests[key] = wish
        if action == "pause" and run.status == "running":
            if now:
                self._enter(run, "paused", "run_paused")
            elif not run.is_pause_requested:
                run.is_pause_requested = True
                self._happened("pause_requested", run, run.number)
        elif action == "resume" and run.status == "paused":
            self._enter(run, "running", "run_resumed")
            self._settle(run)
        elif action == "resume" and run.is_pause_requested:
            run.is_pause_requested = False
            self._happened("pause_withdrawn", run, run.number)
        elif action == "stop" and run.status not in ("stopping", *ENDED):
            self._enter(run, "stopping", "run_stopping")
        if ends:
            self._end_stopping()
        return DONE

    # Parts of the above

    def _lives(self, presence: Presence) -> bool:
        return self.now - presence.last_seen <= self.lease_s

    def _takes(self, run: RunModel, number: int, client: str, what: str) -> str:
        """DONE if the round takes this of the client; else why not: the run first, then round, client and phase."""
        if run.status in ("stopping", *ENDED):
            return "RUN_ENDED"
        if number != run.number:
            return "STALE_ROUND" if number < run.number else "FUTURE_ROUND"
        if number < 0:
            return "FUTURE_ROUND"
        if client not in run.cohort:
            return "NOT_IN_COHORT"
        if what == "update":
            return DONE if run.phase in ("initialising", "collecting") else "LATE_UPDATE"
        if run.phase == "evaluating":
            return DONE
        return "LATE_REPORT" if run.phase == "committed" else "EARLY_REPORT"

    def _settle(self, run: RunModel) -> None:
        """Let what happens by itself happen."""
        if run.status == "pending":
            if all(name in self.present and self._lives(self.present[name]) for name in run.roster):
                self._enter(run, "running", "run_started")
            else:
                return
        if run.status not in ("running", "paused"):
            return
        asked = set(run.cohort) if run.number >= 0 else set()
        if run.phase == "initialising" and run.with_update:
            self._begin(run, "committed")
        elif run.phase == "collecting" and not asked - run.with_update - run.dropped:
            self._begin_with(len(run.with_update), run, "aggregating")
        elif run.phase == "evaluating" and not run.with_update - run.with_report - run.dropped:
            self._begin_with(len(run.with_report), run, "committed")
        if run.status != "running" or run.phase not in ("", "committed"):
            return
        if run.number + 1 == len(run.cohorts):
            self._enter(run, "completed", "run_completed")
        elif run.is_pause_requested:
            self._enter(run, "paused", "run_paused")
        else:
            run.number, run.dropped, run.since = run.number + 1, set(), self.now
            run.phase = "collecting" if run.number else "initialising"
            self._happened("round_opened", run, run.number)

    def _begin_with(self, num_clients: int, run: RunModel, phase: str) -> None:
        if num_clients >= run.needed:
            self._begin(run, phase)
            self.counters["rounds", "committed"] += phase == "committed"

    def _begin(self, run: RunModel, phase: str) -> None:
        run.phase, run.since = phase, self.now
        self._happened(f"round_{phase}", run, run.number)

    def _enter(self, run: RunModel, status: str, event: str) -> None:
        run.status, run.is_pause_requested = status, False
        self._happened(event, run, run.number)

    def _end_stopping(self) -> None:
        for run in self.runs.values():
            if run.status != "stopping":
                continue
            here = [found for name, found in self.present.items() if name in run.roster]
            is_busy = any(run.run_id in (found.given, found.works_for) for found in here)
            run.stopping_since = self.now if run.stopping_since is None else run.stopping_since
            if not is_busy or self.now - run.stopping_since > 2 * self.lease_s:
                self._enter(run, "stopped", "run_stopped")

    def _counted(self, what: str, outcome: str) -> str:
        self.counters[what, outcome.lower()] += 1
        return outcome

    def _refused(self, what: str, reason: str, client: str, run_id: str, number: int) -> str:
        """Count a refusal; the run's history names each client and reason once while a round lasts."""
        run = self.runs.get(run_id)
        if run is not None and run.status not in ENDED and client in self.present and reason != "CLIENT_ID_TAKEN":
            key = (run_id, run.number, number if number == run.number else None, client, what, reason)
            if key not in self.named:
                self.named.add(key)
                self._happened(f"{what}_refused {reason}", run, number, client)
        return self._counted(what, reason)

    def _happened(self, event: str, run: RunModel | None = None, number: int = -1, client: str = "") -> None:
        self.events[event, "" if run is None else run.run_id, number, client] += 1


RUN_STATUSES = ("pending", "running", "paused", "stopping", *ENDED)
