"""Dashboards and alerts before a real Prometheus that watches a real federation: every panel shows something, and every
alert fires when what it is for happens, not before, and no longer.

Prometheus reads the shipped configuration and the shipped rules; only targets are other ones, and times shorter. It scrapes
aggregator and trainer over TLS with a monitor's certificate, and the gateway with a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pytest
import yaml

from tests.support.federation.processes import TOLD, eventually
from tests.support.federation.watched_federation import WatchedFederation
from tests.support.hosts.prometheus_server import (
    FOLDER,
    PrometheusServer,
    Series,
    faster_configuration,
    faster_rules,
    need_prometheus,
    now,
    rules,
)
from tests.support.screens import dashboards
from tests.support.screens.dashboards import Query

pytestmark = pytest.mark.slow

Result = TypeVar("Result")

FASTER = 120
"""By how much the alerts' times are shortened: half an hour is 15 seconds."""
INTERVAL_S = 0.5
"""Between scrapes."""
RATE_INTERVAL = f"{4 * INTERVAL_S:g}s"
"""As Grafana makes $__rate_interval of it."""
WAIT_S = 60.0

UNDER_FAULTS = {
    ("overview.json", "Alerts"): "alerts that fire",
    ("fleet.json", "Updates that were refused"): "a poisoned update",
    ("fleet.json", "Clients that rounds went on without"): "a client that cannot do its task",
    ("fleet.json", "Refusals"): "somebody without a key, and a spent invitation",
    ("overview.json", "Recovery"): "a restart of the aggregator",
    ("overview.json", "Run ended"): "a run that fails",
}
"""Queries that have an answer only when something has happened, and what; annotations are the same in every dashboard."""

OF_OTHER_RUNS = {
    ("run.json", "What joining is worth to each client"): "tests/unit/aggregator/metrics/test_exposition.py"
}
"""Queries about what the runs here have not, and the test that has it."""

NEWS = {
    "FedplccServerError",
    "FedplccRunFailed",
    "FedplccClientProblem",
    "FedplccUpdatesRejected",
    "FedplccRefusals",
    "FedplccInvitationReused",
    "FedplccRecovered",
}
"""Alerts that something happened, which nothing undoes."""
NAMED = (
    ("FedplccRoundStuck", "run"),
    ("FedplccRunFailed", "run"),
    ("FedplccRunParked", "run"),
    ("FedplccNoQuorum", "run"),
    ("FedplccUpdatesRejected", "run"),
    ("FedplccClientProblem", "client"),
    ("FedplccAtChance", "run"),
    ("FedplccForgot", "run"),
)
"""Alerts of a run or of a client, and the label that names it."""


