"""Models that rounds of a run begin with, and runs whose models can travel as differences from these. Pure."""

from __future__ import annotations

from fedplcc.shared.config.sections import InvalidKey
from fedplcc.shared.config.tables.run_tables import RunTables
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.private_sums import PrivateSums
from fedplcc.shared.methods.parts.slots import ServerSlots


def starts_elsewhere(config: RunTables) -> bool:
    """Whether rounds start from another model than the result of the one before."""
    method, hyper = config.algorithm, config.method
    slots, arrays = method.part(ServerSlots), method.part(ServerArrays)
    has_start = slots is not None and slots.has_start(hyper)
    has_other_head = (arrays is not None and arrays.needs_linear_head) or method.part(PrivateSums) is not None
    return has_start or (has_other_head and method.keeps_arrays(hyper)) or has_average(config)


def has_average(config: RunTables) -> bool:
    """Whether the result is an average over rounds, from the second one on."""
    method, hyper = config.algorithm, config.method
    return hyper.global_average == "ema" and hyper.average_decay > 0 and method.shares_model(hyper)


def check_encoding(config: RunTables) -> None:
    """Refuse encoded models where rounds begin with a model that no client evaluated, and where a claim leaves them out.

    Raises:
        InvalidKey: At `wire.precision`.
    """
    if not config.wire.is_encoded:
        return
    refused = None
    if not config.algorithm.shares_model(config.method):
        refused = f"is about models that clients send, and in this run of {config.run.method} they keep theirs"
    elif config.privacy.clip is not None:
        refused = "keeps what rounding leaves out for the next message, of which no claim of [privacy] speaks"
    elif starts_elsewhere(config) or config.stream.epoch_model != "last":
        refused = (
            "sends differences from the result of the round before, and rounds of this run begin with another model"
        )
    if refused is not None:
        raise InvalidKey("wire.precision", f'wire.precision = "{config.wire.precision}" {refused}; leave it out')
