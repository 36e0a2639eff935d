"""Curves in MLflow, through its own client.

A run is found again by its tag, so that a restarted process goes on with it. Numbers have the time of their round's commit;
at a start those that are kept are read, and only others are sent. Nothing is told to MLflow's authors.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedplcc.shared.config.settings import disable_tracker_reports

disable_tracker_reports()  # read when mlflow loads, which is below

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, RunTag  # noqa: E402

from fedplcc.runs.atomic_file import make_folder  # noqa: E402
from fedplcc.shared.version import VERSION  # noqa: E402
from fedplcc.tracking.callbacks import RoundResult, RunEnd, RunStart  # noqa: E402
from fedplcc.tracking.measurements import flat_configuration, measurements  # noqa: E402
from fedplcc.tracking.tracker import Tracker  # noqa: E402

RUN_TAG, LABEL_TAG = "fedplcc.run_id", "fedplcc.label"
PARAMS_PER_CALL = 100
"""MLflow's limit."""
ENDINGS = {"completed": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_OTHER = re.compile(r"[^\w\-. :/]", re.ASCII)
"""Characters that MLflow takes in no name."""


class MlflowTracker(Tracker):
    """Keeps a run in the experiment of the configuration's name."""

    kind = "mlflow"

    def on_start(self, run: RunStart) -> None:
        """Find the run by its tags, or make it; and find its numbers."""
        uri, artifacts = _place(self.where)
        self._client = MlflowClient(uri) if uri else MlflowClient()
        name = str(run.config["run"]["name"])
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name, artifacts)
        wanted = f"tags.`{RUN_TAG}` = '{run.run_id}' and tags.`{LABEL_TAG}` = '{run.label}'"
        found = list(self._client.search_runs([experiment], wanted, order_by=["attributes.start_time ASC"]))
        if found:
            self.run_id = found[0].info.run_id
        else:
            tags = {RUN_TAG: run.run_id, LABEL_TAG: run.label}
            self.run_id = self._client.create_run(experiment, run_name=run.label, tags=tags).info.run_id
        self._describe(run)
        self._kept = {
            (metric.key, metric.step)
            for key in self._client.get_run(self.run_id).data.metrics
            for metric in self._client.get_metric_history(self.run_id, key)
        }

    def on_round(self, result: RoundResult) -> None:
        """Send the round's numbers that are not there."""
        milliseconds = int(result.time.timestamp() * 1000)
        named = {_name(name): value for name, value in measurements(result).items()}
        metrics = [
            Metric(name, value, milliseconds, result.number)
            for name, value in named.items()
            if (name, result.number) not in self._kept
        ]
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)
            self._kept |= {(metric.key, metric.step) for metric in metrics}

    def on_end(self, end: RunEnd) -> None:
        """Mark the run as ended."""
        if end.reason:
            self._client.set_tag(self.run_id, "fedplcc.reason", end.reason)
        self._client.set_terminated(self.run_id, ENDINGS.get(end.status, "FINISHED"))

    def _describe(self, run: RunStart) -> None:
        """Send the configuration as parameters, and tags; sending the same again changes nothing."""
        params = [Param(_name(key), value) for key, value in flat_configuration(run.config).items()]
        for begin in range(0, len(params), PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, params=params[begin : begin + PARAMS_PER_CALL])
        facts = {"fedplcc.version": VERSION, "fedplcc.config_hash": run.config_hash}
        facts |= {f"tag.{_name(tag)}": "true" for tag in run.tags}
        self._client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in facts.items()])


def _place(where: str) -> tuple[str, str | None]:
    """Return the tracking URI, empty for MLflow's own choice, and the folder of artifacts of a local database."""
    if not where or "://" in where:
        return where, None
    folder = Path(where).absolute()
    make_folder(folder)
    return f"sqlite:///{folder}/mlflow.db", (folder / "artifacts").as_uri()


def _name(text: str) -> str:
    return _OTHER.sub("_", text)
