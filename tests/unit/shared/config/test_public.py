"""`[public]`: named where a method uses it, refused where none does, and in no hash where it is not set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedplcc.shared.config.declared_arrays import declared_arrays, declared_uploads, sent_groups
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods.parts.public import PUBLIC


def document(method: str = "fcclplus", public: dict[str, Any] | None = None, **hyper: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run": {"method": method, "clients": ["a", "b"]},
        "data": {"classes": ["x", "y", "z"]},
        "method": hyper,
    }
    return values if public is None else {**values, "public": public}


def test_groups_have_rows_for_whole_batches() -> None:
    config = parse_run_config(document(public={"data": "cifar10:here", "num_images": 150}))
    schema = {"logits": ("F32", (128, 3)), "similarities": ("F32", (128, 63))}
    assert declared_uploads(config, 4) == declared_arrays(config, 4) == {PUBLIC: schema}
    assert sent_groups(config) == (PUBLIC,)


def test_a_run_without_public_images_declares_nothing() -> None:
    for values in (document("fedavg"), document(kd=1.0, corr=0.0, isd=0.0)):
        config = parse_run_config(values)
        assert (declared_uploads(config, 4), declared_arrays(config, 4), sent_groups(config)) == ({}, {}, ())


def test_a_set_section_is_part_of_the_hash_and_read_back() -> None:
    config = parse_run_config(document(public={"data": "digits:synth"}))
    other = parse_run_config(document(public={"data": "digits:synth", "num_images": 4000}))
    assert config.public.num_images == 5000
    assert config.hash != other.hash
    assert parse_run_config(json.loads(other.canonical_json)) == other


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (document(), "method fcclplus learns from unlabelled images that every client has"),
        (document(public={"num_images": 100}), "name them with public.data"),
        (document("fedavg", {"data": "digits:synth"}), "method fedavg uses no public images here"),
        (
            document(public={"data": "digits:synth"}, corr=0.0, isd=0.0),
            "method fcclplus uses no public images here; leave",
        ),
        (
            document(public={"data": "digits:synth", "num_images": 63}),
            "public.num_images = 63 is less than a batch of 64",
        ),
        (document(public={"data": ""}), "public.data"),
        (document(public={"data": "digits:synth", "num_images": 100_001}), "public.num_images"),
        (document(public={"data": "digits:synth", "images": 3}), "did you mean 'public.num_images'"),
    ],
)
def test_bad_documents_are_refused_with_the_key(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(values)
    assert said in str(refused.value)
