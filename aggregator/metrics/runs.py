"""Metrics of runs: their number by status, and the last committed round of a bounded number of runs.

A run has series of its own from its creation until `KEEP_ENDED_S` after its end; at most `MAX_RUNS` runs have them. Without
a free place a new run replaces one that has ended, or waits for a place. A failed run keeps its place: an alert names it.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fedplcc.aggregator.metrics.families import AtScrape, Families
from fedplcc.aggregator.metrics.rounds import RoundMetrics
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.process.metrics import OTHER, PREFIX
from fedplcc.shared.scoring.scores import score_of, values_of
from fedplcc.shared.types import Round, RoundPhase, Run, RunStatus

MAX_RUNS = 4
"""Most runs with series of their own."""
KEEP_ENDED_S = 120.0
"""Seconds for which an ended run keeps its series: several scrape intervals, so that its last round is scraped."""
DOMAINS = 16
"""Most domains of a run with series."""
CLIENTS = 16
"""Clients of a run with a series of what joining is worth to them; the others share one, which is the last of them."""
CLASSES = 16
"""A run with more classes has no series by class."""
STAGES = 16
"""Most stages of a run with series of their own; the accuracies of later ones share one, the latest of them."""
NAMED_FORGOTTEN = 8
"""Most forgotten stages of a run that are named."""
LOSS_TERMS = 4
"""Most loss terms of a run with series."""
MAX_NAME = 64
"""Longest name of a domain or a loss term that becomes a label; clients choose these names."""


@dataclass(slots=True)
class _Shown:
    """Run with series of its own."""

    run: Run
    ended_at: float | None = None
    committed_at: float | None = None
    moved_at: float | None = None
    """Time of the last progress of a client that its open phase waits for, or of the phase's begin."""
    status: tuple[str, str] = ("", "")
    """Shown status, and "quorum" if the run waits for one."""
    label_values: dict[str, set[str]] = field(default_factory=dict)
    """Label values that have, or had, a series, by label."""


