"""The forms in which a configuration names the model that a run begins with."""

from __future__ import annotations

import pytest

from fedplcc.shared.config.initial_model import ModelBlob, ModelFile, ModelOfRun, parse_initial_model
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation.numpy_client import a_document

SHA256 = "ab" * 32


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("file:models/a b.safetensors", ModelFile("models/a b.safetensors")),
        ("file:/models/model", ModelFile("/models/model")),
        ("file:C:\\model", ModelFile("C:\\model")),
        ("run:digits-1f0c92ab", ModelOfRun("digits-1f0c92ab", None)),
        ("run:digits-1f0c92ab@0", ModelOfRun("digits-1f0c92ab", 0)),
        ("run:a@30", ModelOfRun("a", 30)),
        (f"sha256:{SHA256}", ModelBlob(SHA256)),
    ],
)
def test_every_form_is_read_and_written_alike(text: str, model: object) -> None:
    assert parse_initial_model(text) == model
    assert str(model) == text
    assert parse_run_config(a_document(run={"initial_model": text})).run.initial_model == text


@pytest.mark.parametrize("text", ["model.safetensors", "../run:1/model.safetensors", "C:\\a.safetensors"])
def test_a_safetensors_file_needs_no_prefix_and_is_the_same_with_it(text: str) -> None:
    configs = [parse_run_config(a_document(run={"initial_model": form})) for form in (text, f"file:{text}")]
    assert configs[0] == configs[1]
    assert configs[0].hash == configs[1].hash


@pytest.mark.parametrize(
    "text",
    ["", "file:", "model.pt", "run:", "run:a b", "run:a@", "run:a@-1", "run:a@x", "run:../x", "sha256:12", "blob:x"],
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(a_document(run={"initial_model": text}))
    assert "run.initial_model" in refused.value.detail
    assert "write file:PATH, run:RUN_ID, run:RUN_ID@ROUND or sha256:HEX" in refused.value.detail


def test_the_content_of_an_initial_model_is_part_of_the_hash() -> None:
    plain = parse_run_config(a_document())
    begun = plain.with_initial_model(SHA256)
    assert begun.run.initial_model == f"sha256:{SHA256}"
    assert begun.hash != plain.hash
    assert begun == parse_run_config(a_document(run={"initial_model": f"sha256:{SHA256}"}))
