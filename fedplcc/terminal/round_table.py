"""Rounds as lines of text under a heading. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fedplcc.runs.plots import SUMMARIES, domains_of
from fedplcc.shared.scoring.scores import BALANCED, score_of, values_of
from fedplcc.terminal.numbers import number, percent
from fedplcc.terminal.stage_lines import place_names

GAP = "  "
DROPPED_FIRST = ("prototypes", "time", "loss", "local worst", "local mean")
"""Columns in the order in which a narrow terminal loses them; the domains follow, from the right."""
OWN_MODELS = "accuracies are of the clients' own models: this run shares none, or none whole"
BALANCED_NOTE = "accuracies are balanced, the mean of the classes' recalls: test classes are uneven"
PLAIN_NOTE = "accuracies are plain again: the test classes of those who report here are even"
BUT_LOCAL = "; local ones are not"


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    width: int
    value: Callable[[Mapping[str, Any], float | None], str]
    """The cell for a line of metrics.jsonl and the round's seconds."""
    is_domain: bool = False


class RoundTable:
    """Lines of text, one per round, under a heading that names the domains.

    Columns that do not fit are left out whole. Round, pass, stage, mean and worst always stay.
    """

    def __init__(
        self,
        domains: Sequence[str],
        width: int | None = None,
        *,
        has_local: bool = False,
        has_time: bool = True,
        place: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Choose the columns.

        Args:
            width: Characters of a line; None for no limit.
            has_local: Whether clients have models of their own beside the global one.
            has_time: Whether the duration of any round is known.
            place: Numbers that say where a round is in a run with stages; see `place_names`.
            notes: What accuracies of these rounds are, where they are not those of one global model.
        """
        self.notes = tuple(notes)
        self.domains, self.has_local, self.place = tuple(domains), has_local, tuple(place)
        self._columns = list(_columns(domains, has_local=has_local, has_time=has_time, place=place))
        others = {column.heading: column for column in self._columns if not column.is_domain}
        droppable = [others[name] for name in DROPPED_FIRST if name in others]
        droppable += reversed([column for column in self._columns if column.is_domain])
        for column in droppable:
            if width is None or len(self.heading()) <= width:
                break
            self._columns.remove(column)

    @classmethod
    def of(
        cls,
        metrics: Mapping[str, Any],
        width: int | None = None,
        *,
        has_time: bool = True,
        config: Mapping[str, Any] | None = None,
    ) -> Self:
        """A table for rounds like this one, in a run with this configuration if that is known."""
        has_local = bool(metrics.get("accuracy_local")) and not metrics.get("accuracy_of")
        place = place_names(metrics, config or {})
        notes = [OWN_MODELS] if metrics.get("accuracy_of") else []
        if score_of(metrics) == BALANCED:
            notes.append(BALANCED_NOTE + (BUT_LOCAL if has_local else ""))
        return cls(domains_of([metrics]), width, has_local=has_local, has_time=has_time, place=place, notes=notes)

    def has_columns_of(self, other: RoundTable) -> bool:
        """Whether another table shows the same domains, models and places, and accuracies of the same kind."""
        mine, others = ((each.domains, each.has_local, each.place, each.notes) for each in (self, other))
        return mine == others

    def notes_after(self, before: RoundTable | None) -> tuple[str, ...]:
        """Return what is said above this table where another one stands before it."""
        was, is_now = (
            table is not None and any(BALANCED_NOTE in note for note in table.notes) for table in (before, self)
        )
        return (*self.notes, PLAIN_NOTE) if was and not is_now else self.notes

    def heading(self) -> str:
        """The names of the columns."""
        return GAP.join(column.heading.rjust(column.width) for column in self._columns)

    def line(self, metrics: Mapping[str, Any], seconds: float | None = None) -> str:
        """A round's accuracies in percent, its cross-entropy, its local and global prototypes, and its duration.

        The accuracies are balanced ones where that is the round's score.

        Where clients have models of their own, also the mean and the worst of those models' accuracies.
        """
        return GAP.join(column.value(metrics, seconds).rjust(column.width) for column in self._columns)


def _columns(domains: Sequence[str], *, has_local: bool, has_time: bool, place: Sequence[str]) -> Iterator[_Column]:
    yield _Column("round", 6, lambda line, _: str(line["round"]))
    for name in place:
        yield _Column(name, len(name), _place(name))
    for name in (*domains, *SUMMARIES):
        yield _Column(name, max(len(name), 6), _score(name), is_domain=name not in SUMMARIES)
    if has_local:
        yield _Column("local mean", 10, _accuracy("accuracy_local", "mean"))
        yield _Column("local worst", 11, _accuracy("accuracy_local", "worst"))
    yield _Column("loss", 7, lambda line, _: number(line["loss"].get("ce")))
    yield _Column("prototypes", 13, lambda line, _: f"{line['prototypes']['local']} -> {line['prototypes']['global']}")
    if has_time:
        yield _Column("time", 7, lambda _, seconds: "-" if seconds is None else f"{seconds:.1f} s")


def _place(name: str) -> Callable[[Mapping[str, Any], float | None], str]:
    return lambda line, _: str(line[name])


def _score(name: str) -> Callable[[Mapping[str, Any], float | None], str]:
    return lambda line, _: percent((values_of(line) or {}).get(name))


def _accuracy(kind: str, name: str) -> Callable[[Mapping[str, Any], float | None], str]:
    return lambda line, _: percent((line.get(kind) or {}).get(name))
