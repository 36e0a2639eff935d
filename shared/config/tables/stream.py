"""`[stream]`: the stages of a run whose data change while it trains. Pure.

The stage of a round is a function of its number alone or, where people end stages, of the rounds in which they began.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fedplcc.shared.config.sections import InvalidKey, Section

_Names = Annotated[tuple[str, ...], Field(strict=False)]

MAX_STAGES = 64
"""Most stages: each has an evaluation set in every report."""
STAGE, PASS = "stage", "pass"
"""Numbers beside a client's task in a run with stages: its place, both from 1."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a stream; both numbers count from 1."""

    number: int
    """The pass."""
    stage: int

    def seen(self, num_stages: int) -> int:
        """Return the number of stages whose data have been trained on by now, this one included."""
        return self.stage if self.number == 1 else num_stages


FIRST = Place(1, 1)
"""Where a stream begins."""


def has_stages(document: Mapping[str, Any]) -> bool:
    """Whether the document of a configuration is of a run with stages."""
    stream = document.get("stream")
    return isinstance(stream, Mapping) and stream.get("stages", 1) != 1


class StreamSection(Section):
    """`[stream]`: stages of a run, each with its own data."""

    stages: int = Field(1, ge=1, le=MAX_STAGES)
    """Number of stages. A run with one is none that changes: leave the section out."""
    rounds_per_stage: int | None = Field(None, ge=1, le=100_000)
    """Rounds of a stage. Then run.rounds is passes x stages x rounds_per_stage, and may be left out."""
    advance: Literal["rounds", "manual"] = "rounds"
    """What ends a stage: rounds_per_stage, or a person (fedplcc run resume RUN --next-stage). Then the last stage lasts
    until run.rounds."""
    passes: int = Field(1, ge=1, le=100_000)
    """How often the stages are gone through."""
    train_on: Literal["current", "cumulative"] = "current"
    """Data that clients train on: the present stage's, or those of all stages of the pass up to it."""
    cohort: Literal["round", "pass"] = "round"
    """How often run.cohort_size clients are drawn: for every round, or once for all stages of a pass."""
    epoch_model: Literal["last", "stage_mean"] = "last"
    """Result of a pass's last round: the newest model, or the mean of the models at the ends of the pass's stages. The next
    round starts from the newest model either way. No effect where clients keep their models."""
    classes: tuple[_Names, ...] | None = Field(None, strict=False)
    """Classes of which clients use their images, a list for each stage; all of them if not set."""
    reload: Literal["never", "stage"] = "never"
    """When clients read their data: once, or anew whenever a stage begins."""

    @property
    def is_stream(self) -> bool:
        """Whether the run has stages."""
        return self.stages > 1

    @property
    def is_manual(self) -> bool:
        """Whether people end stages."""
        return self.advance == "manual"

    @property
    def rounds(self) -> int | None:
        """Rounds of the whole run; None where people end stages, or without stages."""
        if not self.is_stream or self.rounds_per_stage is None:
            return None
        return self.passes * self.stages * self.rounds_per_stage

    @model_validator(mode="after")
    def _one_way_to_end_a_stage(self) -> Self:
        if not self.is_stream:
            if self != type(self).model_construct():
                raise InvalidKey("stages", "a stream has at least 2 stages; set stages, or leave [stream] out")
            return self
        if self.is_manual and self.rounds_per_stage is not None:
            raise InvalidKey(
                "rounds_per_stage", 'advance = "manual" lets people end stages; leave rounds_per_stage out'
            )
        if not self.is_manual and self.rounds_per_stage is None:
            raise InvalidKey("rounds_per_stage", 'set the rounds of a stage, or advance = "manual"')
        if self.is_manual and self.epoch_model != "last":
            raise InvalidKey("epoch_model", 'a mean of stage models needs rounds_per_stage, not advance = "manual"')
        if self.is_manual and self.passes > 1:
            raise InvalidKey("passes", 'advance = "manual" goes through the stages once; leave passes out')
        return self

    @model_validator(mode="after")
    def _classes_of_every_stage(self) -> Self:
        if self.classes is None:
            return self
        if len(self.classes) != self.stages:
            raise InvalidKey(
                "classes",
                f"classes has {len(self.classes)} lists, and stages is {self.stages}: write one for each stage",
            )
        for number, names in enumerate(self.classes, start=1):
            if not names or len(set(names)) < len(names):
                raise InvalidKey("classes", f"the list of stage {number} in classes is empty or names a class twice")
        return self

    def place(self, round_number: int, began: Sequence[int] = ()) -> Place | None:
        """Return the place of a round; None without stages.

        Args:
            round_number: The round; round 0 and round 1 are at the first place.
            began: The first rounds of stage 2, 3 and so on, ascending, where people end stages.
        """
        if not self.is_stream:
            return None
        if self.rounds_per_stage is None:
            return Place(1, 1 + min(bisect_right(began, round_number), self.stages - 1))
        done = max(round_number - 1, 0) // self.rounds_per_stage
        return Place(1 + done // self.stages, 1 + done % self.stages)

    def ends_stage(self, round_number: int) -> bool:
        """Whether a stage is known to end with this round."""
        return self.is_stream and self.rounds_per_stage is not None and round_number % self.rounds_per_stage == 0

    def last_round(self, place: Place, began: Sequence[int] = ()) -> int:
        """Return the last round of a stage that has ended; see `place` for the arguments."""
        if self.rounds_per_stage is None:
            return began[place.stage - 1] - 1
        return ((place.number - 1) * self.stages + place.stage) * self.rounds_per_stage

    def first_of_pass(self, place: Place) -> int:
        """Return the first round of a place's pass."""
        return 1 + (place.number - 1) * self.stages * (self.rounds_per_stage or 1)


NO_STREAM = StreamSection.model_validate({})
"""Of a run without stages."""
STAGES_KIND = "stages"
"""Kind of a data specification that has another one for each stage."""


def stages_spec(specs: Sequence[str]) -> str:
    """Return the one data specification of a client that has another data set in each stage."""
    return specs[0] if len(specs) == 1 else f"{STAGES_KIND}:{json.dumps(list(specs), ensure_ascii=False)}"


def split_stages_spec(spec: str) -> tuple[str, ...] | None:
    """Return the specifications by stage; None where the text is a specification of another kind, or no list of texts."""
    kind, _, rest = spec.partition(":")
    if kind != STAGES_KIND:
        return None
    try:
        specs = json.loads(rest)
    except ValueError:
        return None
    is_list = isinstance(specs, list) and 2 <= len(specs) <= MAX_STAGES
    return tuple(specs) if is_list and all(isinstance(each, str) and each for each in specs) else None


def unknown_classes(stream: StreamSection, classes: Collection[str]) -> str | None:
    """Return the first class of `stream.classes` that the run does not have; None if it has all."""
    return next((name for names in stream.classes or () for name in names if name not in classes), None)
