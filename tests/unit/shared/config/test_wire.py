"""[wire]: in the hash where it is set alone, and refused where a difference has no base or a claim says nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation.numpy_client import a_document


def test_the_default_is_in_no_hash_and_another_precision_is() -> None:
    plain = parse_run_config(a_document())
    assert parse_run_config(a_document(wire={"precision": "float32"})).canonical_json == plain.canonical_json
    assert "wire" not in plain.canonical_json
    hashes = {parse_run_config(a_document(wire={"precision": each})).hash for each in ("bfloat16", "int8")}
    assert len(hashes | {plain.hash}) == 3


@pytest.mark.parametrize(
    ("method", "sections", "why"),
    [
        ("classsums", {}, "they keep theirs"),
        ("feddyn", {}, "begin with another model"),
        ("creff", {}, "begin with another model"),
        ("fedavg", {"method": {"global_average": "ema", "average_decay": 0.5}}, "begin with another model"),
        (
            "fedproto",
            {"privacy": {"clip": 1.0, "noise": 1.0, "claim": "prototypes", "release_every": 1}},
            "no claim of",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_the_key(method: str, sections: dict[str, Any], why: str) -> None:
    document = {**a_document(method), **sections}
    parse_run_config(document)
    with pytest.raises(InvalidConfig, match=why) as refused:
        parse_run_config({**document, "wire": {"precision": "int8"}})
    assert "wire.precision" in str(refused.value)


def test_another_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidConfig, match="bfloat16"):
        parse_run_config(a_document(wire={"precision": "int4"}))
