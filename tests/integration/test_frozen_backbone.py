"""Above a frozen backbone a run ends in one set of bytes, simulated, cut short or deployed; no backbone travels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fedplcc
from fedplcc.command.all_commands import app
from fedplcc.interruption import Interrupted
from fedplcc.models.whole_model import write_whole_model
from fedplcc.shared.config.tables.model import ModelSection, TimmOptions
from fedplcc.shared.errors import WeightsMissing
from fedplcc.shared.tensors import from_bytes
from fedplcc.trainer.models import build_model
from fedplcc.trainer.models.timm_backbone import timm_model
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support import present
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation
from tests.support.federation.simulations import hashed, simulated
from tests.support.later import later

timm = later("timm")

pytestmark = pytest.mark.slow

MODEL = "timm:test_resnet"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host's store with one backbone."""
    torch.manual_seed(3)
    made: Any = timm.create_model(MODEL.removeprefix("timm:"), num_classes=0)
    folder = tmp_path_factory.mktemp("weights")
    arrays = {name: tensor.numpy() for name, tensor in made.state_dict().items()}
    WeightsStore(folder).add(arrays, name="tiny", model=MODEL, source=Source(place="here"))
    return folder


@pytest.fixture(autouse=True)
def host(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and simulations find the store."""
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(weights))


def a_document(data: Path, weights: Path, method: str, train: str = "head") -> dict[str, Any]:
    known = WeightsStore(weights).find("tiny")
    assert known is not None
    model = {"name": MODEL, "weights": "tiny", "weights_sha256": known.sha256, "options": {"hidden_dim": 8}}
    return tiny_federation.document(data, method, run={"rounds": 2}, model=model, training={"train": train})


@pytest.fixture(scope="module")
def deployed(data: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunControl]:
    """An aggregator and two trainers, each a process of its own."""
    with Federation(tmp_path_factory.mktemp("deployed")) as federation:
        federation.start_aggregator()
        for client in tiny_federation.CLIENTS:
            trainer = federation.trainer(
                f"trainer-{client}", client, f"npz:{data / client}.npz", state_dir=federation.folder / client
            )
            trainer.environment = {"FEDPLCC_WEIGHTS_DIR": str(weights)}
            trainer.start()
        control = RunControl(federation.address, tls=federation.operator_tls)
        yield control
        control.close()


@pytest.mark.parametrize(("method", "train"), [("fedplcc", "head"), ("classsums", "head"), ("fedavg", "last:1")])
def test_simulated_again_and_deployed_it_ends_in_the_same_bytes(
    method: str, train: str, data: Path, weights: Path, deployed: RunControl, tmp_path: Path
) -> None:
    (weights / "features.sqlite").unlink(missing_ok=True)
    values = a_document(data, weights, method, train)
    if method == "fedavg":
        values |= {"data": {**values["data"], "validation_every": 3}, "evaluation": {"joining": True}}
    simulated(values, tmp_path / "first")
    assert (weights / "features.sqlite").exists()
    simulated(values, tmp_path / "known")
    assert hashed(tmp_path / "known") == hashed(tmp_path / "first")
    assert [*deployed.run_to_end(values)] == (tmp_path / "first" / "metrics.jsonl").read_text().splitlines()
    names = set(from_bytes((tmp_path / "first" / "model.safetensors").read_bytes()))
    whole = {f"backbone.{name}" for name in timm.create_model(MODEL.removeprefix("timm:"), num_classes=0).state_dict()}
    assert {"classifier.weight", "classifier.bias"} <= names
    assert not whole <= names
    assert bool(whole & names) == (train != "head")


@pytest.mark.parametrize(
    "train", ["head", "all", *(pytest.param(each, marks=pytest.mark.full) for each in ("norm", "lora", "last:1"))]
)
def test_what_is_trained_says_what_joining_is_worth_and_is_the_same_bytes(
    train: str, data: Path, weights: Path, tmp_path: Path
) -> None:
    values = a_document(data, weights, "fedavg", train)
    values["data"] = {**values["data"], "validation_every": 3}
    simulated(values, tmp_path / "plain")
    last = simulated({**values, "evaluation": {"joining": True}}, tmp_path / "joining")
    for name in tiny_federation.CLIENTS:
        gain = last["accuracy_local"][name] - last["accuracy_alone"][name]
        assert last["joining"][name] == pytest.approx(gain)
    assert hashed(tmp_path / "plain")["model.safetensors"] == hashed(tmp_path / "joining")["model.safetensors"]
    first = json.loads((tmp_path / "joining" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["accuracy_alone"]["mean"] is None
    again = simulated({**values, "evaluation": {"joining": True}}, tmp_path / "again")
    assert again == last


def test_a_run_goes_on_after_an_interruption_while_features_are_computed(
    data: Path, weights: Path, tmp_path: Path
) -> None:
    values = a_document(data, weights, "fedplcc")
    simulated(values, tmp_path / "whole")
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    (weights / "features.sqlite").unlink()
    with pytest.raises(Interrupted):
        simulated(values, tmp_path / "cut", stop)
    simulated(values, tmp_path / "cut")
    assert hashed(tmp_path / "cut") == hashed(tmp_path / "whole")


def test_what_a_run_leaves_is_used_where_the_backbone_is_and_nowhere_else(
    data: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(a_document(data, weights, "fedavg"), tmp_path / "run")
    model = fedplcc.load_model(tmp_path / "run")
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, len(tiny_federation.CLASSES))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["model"]["weights"] == "tiny"
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(tmp_path / "none"))
    with pytest.raises(
        WeightsMissing, match=r"no backbone 'tiny' .*; keep it with: fedplcc weights add .* --name tiny"
    ):
        fedplcc.load_model(tmp_path / "run")


def _check_it_is_kept_as_weights(run: Path, train: str, features: torch.Tensor, weights: Path) -> None:
    for what in (run, run / "model.safetensors", run / "model-whole.safetensors"):
        answer = CliRunner().invoke(app, ["weights", "add", str(what), "--weights-dir", str(weights)])
        if train == "head":
            assert "trained a head alone: its backbone is 'tiny', as it was before" in answer.stderr
            continue
        assert answer.exit_code == 0, answer.output
        run_id = json.loads((run / "run.json").read_text())["run_id"]
        kept = present(WeightsStore(weights).find(run_id))
        assert (kept.model, kept.runs) == (MODEL, (run_id,))
        consent = Consent(weights=WeightsStore(weights))
        section = ModelSection(name=MODEL, options={"hidden_dim": 0}, weights=run_id, weights_sha256=kept.sha256)
        begun: Any = build_model(section, 3, 32, 0, consent=consent).eval()
        x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(begun.features(x), features, atol=1e-5, rtol=1e-4)


@pytest.mark.full
def test_a_file_for_other_programs_has_the_backbone(data: Path, weights: Path, tmp_path: Path) -> None:
    """The command compares its answers with torch's."""
    simulated(a_document(data, weights, "fedavg"), tmp_path / "run")
    answer = CliRunner().invoke(app, ["model", "export", str(tmp_path / "run"), "--onnx", str(tmp_path / "whole.onnx")])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("train", ["head", "last:1", "lora"])
def test_a_fetched_model_is_made_whole_where_the_backbone_is(
    train: str, data: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    simulated(a_document(data, weights, "fedavg", train), run)
    path = write_whole_model(run)
    whole, trained = from_bytes(path.read_bytes()), from_bytes((run / "model.safetensors").read_bytes())
    known = WeightsStore(weights).find("tiny")
    assert known is not None
    backbone = {f"backbone.{name}": each.numpy() for name, each in WeightsStore(weights).load(known.sha256).items()}
    plain = {name: each for name, each in trained.items() if "parametrizations" not in name}
    assert whole.keys() == {**backbone, **plain}.keys()
    for name, expected in ({**backbone, **plain} if train != "lora" else plain).items():
        np.testing.assert_array_equal(whole[name], expected)
    everything: Any = timm_model(MODEL.removeprefix("timm:"), 3, 32, TimmOptions(hidden_dim=8)).eval()
    everything.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in whole.items()})
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(everything(x), fedplcc.load_model(run)(x), atol=1e-5, rtol=1e-4)
    _check_it_is_kept_as_weights(run, train, everything.backbone(x), weights)
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(tmp_path / "none"))
    with pytest.raises(WeightsMissing, match=f"no backbone 'tiny' of SHA-256 {known.sha256}"):
        write_whole_model(run)
