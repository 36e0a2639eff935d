"""The aggregator's Prometheus metrics. Every known label combination is there from the start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from aggregator import rounds
from shared import errors
from shared.metrics import OTHER, PHASE_SECONDS, PREFIX, RPC_SECONDS
from shared.types import ClientActivity, DropReason, Round, RoundPhase, Run, RunStatus

MAX_RUNS = 4
"""Runs that have series of their own at a time."""
KEEP_ENDED_S = 120.0
"""How long an ended run keeps its series: several scrape intervals, so that its last round is seen."""
STRANGERS = (errors.Unauthenticated, errors.NotAMember, errors.ClientIdTaken, errors.RunNotFound)
"""Reasons for which anything is refused from who has no say in the run."""
REPORT_REFUSALS = (
    errors.MalformedUpdate,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.EarlyReport,
    errors.LateReport,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *STRANGERS,
)
"""Reasons for which a report is refused."""
REFUSALS = (
    errors.MalformedUpdate,
    errors.UpdateNormExceeded,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.LateUpdate,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *STRANGERS,
    errors.UpdateConflict,
    errors.BlobCorrupt,
    errors.BlobNotFound,
    errors.BlobTooLarge,
    errors.ChunkTooLarge,
    errors.ChunkOutOfOrder,
)
"""Reasons for which an update, or a blob of one, is refused."""
KINDS = ("model", "prototypes")
DOMAINS = 256
"""Most domains with series of their own."""
CLASSES = 32
"""A run with more classes has no series by class."""
LOSS_TERMS = 8
"""Most loss terms with series of their own."""


class AggregatorMetrics:
    """What the aggregator counts and measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs: list[str] = []
        self._ended_at: dict[str, float] = {}
        self._label_values: dict[tuple[str, str], set[str]] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"{PREFIX}_{name}", text, labels, registry=registry, buckets=buckets)

        self.round_seconds = histogram(
            "round_duration_seconds", "From the opening of a round to its commit.", PHASE_SECONDS
        )
        self.phase_seconds = histogram(
            "round_phase_duration_seconds", "Duration of each phase of a round.", PHASE_SECONDS, "phase"
        )
        self.rounds = counter("rounds_total", "Rounds that ended.", "result")
        self.updates = counter("client_updates_total", "Updates by outcome.", "outcome")
        self.reports = counter("client_reports_total", "Evaluation reports by outcome.", "outcome")
        self.transfer_bytes = counter("transfer_bytes_total", "Payload bytes moved.", "direction", "kind")
        self.transfers_resumed = counter(
            "transfers_resumed_total", "Transfers that went on from an offset.", "direction"
        )
        self.clients = gauge("clients", "Clients by state.", "state")
        self.runs = gauge("runs", "Runs that have not ended, by status.", "status")
        self.dropped = counter("clients_dropped_total", "Clients that a round went on without.", "reason")
        self.runs_without_quorum = gauge("runs_without_quorum", "Running runs that wait for clients to make a quorum.")
        self.blob_bytes = gauge("blob_bytes", "Stored models and prototypes after the last collection of garbage.")
        self.blobs_collected = counter("blobs_collected_total", "Blobs that were removed because nothing needed them.")
        self.bytes_collected = counter("collected_bytes_total", "Bytes that collections of garbage freed.")
        self.recoveries = counter("recoveries_total", "Starts at which open runs were found and taken up again.")
        self.client_problems = counter("client_problems_total", "Problems that trainers reported.")
        self.prototypes = gauge("prototypes", "Prototypes of the last committed round.", "run", "scope")
        self.class_prototypes = gauge(
            "class_prototypes", "Global prototypes by class of the last round.", "run", "class_id"
        )
        self.accuracy = gauge(
            "domain_accuracy_ratio",
            "Accuracy on each domain's test set: of the global model, or of clients' own where the run shares none.",
            "run",
            "domain",
        )
        self.worst_accuracy = gauge("worst_domain_accuracy_ratio", "Accuracy of the worst domain.", "run")
        self.mean_accuracy = gauge("mean_domain_accuracy_ratio", "Mean accuracy over domains.", "run")
        self.local_accuracy = gauge(
            "local_accuracy_ratio", "Accuracy of clients' own models: mean and worst over domains.", "run", "summary"
        )
        self.loss = gauge("training_loss", "Mean training loss by term of the last round.", "run", "term")
        self.round = gauge("round", "The latest round that opened.", "run")
        self.rpc_started = Counter(
            "grpc_server_started_total", "RPCs started.", ["grpc_service", "grpc_method"], registry=registry
        )
        self.rpc_handled = Counter(
            "grpc_server_handled_total",
            "RPCs completed, by status code.",
            ["grpc_service", "grpc_method", "grpc_code"],
            registry=registry,
        )
        self.rpc_seconds = Histogram(
            "grpc_server_handling_seconds",
            "Duration of RPCs.",
            ["grpc_service", "grpc_method"],
            registry=registry,
            buckets=RPC_SECONDS,
        )
        self._initialise()

    def _initialise(self) -> None:
        for outcome in ("accepted", "duplicate", *(refusal.reason.lower() for refusal in REFUSALS)):
            self.updates.labels(outcome)
        for outcome in ("accepted", "duplicate", *(refusal.reason.lower() for refusal in REPORT_REFUSALS)):
            self.reports.labels(outcome)
        for phase in RoundPhase:
            if phase is not RoundPhase.COMMITTED:
                self.phase_seconds.labels(phase.value)
        for direction in ("sent", "received"):
            self.transfers_resumed.labels(direction)
            for kind in KINDS:
                self.transfer_bytes.labels(direction, kind)
        for state in ("connected", *(activity.value for activity in ClientActivity)):
            self.clients.labels(state)
        for status in RunStatus:
            if not status.is_final:
                self.runs.labels(status.value)
        for reason in DropReason:
            self.dropped.labels(reason.value)
        self.rounds.labels("committed")

    def rpc_begun(self, method: str) -> None:
        """Count a call that begins; `method` is "/package.Service/Method"."""
        self.rpc_started.labels(*_service_and_method(method)).inc()

    def rpc_ended(self, method: str, code: str, seconds: float) -> None:
        """Record a call that ended."""
        names = _service_and_method(method)
        self.rpc_handled.labels(*names, code).inc()
        self.rpc_seconds.labels(*names).observe(seconds)

    def refused(self, error: errors.FedplccError, *, what: Literal["update", "report"]) -> bool:
        """Count an update, a blob of one, or a report that was refused; says whether that is what the error means."""
        counted, kinds = (self.updates, REFUSALS) if what == "update" else (self.reports, REPORT_REFUSALS)
        if not isinstance(error, kinds):
            return False  # a disk that is away, or a stream that a newer one took over
        counted.labels(error.reason.lower()).inc()
        return True

    def observe_runs(self, runs: Iterable[Run], *, now: float) -> None:
        """Set the gauges of open runs; series of ended ones are removed once scrapers have seen them for the last time."""
        open_runs = [run for run in runs if not run.status.is_final]
        for status in RunStatus:
            if not status.is_final:
                self.runs.labels(status.value).set(sum(run.status is status for run in open_runs))
        self.runs_without_quorum.set(sum(rounds.waits_for_quorum(run) for run in open_runs))
        open_ids = {run.run_id for run in open_runs}
        for run_id in [run_id for run_id in self._runs if run_id not in open_ids]:
            if now - self._ended_at.setdefault(run_id, now) >= KEEP_ENDED_S:
                self._remove(run_id)
        for run in open_runs:
            if run.run_id not in self._runs:
                self._make_room()
            if run.run_id not in self._runs and len(self._runs) < MAX_RUNS:
                self._runs.append(run.run_id)
            if run.run_id in self._runs:
                self.round.labels(run.run_id).set(run.round_number)

    def observe_dropped(self, before: Run, after: Run) -> None:
        """Count the clients that a step drops from the open round."""
        if after.round is None or after.round.dropped == (before.round.dropped if before.round else {}):
            return
        same = before.round is not None and before.round.number == after.round.number
        known = before.round.dropped if before.round is not None and same else {}
        for client_id in set(after.round.dropped) - set(known):
            self.dropped.labels(after.round.dropped[client_id].partition(":")[0]).inc()

    def observe_clients(self, activities: Iterable[ClientActivity]) -> None:
        """Set the gauges of connected clients."""
        connected = list(activities)
        self.clients.labels("connected").set(len(connected))
        for activity in ClientActivity:
            self.clients.labels(activity.value).set(connected.count(activity))

    def round_committed(self, run: Run, class_counts: Sequence[int], *, now: float) -> None:
        """Record a round's durations, and its results where the run has series."""
        current = run.round
        assert current is not None
        self.rounds.labels("committed").inc()
        self._observe_durations(current, now)
        if run.run_id not in self._runs:
            return
        metrics = json.loads(current.metrics_json)
        accuracy = metrics["accuracy"]
        for name, gauge in (("worst", self.worst_accuracy), ("mean", self.mean_accuracy)):
            if accuracy[name] is None:
                gauge.remove_by_labels({"run": run.run_id})
            else:
                gauge.labels(run.run_id).set(accuracy[name])
        local = metrics.get("accuracy_local", {})
        summaries = {name: local.get(name) for name in ("mean", "worst")}
        self._set_all(self.local_accuracy, run.run_id, summaries, label="summary", bound=len(summaries))
        domains = {name: value for name, value in accuracy.items() if name not in ("worst", "mean")}
        self._set_all(self.accuracy, run.run_id, domains, label="domain", bound=DOMAINS)
        self._set_all(self.loss, run.run_id, metrics["loss"], label="term", bound=LOSS_TERMS)
        for scope, count in metrics["prototypes"].items():
            self.prototypes.labels(run.run_id, scope).set(count)
        if len(class_counts) <= CLASSES:
            for class_id, count in enumerate(class_counts):
                self.class_prototypes.labels(run.run_id, str(class_id)).set(count)

    def _observe_durations(self, current: Round, now: float) -> None:
        phases = [phase for phase in RoundPhase if phase.value in current.phase_started_at]
        starts = [current.phase_started_at[phase.value] for phase in phases]
        if current.number == 0 or not starts:
            return
        self.round_seconds.observe(max(0.0, now - starts[0]))
        for phase, start, end in zip(phases, starts, [*starts[1:], now], strict=True):
            if phase is not RoundPhase.COMMITTED:
                self.phase_seconds.labels(phase.value).observe(max(0.0, end - start))

    def _set_all(
        self, gauge: Gauge, run_id: str, values: Mapping[str, float | None], *, label: str, bound: int
    ) -> None:
        """Show a gauge's values of this round; what this round does not know is not shown, never the value of one before."""
        known = self._label_values.setdefault((run_id, label), set())
        shown = set()
        for name, value in values.items():
            if value is not None:
                bounded = name if name in known or len(known - {OTHER}) < bound else OTHER
                gauge.labels(run_id, bounded).set(value)
                shown.add(bounded)
                known.add(bounded)
        for name in known - shown:
            gauge.remove_by_labels({"run": run_id, label: name})

    def _make_room(self) -> None:
        """Let an ended run's series go where a new run needs their place."""
        if len(self._runs) >= MAX_RUNS and self._ended_at:
            self._remove(min(self._ended_at, key=lambda run_id: self._ended_at[run_id]))

    def _remove(self, run_id: str) -> None:
        self._runs.remove(run_id)
        self._ended_at.pop(run_id, None)
        for gauge in (self.worst_accuracy, self.mean_accuracy, self.round):
            gauge.remove_by_labels({"run": run_id})
        for gauge in (self.accuracy, self.local_accuracy, self.loss, self.prototypes, self.class_prototypes):
            gauge.remove_by_labels({"run": run_id})
        for key in [key for key in self._label_values if key[0] == run_id]:
            del self._label_values[key]


def _service_and_method(method: str) -> tuple[str, str]:
    service, _, name = method.lstrip("/").partition("/")
    return service, name
