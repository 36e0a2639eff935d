"""The section `[sweep]` of a comparison: values that rows try, as a grid or from ranges. Pure.

    [sweep]                                   # without `choose` each point of the grid is a row of the report
    rows = ["fedplcc"]                        # all rows if not set
    choose = "validation"                     # train the points first, keep the best one by validation images
    grid = { "training.learning_rate" = [0.01, 0.1], "training.local_steps" = [5, 10] }
    grid_for.fedplcc = { "method.lambda1" = [1.0, 10.0] }

or, for a study that proposes points itself:

    [sweep]
    trials = 20                               # of each row on each data set
    seed = 0                                  # of the proposals
    ranges = { "training.learning_rate" = { low = 0.001, high = 0.3, log = true }, "training.optimizer" = ["sgd", "adamw"] }
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from math import prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fedplcc.shared.config.sections import Name, Section

MAX_POINTS = 1_000
"""Most points of one row's grid, and most trials of one row's study."""
MAX_NAME = 64
HASH_CHARACTERS = 10
FIXED = {
    r"data\.(validation|test)_every": "the images that choose must be the same for all",
    r"clients\..+\.(data|validation_per_class)": "the images that choose must be the same for all",
    r"partition\.(?!(.+\.)?samples_per_class$).+": "the images that choose must be the same for all",
    r"evaluation\.(every|last)": "the rounds that choose must be the same for all",
}
"""Patterns of keys in which nothing that validation images choose among may differ, and why."""

Point = Mapping[str, Any]
"""Settings by dotted key."""
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Number = int | float


def why_fixed(key: str) -> str | None:
    """Return why what is chosen among must not differ in a key; None where it may."""
    return next((why for pattern, why in FIXED.items() if re.fullmatch(pattern, key)), None)


def as_list(value: Any) -> Any:
    """Return a text as a list of one."""
    return (value,) if isinstance(value, str) else value


def each_once(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return names without repetitions."""
    return tuple(dict.fromkeys(names))


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings by dotted key, whether they are written so or as nested tables; a range is a value."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and not {"low", "high"} <= value.keys():
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


class Range(Section):
    """Numbers from `low` to `high`, both included; whole numbers if both are."""

    low: Number
    high: Number
    log: bool = False
    """Whether to propose on a logarithmic scale."""
    step: Number | None = None
    """Distance of the numbers, from `low`; any number if not set, and every whole number."""

    @property
    def is_whole(self) -> bool:
        """Whether it is one of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def has_a_step(self) -> bool:
        """Whether its numbers are a step apart that fits them."""
        is_fit = isinstance(self.step, int) if self.is_whole else self.step is not None
        return is_fit and not self.log and (self.step or 0) > 0


Values = Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]
Axis = Range | Values
"""A range, or a list of values to choose from."""
_Flat = BeforeValidator(lambda table: flat(table) if isinstance(table, Mapping) else table)
Grid = Annotated[Mapping[str, Values], _Flat]
Ranges = Annotated[Mapping[str, Axis], _Flat]


class SweepSection(Section):
    """`[sweep]`"""

    rows: Annotated[tuple[Name, ...], BeforeValidator(as_list), AfterValidator(each_once), Field(strict=False)] = ()
    """Rows that try values; if not set, all, or those of `grid_for` and `ranges_for` where there is nothing for all."""
    choose: Literal["validation"] | None = None
    """Whether to keep the best point of each row by its accuracy on validation images, on each data set; a study
    always does. If not set, each point of the grid is a row of the report."""
    grid: Grid = Field(default_factory=dict)
    """Values of each key; every combination is a point."""
    grid_for: Mapping[str, Grid] = Field(default_factory=dict)
    """Likewise for single rows, by their names; together with `grid`."""
    trials: int | None = Field(None, ge=1, le=MAX_POINTS)
    """Points that a study tries for each row on each data set."""
    ranges: Ranges = Field(default_factory=dict)
    """Ranges of a study, by key: { low, high, log, step }, or a list of values."""
    ranges_for: Mapping[str, Ranges] = Field(default_factory=dict)
    """Likewise for single rows; together with `ranges`."""
    sampler: Literal["tpe", "random"] = "tpe"
    """Optuna's sampler: the tree-structured Parzen estimator, or chance."""
    seed: Seed = 0
    """Seed of the proposals."""
    batch: int = Field(1, ge=1, le=64)
    """Trials of a row that are proposed at a time, without knowing each other; --jobs does not change what is proposed."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1), AfterValidator(each_once)] | None = None
    """Seeds of every trial; the data set's first one if not set."""
    view: Literal["last", "best", "last5", "last10"] = "last10"
    """Rounds whose accuracy on validation images chooses."""
    objective: Literal["mean", "worst"] = "mean"
    """Whether the mean over the domains chooses, or the worst domain."""

    @property
    def is_study(self) -> bool:
        """Whether points are proposed rather than listed."""
        return self.trials is not None

    @property
    def chooses(self) -> bool:
        """Whether one point of each row is kept."""
        return self.is_study or self.choose is not None

    def swept(self, rows: Mapping[str, Any]) -> list[str]:
        """Return the rows that try values, in the order of the file."""
        named = {*self.rows} or ({*rows} if self.grid or self.ranges else {*self.grid_for, *self.ranges_for})
        return [row for row in rows if row in named]

    def space(self, row: str) -> dict[str, Axis]:
        """Return what a row tries, by key."""
        if self.is_study:
            return {**self.ranges, **self.ranges_for.get(row, {})}
        return {**self.grid, **self.grid_for.get(row, {})}

    def points(self, row: str) -> list[dict[str, Any]]:
        """Return the points of a row's grid, the last key's values changing fastest."""
        grid = {**self.grid, **self.grid_for.get(row, {})}
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]

    def num_points(self, row: str) -> int:
        """Return the number of points that are tried for a row on each data set."""
        return self.trials if self.trials is not None else len(self.points(row))

    def corners(self, row: str) -> list[dict[str, Any]]:
        """Return points that have each end of a row's ranges, and each value of its lists, once at least."""
        ends = {
            key: axis if isinstance(axis, tuple) else (axis.low, axis.high) for key, axis in self.space(row).items()
        }
        first = {key: values[0] for key, values in ends.items()}
        return [first, *({**first, key: value} for key, values in ends.items() for value in values[1:])]


