"""Bytes of a round from a configuration and a layout: cohorts, clients of which nothing is known, and what was measured."""

from __future__ import annotations

from typing import Any

from fedplcc.shared.config.round_bytes import ModelLayout, measured_bytes, round_bytes
from fedplcc.shared.tensors import prototypes_to_bytes
from fedplcc.shared.types import PrototypeSet
from tests.support.federation.numpy_client import a_config

LAYOUT = ModelLayout(model_bytes=1000, sent_bytes=900, feature_dim=8, encoded_bytes=1000)


def config(**run: Any) -> Any:
    return a_config(run=run)


def test_a_client_that_sat_out_receives_the_model_it_starts_from_and_the_new_one() -> None:
    whole = round_bytes(config(method="fedavg"), LAYOUT, [10, 10, 10, 10])
    assert (whole.clients, whole.down, whole.first_down, whole.up, whole.is_bound) == (4, 1000, 2000, 900, False)
    assert (whole.all_up, whole.all_down) == (3600, 4000)
    drawn = round_bytes(config(method="fedavg", cohort_size=2), LAYOUT, [10, 10, 10, 10])
    assert (drawn.clients, drawn.down, drawn.all_down, drawn.is_bound) == (2, 2000, 4000, True)


def test_a_client_that_evaluates_only_receives_the_model_and_sends_nothing() -> None:
    found = round_bytes(config(method="fedavg"), LAYOUT, [10, 10, None])
    assert (found.clients, found.all_up, found.all_down, found.is_bound) == (2, 1800, 3000, False)


def test_an_encoded_model_counts_its_tensors_rows_and_beginning() -> None:
    schema = {"w": ("F32", (4, 3, 2)), "bias": ("F32", (4,)), "steps": ("I64", ())}
    raw = 8 + 4 * 4 + 8
    for precision, of_w in (("bfloat16", 24 * 2), ("int8", 4 * 4 + 24)):
        layout = ModelLayout.of(schema, ["bias"], 8, precision)  # type: ignore[arg-type]
        assert (layout.sent_bytes, layout.encoded_bytes) == (raw - 16 + of_w, raw + of_w)
        moved = round_bytes(a_config(wire={"precision": precision}), layout, [10, 10])
        assert (moved.up, moved.down, moved.first_down) == (
            raw - 16 + of_w,
            raw + of_w,
            layout.model_bytes + raw + of_w,
        )
        drawn = round_bytes(a_config(run={"cohort_size": 1}, wire={"precision": precision}), layout, [10, 10])
        assert drawn.down == layout.model_bytes + raw + of_w, "whoever sat out has no base"


def test_prototypes_are_bounded_by_samples_and_without_them_by_what_an_update_may_have() -> None:
    known = round_bytes(config(method="fedplcc"), LAYOUT, [100, 10])
    unknown = round_bytes(config(method="fedplcc"), LAYOUT, [0, 0])
    num_classes = len(config(method="fedplcc").data.classes)
    rows = 100 // 2 + num_classes
    most = PrototypeSet.of([[0.0] * 8] * rows, [0] * rows, [1.0] * rows)
    assert 0 <= known.prototypes_up - len(prototypes_to_bytes(most)) <= 64
    assert known.is_bound
    assert known.prototypes_up < unknown.prototypes_up
    assert known.all_up < 2 * (known.up + known.prototypes_up), "the smaller client sends fewer"


def test_a_round_was_measured_where_a_client_tells() -> None:
    clients = {
        "ann": {"sent_bytes": 5.0, "received_bytes": 7.0, "evaluation_received_bytes": 2.0},
        "bob": {"sent_bytes": 1.0},
        "cid": {"train_seconds": 3.0},
        "eve": {"evaluation_received_bytes": 2.0},
    }
    assert measured_bytes({"round": 3, "clients": clients}) == (6, 11), "eve evaluates only"
    assert measured_bytes({"round": 3, "clients": {"cid": clients["cid"]}}) is None
    assert measured_bytes({"round": 0}) is None
