"""Creation of runs: one run for each request id, with the initial model that its configuration names."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedplcc.aggregator.computation.carried_prototypes import carried_prototypes
from fedplcc.aggregator.coordinator.request_ids import MAX_REQUEST_ID, Requests
from fedplcc.aggregator.incoming.initial_models import Beginning, CommittedModel, InitialModels
from fedplcc.aggregator.ledger.audited import AuditLog
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import SESSION, Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.config.initial_model import lineage
from fedplcc.shared.config.run import RunConfig, check_scale, parse_run_config
from fedplcc.shared.config.trained_input import other_input, role_fault
from fedplcc.shared.errors import (
    InvalidConfig,
    MalformedRequest,
    RowCorrupt,
    RunNotFound,
    StoreUnavailable,
    TooManyCalls,
    TooManyOpenRuns,
)
from fedplcc.shared.identity.api_keys import most_of
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.reasons import WaitsForClients
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, BlobRef, PrototypeSet, Run, RunStatus
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets

HOURLY_BEGUN = 2
"""Runs that a key may begin at once, and then in an hour, in numbers of those that it may have open: each tells sites."""

FindArtifact = Callable[[str, int, str], tuple[BlobRef, Path]]
"""Returns a committed round's model or prototypes; see `Artifacts.find`."""


def starter_in(store: Store, caller: str) -> str:
    """Return who a caller is, in words for the owners of sites: a key's name and the most that it may do.

    Args:
        caller: As the audit has it: `key:ID`, `person:NAME <SUBJECT>`, `owner`, `gateway:NAME`.
    """
    with suppress(StoreUnavailable, RowCorrupt):  # then by its id: no run waits for a name
        for _ in range(2):  # a browser's session has the caller that opened it for a label
            key = store.find_key(caller.removeprefix("key:")) if caller.startswith("key:") else None
            if key is not None and key.kind != SESSION:
                return f"{key.label} ({most_of(key.scopes)})"
            caller = caller if key is None else key.label
    return {"": "", "anyone": "", "nobody": "", "owner": "the owner of the aggregator"}.get(
        caller, caller.removeprefix("person:")
    )


