"""A first model from published weights: the same features as the library that published them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, cast

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from fedplcc.models.weights_file import import_weights
from fedplcc.shared.config.run import RunConfig, load_federation
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.tensors import from_bytes, sha256_hex
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
from tests.unit.fedplcc.command.model_calls import called, refused
from tests.unit.trainer.builders import a_config


def a_run(model: str, **options: Any) -> RunConfig:
    """Three classes; torchvision's weights have a thousand."""
    return a_config(model={"name": model, "options": options} if options else {"name": model}, data={"image_size": 32})


def drawn(config: RunConfig) -> Any:
    """The model that a run begins with where it names none."""
    return build_model(config.model, len(config.data.classes), config.data.image_size, config.run.seed)


def imported(path: Path, config: RunConfig) -> Any:
    model = drawn(config)
    load_arrays(model, import_weights(path, config).arrays)
    return model.eval()


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
    suffix: str, nested: bool, tmp_path: Path
) -> None:
    theirs, path, config = resnet18(), tmp_path / f"weights{suffix}", a_run("resnet18")
    if suffix == ".safetensors":
        save_file(theirs.state_dict(), path)
    else:
        names = {f"module.{name}": value for name, value in theirs.state_dict().items()}
        torch.save({"state_dict": names, "epoch": 90} if nested else theirs.state_dict(), path)
    ours = imported(path, config)
    theirs.fc = torch.nn.Identity()
    torch.testing.assert_close(ours.features(images()), theirs(images()), rtol=1e-5, atol=1e-5)
    assert torch.equal(ours.classifier.weight, drawn(config).classifier.weight)
    facts = import_weights(path, config)
    assert facts.drawn == ("classifier.weight", "classifier.bias")
    assert (
        facts.sentence
        == "120 of 122 tensors are the file's; drawn by the run's seed: classifier.weight, classifier.bias"
    )


def test_a_head_of_as_many_classes_is_the_files(tmp_path: Path) -> None:
    torch.manual_seed(5)
    theirs = torchvision.models.resnet18(weights=None, num_classes=3).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    ours = imported(tmp_path / "weights.pt", a_run("resnet18"))
    torch.testing.assert_close(ours(images()), theirs(images()), rtol=1e-5, atol=1e-5)


def test_a_timm_model_has_timms_features_below_its_hidden_layer(tmp_path: Path) -> None:
    torch.manual_seed(5)
    theirs = timm.create_model("test_resnet", num_classes=1000).eval()
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    config = a_run("timm:test_resnet", hidden_dim=24, checkpoint="elsewhere.safetensors")
    facts = import_weights(tmp_path / "weights.safetensors", config)
    assert facts.drawn == ("hidden.0.weight", "hidden.0.bias", "classifier.weight", "classifier.bias")
    cast(Any, theirs).reset_classifier(0)
    ours = drawn(a_run("timm:test_resnet", hidden_dim=24))
    load_arrays(ours, facts.arrays)
    torch.testing.assert_close(ours.eval().backbone(images()), theirs(images()), rtol=1e-5, atol=1e-5)


def test_our_own_model_comes_back_whole(tmp_path: Path) -> None:
    config = a_run("cnn4")
    ours = drawn(config)
    half = {name: value.double() for name, value in ours.state_dict().items()}
    torch.save(half, tmp_path / "weights.pth")
    facts = import_weights(tmp_path / "weights.pth", config)
    assert facts.drawn == ()
    assert all((facts.arrays[name] == value).all() for name, value in state_arrays(ours).items())


class Evil:
    """Code in a file, which would leave a trace."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, (str(Path.cwd() / "evil"), "w"))


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Evil()}, tmp_path / "weights.pth")
    with pytest.raises(InvalidModel, match=r"could run code: save its state_dict\(\) alone"):
        import_weights(tmp_path / "weights.pth", a_run("resnet18"))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no file of weights"),
        (b"no pickle at all", "weights.pth"),
        (pickle.dumps({"epoch": 3}), "weights.pth"),
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(InvalidModel, match=said):
        import_weights(tmp_path / "weights.pth", a_run("resnet18"))
    with pytest.raises(InvalidModel, match="there is no file"):
        import_weights(tmp_path / "nowhere.pth", a_run("resnet18"))


def test_another_architecture_is_named(tmp_path: Path) -> None:
    torch.save(resnet18().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(InvalidModel) as caught:
        import_weights(tmp_path / "weights.pth", a_run("cnn4"))
    assert "is of another architecture than model 'cnn4'" in caught.value.detail
    assert "the file's first is conv1.weight of [64, 3, 7, 7]" in caught.value.detail
    torch.save({"a": torch.tensor([float("nan")])}, tmp_path / "nan.pth")
    with pytest.raises(InvalidModel, match="another architecture"):
        import_weights(tmp_path / "nan.pth", a_run("cnn4"))
    state = resnet18().state_dict()
    state["bn1.running_mean"][0] = torch.nan
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(InvalidModel, match=r"'bn1.running_mean' of the file holds values that are not finite"):
        import_weights(tmp_path / "nan.pth", a_run("resnet18"))


def test_the_command_writes_a_file_that_a_run_begins_with(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        '[run]\nmethod = "fedavg"\nclients = ["a"]\ninitial_model = "file:first.safetensors"\n'
        '[model]\nname = "resnet18"\n[data]\nclasses = ["thin", "thick", "round"]\n'
    )
    torch.save(resnet18().state_dict(), tmp_path / "weights.pth")
    out = tmp_path / "first.safetensors"
    code, printed, said = called("import", tmp_path / "weights.pth", "--config", config, "--out", out, "--json")
    assert code == 0, said
    facts = cast(dict[str, Any], json.loads(printed))
    assert facts["sha256"] == sha256_hex(out.read_bytes())
    assert facts["drawn"] == ["classifier.weight", "classifier.bias"]
    model = drawn(load_federation(config).config)
    load_arrays(model, from_bytes(out.read_bytes()))
    assert "120 of 122 tensors are the file's" in said
    code, sentence = refused("import", config, "--config", config, "--out", out)
    assert code == 2
    assert "holds more than tensors" in sentence or "is no file of weights" in sentence