class Watch:
    """A federation, the Prometheus that watches it, and what dashboards ask of the two."""

    def __init__(self, federation: WatchedFederation, prometheus: PrometheusServer) -> None:
        self.federation, self.prometheus, self.begin = federation, prometheus, now()
        self.fired: dict[str, list[dict[str, Any]]] = {}
        self.answered: set[Query] = set()

    def look(self) -> set[str]:
        """Names of the alerts that have fired so far."""
        for name, alerts in self.prometheus.firing().items():
            self.fired.setdefault(name, alerts)
        return set(self.fired)

    def inject(self, fault: Callable[[], Result], *names: str) -> Result:
        """Let a fault happen that these alerts are for, none of which fires before it."""
        eventually(lambda: not set(names) & self.prometheus.firing().keys(), f"none of {names} fires", WAIT_S)
        for name in names:
            self.fired.pop(name, None)
        return fault()

    def wait_for(self, *names: str) -> None:
        """Wait until these alerts have fired."""
        missing = set(names)
        try:
            eventually(lambda: missing <= self.look(), "alerts fire", WAIT_S)
        except AssertionError:
            raise AssertionError(f"these alerts did not fire: {sorted(missing - self.look())}") from None

    def ask(self, query: Query, *, values: Mapping[str, str]) -> list[Series]:
        """What a panel gets with these values of the dashboard's variables."""
        expression = query.filled({"__rate_interval": RATE_INTERVAL, **values})
        if query.is_instant:
            return self.prometheus.query(expression)
        return self.prometheus.query_range(expression, begin=self.begin, end=now(), step_s=INTERVAL_S)

    def answer(self, query: Query) -> list[Series]:
        """What a panel gets: of a variable that takes one value, with the first that has an answer."""
        # An annotation is the same whatever is chosen, and where there is nothing to choose.
        for values in self.choices(query.dashboard) if query.variables else ({},):
            found = self.ask(query, values=values)
            if found:
                self.answered.add(query)
                return found
        return []

    def choices(self, dashboard: str) -> Iterator[dict[str, str]]:
        """Values of a dashboard's variables, as Grafana fills them in: all at once where that can be chosen, else each."""
        chosen: dict[str, str] = {}
        one_of: dict[str, list[str]] = {}
        for variable in dashboards.documents()[dashboards.FOLDER / dashboard]["templating"]["list"]:
            name = variable["name"]
            if variable["type"] == "interval":
                chosen[name] = variable["current"]["value"]
                continue
            offered = self.prometheus.label_values(*dashboards.asked_of_variable(variable))
            if not offered:
                return
            if variable["multi"]:
                chosen[name] = f"({'|'.join(re.escape(value) for value in offered)})".replace("\\", "\\\\")
            else:
                one_of[name] = offered
        assert len(one_of) <= 1
        for name, offered in one_of.items():
            yield from ({**chosen, name: value} for value in offered)
        if not one_of:
            yield chosen


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    need_prometheus()
    folder = tmp_path_factory.mktemp("watched")
    rule_file = folder / "rules.yml"
    rule_file.write_text(yaml.safe_dump(faster_rules(FASTER), sort_keys=False))
    with WatchedFederation(folder) as federation:
        configuration = faster_configuration(
            FOLDER / "prometheus.yml", federation.targets, interval_s=INTERVAL_S, rule_file=rule_file
        )
        federation.admit_prometheus(folder)
        with PrometheusServer(folder, configuration) as prometheus:
            watch = Watch(federation, prometheus)
            federation.begin()
            yield watch


def unanswered(watch: Watch, *, under_faults: bool) -> list[str]:
    """Queries of panels, variables and annotations that get no answer now, though they should."""
    found = []
    for query in dashboards.queries():
        is_of_faults = any(
            query.title == title and (query.kind == "annotation" or query.dashboard == dashboard)
            for dashboard, title in UNDER_FAULTS
        )
        if (query.dashboard, query.title) in OF_OTHER_RUNS:
            continue
        if query not in watch.answered and is_of_faults is under_faults and not watch.answer(query):
            found.append(f"{query.dashboard}: {query.title} ({query.ref}): {query.expression}")
    return found


def wait_answered(watch: Watch, *, under_faults: bool) -> None:
    missing: list[str] = []

    def is_complete() -> bool:
        missing[:] = unanswered(watch, under_faults=under_faults)
        return not missing

    try:
        eventually(is_complete, "every query has an answer", WAIT_S)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *missing])) from error


@pytest.mark.full
def test_nothing_fires_and_every_panel_has_data_while_all_is_well(watch: Watch) -> None:
    wait_answered(watch, under_faults=False)
    eventually(lambda: not watch.prometheus.firing(), "nothing fires", WAIT_S)
    assert watch.prometheus.rule_health() == {rule["alert"]: "ok" for rule in rules()}


