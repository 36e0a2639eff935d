"""The fold of the cohort's models, with the server's slots where the method has some.

Where updates carry no models (FedProto as published) nothing is folded: the global model stays that of round 0. Where they
lack a part of it (FedRep as published) that part stays. With `[aggregation] rule` the fold is the rule's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from fedplcc.aggregator.computation.fold import WeightedModel, fold_models
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade, withheld_places
from fedplcc.aggregator.computation.slot_fold import SlotInputs, fold_with_slots
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.blobs.blob_store import BlobStore, BlobWriter
from fedplcc.shared.methods.config import fold_weights
from fedplcc.shared.methods.folds.rules import with_rule
from fedplcc.shared.methods.folds.shares import capped_weights
from fedplcc.shared.methods.parts.slots import ServerView
from fedplcc.shared.types import MODEL, PARAMETERS, START, BlobRef


def folded(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Fold the models of the round's updates."""
    method, hyper, current = with_rule(of.method, of.rule), of.hyper, of.run.current_round
    assert current is not None
    if not method.shares_model(hyper):
        first = of.run.start or made.model
        return replace(made, model=first, newest=first)
    domains = [of.domains.get(update.client_id, "") for update in of.updates]
    weights = fold_weights([update.num_examples for update in of.updates], hyper, domains)
    share = of.config.aggregation.max_weight_share
    weights = weights if share is None else capped_weights(weights, share)
    size = of.block_elements if of.rule is None else of.rule.block_elements(len(weights), of.block_elements)
    models = [of.stored(update.payload.tensor_group(MODEL)) for update in of.updates]
    weighted = [WeightedModel(path, weight) for path, weight in zip(models, weights, strict=True)]
    slots = method.server_slots(hyper)
    if not slots:
        withheld = withheld_places(of.config, of.int_lists)
        blocks = fold_models(of.table, of.start, weighted, method, hyper, size, withheld)
        model = of.blobs.put(MODEL, of.observed(blocks))
        return replace(made, model=model, newest=model)
    inputs = SlotInputs(
        table=of.table,
        parameters=of.places(PARAMETERS),
        start=of.start,
        slots=of.state(list(slots)),
        view=ServerView(round=current.number, num_eligible=len(run_facts.trainers(of.run))),
    )
    state = _written(of.blobs, of.observed(fold_with_slots(inputs, weighted, method, hyper, size)))
    model, start = state.pop(MODEL), state.pop(START, None)
    if start is not None:
        start = replace(start, role=MODEL)  # under which clients look for the model to start from
    return replace(made, model=model, newest=model, start=start, server_state={**made.server_state, **state})


def _written(blobs: BlobStore, pieces: Iterator[Mapping[str, bytes | memoryview]]) -> dict[str, BlobRef]:
    """Write several blobs at once, each by its name; return their references."""
    with ExitStack() as open_blobs:
        writers: dict[str, BlobWriter] = {}
        for piece in pieces:
            for name, data in piece.items():
                if name not in writers:
                    writers[name] = open_blobs.enter_context(blobs.writing(name))
                writers[name].write(data)
        return {name: writer.finish() for name, writer in writers.items()}
