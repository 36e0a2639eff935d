"""The deaths of a sweep, from the failpoints that an undisturbed federation passes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2, enrol_service_pb2
from tests.chaos.armed_federation import Order
from tests.chaos.scenarios import Scenario

IN_THE_RUN: Mapping[str, Order] = {
    "aggregator": Order("transition.update_committed.after"),
    "trainer": Order("trainer.rpc.CommitUpdate.before"),
}
"""The processes that die, and where they do in the middle of a run, so that their next start finds one."""
MEMBERSHIP = frozenset(
    f"aggregator.rpc.{method.name}.{when}"
    for file in (admin_service_pb2, enrol_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    for when in ("before", "after")
)
"""Failpoints that have their turn where a federation is founded; in a run it is a matter of time who asks for the time."""
COMMITS = ("store.commit.before", "store.commit.after")
"""Failpoints that also have their turns at every passing where a federation is founded."""
EVERY_OTHER = 5
"""Of the failpoints that are passed several times, every so-manyth also has its turn later than at the first passing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One death, or two, and the scenario during which it happens.

    Attributes:
        victim: "aggregator" or "trainer".
        orders: Where it dies, in order; the last one names the failpoint whose turn it is.
        scenario: What people do meanwhile.
        which: "first", "middle" or "last" passing, "start" or "first start".
    """

    victim: str
    orders: tuple[Order, ...]
    scenario: Scenario
    which: str

    @property
    def point(self) -> str:
        """The failpoint whose turn it is."""
        return self.orders[-1].point

    def __str__(self) -> str:
        return f"{self.victim:<10}  {self.point:<44}  {self.which:<11}  {self.scenario.name:<23}"


@dataclass(slots=True)
class Passings:
    """Number of passings of each failpoint, by victim.

    Attributes:
        in_scenario: By scenario and victim: in the scenario, with an aggregator that was new to everything.
        at_start: By victim: from its start in the middle of a run to the run's end.
        at_first_start: By victim: from its first start of all.
    """

    in_scenario: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    at_start: dict[str, Counter[str]] = field(default_factory=dict)
    at_first_start: dict[str, Counter[str]] = field(default_factory=dict)

    def all(self) -> set[str]:
        """Every failpoint that was passed at all."""
        counters = (*self.at_first_start.values(), *self.at_start.values(), *self.in_scenario.values())
        return {name for counter in counters for name in counter}


def plan(passings: Passings, scenarios: Sequence[Scenario]) -> list[Turn]:
    """Every failpoint's turns: where work passes it, else where a start does, else where only the first start does."""
    turns: list[Turn] = []
    for victim, in_the_run in IN_THE_RUN.items():
        known: set[str] = set()

        def add(which: str, scenario: Scenario, *orders: Order, victim: str = victim, known: set[str] = known) -> None:
            turns.append(Turn(victim=victim, orders=orders, scenario=scenario, which=which))
            known.add(orders[-1].point)

        for scenario in scenarios:
            for point, count in passings.in_scenario[scenario.name, victim].items():
                if point in MEMBERSHIP and not scenario.is_new:
                    continue
                if point in known:
                    if scenario.is_new and point in COMMITS:  # who belongs to the federation is in no other commit
                        for number in range(1, count + 1):
                            add("first" if number == 1 else "middle", scenario, Order(point, number))
                    continue
                add("first", scenario, Order(point))
                if count > 2 and len(known) % EVERY_OTHER == 0:
                    add("middle", scenario, Order(point, count // 2 + 1))
                    add("last", scenario, Order(point, count))
        for point in passings.at_start.get(victim, {}):
            if point not in known:
                add("start", scenarios[0], in_the_run, Order(point))
        for point in passings.at_first_start.get(victim, {}):
            if point not in known:
                add("first start", scenarios[0], Order(point))
    return turns


AGGREGATING = Order("transition.round_aggregating.after", 2)
"""A death just before the second aggregation, which the next start then begins with."""
OF_AGGREGATIONS = ("blob.", "store.commit.", "transition.")
"""Beginnings of the names of what an aggregation passes, and not only what goes on beside it."""


def plan_aggregation(passed: Sequence[str], scenario: Scenario) -> list[Turn]:
    """Every passing of every failpoint from a start that begins with an aggregation until that has committed.

    Args:
        passed: What an aggregator passed that died at `AGGREGATING` and was started again, in order.
        scenario: What people did meanwhile.
    """
    second = [place for place, name in enumerate(passed) if name == AGGREGATING.point][AGGREGATING.count - 1]
    last = passed.index("transition.round_evaluating.after", second)
    counts: Counter[str] = Counter()
    turns = []
    for name in passed[second + 1 : last + 1]:
        if name.startswith(OF_AGGREGATIONS):
            counts[name] += 1
            orders = (AGGREGATING, Order(name, counts[name]))
            turns.append(Turn(victim="aggregator", orders=orders, scenario=scenario, which="first"))
    return turns


def sample(turns: Sequence[Turn], size: int) -> list[Turn]:
    """So many turns, spread evenly, always the same ones."""
    if size >= len(turns):
        return list(turns)
    return [turns[(2 * number + 1) * len(turns) // (2 * size)] for number in range(size)]
