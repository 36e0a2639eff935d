"""The interface of trackers: callbacks that keep the rounds of a run, each once, however often they are told of them."""

from __future__ import annotations

from typing import ClassVar

from fedplcc.runs.artifacts import MODEL, PROTOTYPES
from fedplcc.tracking.callbacks import Callback, RunEnd

MODEL_FILES = (MODEL, PROTOTYPES)
"""What is kept of a run's model, where it is asked for."""


class Tracker(Callback):
    """Keeps the curves of one run at one place.

    `on_start` opens the place and finds what is kept there already; `on_round` adds a round unless it is there;
    `on_end` closes it. Whatever raises an `Exception` is tried again with the next round.
    """

    kind: ClassVar[str]
    """Its name in --log."""
    takes_model: ClassVar[bool] = False
    """Whether it can keep files."""

    def __init__(self, where: str, *, with_model: bool = False) -> None:
        """Prepare it; nothing is written yet.

        Args:
            where: The text after the kind; empty for the usual place.
            with_model: Whether to keep the model and the prototypes of a run that has ended.
        """
        self.where, self.with_model = where, with_model

    def close(self) -> None:
        """Let go of the place, whether or not the run has ended; called once at the end."""

    @property
    def name(self) -> str:
        """It and its place, for people."""
        return f"{self.kind}:{self.where}" if self.where else self.kind

    def files_of(self, end: RunEnd) -> list[str]:
        """Return the paths of the files to keep; none unless they are asked for."""
        if not self.with_model or end.folder is None:
            return []
        return [str(end.folder / name) for name in MODEL_FILES if (end.folder / name).exists()]
