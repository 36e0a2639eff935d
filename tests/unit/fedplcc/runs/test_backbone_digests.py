"""A configuration that names a backbone gets its SHA-256 from this host's store, and its run begins with it everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.models.trained_model import read_trained_model
from fedplcc.runs.configuration import Overrides, read_as_it_stands, read_federation
from fedplcc.runs.configuration_check import judge
from fedplcc.runs.initial_model import doubts
from fedplcc.shared.config.run import parse_federation, read_document
from fedplcc.shared.errors import InvalidConfig, WeightsMissing
from fedplcc.shared.tensors import from_bytes
from fedplcc.trainer.weights.store import Backbone, Source, WeightsStore
from tests.support import present
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.support.later import later

timm = later("timm")

MODEL = {"name": "timm:test_resnet", "weights": "net"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(tmp_path / "weights"))
    made: Any = timm.create_model("test_resnet", num_classes=0)
    arrays = {name: value.numpy() for name, value in made.state_dict().items()}
    return WeightsStore(tmp_path / "weights").add(
        arrays,
        name="net",
        model="timm:test_resnet",
        source=Source(place="here", normalised=((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
    )


def document(tmp_path: Path, **model: Any) -> dict[str, Any]:
    tiny_federation.write_data(tmp_path, num_per_class=4)
    return tiny_federation.document(tmp_path, "fedavg", run={"rounds": 1}, model={**MODEL, **model})


def test_the_digest_is_filled_in_from_the_store_of_this_host(tmp_path: Path, kept: Backbone) -> None:
    values = document(tmp_path)
    file = write_config(tmp_path / "run.toml", {**values, "model": MODEL})
    assert read_federation(file).config.model.weights_sha256 == kept.sha256
    assert read_as_it_stands(file).config.model.weights_sha256 == kept.sha256
    verdict = judge(read_document(file))
    assert verdict.federation is not None
    assert verdict.federation.config.model.weights_sha256 == kept.sha256
    other = Overrides(assignments=(f"model.weights_sha256={'0' * 64}",))
    assert read_federation(file, other).config.model.weights_sha256 == "0" * 64, "what is written stays"


def test_pixels_that_the_weights_have_not_learnt_from_are_said(tmp_path: Path, kept: Backbone) -> None:
    values = document(tmp_path)
    (doubt,) = doubts(read_federation(write_config(tmp_path / "run.toml", values)))
    assert doubt.endswith(
        "have learnt from pixels of mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]: write those"
    )
    values["data"] |= {"mean": [0.48, 0.46, 0.41], "std": [0.229, 0.224, 0.225]}
    assert doubts(read_federation(write_config(tmp_path / "run.toml", values))) == ()


def test_a_run_of_weights_that_this_host_lacks_is_refused_with_the_command(tmp_path: Path, kept: Backbone) -> None:
    values = document(tmp_path, weights="other")
    file = write_config(tmp_path / "run.toml", {**values, "model": {"name": "timm:test_resnet", "weights": "other"}})
    with pytest.raises(InvalidConfig, match=r"fedplcc weights add FILE\|PACKAGE --name other"):
        read_federation(file)
    assert "fedplcc weights add FILE|PACKAGE --name other" in judge(read_document(file)).problems[0]


def test_a_clients_own_kind_of_model_gets_its_digest_too(tmp_path: Path, kept: Backbone) -> None:
    values = {**tiny_federation.document(tmp_path, "fedproto"), "method": {"share_model": False}}
    values["clients"]["left"]["model"] = {"name": "timm:test_resnet", "weights": "net"}
    federation = present(judge(values).federation)
    model = present(federation.clients["left"].model)
    assert model.weights_sha256 == kept.sha256


@pytest.mark.slow
@pytest.mark.parametrize("train", ["all", "head"])
def test_a_simulation_begins_with_the_weights_and_in_no_other_way(tmp_path: Path, kept: Backbone, train: str) -> None:
    values = {**document(tmp_path, weights_sha256=kept.sha256)}
    values["training"] = {**values["training"], "train": train, "learning_rate": 1e-9}
    tensors = tmp_path / "weights" / f"{kept.sha256}.safetensors"
    tensors.rename(tmp_path / "away")
    with pytest.raises(WeightsMissing, match=f"this site has no backbone 'net' of SHA-256 {kept.sha256}"):
        simulated(values, tmp_path / "refused")
    (tmp_path / "away").rename(tensors)
    simulated(values, tmp_path / "one")
    arrays = from_bytes((tmp_path / "one" / "model.safetensors").read_bytes())
    weights = WeightsStore(tmp_path / "weights").load(kept.sha256)
    travelled = {name.removeprefix("backbone.") for name in arrays if name.startswith("backbone.")}
    assert travelled == (set(weights) if train == "all" else set())
    for name in travelled & {name for name in weights if name.endswith("weight")}:
        np.testing.assert_allclose(arrays[f"backbone.{name}"], weights[name].numpy(), atol=1e-6)
    assert read_trained_model(tmp_path / "one")
    simulated(values, tmp_path / "two")
    assert hashed(tmp_path / "two") == hashed(tmp_path / "one")


def test_clients_with_the_same_data_are_said(tmp_path: Path) -> None:
    """A line that was copied and not changed gives a domain the weight of two."""
    values = {"run": {"name": "x", "method": "fedavg", "rounds": 3}, "data": {"classes": ["a", "b"]}}
    tables = {name: {"data": "folder:/scans"} for name in ("north", "south")}
    (doubt,) = doubts(parse_federation({**values, "model": {"name": "cnn4"}, "clients": tables}))
    assert doubt.startswith("north, south have the same data, folder:/scans: its images count once for each of them")
    tables["south"] = {"data": "folder:/others"}
    assert doubts(parse_federation({**values, "model": {"name": "cnn4"}, "clients": tables})) == ()