class RunAges(AtScrape):
    """Ages of shown runs that have not ended, computed at each scrape."""

    def __init__(self, shown: Mapping[str, _Shown], times: RoundMetrics) -> None:
        self._shown, self._times = shown, times
        self.now: Callable[[], float] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the present values; none before `now` is set."""
        of_round = GaugeMetricFamily(
            f"{PREFIX}_round_age_seconds",
            "Seconds for which the round of a running run has been open, without pauses.",
            labels=["run"],
        )
        of_checkpoint = GaugeMetricFamily(
            f"{PREFIX}_checkpoint_age_seconds",
            "Seconds since the last commit of a round, for runs that have not ended.",
            labels=["run"],
        )
        stalled = GaugeMetricFamily(
            f"{PREFIX}_round_stalled_seconds",
            "Seconds since the last progress of a client that a running round waits for, or since its phase began.",
            labels=["run"],
        )
        now = 0.0 if self.now is None else self.now()
        for run_id, shown in [] if self.now is None else list(self._shown.items()):
            if shown.ended_at is not None or shown.run.status.is_final:
                continue
            times = self._times.times(run_id)
            if times is not None and shown.run.status is RunStatus.RUNNING and run_facts.has_open_round(shown.run):
                of_round.add_metric((run_id,), times.age_s(now))
                if shown.moved_at is not None:
                    stalled.add_metric((run_id,), max(0.0, now - shown.moved_at))
            if shown.committed_at is not None:
                of_checkpoint.add_metric((run_id,), max(0.0, now - shown.committed_at))
        yield from (of_round, of_checkpoint, stalled)


class RunMetrics:
    """Metrics of runs."""

    def __init__(self, families: Families, times: RoundMetrics) -> None:
        self._shown: dict[str, _Shown] = {}
        self._by_status = families.gauge("runs", "Runs that have not ended, by status.", "status")
        self._without_quorum = families.gauge("runs_without_quorum", "Running runs that wait for a quorum of clients.")
        self._parked = families.gauge(
            "runs_parked", "Runs that an error in their own step paused; a person resumes or stops them."
        )
        self._of_run: list[Gauge | Counter] = []
        """Metrics with series of each shown run."""

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            found = families.gauge(name, text, "run", *labels)
            self._of_run.append(found)
            return found

        self._info = gauge("run_info", "A run: its method and name; always 1.", "method", "name")
        self._status = gauge(
            "run_status",
            "A run: its status, and whether it waits for a quorum or, after an error, for an operator; always 1.",
            "status",
            "waits_for",
        )
        self._refused = families.counter(
            "run_updates_refused_total",
            "Updates of a run refused for their content, not for their time or sender.",
            "run",
        )
        self._of_run.append(self._refused)
        self._patience = gauge(
            "round_patience_seconds",
            "Longest wait of a round for a client without progress, in runs with a deadline.",
        )
        self._round = gauge("round", "Number of the latest opened round.")
        self._total_rounds = gauge("total_rounds", "Configured number of rounds of a run.")
        self._prototypes = gauge(
            "prototypes",
            "Prototypes of the last committed round: local (received) and global (computed).",
            "scope",
        )
        self._class_prototypes = gauge(
            "class_prototypes", "Global prototypes by class of the last committed round.", "class_id"
        )
        self._cluster_weight = gauge(
            "prototype_cluster_weight",
            "Normalised weight of a global prototype of the last committed round: min, median and max.",
            "summary",
        )
        self._accuracy = gauge(
            "domain_accuracy_ratio",
            "Accuracy on each domain's test set: of the global model, or of clients' own models where the run shares none.",
            "domain",
        )
        self._worst_accuracy = gauge("worst_domain_accuracy_ratio", "Accuracy of the worst domain.")
        self._mean_accuracy = gauge("mean_domain_accuracy_ratio", "Mean accuracy over domains.")
        self._score = gauge(
            "run_score_ratio",
            "A run's score, accuracy or balanced accuracy where test classes are uneven: its mean and worst over domains.",
            "score",
            "summary",
        )
        self._accuracy_gap = gauge("domain_accuracy_gap_ratio", "Accuracy of the best domain minus that of the worst.")
        self._local_accuracy = gauge(
            "local_accuracy_ratio", "Accuracy of clients' own models: mean and worst over domains.", "summary"
        )
        self._joining = gauge(
            "joining_ratio",
            "What joining is worth to a client: the score of its own model minus that of its images alone.",
            "client",
        )
        self._at_chance = gauge(
            "run_at_chance",
            "Whether the mean accuracy of a run was at chance in each of its last ten evaluated rounds: 1 or 0.",
        )
        self._stage = gauge("run_stage", "Stage of the last committed round, in runs whose data change.")
        self._stage_accuracy = gauge(
            "stage_accuracy_ratio", "Accuracy on the test images of a stage, over all clients together.", "stage"
        )
        self._forgetting = gauge(
            "forgetting_ratio", "Mean over earlier stages of the best accuracy on them minus the present one."
        )
        self._minority_accuracy = gauge(
            "minority_accuracy_ratio", "Accuracy on the half of the classes with the fewest samples."
        )
        self._forgot = gauge(
            "forgot_stages",
            "Earlier stages on which accuracy was more than 0.1 below its best in each of the last 3 evaluated rounds.",
        )
        self._stage_forgotten = gauge(
            "stage_forgotten", "1 for each of the first 8 stages that forgot_stages counts.", "stage"
        )
        self._loss = gauge("training_loss", "Mean training loss by term of the last committed round.", "term")
        self._ages = RunAges(self._shown, times)
        families.registry.register(self._ages)
        for status in RunStatus:
            if not status.is_final:
                self._by_status.labels(status.value)

    def use_clock(self, now: Callable[[], float]) -> None:
        """Set the clock from which ages of runs are computed."""
        self._ages.now = now

    def follow(self, runs: Iterable[Run], *, now: float) -> None:
        """Set the gauges of open runs; series of ended runs are removed `KEEP_ENDED_S` after their end."""
        open_runs = {run.run_id: run for run in runs if not run.status.is_final}
        statuses = [run.status for run in open_runs.values()]
        for status in RunStatus:
            if not status.is_final:
                self._by_status.labels(status.value).set(statuses.count(status))
        self._without_quorum.set(sum(run_facts.waits_for_quorum(run) for run in open_runs.values()))
        self._parked.set(sum(map(run_facts.is_parked, open_runs.values())))
        for run_id in [run_id for run_id in self._shown if run_id not in open_runs]:
            shown = self._shown[run_id]
            shown.ended_at = now if shown.ended_at is None else shown.ended_at
            if now - shown.ended_at >= KEEP_ENDED_S:
                self._remove(run_id)
        for run in open_runs.values():
            self._show(run)

    def ended(self, run: Run, *, now: float) -> None:
        """Show a run's final state if there is a place for it, even if the run was never shown before."""
        self._show(run)
        shown = self._shown.get(run.run_id)
        if shown is not None:
            shown.ended_at = now

    def waits(self, run_id: str, *, moved_at: float | None, patience_s: float | None) -> None:
        """Record how long the open round of a run has been without progress.

        Args:
            moved_at: Time of the last progress of a client that it waits for, or of the phase's begin; None without an open
                round.
            patience_s: Longest wait for a client without progress; None without a limit.
        """
        shown = self._shown.get(run_id)
        if shown is not None:
            shown.moved_at = moved_at
            if patience_s is not None:
                self._patience.labels(run_id).set(patience_s)

    def refused_update(self, run_id: str) -> None:
        """Count an update that was refused for its content."""
        if run_id in self._shown:
            self._refused.labels(run_id).inc()

    def committed(self, run: Run, current: Round) -> None:
        """Show the results of the last committed round of a run if the run has series."""
        shown = self._shown.get(run.run_id)
        if shown is None:
            return
        shown.committed_at = current.phase_started_at.get(RoundPhase.COMMITTED.value)
        if not current.results_json:
            return  # round 0, whose model is not evaluated
        metrics = json.loads(current.results_json)
        if metrics["accuracy"] is not None:
            self._show_accuracy(shown, metrics)
        if "stage" in metrics:
            self._show_stage(shown, metrics)
        senders = collections.Counter(term for update in current.updates.values() for term in update.losses)
        # The terms of most clients first: one that makes names up takes nobody's series.
        losses = dict(sorted(metrics["loss"].items(), key=lambda each: -senders[each[0]]))
        self._set_all(self._loss, shown, losses, label="term", bound=LOSS_TERMS)
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

    def warned(self, run_id: str, warnings: Iterable[RunWarning]) -> None:
        """Show the warnings about a run if the run has series."""
        if run_id in self._shown:
            self._at_chance.labels(run_id).set(any(each.kind is RunWarningKind.AT_CHANCE for each in warnings))

    def forgot(self, run_id: str, stages: Collection[int] | None) -> None:
        """Show how many stages a run has forgotten, and which, if it has series; nothing of a run without stages."""
        if run_id in self._shown and stages is not None:
            self._forgot.labels(run_id).set(len(stages))
            each = {str(stage): 1.0 for stage in sorted(stages)[:NAMED_FORGOTTEN]}
            self._set_all(self._stage_forgotten, self._shown[run_id], each, label="stage", bound=STAGES)

    def _show_accuracy(self, shown: _Shown, metrics: Mapping[str, Any]) -> None:
        """Show the accuracies of the last round that was evaluated; they stay until the next one is."""
        run_id, accuracy = shown.run.run_id, metrics["accuracy"]
        domains = {name: value for name, value in accuracy.items() if name not in ("worst", "mean")}
        known = [value for value in domains.values() if value is not None]
        gap = max(known) - min(known) if known else None
        for gauge, value in (
            (self._worst_accuracy, accuracy["worst"]),
            (self._mean_accuracy, accuracy["mean"]),
            (self._accuracy_gap, gap),
        ):
            if value is None:
                gauge.remove_by_labels({"run": run_id})
            else:
                gauge.labels(run_id).set(value)
        self._show_score(run_id, metrics)
        local = metrics.get("accuracy_local", {})
        summaries = {name: local.get(name) for name in ("mean", "worst")}
        self._set_all(self._local_accuracy, shown, summaries, label="summary", bound=len(summaries))
        self._set_all(self._joining, shown, metrics.get("joining") or {}, label="client", bound=CLIENTS)
        self._set_all(self._accuracy, shown, domains, label="domain", bound=DOMAINS)

    def _show_score(self, run_id: str, metrics: Mapping[str, Any]) -> None:
        """Show the score of the last round that was evaluated; a run may turn from one score to the other."""
        values = values_of(metrics) or {}
        self._score.remove_by_labels({"run": run_id})
        for summary in ("mean", "worst"):
            if (value := values.get(summary)) is not None:
                self._score.labels(run_id, score_of(metrics), summary).set(value)

    def _show_stage(self, shown: _Shown, metrics: Mapping[str, Any]) -> None:
        """Show the stage, and the accuracies on it and on earlier ones of the last round that was evaluated."""
        run_id, row = shown.run.run_id, metrics["accuracy_by_stage"]
        self._stage.labels(run_id).set(metrics["stage"])
        if row is None:
            return
        by_stage = {str(stage): value for stage, value in enumerate(row, start=1)}
        self._set_all(self._stage_accuracy, shown, by_stage, label="stage", bound=STAGES)
        for gauge, name in ((self._forgetting, "forgetting"), (self._minority_accuracy, "accuracy_minority")):
            if metrics[name] is None:
                gauge.remove_by_labels({"run": run_id})
            else:
                gauge.labels(run_id).set(metrics[name])

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
        waits_for = "operator" if run_facts.is_parked(run) else "quorum" if run_facts.waits_for_quorum(run) else ""
        status = (run.status.value, waits_for)
        if status != shown.status:
            shown.status = status
            self._status.remove_by_labels({"run": run.run_id})
            self._status.labels(run.run_id, *status).set(1)
        self._round.labels(run.run_id).set(run.round_number)

    def _set_all(
        self, gauge: Gauge, shown: _Shown, values: Mapping[str, float | None], *, label: str, bound: int
    ) -> None:
        """Set a gauge's values of this round; values that the round lacks are removed, so that no old value stays."""
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
        """Remove the series of the run that ended first, if all places are taken."""
        ended = {
            run_id: shown.ended_at
            for run_id, shown in self._shown.items()
            if shown.ended_at is not None and shown.run.status is not RunStatus.FAILED
        }
        if len(self._shown) >= MAX_RUNS and ended:
            self._remove(min(ended, key=lambda run_id: ended[run_id]))

    def _remove(self, run_id: str) -> None:
        del self._shown[run_id]
        for family in self._of_run:
            family.remove_by_labels({"run": run_id})
