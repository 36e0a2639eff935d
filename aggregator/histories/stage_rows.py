"""Accuracies at the end of earlier stages of open runs, for the measures of the present one.

They are read from the history when they are needed first, and kept while the run is open: at most a row for each stage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedplcc.aggregator.rounds.results import StageContext
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.stream import Place, StreamSection
from fedplcc.shared.stage_measures import Row
from fedplcc.shared.types import Run


class StageRows:
    """Rows of open runs by pass and stage."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_open: dict[str, dict[Place, Row]] = {}

    def context(self, run: Run, config: RunConfig) -> StageContext | None:
        """Return what the line of a run's open round needs of earlier rounds; None in a run without stages."""
        stream = config.stream
        place = stream.place(run.round_number, run.stage_began)
        if place is None:
            return None
        before = self._line(run.run_id, run.round_number - 1) if run.round_number > 1 else {}
        counts = before.get("class_counts") or [0] * len(config.data.classes)
        return StageContext(
            place=place,
            num_seen=place.seen(stream.stages),
            rows=self._rows(run, stream, place),
            class_counts=tuple(counts),
        )

    def ended(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._of_open.pop(run_id, None)

    def _rows(self, run: Run, stream: StreamSection, place: Place) -> Sequence[Row]:
        """Return a row for each earlier stage of the pass."""
        known = self._of_open.get(run.run_id, {})
        rows = {}
        for stage in range(1, place.stage):
            at = Place(place.number, stage)
            if at not in known:
                line = self._line(run.run_id, stream.last_round(at, run.stage_began))
                row = (line.get("accuracy_by_stage") or [])[:stage]
                known[at] = tuple(row) + (None,) * (stage - len(row))
            rows[at] = known[at]
        self._of_open[run.run_id] = rows  # of this pass alone
        return list(rows.values())

    def _line(self, run_id: str, number: int) -> dict[str, Any]:
        """Return a committed round's line of metrics.jsonl; empty where there is none."""
        found = self._store.find_round(run_id, number)
        return json.loads(found.results_json) if found is not None and found.results_json else {}