@pytest.mark.full
def test_every_alert_is_fired_by_a_fault_that_it_is_for(
    watch: Watch, record_property: Callable[[str, object], None]
) -> None:
    faults, expected = watch.federation, {rule["alert"] for rule in rules()}

    # What does not keep the runs from going on, all at once.
    watch.inject(faults.freeze_the_torch_trainer, "FedplccClientSilent", "FedplccRoundStuck")
    watch.inject(faults.harm_a_domain, "FedplccDomainRegressed", "FedplccWorstDomainGapGrew")
    filler = watch.inject(faults.fill_the_disk, "FedplccDiskFilling") if faults.has_own_disk else None
    assert watch.inject(faults.lose_a_blob, "FedplccServerError") == 500
    watch.wait_for("FedplccServerError", "FedplccClientSilent", "FedplccDomainRegressed", "FedplccWorstDomainGapGrew")
    if filler is None:
        expected.remove("FedplccDiskFilling")  # without a disk of its own there is none to fill
    else:
        watch.wait_for("FedplccDiskFilling")
        filler.unlink()
    faults.harm_a_domain(is_harmed=False)
    watch.inject(faults.forget, "FedplccForgot")
    watch.wait_for("FedplccForgot")
    faults.forget(is_forgetful=False)
    faults.go_on(8)
    watch.inject(faults.guess, "FedplccAtChance")
    watch.wait_for("FedplccAtChance")
    faults.end_the_guessing()
    watch.inject(faults.ask_without_a_key, "FedplccRefusals")
    watch.wait_for("FedplccRefusals")
    watch.inject(faults.use_an_invitation_twice, "FedplccInvitationReused")
    watch.wait_for("FedplccInvitationReused")
    watch.inject(faults.poison, "FedplccUpdatesRejected", "FedplccClientProblem")
    watch.wait_for("FedplccUpdatesRejected", "FedplccClientProblem")

    # What holds them up.
    watch.inject(faults.kill_a_trainer, "FedplccRunFailed", "FedplccNoQuorum")
    watch.wait_for("FedplccRunFailed", "FedplccNoQuorum", "FedplccRoundStuck")
    watch.inject(faults.kill_the_aggregator, "FedplccProcessDown", "FedplccGarbageWaits")
    watch.wait_for("FedplccProcessDown")
    watch.inject(faults.age_a_certificate, "FedplccCertificateEnds")
    watch.inject(faults.leave_a_number_of_an_earlier_version, "FedplccRunParked")
    faults.thaw_the_torch_trainer()
    faults.start_the_trainer_again()
    with faults.held_up_collection():
        watch.inject(faults.start_the_aggregator_again, "FedplccRecovered")
        watch.wait_for("FedplccRecovered", "FedplccGarbageWaits", "FedplccCertificateEnds", "FedplccRunParked")

    faults.revoke_the_aged()
    faults.mend_the_parked_run()

    # What is mended no longer fires; what is news stays so for a while.
    faults.go_on(5)
    eventually(lambda: watch.prometheus.firing().keys() <= NEWS, "what is mended no longer fires", WAIT_S)
    assert watch.look() == expected
    for name, alerts in watch.fired.items():
        for alert in alerts:
            texts = alert["annotations"]
            assert not re.search(r"<no value>|<error|\{\{", f"{texts['summary']} {texts['description']}"), name
    named = {(name, alert["labels"].get(label)) for name, label in NAMED for alert in watch.fired[name]}
    runs = faults.runs
    assert named == {
        ("FedplccRoundStuck", runs["stripes"]),
        ("FedplccRunFailed", runs["strict"]),
        ("FedplccRunParked", runs["digits"]),
        ("FedplccNoQuorum", runs["digits"]),
        ("FedplccUpdatesRejected", runs["digits"]),
        ("FedplccClientProblem", "zurich"),
        ("FedplccAtChance", runs["guessing"]),
        ("FedplccForgot", runs["strict"]),
    }
    assert "On one earlier stage (1) accuracy" in watch.fired["FedplccForgot"][0]["annotations"]["description"]
    wait_answered(watch, under_faults=True)
    record_property(TOLD, f"{count(watch)}, alerts {len(watch.fired)}/{len(rules())}")


def count(watch: Watch) -> str:
    """How many panels got an answer to each of their queries."""
    panels = [
        dashboards.of_panel(path.name, panel)
        for path, document in dashboards.documents().items()
        for panel in document["panels"]
        if panel["type"] != "row"
    ]
    answered = sum(watch.answered.issuperset(queries) for queries in panels)
    return f"panels {answered}/{len(panels)}"