class RunCreation:
    """Creates runs."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        requests: Requests,
        blobs: BlobStore,
        initial_models: InitialModels,
        artifact: FindArtifact,
        limits: Limits,
        *,
        creators: Mapping[str, str],
        audit: AuditLog | None,
        monotonic_clock: Callable[[], float],
    ) -> None:
        self._ledger, self._store, self._requests, self._blobs = ledger, store, requests, blobs
        self._initial_models, self._artifact = initial_models, artifact
        self._limits, self._creators, self._audit = limits, dict(creators), audit
        self._starters = {caller: starter_in(store, caller) for caller in {*creators.values()}}
        begun = HOURLY_BEGUN * limits.max_open_runs_per_key
        self._begun = TokenBuckets(begun / 3600, begun, monotonic_clock)

    def create(self, request_id: str, document: Mapping[str, Any]) -> Run:
        """Create a run, or return the one that this request id created before.

        Raises:
            InvalidConfig: The configuration is wrong.
            RunNotFound, RoundNotFound, BlobNotFound: The initial model that it names does not exist.
            RequestIdReused: The request id was used with another configuration, or to control a run.
            TooManyOpenRuns: As many runs as this aggregator allows have not ended.
            TooManyCalls: The key begins runs too often.
            MalformedRequest: The request id is empty or too long.
        """
        if not 1 <= len(request_id) <= MAX_REQUEST_ID:
            raise MalformedRequest(f"a request id has 1 to {MAX_REQUEST_ID} characters")
        config = parse_run_config(document)
        check_scale(config)
        request_hash = (
            config.hash
        )  # of the request as sent: a run's id in it names another model once that run has gone on
        if len(config.data.classes) > self._limits.max_classes:
            raise MalformedRequest(f"data.classes: at most {self._limits.max_classes} classes")
        lease_ends = math.isfinite(self._limits.lease_s)  # never in a simulation, where every client is present
        if config.quorum.deadline_s is not None and lease_ends and config.quorum.silence_s < self._limits.lease_s:
            raise InvalidConfig(
                f"quorum.silence_s = {config.quorum.silence_s:g}: at least {self._limits.lease_s:g}, the lease of this "
                "aggregator in seconds: sooner it does not know that a client is silent",
                location="quorum.silence_s",
            )
        if config.evaluation.joining == "pooled" and lease_ends:
            raise InvalidConfig(
                'evaluation.joining = "pooled" trains on all clients\' images in one place, which only a simulation has; '
                "set it to true",
                location="evaluation.joining",
            )
        with self._ledger.lock, self._blobs.holds.holding():
            known = self._requests.created(request_id, request_hash)
            if known is not None:
                return self._ledger.get(known)
            self.require_room()
            self._require_turn()
            beginning = self._beginning(config)
            first_prototypes = PrototypeSet.empty()
            if beginning is not None:
                runs = self._trained_by(beginning)
                classes = self._classes_of(runs[0], config) if runs else None
                first_prototypes = self._first_prototypes(config, beginning)
                config = config.with_initial_model(beginning.model.sha256, classes, runs)
                self._keeps_roles(config)
            prototypes = self._blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(first_prototypes)])
            if config.run.initial_prototypes:
                config = config.with_initial_prototypes(prototypes.sha256)
            now = self._ledger.now()
            run = Run(
                run_id=f"{config.run.name}-{uuid.uuid4().hex[:8]}",
                name=config.run.name,
                status=RunStatus.PENDING,
                config_json=config.canonical_json,
                config_hash=config.hash,
                method=config.run.method,
                total_rounds=config.run.rounds,
                seed=config.run.seed,
                roster=tuple(name for name in config.run.clients or () if config.membership.takes_part(name, 1)),
                model=None if beginning is None else beginning.model,
                prototypes=prototypes,
                reason=WaitsForClients(),
                quarantined=dict.fromkeys(config.admission.quarantined, "the run's configuration says so"),
                created_at=now,
                updated_at=now,
            )
            facts = {} if beginning is None else {"initial_model": beginning.source}
            audited = () if self._audit is None else (self._audit.change("CreateRun", run.run_id, request_id),)
            created = self._ledger.create(
                run, request_id=request_id, request_hash=request_hash, facts=facts, audited=audited
            )
            caller = current_principal.get().caller
            self._creators[created.run_id] = caller
            self._begun.take(caller)
            if caller not in self._starters:
                self._starters[caller] = starter_in(self._store, caller)
            return created

    def creator_of(self, run_id: str) -> str:
        """Return the caller that began an open run; empty if nobody knows."""
        return self._creators.get(run_id, "")

    def starter_of(self, run_id: str) -> str:
        """Return who began an open run, in words for the owners of sites; empty if nobody knows. Reads memory alone."""
        return self._starters.get(self.creator_of(run_id), "")

    def require_room(self) -> None:
        """Refuse another open run where there are as many as this aggregator allows, in all or of one key.

        Raises:
            TooManyOpenRuns: There are.
        """
        most = self._limits.max_open_runs
        if len(self._ledger.open_runs()) >= most:
            raise TooManyOpenRuns(
                f"{most} runs have not ended, as many as this aggregator allows (--max-open-runs); stop "
                "one that is not needed, or wait until one ends",
                max_open_runs=most,
            )
        self._require_share()

    def _require_share(self) -> None:
        """Refuse a key that has as many open runs as one may have: others must find room."""
        caller, most = current_principal.get(), self._limits.max_open_runs_per_key
        self._creators = {run.run_id: self._creators.get(run.run_id, "") for run in self._ledger.open_runs()}
        self._starters = {name: self._starters[name] for name in {*self._creators.values()} & self._starters.keys()}
        if caller.key_id and list(self._creators.values()).count(caller.caller) >= most:
            raise TooManyOpenRuns(
                f"{most} runs of {caller.caller} have not ended, as many as one key may have "
                "(--max-open-runs-per-key); stop one that is not needed, or wait until one ends",
                max_open_runs=most,
            )

    def _require_turn(self) -> None:
        """Refuse a key that begins runs too often, which end soon: others wait for the messages about them."""
        caller, most = current_principal.get(), HOURLY_BEGUN * self._limits.max_open_runs_per_key
        wait_s = math.ceil(self._begun.wait_s(caller.caller)) if caller.key_id else 0
        if wait_s:
            raise TooManyCalls(
                f"{caller.caller} begins more than {most} runs in an hour, which is twice --max-open-runs-per-key; "
                f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )

    def _beginning(self, config: RunConfig) -> Beginning | None:
        """Return the initial model of a run, stored as a blob; None if the run's first client makes a new one."""
        if config.run.initial_model is None:
            return None
        beginning = self._initial_models.resolve(
            config.run.initial_model, lambda run_id, number: self._committed_model(run_id, number, config)
        )
        self._initial_models.keep(beginning.model)
        return beginning

    def _trained_by(self, beginning: Beginning) -> tuple[str, ...]:
        """Return the runs that are known to have trained an initial model, the last first."""
        committed = beginning.committed
        direct = self._store.runs_of_model(beginning.model.sha256) if committed is None else [committed.run.run_id]
        return lineage(*((run_id, *self._initial_runs(run_id)) for run_id in direct))

    def _initial_runs(self, run_id: str) -> Iterable[str]:
        return document_of(self._ledger.get(run_id))["run"].get("initial_runs") or ()

    def _keeps_roles(self, config: RunConfig) -> None:
        """Refuse a run that divides images in another way than one that trained its initial model."""
        for run_id in config.run.initial_runs or ():
            try:
                run = self._ledger.get(run_id)
            except RunNotFound:
                continue  # deleted, or of another aggregator: the clients compare their own records
            fault = role_fault(run_id, document_of(run), config)
            if fault is not None:
                raise InvalidConfig(fault[1], location=fault[0])

    def _first_prototypes(self, config: RunConfig, beginning: Beginning) -> PrototypeSet:
        """Return the prototypes that a run begins with: none, or those of its initial model's round and its own classes."""
        wanted, found = config.run.initial_prototypes, beginning.committed
        if not wanted:
            return PrototypeSet.empty()
        if found is None or isinstance(wanted, str):
            raise InvalidConfig(
                "run.initial_prototypes: only the rounds of a run have prototypes; write true, and "
                'initial_model = "run:RUN_ID@ROUND"',
                location="run.initial_prototypes",
            )
        if config.algorithm.prototype_kind is None or found.run.method != config.run.method:
            raise InvalidConfig(
                f"run.initial_prototypes: run {found.run.run_id} trains with {found.run.method}, this one with "
                f"{config.run.method}; only methods with prototypes carry them, and only their own",
                location="run.initial_prototypes",
            )
        blob, _path = self._artifact(found.run.run_id, found.number, "prototypes")
        return carried_prototypes(
            prototypes_from_bytes(self._blobs.read(blob.sha256)), config.data.classes, found.classes
        )

    def _committed_model(self, run_id: str, number: int | None, config: RunConfig) -> CommittedModel:
        """Return the model of another run's round for a run of this configuration; see `initial_models.FindCommitted`."""
        run = self._ledger.get(run_id)
        if number is None:
            number = run_facts.last_committed(run)
        blob, path = self._artifact(run_id, -1 if number is None else number, "model")
        assert number is not None, "without a committed round there is no model"
        return CommittedModel(run=run, number=number, blob=blob, path=path, classes=self._classes_of(run_id, config))

    def _classes_of(self, run_id: str, config: RunConfig) -> tuple[str, ...]:
        """Return the classes of a run that trained the initial model of one of this configuration, in their order there."""
        theirs = document_of(self._ledger.get(run_id))
        fault = other_input(run_id, theirs, config)
        classes = tuple(theirs["data"]["classes"])
        if fault is None and config.run.initial_classes not in (None, classes):
            sentence = f"run {run_id} has other classes, and its configuration names them; leave the key out"
            fault = "run.initial_classes", f"run.initial_classes: {sentence}"
        if fault is not None:
            raise InvalidConfig(fault[1], location=fault[0])
        return classes
