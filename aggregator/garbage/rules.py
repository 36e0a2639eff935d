"""Rules of garbage collection: which blobs a run keeps. Pure functions, and readers of the rounds that they need.

Every run keeps:

- if it has not ended: the inputs of its open round, the updates that the round has received, and its results;
- its initial model, and the models and prototypes of its first round and of its last `Keep.models` committed rounds;
- the server state of these last rounds, so that its size does not grow with the number of rounds;
- those of its best round by validation, and of every `run.keep_every`-th round;
- the prototypes, global and local, of its last `Keep.prototypes` committed rounds, for prototype maps;
- the updates of its last `Keep.updates` committed rounds with the model that each round started from, and the earlier
  prototypes that their pools reuse, so that `fedplcc state audit --replay` can compute those rounds again.

Rows of rounds, updates and events stay forever: they are small, and they are the history of the run. The removal of the
other blobs is in collection.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedplcc.aggregator.computation.parts.prototypes import num_past_rounds
from fedplcc.aggregator.histories.best_rounds import find_best
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.rounds.validation import Best
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.config.initial_model import ModelBlob, parse_initial_model
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.types import BlobRef, Round, Run, result_blobs, state_blobs

PAGE = 100
"""Runs and rounds read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Settings: which blobs stay although no open round needs them."""

    models: int | None = 5
    """Last committed rounds of each run whose global models and prototypes stay, besides the first round, and whose server
    state stays; None for all."""
    prototypes: int | None = 100
    """Last committed rounds of each run whose global and local prototypes stay; None for all."""
    updates: int = 1
    """Last committed rounds of each run whose updates stay."""
    unused_days: float = 7.0
    """Days after which unfinished uploads and unused initial models are removed."""


@dataclass(frozen=True, slots=True)
class KeptRounds:
    """Rounds of one run that keep blobs: the first number of each kind; round 0 always keeps its own."""

    results_from: int
    """Models, prototypes and server state."""
    updates_from: int
    """Updates, including those of an open round."""
    end: int
    """The first round that is neither committed nor open."""
    prototypes_from: int
    """Global and local prototypes for prototype maps, of committed rounds."""
    num_stale: int = 0
    """Rounds before `updates_from` whose prototypes later rounds may reuse; see `method.proto_staleness` and
    `method.proto_window`."""
    every: int | None = None
    """Every so many rounds keep their model and prototypes as well; see `run.keep_every`."""
    best: Best | None = None
    """The best round by validation, which keeps them too."""

    def has_results(self, number: int) -> bool:
        """Whether a committed or open round keeps its model and prototypes."""
        is_best = self.best is not None and number == self.best.round
        is_every = self.every is not None and number % self.every == 0
        return number == 0 or number >= self.results_from or is_best or is_every

    @property
    def pooled_from(self) -> int:
        """The first round whose updates' prototypes a repeatable round may have in its pool."""
        return max(0, self.updates_from - self.num_stale)


def kept_rounds(run: Run, keep: Keep, best: Best | None = None) -> KeptRounds:
    """Return the rounds of a run that keep blobs; a round that an ended run left open keeps none.

    Args:
        best: Its best round by validation, if it has one.
    """
    last = run_facts.last_committed(run)
    committed = -1 if last is None else last
    end = committed + 1 if run.status.is_final else run.round_number + 1
    updates_from = max(0, committed + 1 - keep.updates)
    start = max(0, updates_from - 1)  # a round starts from the result of the one before
    results_from = 0 if keep.models is None else max(0, min(committed + 1 - keep.models, committed, start))
    prototypes_from = 0 if keep.prototypes is None else max(0, committed + 1 - keep.prototypes)
    staleness = 0 if run.status.is_final and not keep.updates else _staleness(run)
    return KeptRounds(results_from, updates_from, end, prototypes_from, staleness, _keep_every(run), best)


def needed_blobs(run: Run, known: Mapping[int, Round], keep: Keep, best: Best | None = None) -> set[str]:
    """Return the SHA-256 of each blob that one run needs, without the prototypes that `prototypes_of` returns.

    Args:
        known: Its rounds by number: the first, and all from `kept_rounds` on, with their updates from `pooled_from` on.
        best: Its best round by validation, if it has one.
    """
    kept = kept_rounds(run, keep, best)
    blobs: list[BlobRef | None] = list(result_blobs(run))
    for number, record in known.items():
        if number < kept.end and kept.has_results(number):
            blobs += (record.model, record.prototypes)
        if kept.results_from <= number < kept.end:
            blobs += state_blobs(record)
        if kept.updates_from <= number < kept.end:
            blobs += (blob for update in record.updates.values() for blob in update.payload.blobs)
        elif kept.pooled_from <= number < kept.updates_from:
            blobs += (blob for update in record.updates.values() for blob in update.payload.prototype_sets)
    return {blob.sha256 for blob in blobs if blob is not None} | initial_model(run)


def prototypes_of(current: Round) -> set[str]:
    """Return the SHA-256 of a round's prototypes, global and local."""
    sets = [blob for update in current.updates.values() for blob in update.payload.prototype_sets]
    return {blob.sha256 for blob in (*sets, current.prototypes) if blob is not None}


def _keep_every(run: Run) -> int | None:
    try:
        return config_of(run).run.keep_every
    except InvalidConfig:
        return None  # written by another version


def _staleness(run: Run) -> int:
    """Return the number of past rounds whose prototypes a kept round may reuse."""
    try:
        return num_past_rounds(run)
    except InvalidConfig:
        return 0  # written by another version; such a run has failed (see ledger.py)


def initial_model(run: Run) -> set[str]:
    """Return the SHA-256 of the initial model that the run's configuration names, if any."""
    try:
        named = config_of(run).run.initial_model
    except InvalidConfig:
        return set()  # written by another version
    model = None if named is None else parse_initial_model(named)
    return {model.sha256} if isinstance(model, ModelBlob) else set()


def rounds_of(store: Store, run: Run, keep: Keep) -> dict[int, Round]:
    """Return the rounds of a run that `needed_blobs` must know."""
    kept = kept_rounds(run, keep, find_best(store, run.run_id))
    first = store.find_round(run.run_id, 0) if kept.results_from else None
    found = {} if first is None else {0: first}
    after = kept.results_from - 1
    while page := store.list_rounds(run.run_id, after=after, limit=PAGE):
        found |= {record.number: record for record in page}
        after = page[-1].number
    milestones = range(0, kept.results_from, kept.every) if kept.every is not None else range(0)
    for number in {*milestones, *([] if kept.best is None else [kept.best.round])} - found.keys():
        record = store.find_round(run.run_id, number)
        if record is not None:
            found[number] = record
    for number in range(kept.pooled_from, kept.end):
        whole = store.find_round(run.run_id, number)
        if whole is not None:
            found[number] = whole
    return found


def all_runs(store: Store) -> Iterator[Run]:
    """Yield every run, newest first, its round without updates."""
    page = store.list_runs(limit=PAGE)
    while page:
        yield from page
        page = store.list_runs(limit=PAGE, before=page[-1].run_id)
