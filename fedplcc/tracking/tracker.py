"""The interface of trackers: callbacks that keep the rounds of a run, each once, however often they are told of them."""

from __future__ import annotations

from typing import ClassVar

from fedplcc.tracking.callbacks import Callback


class Tracker(Callback):
    """Keeps the curves of one run at one place.

    `on_start` opens the place and finds what is kept there already; `on_round` adds a round unless it is there;
    `on_end` closes it. Whatever raises an `Exception` is tried again with the next round.
    """

    kind: ClassVar[str]
    """Its name in --log."""

    def __init__(self, where: str) -> None:
        """Prepare it; nothing is written yet. `where` is the text after the kind, empty for the usual place."""
        self.where = where

    def close(self) -> None:
        """Let go of the place, whether or not the run has ended; called once at the end."""

    @property
    def name(self) -> str:
        """It and its place, for people."""
        return f"{self.kind}:{self.where}" if self.where else self.kind
