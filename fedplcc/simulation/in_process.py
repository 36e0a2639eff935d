"""The engine that does the clients' tasks one after another in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.types import POOLED_MODEL, Client, ClientActivity, RunSpec
from fedplcc.simulation.engine import Observers, Site, Work, naming
from fedplcc.trainer.cancellation import ShouldStop, check
from fedplcc.trainer.data import opened_once
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.privacy.budget import Budget
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite

if TYPE_CHECKING:  # workers use this module and load no aggregator
    from fedplcc.runs.artifacts import RunRecord


def task_runner(site: Site, states: ClientStates, latest_model: LatestModel) -> TaskRunner:
    """Return the runner of a client's tasks.

    Raises:
        InvalidConfig: There is no such device.
    """
    client_site = ClientSite.at(
        site.client_id,
        site.domain,
        site.section.data,
        device=site.device,
        samples_per_class=site.section.samples_per_class,
        fraction=site.section.fraction,
        validation_per_class=site.section.validation_per_class,
        evaluate_only=site.section.evaluate_only,
        model=site.section.model,
        consent=site.consent,
        budget=Budget(site.states.parent.parent / "privacy" / site.client_id),
        tells_counts=not site.withholds,
    )
    return TaskRunner(client_site, states, latest_model=latest_model)


class InProcess:
    """Task runners of all clients, used in turn."""

    def __init__(self, sites: Iterable[Site], observers: Observers) -> None:
        self._sites, self._observers = tuple(sites), observers
        self._runners: dict[str, TaskRunner] = {}
        self._latest_model = LatestModel()

    def read(self, spec: RunSpec, should_stop: ShouldStop) -> Mapping[str, Client]:
        """See `Engine`."""
        with opened_once():
            return {site.client_id: self._read(site, spec, should_stop) for site in self._sites}

    def perform(self, work: Sequence[Work], should_stop: ShouldStop, on_done: Callable[[], None]) -> None:
        """See `Engine`."""
        for each in work:
            self._perform(each, should_stop)
            on_done()

    def close(self) -> None:
        """See `Engine`."""
        self._runners.clear()

    def _read(self, site: Site, spec: RunSpec, should_stop: ShouldStop) -> Client:
        check(should_stop)
        client_id = site.client_id
        with naming(client_id):
            runner = self._runners[client_id] = task_runner(site, ClientStates(site.states), self._latest_model)
            self._observers.on_begin(f"{client_id}: reading its data")
            return runner.client_for(spec, lambda problem: self._observers.on_problem(client_id, problem))

    def _perform(self, work: Work, should_stop: ShouldStop) -> None:
        with naming(work.client_id):
            self._runners[work.client_id].perform(
                work.task,
                work.aggregator,
                should_stop,
                lambda activity, progress: self._observers.on_activity(work.client_id, activity.value, progress),
                lambda problem: self._observers.on_problem(work.client_id, problem),
            )


def with_pooled(
    record: RunRecord, sites: Sequence[Site], spec: RunSpec, observers: Observers, should_stop: ShouldStop
) -> RunRecord:
    """Return a completed run's record with a model of all clients' training images together beside its last round.

    Without it where the training diverged, which is noted.

    Raises:
        Cancelled: `should_stop()` held.
        FedplccError: A client's data cannot be read again, or are others.
    """
    from fedplcc.models.pooled_model import pooled_evaluations, pooled_record

    def on_activity(activity: ClientActivity, done: float) -> None:
        observers.on_activity(POOLED_MODEL, activity.value, done)

    images, config = {}, parse_run_config(json.loads(spec.config_json))
    for site in sites:
        observers.on_begin(f"{POOLED_MODEL}: reading the data of {site.client_id}")
        with naming(site.client_id):
            runner = task_runner(site, ClientStates(site.states), LatestModel())
            images[site.client_id] = site.domain, runner.images(spec, should_stop, on_activity)
    model = runner.site.new_model(config, with_weights=True).to(runner.site.device)
    on_share = partial(on_activity, ClientActivity.TRAINING)
    try:
        evaluations = pooled_evaluations(model, images, config, should_stop=should_stop, on_share=on_share)
    except TrainingDiverged as error:
        observers.on_note(f"{POOLED_MODEL}: {error.detail}")
        return record
    return pooled_record(record, evaluations)
