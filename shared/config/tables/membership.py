"""`[membership]`: the rounds in which clients take part, for simulations and planned federations. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, model_validator

from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.config.sections import ABOUT_NAMES, InvalidKey, Section, shortened

MAX_PLANNED = 10_000
"""Most clients whose rounds are planned."""
_SPAN = re.compile(r"([1-9][0-9]{0,5})?-([1-9][0-9]{0,5})?")


class Span(NamedTuple):
    """Rounds in which a client takes part."""

    first: int
    last: int | None
    """None for no end."""

    def __contains__(self, number: object) -> bool:
        """Whether the client takes part in a round; round 0 counts as round 1."""
        return isinstance(number, int) and self.first <= max(number, 1) and (self.last is None or number <= self.last)


def _span(text: str) -> Span:
    match = _SPAN.fullmatch(text)
    if match is None or text == "-":
        raise ValueError('write the first and the last round, "11-30", or one of them: "11-", "-30"')
    first, last = match.groups()
    span = Span(int(first or 1), None if last is None else int(last))
    if span.last is not None and span.last < span.first:
        raise ValueError("the last round is before the first")
    return span


def _checked(text: str) -> str:
    _span(text)
    return text


class MembershipSection(Section):
    """`[membership]`: the rounds in which a client takes part, by its name: "11-30", "11-" or "-30".

    A client that it does not name takes part in every round.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[str, AfterValidator(_checked)]]

    @property
    def spans(self) -> Mapping[str, Span]:
        """Rounds by client, in the order of their names."""
        return {name: _span(text) for name, text in sorted(self.__pydantic_extra__.items())}

    @model_validator(mode="after")
    def _names_of_clients(self) -> Self:
        if len(self.__pydantic_extra__) > MAX_PLANNED:
            raise ValueError(f"at most {MAX_PLANNED} clients have rounds of their own")
        for name in self.__pydantic_extra__:
            if not re.fullmatch(NAME_PATTERN, name):
                raise InvalidKey(shortened(name), f"{shortened(name)!r}: {ABOUT_NAMES}")
        return self

    def takes_part(self, client_id: str, number: int) -> bool:
        """Whether a client takes part in a round by plan."""
        text = self.__pydantic_extra__.get(client_id)
        return text is None or number in _span(text)

    def changes(self, number: int) -> Iterator[tuple[str, bool]]:
        """Yield the clients that come or go with a round from 2 on, each with whether it comes."""
        for name, span in self.spans.items():
            if span.first == number > 1:
                yield name, True
            elif span.last is not None and span.last + 1 == number:
                yield name, False

    def fault(self, roster: Collection[str] | None, rounds: int, needed: int) -> tuple[str, str] | None:
        """Return the client whose rounds a run cannot have, with a sentence; None if the plan can be kept.

        Args:
            roster: The run's clients, if it names them.
            needed: Fewest clients of a round.
        """
        for name, span in self.spans.items():
            if roster is not None and name not in roster:
                return name, f"membership.{name}: run.clients does not name it"
            if span.first > rounds:
                return name, f"membership.{name} begins in round {span.first}, and the run has {rounds}"
        spans = self.spans
        if roster is None or not spans:
            return None
        always = len(set(roster) - spans.keys())
        for number in sorted({1, *(span.last + 1 for span in spans.values() if span.last and span.last < rounds)}):
            found = always + sum(number in span for span in spans.values())
            if found < needed:
                return min(spans), f"membership leaves {found} of the {needed} clients that round {number} needs"
        return None


NO_PLAN = MembershipSection.model_validate({})
"""Every client takes part in every round."""
