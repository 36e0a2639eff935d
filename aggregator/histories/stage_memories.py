"""What open runs with stages have forgotten, kept in memory and read from the history after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.rounds.forgotten import StageMemory
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.config.tables.stream import has_stages
from fedplcc.shared.types import EventQuery, RoundPhase, Run

PAGE = 200
"""Commits that are read at once."""


class StageMemories:
    """Memories of open runs with stages: two numbers for each stage."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_open: dict[str, StageMemory] = {}

    def committed(self, run: Run) -> tuple[int, ...] | None:
        """Note the latest round of an open run, which may have committed.

        Returns:
            The stages that the run has forgotten; None of a run without stages.
        """
        if not has_stages(document_of(run)):
            return None
        memory = self._of_open.get(run.run_id)
        if memory is None:
            memory = self._stored(run.run_id)
        current = run.current_round
        if current is not None and current.phase is RoundPhase.COMMITTED and current.results_json:
            memory = _after(memory, current.number, json.loads(current.results_json))
        self._of_open[run.run_id] = memory
        return memory.forgotten

    def ended(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._of_open.pop(run_id, None)

    def _stored(self, run_id: str) -> StageMemory:
        memory = StageMemory()
        for number, line in self._lines(run_id):
            memory = _after(memory, number, line)
        return memory

    def _lines(self, run_id: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the committed rounds and their lines of metrics.jsonl, from the history."""
        after, types = 0, ("round_committed",)
        while page := self._store.list_events(EventQuery(run_id=run_id, types=types, after=after, limit=PAGE)):
            for event in page:
                yield event.round, event.data.get("metrics") or {}
            after = page[-1].sequence


def _after(memory: StageMemory, number: int, line: Mapping[str, Any]) -> StageMemory:
    """Return the memory after a round; the same one after a round that was not evaluated, or is part of it already."""
    row = line.get("accuracy_by_stage")
    return memory if row is None or number <= memory.round else memory.after(number, line["stage"], row)
