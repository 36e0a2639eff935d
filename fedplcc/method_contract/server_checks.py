"""Checks of server arrays, of what clients upload beside their models, and of the server's step.

Shape legend: D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedplcc.method_contract.checks import Checks, require
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import DIM, NUM_CLASSES, a_client
from fedplcc.shared.methods.arrays import MAX_ARRAY_BYTES, ArrayGroup, GroupSchema, group_fault, most_bytes
from fedplcc.shared.methods.parts.part import BeforeTraining, ServerResult, ServerRound
from fedplcc.shared.methods.parts.slots import RESERVED, SLOT_NAME
from fedplcc.shared.tensors import to_bytes

check = Checks()

Groups = Mapping[str, ArrayGroup]


def has_step(setting: Setting) -> bool:
    """Whether the method's server makes arrays of its own; those of public images have checks of their own."""
    return setting.method.keeps_arrays(setting.config) and not setting.method.uses_public(setting.config)


def has_uploads(setting: Setting) -> bool:
    """Whether updates have something beside their models."""
    return bool(setting.method.uploads(setting.config, NUM_CLASSES, DIM))


def a_head(number: int) -> ArrayGroup:
    """A linear head."""
    rng = np.random.default_rng(number)
    weight, bias = rng.normal(size=(NUM_CLASSES, DIM)), rng.normal(size=NUM_CLASSES)
    return {"head.weight": weight.astype(np.float32), "head.bias": bias.astype(np.float32)}


def uploaded(setting: Setting, number: int, arrays: Groups, num_examples: int = 40) -> Groups:
    """Return what a client uploads that has got these server arrays; nothing where its method uploads nothing."""
    if not has_uploads(setting):
        return {}
    features_ND, labels_N = a_client(number, num_examples)
    sent = setting.method.sends(setting.config)
    before = BeforeTraining(
        features_ND=features_ND,
        labels_N=labels_N,
        num_classes=NUM_CLASSES,
        head=a_head(0),
        received={name: arrays[name] for name in sent if name in arrays},
    )
    return setting.method.before_training(before, setting.config)


def stepped(setting: Setting, number: int, uploads: Iterable[Groups], arrays: Groups) -> ServerResult:
    """Let the server do the step of a round."""
    step = ServerRound(
        round=number,
        seed=5,
        num_classes=NUM_CLASSES,
        feature_dim=DIM,
        uploads=iter(uploads),
        arrays=arrays,
        start_head=a_head(1),
        head=a_head(2),
    )
    return setting.method.server_step(step, setting.config)


def two_rounds(setting: Setting) -> tuple[ServerResult, ServerResult]:
    """Let three clients and the server do two rounds."""
    first = stepped(setting, 1, [uploaded(setting, client, {}) for client in range(3)], {})
    uploads = [uploaded(setting, client, first.arrays) for client in range(3)]
    return first, stepped(setting, 2, uploads, first.arrays)


def bytes_of(result: ServerResult) -> list[bytes]:
    """The groups that a step made, and its head, as files."""
    groups = [result.arrays[name] for name in sorted(result.arrays)]
    return [to_bytes(group) for group in (*groups, *([] if result.head is None else [result.head]))]


def _require_declared(groups: Groups, declared: Mapping[str, GroupSchema]) -> None:
    require(groups.keys() == declared.keys(), f"it makes the groups {sorted(groups)}, not {sorted(declared)}")
    for name, schema in declared.items():
        fault = group_fault(groups[name], schema, NUM_CLASSES)
        require(fault is None, f"group {name!r} {fault and fault[2]}")


@check(lambda setting: has_step(setting) or has_uploads(setting))
def arrays_are_declared_by_name_within_their_limit_and_have_who_makes_them(setting: Setting) -> None:
    method, config = setting.method, setting.config
    kept, sent = method.server_arrays(config, NUM_CLASSES, DIM), method.uploads(config, NUM_CLASSES, DIM)
    require(bool(kept) == has_step(setting), "keeps_arrays says what server_arrays declares")
    require(set(method.sends(config)) <= kept.keys(), "sends names a group that server_arrays does not declare")
    for name in (*kept, *sent):
        require(SLOT_NAME.fullmatch(name), f"group {name!r}: a name has letters, digits and _, at most 32 of them")
        taken = name in RESERVED or name in method.server_slots(config)
        require(not taken, f"group {name!r}: a slot or one of the round's results has that name")
    for declared in (kept, sent):
        size = most_bytes(declared, NUM_CLASSES)
        require(size <= MAX_ARRAY_BYTES, f"arrays take {size} bytes with {NUM_CLASSES} classes and {DIM} features")


@check(has_uploads)
def what_clients_upload_is_as_declared_and_passes_the_methods_own_check(setting: Setting) -> None:
    method = setting.method
    arrays: Groups = {}
    if has_step(setting):
        arrays = stepped(setting, 1, [uploaded(setting, client, {}) for client in range(3)], {}).arrays
    for received in ({}, arrays):
        for num_examples in (1, 2, 40):
            groups = uploaded(setting, 1, received, num_examples)
            _require_declared(groups, method.uploads(setting.config, NUM_CLASSES, DIM))
            counts = np.bincount(a_client(1, num_examples)[1], minlength=NUM_CLASSES).tolist()
            fault = method.upload_fault(groups, counts, setting.config)
            require(fault is None, f"its own check refuses what it makes: {fault}")


@check(has_step)
def a_step_makes_what_is_declared_the_same_bytes_twice_and_keeps_its_arguments(setting: Setting) -> None:
    declared = setting.method.server_arrays(setting.config, NUM_CLASSES, DIM)
    first, second = two_rounds(setting)
    for result in (first, second):
        _require_declared(result.arrays, declared)
    require(list(map(bytes_of, two_rounds(setting))) == [bytes_of(first), bytes_of(second)], "other bytes each time")
    uploads = [uploaded(setting, client, first.arrays) for client in range(3)]
    before = bytes_of(first), [to_bytes(group) for groups in uploads for group in groups.values()]
    stepped(setting, 2, uploads, first.arrays)
    after = bytes_of(first), [to_bytes(group) for groups in uploads for group in groups.values()]
    require(before == after, "it changes what it is given")


@check(lambda setting: has_step(setting) and has_uploads(setting))
def arrays_stay_finite_whatever_finite_numbers_clients_send(setting: Setting) -> None:
    declared = setting.method.server_arrays(setting.config, NUM_CLASSES, DIM)
    arrays: Groups = {}
    for number, scale in enumerate((0.0, 1e-38, 1e38, 1.0), start=1):
        uploads = [_scaled(uploaded(setting, client, arrays), scale) for client in range(3)]
        result = stepped(setting, number, uploads, arrays)
        _require_declared(result.arrays, declared)
        arrays = result.arrays


def _scaled(groups: Groups, scale: float) -> dict[str, ArrayGroup]:
    """Return groups whose float arrays are ones of this magnitude, with the signs that they had."""

    def changed(array: np.ndarray) -> np.ndarray:
        return array if array.dtype != np.float32 else (np.sign(array) * scale).astype(np.float32)

    return {name: {key: changed(array) for key, array in group.items()} for name, group in groups.items()}


def tried_without_torch(setting: Setting) -> Sequence[bytes]:
    """Do two rounds, and return what the second one came to."""
    return bytes_of(two_rounds(setting)[1]) if has_step(setting) else []
