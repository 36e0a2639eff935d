"""Memories of open runs: what follows from their configurations and histories, held until a run ends.

A value that can be computed from committed lines and events gets no column: the history is durable with its round, and a
column would be a second place for one fact, within every row's digest. It is read once after a start, and is the same then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fedplcc.aggregator.histories.best_rounds import find_best, find_comparable
from fedplcc.aggregator.histories.recent_accuracies import RecentAccuracies
from fedplcc.aggregator.histories.run_warnings import RunWarnings
from fedplcc.aggregator.histories.stage_memories import StageMemories
from fedplcc.aggregator.histories.stage_rows import StageRows
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.validation import Best, best_after
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.chance import RunWarning
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import (
    Run,
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LastRound:
    """What a run's last committed round says of the run.

    Attributes:
        forgotten: The stages that it has forgotten; None of a run without stages.
    """

    warnings: tuple[RunWarning, ...]
    forgotten: tuple[int, ...] | None


class RunMemories:
    """Everything that is remembered of open runs; read from the store where it is not known yet."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._configs: dict[str, RunConfig] = {}
        self._best: dict[str, Best | None] = {}
        """The best round of each open run by validation, as of its last committed round."""
        self._accuracies, self._stage_memories = RecentAccuracies(store), StageMemories(store)
        self._warnings = RunWarnings(store, sessions)
        self.stage_rows = StageRows(store)
        self.interrupted: dict[str, tuple[int, Collection[str]]] = {}
        """The open round of each run that an earlier process left, and its phases in which an aggregator was started."""

    def config_of(self, run: Run) -> RunConfig:
        """Return an open run's configuration, parsed once."""
        config = self._configs.get(run.run_id)
        if config is None:
            config = self._configs[run.run_id] = config_of(run)
        return config

    def best(self, run: Run, *, is_open: bool) -> Best | None:
        """Return the best round of a run by validation; None if none was validated."""
        return self.best_after(run) if is_open else find_best(self._store, run.run_id)

    def best_after(self, run: Run) -> Best | None:
        """Return the best round of an open run by validation, its latest round included if that has committed."""
        if run.run_id not in self._best:
            self._best[run.run_id] = find_comparable(self._store, run.run_id)
        return best_after(self._best[run.run_id], run.current_round)

    def warnings(self, run: Run, *, is_open: bool) -> tuple[RunWarning, ...]:
        """Return the warnings about a run, from its last evaluated rounds, its updates' norms and its clients' problems."""
        return (*self._accuracies.warnings(run, is_open=is_open), *self._warnings.of(run, is_open=is_open))

    def closed(self, run: Run) -> LastRound:
        """Note that an open run's round has closed, and return what the last committed one says."""
        self._best[run.run_id] = self.best_after(run)
        return self.last_round(run)

    def last_round(self, run: Run) -> LastRound:
        """Return what an open run's last committed round says."""
        return LastRound(self._accuracies.committed(run), self._stage_memories.committed(run))

    def ended(self, run_id: str) -> None:
        """Forget a run that has ended."""
        for known in (self._configs, self._best, self.interrupted):
            known.pop(run_id, None)
        for memory in (self._accuracies, self._warnings, self.stage_rows, self._stage_memories):
            memory.ended(run_id)
