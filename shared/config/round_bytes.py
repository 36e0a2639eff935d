"""Bytes of payload that a round moves, from the run's configuration and the layout of its model. Pure.

They are those that timings tell after a round: blobs, without what gRPC adds or what is sent again after a broken call.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.config.declared_arrays import declared_arrays, declared_uploads, sent_groups
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.starts import has_average, starts_elsewhere
from fedplcc.shared.encoded_models import Precision, encoded_size
from fedplcc.shared.methods.arrays import GroupSchema
from fedplcc.shared.methods.parts.prototypes import MAX_ROWS
from fedplcc.shared.tensors import Schema, laid_out, prototypes_to_bytes
from fedplcc.shared.types import CLASS_MEAN, PrototypeSet

ROW_BYTES = 8 + 4 + 8
"""Class id, weight and group id of a prototype, beside its vector of D float32."""
HEADER_SLACK = 64
"""Digits by which the header of a set of prototypes may be longer than that of an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayout:
    """What the size of a round's payload needs of a model.

    Attributes:
        model_bytes: Size of the model's file: what is trained, without a backbone that every site has.
        sent_bytes: Size of the model in an update, encoded and without the tensors that clients keep for themselves.
        feature_dim: D.
        encoded_bytes: Size of the result as clients that took part receive it: `model_bytes` where nothing is encoded.
    """

    model_bytes: int
    sent_bytes: int
    feature_dim: int
    encoded_bytes: int

    @classmethod
    def of(
        cls, schema: Schema, withheld: Iterable[str], feature_dim: int, precision: Precision = "float32"
    ) -> ModelLayout:
        """Return the layout of a model with tensors of these shapes, some of which no update has."""
        kept = frozenset(withheld)
        sent = {name: each for name, each in schema.items() if name not in kept}
        whole = _file_bytes(schema)
        return cls(
            model_bytes=whole,
            sent_bytes=_file_bytes(sent) if precision == "float32" else encoded_size(sent, precision),
            feature_dim=feature_dim,
            encoded_bytes=whole if precision == "float32" else encoded_size(schema, precision),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBytes:
    """Bytes that a round moves, both tasks of training and evaluation together.

    `fedplcc.shared.documents.runs.RoundBytes` says of each field what it is.
    """

    clients: int
    up: int
    down: int
    first_down: int
    prototypes_up: int
    prototypes_down: int
    all_up: int
    all_down: int
    is_bound: bool

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


def round_bytes(config: RunConfig, layout: ModelLayout, members: Sequence[int | None]) -> RoundBytes:
    """Return the bytes of a round.

    Args:
        members: Training samples N of each client that may take part, 0 where it is not known, None of one that evaluates
            only: it receives the round's model and sends nothing.
    """
    examples = [number for number in members if number is not None]
    evaluators = len(members) - len(examples)
    method, hyper = config.algorithm, config.method
    num_classes, dim, model = len(config.data.classes), layout.feature_dim, layout.model_bytes
    drawn = min(config.run.cohort_size or len(examples), len(examples))

    uploads = declared_uploads(config, dim)
    up = sum(_group_bytes(schema, num_classes) for schema in uploads.values())
    up += layout.sent_bytes if method.shares_model(hyper) else 0

    declared = declared_arrays(config, dim)
    sent = {name: declared[name] for name in sent_groups(config)}
    arrays = sum(_group_bytes(schema, num_classes) for schema in sent.values())
    # Training starts from the model that the client evaluated last, which it holds, unless that is another one, or it took
    # no part in the round before. Clients that keep their models receive the first one alone.
    may_lack_it = drawn < len(examples) or config.evaluation.every > 1 or config.stream.epoch_model != "last"
    if method.has_global_model(hyper):
        new = layout.encoded_bytes
        down, first_down = new + model * (starts_elsewhere(config) or may_lack_it) + arrays, model + new
    else:
        down, first_down = arrays, model

    rows = sorted((_most_rows(config, number) for number in examples), reverse=True)[:drawn]
    sets_up = [_set_bytes(number, dim) for number in rows] if method.has_prototypes else [0] * drawn
    one_down = 0
    if method.has_prototypes:
        pooled = sum(rows) * -(-config.num_pooled_clients // max(drawn, 1))
        times = 1 + method.names_by_prototypes(hyper, own_classes=config.evaluation.own_classes)
        one_down = _set_bytes(pooled + num_classes, dim) * times
    has_free_size = any(
        None in shape for schema in (*uploads.values(), *sent.values()) for _dtype, shape in schema.values()
    )
    return RoundBytes(
        clients=drawn,
        up=up,
        down=down,
        first_down=first_down,
        prototypes_up=max(sets_up, default=0),
        prototypes_down=one_down,
        all_up=drawn * up + sum(sets_up),
        all_down=drawn * (down + one_down) + evaluators * (model * method.has_global_model(hyper) + one_down),
        is_bound=method.has_prototypes
        or has_free_size
        or (method.has_global_model(hyper) and (may_lack_it or has_average(config))),
    )


def _group_bytes(schema: GroupSchema, num_classes: int) -> int:
    """Return the size of a group's file where every free size is M."""
    whole: dict[str, tuple[str, tuple[int, ...]]] = {
        name: (dtype, tuple(num_classes if size is None else size for size in shape))
        for name, (dtype, shape) in schema.items()
    }
    return _file_bytes(whole)


def _file_bytes(schema: Schema) -> int:
    """Return the size of a file of tensors, which lie in it by the size of their elements, then by name."""
    in_order = sorted(schema.items(), key=lambda entry: (entry[1][0] != "I64", entry[0]))
    return laid_out(dict(in_order)).size_bytes


def _most_rows(config: RunConfig, num_examples: int) -> int:
    """Return how many prototypes a client sends at most.

    A cluster of FINCH has at least two samples, but for that of a class with one: N samples of M classes give at most
    N / 2 + M.
    """
    num_classes = len(config.data.classes)
    if config.algorithm.prototype_kind == CLASS_MEAN:
        return num_classes
    most = min(MAX_ROWS, num_classes * config.max_prototypes_per_class)
    if not num_examples or config.stream.is_stream:
        return most
    return min(most, num_examples // 2 + num_classes)


def _set_bytes(rows: int, dim: int) -> int:
    empty = len(prototypes_to_bytes(PrototypeSet.empty(dim)))
    return empty + HEADER_SLACK + rows * (4 * dim + ROW_BYTES)


def measured_bytes(timing: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the bytes that all clients of a committed round sent and received, by its line of timings.jsonl.

    None where no client tells what it received, as one whose owner withholds times does not.
    """
    clients = [each for each in timing.get("clients", {}).values() if "sent_bytes" in each]
    if not clients:
        return None
    keys = ("received_bytes", "evaluation_received_bytes")
    received = sum(int(each.get(key, 0)) for each in timing["clients"].values() for key in keys)
    return sum(int(each["sent_bytes"]) for each in clients), received
