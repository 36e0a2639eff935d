"""Global prototypes of a round, and the pool of clients' sets that they are made of.

Prototypes of clients without an update in this round may stay in the pool for some rounds (`method.proto_staleness`), and
those of all clients for some rounds (`method.proto_window`; docs/algorithms.md, rule 1.9); their models do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Set
from dataclasses import replace

from fedplcc.aggregator.computation.prototype_checks import prototype_norm
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.far_updates import PROTOTYPES
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.hashed_reading import whole_bytes
from fedplcc.shared.methods.folds.shares import capped_sets
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, per_class_counts
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import PrototypeCounts, PrototypeSet, Run, Update

PAGE = 1000
"""Updates of earlier rounds read at a time."""


def with_prototypes(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Make the global prototypes of the pool."""
    exchange = of.method.part(PrototypeExchange)
    if exchange is None:
        return made
    pool = sorted(
        [*of.earlier, *of.updates], key=lambda update: update.client_id
    )  # stable: a client's oldest come first
    paths = [of.stored(update.payload.prototype_set(exchange.kind)) for update in pool]
    sets = [prototypes_from_bytes(whole_bytes(path)) for path in paths]
    norms = {update.client_id: prototype_norm(each) for update, each in zip(pool, sets, strict=True)}  # newest last
    share = of.config.aggregation.max_weight_share
    sets = sets if share is None else capped_sets(sets, share)
    previous = PrototypeSet.empty()
    if exchange.carry is not None and of.run.prototypes is not None:
        previous = prototypes_from_bytes(whole_bytes(of.stored(of.run.prototypes)))
    return replace(
        made,
        prototypes=exchange.merged(sets, previous, len(of.config.data.classes), of.hyper),
        norms={**made.norms, PROTOTYPES: {update.client_id: norms[update.client_id] for update in of.updates}},
    )


def count_prototypes(prototypes: PrototypeSet, num_classes: int) -> PrototypeCounts:
    """Count global prototypes by class, and take the least, median and greatest of their weights."""
    weights = prototypes.weights.tolist()
    return PrototypeCounts(
        by_class=tuple(per_class_counts(prototypes.class_ids, num_classes).tolist()),
        weights=(min(weights), statistics.median(weights), max(weights)) if weights else None,
    )


def num_past_rounds(run: Run) -> int:
    """Return the number of past rounds whose prototypes a round may use besides its own."""
    method = config_of(run).method
    return method.num_past_rounds if isinstance(method, PrototypeConfig) else 0


def earlier_updates(run: Run, store: Store) -> tuple[Update, ...]:
    """Return the earlier updates whose prototypes are in the pool of the run's current round, by client id and round."""
    current = run.current_round
    if current is None or current.number == 0:
        return ()
    return pooled_updates(run, store, current.number, current.updates.keys())


def pooled_updates(run: Run, store: Store, number: int, present: Set[str]) -> tuple[Update, ...]:
    """Return the updates of earlier rounds whose prototypes a round's pool has, by client id and round.

    Args:
        run: The run; its eligible clients alone are in a pool.
        number: The round, from 1.
    """
    method, num_past = config_of(run).method, num_past_rounds(run)
    if not isinstance(method, PrototypeConfig) or not num_past:
        return ()
    first, clients = max(1, number - num_past), set(run_facts.eligible(run))
    if method.proto_window == 1:
        newest = store.newest_updates(run.run_id, first=first, end=number)
        found = [newest[client_id] for client_id in sorted((clients - present) & newest.keys())]
        return tuple(update for update in found if _is_remembered(run, store, update.client_id, first, number))
    forgotten = {client_id: retired.round for client_id, retired in run.retired.items() if retired.is_forgotten}
    window = [
        (update.client_id, of, update)
        for of, update in _updates_in(store, run.run_id, first, number)
        if update.client_id in clients and of > forgotten.get(update.client_id, 0)
    ]
    return tuple(update for _, _, update in sorted(window, key=lambda entry: entry[:2]))


def _updates_in(store: Store, run_id: str, first: int, end: int) -> Iterator[tuple[int, Update]]:
    """Yield the updates of the rounds `first` to `end` - 1 with their rounds, by round and client id."""
    after = (first, "")  # no client id is empty
    while page := store.list_updates(run_id, after=after, limit=PAGE):
        for number, update in page:
            if number >= end:
                return
            yield number, update
            after = (number, update.client_id)


def _is_remembered(run: Run, store: Store, client_id: str, first: int, number: int) -> bool:
    """Whether a client's newest update in the rounds `first` to `number` - 1 is younger than what the run forgot of it."""
    retired = run.retired.get(client_id)
    if retired is None or not retired.is_forgotten or retired.round < first:
        return True
    return client_id in store.newest_updates(run.run_id, first=retired.round + 1, end=number)
