"""Bytes that a round of a configured run would move, before the run begins."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.shared.config.round_bytes import RoundBytes, round_bytes
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel


def foreseen_bytes(config: RunConfig, examples: Sequence[int | None] = ()) -> RoundBytes | None:
    """Return the bytes of a round; None where this host cannot outline the model, for want of torch or timm for example.

    Args:
        examples: Training samples of each client, 0 where it is not known, None of one that evaluates only; none where no
            client is known.
    """
    try:
        from fedplcc.trainer.models.outline import model_layout

        layout = model_layout(config)
    except (ModuleNotFoundError, InvalidModel):
        return None
    clients = len(config.run.clients or ()) or config.run.min_clients or 0
    return None if layout is None else round_bytes(config, layout, examples or [0] * clients)
