"""The engine that does the clients' tasks one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fedplcc.shared.types import Client, RunSpec
from fedplcc.simulation.engine import Observers, Site, Work, naming
from fedplcc.trainer.cancellation import ShouldStop, check
from fedplcc.trainer.data import opened_once
from fedplcc.trainer.privacy.budget import Budget
from fedplcc.trainer.task.client_state import ClientStates, States
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite


def task_runner(site: Site, states: States, latest_model: LatestModel) -> TaskRunner:
    """Return the runner of a client's tasks.

    Args:
        site: The client.
        states: Its kept state.
        latest_model: Shared by all clients of this process.

    Raises:
        InvalidConfig: There is no such device.
    """
    client_site = ClientSite.at(
        site.client_id,
        site.domain,
        site.data,
        device=site.device,
        samples_per_class=site.samples_per_class,
        fraction=site.fraction,
        validation_per_class=site.validation_per_class,
        evaluate_only=site.evaluate_only,
        model=site.model,
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
