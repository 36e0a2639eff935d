"""Federations that are small enough for every state to be walked through (exploration.py)."""

from __future__ import annotations

from dataclasses import dataclass

from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Who takes part; see aggregator/rounds/settling.py."""

    clients: tuple[str, ...] | None = None
    min_clients: int | None = None
    cohort_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Small:
    """A federation that is small enough to be walked through."""

    name: str
    clients: tuple[str, ...]
    rule: Rule
    num_rounds: int = 1
    quorum: Quorum = WHOLE_COHORT
    has_deadline: bool = False
    fails: bool = False
    may_quarantine: bool = True
    """Whether people also quarantine clients and release them: eight times the states where there are three."""
    has_owners: bool = False
    """Whether owners of sites also end their clients' parts, and approve again."""


TWO, THREE = ("ann", "bob"), ("ann", "bob", "zoe")
FEDERATIONS = (
    Small(name="two clients", clients=TWO, rule=Rule(clients=TWO)),
    Small(
        name="two clients, quorum of one",
        clients=TWO,
        rule=Rule(clients=TWO),
        quorum=Quorum(min_clients=1),
        has_deadline=True,
    ),
    Small(
        name="two clients, quorum of one or fail",
        clients=TWO,
        rule=Rule(clients=TWO),
        quorum=Quorum(min_clients=1),
        has_deadline=True,
        fails=True,
    ),
    Small(
        name="two clients, quorum of both, with owners",
        clients=TWO,
        rule=Rule(clients=TWO),
        quorum=Quorum(min_clients=2),
        has_deadline=True,
        has_owners=True,
    ),
    Small(
        name="two clients with owners, each round asks one",
        clients=TWO,
        rule=Rule(clients=TWO, cohort_size=1),
        may_quarantine=False,
        has_owners=True,
    ),
    Small(name="whoever comes, one at least", clients=TWO, rule=Rule(min_clients=1)),
    Small(name="two clients, two rounds", clients=TWO, num_rounds=2, rule=Rule(clients=TWO)),
    Small(
        name="two clients, two rounds, quorum of one",
        clients=TWO,
        num_rounds=2,
        rule=Rule(clients=TWO),
        quorum=Quorum(min_clients=1),
        has_deadline=True,
    ),
    Small(
        name="three clients, each round asks two",
        clients=THREE,
        rule=Rule(clients=THREE, cohort_size=2),
        quorum=Quorum(min_clients=1),
        has_deadline=True,
    ),
    Small(
        name="three clients, quorum of two",
        clients=THREE,
        rule=Rule(clients=THREE),
        quorum=Quorum(min_clients=2),
        has_deadline=True,
        may_quarantine=False,
    ),
    Small(
        name="three clients, every domain, or fail",
        clients=THREE,
        rule=Rule(clients=THREE),
        quorum=Quorum(domains={"ann": "north", "bob": "north", "zoe": "south"}),
        has_deadline=True,
        fails=True,
        may_quarantine=False,
    ),
)
SAMPLE = (FEDERATIONS[4], FEDERATIONS[2])
"""What is walked through in every test run."""
TINY = Small(
    name="one client or fail",
    clients=("ann",),
    rule=Rule(clients=("ann",)),
    has_deadline=True,
    fails=True,
)
"""The smallest federation in which every move of the tables happens."""