def sweep_problems(section: SweepSection, rows: Mapping[str, Any], baselines: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with a section whose values are of the right types, with these rows and baselines."""
    for row in baselines:
        if not section.chooses and row in section.swept(rows):
            yield (
                f"compare.baseline: row {row!r} becomes one row for each point of sweep.grid; leave it out of sweep.rows, "
                'or keep one point of it with sweep.choose = "validation"'
            )
    if section.is_study and (section.grid or section.grid_for):
        yield "sweep.trials: a study takes ranges, not a grid; give sweep.ranges, or leave out sweep.trials"
    if not section.is_study and (section.ranges or section.ranges_for):
        yield "sweep.ranges: say with sweep.trials how many points a study tries, or give lists of values in sweep.grid"
    where = "sweep.ranges" if section.is_study else "sweep.grid"
    for row in section.swept(rows) or [""]:
        space = section.space(row)
        if not space:
            what = f"nothing to try for row {row!r}" if row else "nothing to try"
            yield f'{where}: there is {what}; write {where} = {{ "SECTION.KEY" = [VALUE, VALUE] }}'
        yield from _axis_problems(section, space)
        count = prod(len(values) for values in space.values() if isinstance(values, tuple))
        if not section.is_study and count > MAX_POINTS:
            yield f"{where}: row {row!r} has {count:,} points; at most {MAX_POINTS:,}"


def _axis_problems(section: SweepSection, space: Mapping[str, Axis]) -> Iterator[str]:
    where = "sweep.ranges" if section.is_study else "sweep.grid"
    for key, axis in space.items():
        if section.chooses and (why := why_fixed(key)) is not None:
            yield f"{where}: leave out {key!r}: {why}"
        if isinstance(axis, tuple):
            texts = [json.dumps(value, sort_keys=True, default=str) for value in axis]
            if len({*texts}) < len(texts):
                yield f"{where}: {key!r} has a value twice"
            if section.is_study and not all(isinstance(value, (str, int, float, bool)) for value in axis):
                yield f"{where}: {key!r} takes numbers, texts, true and false to choose from; give lists with sweep.grid"
        elif axis.low >= axis.high:
            yield f"{where}: {key!r} has low = {axis.low:g}, which is not below high = {axis.high:g}"
        elif axis.step is not None and not axis.has_a_step:
            yield (
                f"{where}: {key!r} has step = {axis.step:g}; a step is above 0, whole between whole numbers, and does not "
                "go with log = true"
            )
        elif axis.log and axis.low <= 0:
            yield f"{where}: {key!r} has low = {axis.low:g}; with log = true it is above 0"


def name_of(row: str, point: Point) -> str:
    """Return a name for a row with a point, which other points of the row do not have: ROW_KEY-VALUE_KEY-VALUE.

    Where that is too long, or would lose something, it ends in a hash.
    """
    words = [f"{key.rpartition('.')[2]}-{_written(value)}" for key, value in point.items()]
    name = "_".join((row, *words))
    is_plain = all(re.fullmatch(r"[a-z0-9._-]+", word) for word in words) and len({*words}) == len(words)
    if is_plain and len(name) <= MAX_NAME and not any(_is_like_a_number(value) for value in point.values()):
        return name
    digest = sha256(json.dumps(dict(point), sort_keys=True).encode()).hexdigest()[:HASH_CHARACTERS]
    kept = re.sub(r"[^A-Za-z0-9._-]", "-", name)[: MAX_NAME - HASH_CHARACTERS - 1]
    return f"{kept}_{digest}"


def words_of(point: Point) -> str:
    """Return a point in words: KEY VALUE, KEY VALUE, without sections."""
    return ", ".join(f"{key.rpartition('.')[2]} {_written(value)}" for key, value in point.items())


def _is_like_a_number(value: Any) -> bool:
    """Whether a text looks like a number, or like true, false or null."""
    return isinstance(value, str) and not re.fullmatch(r"(?!(true|false|null)$)[a-z][a-z0-9._-]*", value)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
