"""Steering of runs: the step of each verb, done once for each request id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

from fedplcc.aggregator.coordinator.extensions import Extensions
from fedplcc.aggregator.coordinator.leases import Leases
from fedplcc.aggregator.coordinator.memberships import keeps_nothing
from fedplcc.aggregator.coordinator.request_ids import MAX_REQUEST_ID, Requests
from fedplcc.aggregator.coordinator.run_creation import RunCreation
from fedplcc.aggregator.coordinator.run_labels import Audited
from fedplcc.aggregator.incoming.space import Space
from fedplcc.aggregator.ledger.changes import Write
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.machine import members, opening, run_moves
from fedplcc.aggregator.store.base import ControlRequest, Store
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import ClientNotFound, InvalidTransition, MalformedRequest, StoreUnavailable
from fedplcc.shared.steering import (
    WORDS,
    AdmitClient,
    AdvanceStage,
    ExtendRun,
    PauseRun,
    QuarantineClient,
    ReleaseClient,
    ResumeRun,
    RetireClient,
    StopRun,
    Verb,
)
from fedplcc.shared.types import Run


class Steering:
    """Changes runs as people ask."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        requests: Requests,
        space: Space,
        extensions: Extensions,
        run_creation: RunCreation,
        leases: Leases,
        audited: Audited,
    ) -> None:
        """Steer the runs of a ledger.

        Args:
            extensions: How completed runs go on.
            run_creation: Knows whether there is room for another open run.
            leases: Of clients, which may join again, and of runs that stop.
            audited: Returns what adds the audit's record of a change.
        """
        self._ledger, self._store, self._requests, self._space = ledger, store, requests, space
        self._extensions, self._run_creation, self._leases, self._audited = extensions, run_creation, leases, audited

    def steer(self, run_id: str, verb: Verb, *, request_id: str = "") -> Run:
        """Carry out a verb, once for each request id; return the changed run.

        A request id that was used before changes nothing, so that a late retry cannot undo a newer request. An empty text
        means no id.

        Raises:
            RunNotFound, ClientNotFound: There is no such run, or no such client.
            InvalidTransition: The run is not where it can be steered so: see the RPC.
            InvalidConfig, TooManyOpenRuns: It cannot go on to so many rounds, or not now.
            RequestIdReused: The request id was used with another verb, run or argument.
            MalformedRequest: The request id is too long.
        """
        if len(request_id) > MAX_REQUEST_ID:
            raise MalformedRequest(f"a request id has at most {MAX_REQUEST_ID} characters")
        change, client_id = self._step(verb), getattr(verb, "client_id", "")
        target = f"{run_id}/{client_id}" if client_id else run_id
        audited = self._audited(type(verb).__name__, target, request_id)
        before = self._ledger.find_open(run_id)
        run = self._done(run_id, change, self._request(run_id, verb, request_id), audited)
        is_to_forget = isinstance(verb, RetireClient) and keeps_nothing(run, client_id)
        if is_to_forget and (before is None or not keeps_nothing(before, client_id)):
            self._leases.end(client_id)
        return run

    def _request(self, run_id: str, verb: Verb, request_id: str) -> ControlRequest | None:
        if not request_id:
            return None
        asked = canonical_json({"run_id": run_id, "action": WORDS[type(verb)], **asdict(verb)})
        request_hash = hashlib.sha256(asked.encode()).hexdigest()
        return ControlRequest(
            request_id=request_id, request_hash=request_hash, run_id=run_id, created_at=self._ledger.now()
        )

    def _done(
        self, run_id: str, change: Callable[[Run], Run], request: ControlRequest | None, audited: Sequence[Write]
    ) -> Run:
        with self._ledger.lock:
            if request is not None and self._requests.was_done(request):
                return self._ledger.get(run_id)
            try:
                self._ledger.change(run_id, change, request=request, audited=audited)
            except StoreUnavailable:
                if not self._space.relieve():
                    raise
                self._ledger.change(run_id, change, request=request, audited=audited)
            self._leases.end_stopping_runs()
            changed = self._ledger.get(run_id)
            self._space.drop_quarantined(changed)
            return changed

    def _step(self, verb: Verb) -> Callable[[Run], Run]:
        """Return the change of a run that a verb asks for."""
        match verb:
            case PauseRun(now):
                return lambda run: run_moves.pause(run, now=now)
            case ResumeRun():
                return run_moves.resume
            case StopRun(reason):
                return lambda run: run_moves.stop(run, reason=reason or "stopped by request")
            case ExtendRun(rounds):
                return self._extended(rounds)
            case QuarantineClient(client_id, reason):
                why = reason or "quarantined by request"
                return lambda run: members.quarantine(self._with_client(run, client_id), client_id, why)
            case ReleaseClient(client_id):
                return lambda run: members.release(self._with_client(run, client_id), client_id)
            case AdmitClient(client_id):
                return lambda run: members.enter(self._with_client(run, client_id), client_id)
            case RetireClient(client_id, forgets):
                return lambda run: self._retired(run, client_id, forgets=forgets)
            case AdvanceStage():
                return lambda run: opening.advance(run, config_of(run).stream)

    def _extended(self, rounds: int) -> Callable[[Run], Run]:
        step = self._extensions.step(rounds)

        def extended(run: Run) -> Run:
            after = step(run)
            self._run_creation.require_room()
            return after

        return extended

    def _retired(self, run: Run, client_id: str, *, forgets: bool) -> Run:
        if client_id not in run.roster:
            self._with_client(run, client_id)
            raise ClientNotFound(f"client {client_id[:64]!r} is not of run {run.run_id}", run_id=run.run_id)
        return members.retire(run, client_id, forgets=forgets, min_clients=config_of(run).quorum.min_clients)

    def _with_client(self, run: Run, client_id: str) -> Run:
        """Check that the run is open and the client is known, so that a mistyped id is refused; return the run."""
        if run.status.is_final:
            raise InvalidTransition(f"the run is {run.status}; nobody takes part in it any more", run_id=run.run_id)
        is_known = client_id in run.roster or client_id in run.quarantined
        if not is_known and self._store.find_client(client_id) is None:
            raise ClientNotFound(
                f"run {run.run_id} has no client {client_id[:64]!r}, and none of that id ever joined", run_id=run.run_id
            )
        return run
