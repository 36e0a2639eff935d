"""Global models that travel encoded, where `wire.precision` says so (docs/algorithms.md, rule 1.23).

Clients hold M_(t-1), the model that round t began with; the round came to G_t. What goes out is the encoded difference
Q(G_t + e_(t-1) - M_(t-1)), and the result M_t is what clients make of it, so that all hold and evaluate the same bytes. What
rounding left out, e_t, is in the exact model G_t + e_(t-1) = M_t + e_t, which stays with the server.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.shared.encoded_models import LARGEST, beginning, encoding, is_encoded
from fedplcc.shared.tensors import DTYPES, Array, TensorEntry
from fedplcc.shared.types import ENCODED, MODEL

EXACT = "exact_model"
"""Server state: the global model without rounding, G_t + e_(t-1)."""


def with_encoding(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Encode the round's model, and make the result what it is decoded to."""
    if not of.config.wire.is_encoded:
        return made
    assert made.start is None, "the configuration was checked: rounds begin with the result of the one before"
    before, begun = of.run.server_state.get(EXACT), HashedBlob(of.start)
    folded = HashedBlob(of.stored(made.model))
    exact = None if before is None else HashedBlob(of.stored(before))

    def read(entry: TensorEntry, first: int, count: int) -> tuple[Array, Array]:
        model, begin = folded.block(entry, first, count), begun.block(entry, first, count)
        if exact is None:
            return model, begin
        kept = exact.block(entry, first, count)
        if not is_encoded(entry.dtype, entry.shape):
            return model, begin
        return np.clip(model.astype(np.float64) + (kept.astype(np.float64) - begin), -LARGEST, LARGEST), begin

    precision = of.config.wire.precision
    with ExitStack() as open_blobs:
        result, encoded, whole = (open_blobs.enter_context(of.blobs.writing(role)) for role in (MODEL, ENCODED, EXACT))
        result.write(of.table.header)
        whole.write(of.table.header)
        encoded.write(beginning(precision))
        for piece in encoding(of.table, precision, read):
            encoded.write(piece.data)
            result.write(piece.model.data.cast("B"))
            whole.write(np.ascontiguousarray(piece.target, DTYPES[piece.entry.dtype]).data.cast("B"))
        for blob in (folded, begun, *([] if exact is None else [exact])):
            blob.finish()
        model = result.finish()
        state = {**made.server_state, EXACT: whole.finish(), ENCODED: encoded.finish()}
    return replace(made, model=model, server_state=state)
