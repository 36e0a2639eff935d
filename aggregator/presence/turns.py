"""Turns of a client's runs: its work goes to those who began runs in turn, and within each to their runs in turn.

Whoever begins many runs on shared trainers gets the share of one, as somebody with a single run does.
"""

from __future__ import annotations

MAX_KEPT = 1000
"""Runs that are kept before the ones served longest ago are dropped."""


class Turns:
    """When one client was last given a task of each run, and of each creator's runs. Counts tasks, not seconds."""

    def __init__(self) -> None:
        self._num_given = 0
        self._of_run: dict[str, int] = {}
        self._of_creator: dict[str, int] = {}

    def rank(self, run_id: str, creator: str) -> tuple[int, int]:
        """Return the place of a run in the queue: the lowest is next."""
        return self._of_creator.get(creator, 0), self._of_run.get(run_id, 0)

    def given(self, run_id: str, creator: str) -> None:
        """Note that the client was given a new task of this run."""
        self._num_given += 1
        for served, name in ((self._of_run, run_id), (self._of_creator, creator)):
            served.pop(name, None)
            served[name] = self._num_given
            if len(served) > MAX_KEPT:
                del served[next(iter(served))]
