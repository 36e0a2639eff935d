"""The trials of one row on one data set: points that a grid lists or a study proposes, judged on validation images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedplcc.comparison.reading import CellResult, MissingCell
from fedplcc.comparison.sweep.choosing import accuracy_of, best_of, criterion
from fedplcc.comparison.sweep.proposals import propose
from fedplcc.comparison.sweep.records import Choice, Key, Trial
from fedplcc.comparison.sweep.section import Point, SweepSection, name_of


@dataclass(frozen=True, slots=True)
class Basis:
    """Hashes of all that a choice, and a study's proposals, depend on but the trials' outcomes."""

    choice: str
    proposals: str


class Study:
    """The trials of one row on one data set."""

    def __init__(self, sweep: SweepSection, key: Key, basis: Basis, seeds: tuple[int, ...]) -> None:
        """Begin with the points of a grid, or with none."""
        self.key, self.basis = key, basis
        self._sweep, self._seeds = sweep, seeds
        self.points: list[Point] = [] if sweep.is_study else [*sweep.points(key[1])]
        """Points so far, in their order."""
        self._judged: dict[str, Trial] = {}

    def name(self, point: Point) -> str:
        """Return the name of a point's row among the trials."""
        return name_of(self.key[1], point)

    @property
    def trials(self) -> list[Trial]:
        """The judged trials in their order; a point that was proposed twice is one trial."""
        names = dict.fromkeys(map(self.name, self.points))
        return [self._judged[name] for name in names if name in self._judged]

    @property
    def unjudged(self) -> list[Point]:
        """Points without an outcome, each once."""
        return list({name: point for point in self.points if (name := self.name(point)) not in self._judged}.values())

    def propose(self) -> bool:
        """Add the points of the next batch, once those before are judged; returns whether there were any."""
        start, total, batch = len(self.points), self._sweep.trials or 0, self._sweep.batch
        if start >= total or self.unjudged:
            return False
        begin = start // batch * batch
        before = [self._judged[self.name(point)] for point in self.points[:begin]]
        for number in range(start, min(total, begin + batch)):
            self.points.append(propose(self._sweep, self.key, number, before))
        return True

    def judge(self, point: Point, found: Sequence[CellResult | MissingCell]) -> None:
        """Take the outcome of a point's cells."""
        missing = [each.reason for each in found if isinstance(each, MissingCell)]
        results = [each for each in found if isinstance(each, CellResult)]
        accuracy = None if missing else accuracy_of(results, self._sweep)
        reason = missing[0] if missing else "no client reported on validation images" if accuracy is None else None
        self._judged[self.name(point)] = Trial(name=self.name(point), point=point, accuracy=accuracy, reason=reason)

    def choice(self) -> Choice | None:
        """Return the choice of the best trial; None if no trial has an accuracy."""
        best = best_of(self.trials)
        if best is None:
            return None
        return Choice(
            basis=self.basis.choice,
            criterion=criterion(self._sweep),
            seeds=self._seeds,
            chosen=best,
            trials=tuple(self.trials),
        )
