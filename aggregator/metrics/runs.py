"""Runs: how many there are, and what the last committed round of each of a few came to.

A run has series of its own from its creation until `KEEP_ENDED_S` after its end, at most `MAX_RUNS` runs at a time; one that
comes when the places are taken gets the next that is free, or at once that of a run that has ended. One that has failed
keeps its place: an alert names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from aggregator.metrics.families import AtScrape, Families
from aggregator.metrics.rounds import RoundMetrics
from aggregator.rounds import machine
from shared.process.metrics import OTHER, PREFIX
from shared.types import Round, RoundPhase, Run, RunStatus

MAX_RUNS = 4
"""Runs that have series of their own at a time."""
KEEP_ENDED_S = 120.0
"""How long an ended run keeps its series: several scrape intervals, so that its last round is seen."""
DOMAINS = 16
"""Most domains of a run with series of their own."""
CLASSES = 16
"""A run with more classes has no series by class."""
LOSS_TERMS = 4
"""Most loss terms of a run with series of their own."""
MAX_NAME = 64
"""Longest name of a domain or a loss term that becomes a label; clients make them up."""


@dataclass(slots=True)
class _Shown:
    """A run that has series."""

    run: Run
    ended_at: float | None = None
    committed_at: float | None = None
    moved_at: float | None = None
    """When its open phase began, or a client that it waits for last came further."""
    status: tuple[str, str] = ("", "")
    """Its status as it is shown, and what it waits for."""
    label_values: dict[str, set[str]] = field(default_factory=dict)
    """Names that have, or had, a series of their own, by label."""


class RunAges(AtScrape):
    """Ages of shown runs that have not ended, computed when they are scraped."""

    def __init__(self, shown: Mapping[str, _Shown], times: RoundMetrics) -> None:
        self._shown, self._times = shown, times
        self.now: Callable[[], float] | None = None

    def collect(self) -> Iterator[Metric]:
        """The values now; none before there is a clock."""
        of_round = GaugeMetricFamily(
            f"{PREFIX}_round_age_seconds",
            "How long the open round of a running run has been open, less the time in which the run was paused.",
            labels=["run"],
        )
        of_checkpoint = GaugeMetricFamily(
            f"{PREFIX}_checkpoint_age_seconds",
            "Since the last round of a run that has not ended was committed.",
            labels=["run"],
        )
        stalled = GaugeMetricFamily(
            f"{PREFIX}_round_stalled_seconds",
            "Since a client that the open round of a running run waits for last came further, or its phase began.",
            labels=["run"],
        )
        now = 0.0 if self.now is None else self.now()
        for run_id, shown in [] if self.now is None else list(self._shown.items()):
            if shown.ended_at is not None or shown.run.status.is_final:
                continue
            times = self._times.times(run_id)
            if times is not None and shown.run.status is RunStatus.RUNNING and machine.has_open_round(shown.run):
                of_round.add_metric((run_id,), times.age_s(now))
                if shown.moved_at is not None:
                    stalled.add_metric((run_id,), max(0.0, now - shown.moved_at))
            if shown.committed_at is not None:
                of_checkpoint.add_metric((run_id,), max(0.0, now - shown.committed_at))
        yield from (of_round, of_checkpoint, stalled)


class RunMetrics:
    """Series of runs."""

    def __init__(self, families: Families, times: RoundMetrics) -> None:
        gauge = families.gauge
        self._shown: dict[str, _Shown] = {}
        self._by_status = gauge("runs", "Runs that have not ended, by status.", "status")
        self._without_quorum = gauge("runs_without_quorum", "Running runs that wait for clients to make a quorum.")
        self._info = gauge("run_info", "A run: its method and name; always 1.", "run", "method", "name")
        self._status = gauge(
            "run_status",
            "A run: its status, and whether it waits for a quorum; always 1.",
            "run",
            "status",
            "waits_for",
        )
        self._refused = families.counter(
            "run_updates_refused_total",
            "Updates of a run that were refused for what they are, not for when they came.",
            "run",
        )
        self._patience = gauge(
            "round_patience_seconds",
            "How long a round waits at most for a client that does not come further, where its run sets a deadline.",
            "run",
        )
        self._round = gauge("round", "The latest round that opened.", "run")
        self._total_rounds = gauge("total_rounds", "The rounds that a run is to have.", "run")
        self._prototypes = gauge(
            "prototypes",
            "Prototypes of the last committed round: local ones received, global ones kept.",
            "run",
            "scope",
        )
        self._class_prototypes = gauge(
            "class_prototypes", "Global prototypes by class of the last committed round.", "run", "class_id"
        )
        self._cluster_weight = gauge(
            "prototype_cluster_weight",
            "Normalised weight of a global prototype of the last committed round: min, median and max.",
            "run",
            "summary",
        )
        self._accuracy = gauge(
            "domain_accuracy_ratio",
            "Accuracy on each domain's test set: of the global model, or of clients' own where the run shares none.",
            "run",
            "domain",
        )
        self._worst_accuracy = gauge("worst_domain_accuracy_ratio", "Accuracy of the worst domain.", "run")
        self._mean_accuracy = gauge("mean_domain_accuracy_ratio", "Mean accuracy over domains.", "run")
        self._accuracy_gap = gauge(
            "domain_accuracy_gap_ratio", "Accuracy of the best domain less that of the worst.", "run"
        )
        self._local_accuracy = gauge(
            "local_accuracy_ratio", "Accuracy of clients' own models: mean and worst over domains.", "run", "summary"
        )
        self._loss = gauge("training_loss", "Mean training loss by term of the last committed round.", "run", "term")
        self._ages = RunAges(self._shown, times)
        families.registry.register(self._ages)
        for status in RunStatus:
            if not status.is_final:
                self._by_status.labels(status.value)

    def use_clock(self, now: Callable[[], float]) -> None:
        """Take the clock of the runs, against which their ages are computed."""
        self._ages.now = now

    def follow(self, runs: Iterable[Run], *, now: float) -> None:
        """Set the gauges of open runs; series of ended ones are removed once scrapers have seen them for the last time."""
        open_runs = {run.run_id: run for run in runs if not run.status.is_final}
        statuses = [run.status for run in open_runs.values()]
        for status in RunStatus:
            if not status.is_final:
                self._by_status.labels(status.value).set(statuses.count(status))
        self._without_quorum.set(sum(machine.waits_for_quorum(run) for run in open_runs.values()))
        for run_id in [run_id for run_id in self._shown if run_id not in open_runs]:
            shown = self._shown[run_id]
            shown.ended_at = now if shown.ended_at is None else shown.ended_at
            if now - shown.ended_at >= KEEP_ENDED_S:
                self._remove(run_id)
        for run in open_runs.values():
            self._show(run)

    def ended(self, run: Run, *, now: float) -> None:
        """Show how a run has ended, where there is room for it; also of one that ended before it was ever shown."""
        self._show(run)
        shown = self._shown.get(run.run_id)
        if shown is not None:
            shown.ended_at = now

    def waits(self, run_id: str, *, moved_at: float | None, patience_s: float | None) -> None:
        """Take note of since when the open round of a run has come no further.

        Args:
            run_id: The run.
            moved_at: When its phase began, or a client that it waits for last came further; None if no round is open.
            patience_s: How long it waits for such a client at most; None if for ever.
        """
        shown = self._shown.get(run_id)
        if shown is not None:
            shown.moved_at = moved_at
            if patience_s is not None:
                self._patience.labels(run_id).set(patience_s)

    def refused_update(self, run_id: str) -> None:
        """Count an update that was refused for what it is."""
        if run_id in self._shown:
            self._refused.labels(run_id).inc()

    def committed(self, run: Run, current: Round) -> None:
        """Show the results of the last committed round of a run, where the run has series."""
        shown = self._shown.get(run.run_id)
        if shown is None:
            return
        shown.committed_at = current.phase_started_at.get(RoundPhase.COMMITTED.value)
        if not current.results_json:
            return  # the first model, which nobody has judged
        metrics = json.loads(current.results_json)
        accuracy = metrics["accuracy"]
        domains = {name: value for name, value in accuracy.items() if name not in ("worst", "mean")}
        known = [value for value in domains.values() if value is not None]
        gap = max(known) - min(known) if known else None
        for gauge, value in (
            (self._worst_accuracy, accuracy["worst"]),
            (self._mean_accuracy, accuracy["mean"]),
            (self._accuracy_gap, gap),
        ):
            if value is None:
                gauge.remove_by_labels({"run": run.run_id})
            else:
                gauge.labels(run.run_id).set(value)
        local = metrics.get("accuracy_local", {})
        summaries = {name: local.get(name) for name in ("mean", "worst")}
        self._set_all(self._local_accuracy, shown, summaries, label="summary", bound=len(summaries))
        self._set_all(self._accuracy, shown, domains, label="domain", bound=DOMAINS)
        self._set_all(self._loss, shown, metrics["loss"], label="term", bound=LOSS_TERMS)
        for scope, count in metrics["prototypes"].items():
            self._prototypes.labels(run.run_id, scope).set(count)
        counts = current.prototype_counts
        if counts is not None and len(counts.by_class) <= CLASSES:
            for class_id, count in enumerate(counts.by_class):
                self._class_prototypes.labels(run.run_id, str(class_id)).set(count)
        self._cluster_weight.remove_by_labels({"run": run.run_id})
        if counts is not None and counts.weights is not None:
            for summary, weight in zip(("min", "median", "max"), counts.weights, strict=True):
                self._cluster_weight.labels(run.run_id, summary).set(weight)

    def _show(self, run: Run) -> None:
        shown = self._shown.get(run.run_id)
        if shown is None:
            self._make_room()
            if len(self._shown) >= MAX_RUNS:
                return
            shown = self._shown[run.run_id] = _Shown(run)
            self._info.labels(run.run_id, run.method, run.name).set(1)
            self._total_rounds.labels(run.run_id).set(run.total_rounds)
            self._refused.labels(run.run_id)
        shown.run = run
        status = (run.status.value, "quorum" if machine.waits_for_quorum(run) else "")
        if status != shown.status:
            shown.status = status
            self._status.remove_by_labels({"run": run.run_id})
            self._status.labels(run.run_id, *status).set(1)
        self._round.labels(run.run_id).set(run.round_number)

    def _set_all(
        self, gauge: Gauge, shown: _Shown, values: Mapping[str, float | None], *, label: str, bound: int
    ) -> None:
        """Show a gauge's values of this round; what this round does not know is not shown, never the value of one before."""
        run_id, known = shown.run.run_id, shown.label_values.setdefault(label, set())
        present = set()
        for name, value in values.items():
            if value is not None:
                has_own = name in known or (len(known - {OTHER}) < bound and len(name) <= MAX_NAME)
                bounded = name if has_own else OTHER
                gauge.labels(run_id, bounded).set(value)
                present.add(bounded)
                known.add(bounded)
        for name in known - present:
            gauge.remove_by_labels({"run": run_id, label: name})

    def _make_room(self) -> None:
        """Let an ended run's series go where a new run needs their place."""
        ended = {
            run_id: shown.ended_at
            for run_id, shown in self._shown.items()
            if shown.ended_at is not None and shown.run.status is not RunStatus.FAILED
        }
        if len(self._shown) >= MAX_RUNS and ended:
            self._remove(min(ended, key=lambda run_id: ended[run_id]))

    def _remove(self, run_id: str) -> None:
        del self._shown[run_id]
        for family in (
            self._info,
            self._status,
            self._refused,
            self._patience,
            self._round,
            self._total_rounds,
            self._prototypes,
            self._class_prototypes,
            self._cluster_weight,
            self._accuracy,
            self._worst_accuracy,
            self._mean_accuracy,
            self._accuracy_gap,
            self._local_accuracy,
            self._loss,
        ):
            family.remove_by_labels({"run": run_id})
