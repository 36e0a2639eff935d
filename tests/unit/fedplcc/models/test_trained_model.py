"""A run's folder as a torch model, and what is said of a folder that is none."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fedplcc
from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.models.trained_model import read_trained_model
from fedplcc.shared.errors import FedplccError, InvalidConfig, InvalidModel, StoreUnavailable
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.models import state_arrays
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import write_config


def problem(path: Path, kind: type[FedplccError] = InvalidModel, **options: Path | str) -> str:
    with pytest.raises(kind) as caught:
        read_trained_model(path, **options)  # type: ignore[arg-type]
    assert "\n" not in caught.value.detail
    return caught.value.detail


def config_file(folder: Path, **sections: object) -> Path:
    return write_config(folder / "run.toml", tiny_federation.document(folder, **sections))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "model.safetensors"])
def test_the_model_holds_exactly_the_tensors_of_its_file(ended_runs: Path, name: str) -> None:
    path = ended_runs / "fedplcc" / name
    model = fedplcc.load_model(path)
    assert not model.training
    data = (ended_runs / "fedplcc" / "model.safetensors").read_bytes()
    arrays = from_bytes(data)
    found = state_arrays(model)
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


def test_what_belongs_to_the_model_comes_with_it(ended_runs: Path) -> None:
    folder = ended_runs / "fedplcc"
    trained = read_trained_model(folder, device="cpu")
    manifest = json.loads((folder / "run.json").read_bytes())
    assert trained.config.data.classes == tiny_federation.CLASSES
    assert (trained.run_id, trained.round) == (manifest["run_id"], 2)
    assert trained.title == f"run {manifest['run_id']}, round 2"
    assert trained.sha256 == sha256_hex((folder / "model.safetensors").read_bytes())
    assert (
        len(trained.prototypes)
        == json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["prototypes"]["global"]
    )
    assert not len(read_trained_model(ended_runs / "fedavg").prototypes)


def test_the_first_model_of_a_run_that_shares_none_is_not_taken_for_a_trained_one(
    ended_runs: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(ended_runs / "fedavg", tmp_path / "run"))
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest["config"] |= {"run": {**manifest["config"]["run"], "method": "fedproto"}, "method": {"share_model": False}}
    (folder / "run.json").write_text(json.dumps(manifest))
    said = problem(folder)
    assert said.startswith(
        f"{folder / 'model.safetensors'} is what the run began with: its method, fedproto, shares no"
    )
    assert said.endswith("and what each client trained never left it")


def test_a_model_file_alone_is_read_with_the_runs_configuration_file(ended_runs: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(ended_runs / "fedavg" / "model.safetensors", tmp_path / "global.safetensors"))
    assert f"no run.json beside {path}" in problem(path, InvalidConfig)
    trained = read_trained_model(path, config_file=config_file(tmp_path))
    assert (trained.title, trained.run_id, trained.round) == (str(path), None, None)
    assert trained.config.data.classes == tiny_federation.CLASSES
    assert not len(trained.prototypes)
    assert trained.doubt.startswith(
        f"nobody names the classes of {path}: its outputs are taken in the order of data.classes"
    )


def test_a_round_is_only_said_of_the_very_model_that_the_metrics_name(ended_run: Path) -> None:
    arrays = from_bytes((ended_run / "model.safetensors").read_bytes())
    changed = {name: array + 1 if array.dtype == np.float32 else array for name, array in arrays.items()}
    (ended_run / "model.safetensors").write_bytes(to_bytes(changed))
    assert read_trained_model(ended_run).round is None
    (ended_run / "metrics.jsonl").write_text("nonsense\n")
    assert read_trained_model(ended_run).round is None


def test_the_documented_lines_load_a_model(ended_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "results.md").read_text()
    begin, end = "<!-- load_model: tested -->", "<!-- /load_model -->"
    assert begin in text, f"docs/results.md shows how to load a model between {begin} and {end}"
    lines = text.partition(begin)[2].partition(end)[0].strip().removeprefix("```python").removesuffix("```").strip()
    assert len([line for line in lines.splitlines() if line]) == 3
    shutil.copytree(ended_runs / "fedplcc", tmp_path / "fedplcc-runs" / "digits")
    monkeypatch.chdir(tmp_path)
    names: dict[str, torch.Tensor] = {}
    exec(lines, names)
    assert names["logits"].shape == (1, len(tiny_federation.CLASSES))


# Mistakes


def test_a_folder_that_is_not_there_is_told_the_nearest_run(
    ended_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no digits; name the folder of a run" in problem(Path("digits"))
    shutil.copytree(ended_runs / "fedplcc", tmp_path / "fedplcc-runs" / "digits")
    assert "did you mean fedplcc-runs/digits?" in problem(Path("digits"))
    assert "holds no model.safetensors; did you mean fedplcc-runs/digits?" in problem(Path("fedplcc-runs"))


def test_a_run_that_goes_on_has_left_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "federation.json").write_text("{}")
    (tmp_path / "state").mkdir()
    assert "has not ended and has left no model yet" in problem(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"of the round before the crash")
    assert "has not ended and has left no model yet" in problem(tmp_path)


def _damaged(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _not_finite(folder: Path) -> None:
    arrays = from_bytes((folder / "model.safetensors").read_bytes())
    name = "classifier.bias"
    (folder / "model.safetensors").write_bytes(to_bytes({**arrays, name: np.full_like(arrays[name], np.nan)}))


def _of_a_wider_model(folder: Path) -> None:
    prototypes = PrototypeSet.of(np.ones((1, 3)), [0], [1.0])
    (folder / "prototypes.safetensors").write_bytes(prototypes_to_bytes(prototypes))


def _of_more_classes(folder: Path) -> None:
    found = prototypes_from_bytes((folder / "prototypes.safetensors").read_bytes())
    ids = np.full_like(found.class_ids, 9)
    (folder / "prototypes.safetensors").write_bytes(
        prototypes_to_bytes(PrototypeSet(found.vectors, ids, found.weights, found.group_ids))
    )


def _other_configuration(folder: Path) -> None:
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest["config"]["model"] = {"name": "cnn5"}
    (folder / "run.json").write_text(json.dumps(manifest))


def _of_a_later_version(folder: Path) -> None:
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest["config"]["model"]["colour"] = "blue"
    (folder / "run.json").write_text(json.dumps(manifest))


DAMAGE: dict[str, tuple[Callable[[Path], object], type[FedplccError], str]] = {
    "no model": (lambda folder: (folder / "model.safetensors").unlink(), InvalidModel, "holds no model.safetensors"),
    "no run.json": (lambda folder: (folder / "run.json").unlink(), InvalidModel, "has not ended"),
    "no safetensors": (
        _damaged("model.safetensors", b"PK\x03\x04"),
        InvalidModel,
        "is no safetensors file of a run's model: the blob",
    ),
    "cut off": (_damaged("model.safetensors", b"\x10\0\0\0\0\0\0\0{}"), InvalidModel, "is no safetensors file"),
    "not finite": (_not_finite, InvalidModel, "'classifier.bias' holds values that are not finite"),
    "another model": (_other_configuration, InvalidModel, "tensors are of another model"),
    "no JSON": (_damaged("run.json", b"\xff{"), InvalidConfig, "run.json is no run's"),
    "another JSON": (_damaged("run.json", b'{"config": 3}'), InvalidConfig, "it has no configuration"),
    "an unknown key": (_of_a_later_version, InvalidConfig, "run.json: unknown key 'model.colour'"),
    "no prototypes": (_damaged("prototypes.safetensors", b""), InvalidModel, "is no file of prototypes"),
    "wider prototypes": (_of_a_wider_model, InvalidModel, "take both files from one run"),
    "prototypes of more classes": (_of_more_classes, InvalidModel, "take both files from one run"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_wrong_with_a_folder_is_one_sentence_that_names_the_file(ended_run: Path, what: str) -> None:
    damage, kind, sentence = DAMAGE[what]
    damage(ended_run)
    found = problem(ended_run, kind)
    assert sentence in found
    assert str(ended_run) in found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"classes": ["wide", "thin", "plain"]}, "data.classes are thin, wide, plain in run "),
        ({"mean": [0.2, 0.5, 0.5]}, "data.mean is [0.2, 0.5, 0.5], and was [0.5, 0.5, 0.5] in run "),
        ({"image_size": 16}, "data.image_size is 16, and was 32 in run "),
    ],
)
def test_a_configuration_file_that_is_not_the_runs_is_refused(
    ended_run: Path, tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    assert said in problem(ended_run, InvalidConfig, config_file=config_file(tmp_path, data=data))
    known = json.loads((ended_run / "run.json").read_bytes())
    facts = {key: known[key] for key in ("run_id", "method", "config")}
    digests = dict.fromkeys(("model_sha256", "run_model_sha256"), "0" * 64)
    (ended_run / "model.safetensors.json").write_text(json.dumps({**facts, **digests}))
    (ended_run / "run.json").unlink()
    assert said in problem(ended_run / "model.safetensors", InvalidConfig, config_file=config_file(tmp_path, data=data))


def test_a_configuration_file_that_does_not_fit_the_model_is_refused(ended_run: Path, tmp_path: Path) -> None:
    assert "cannot read" in problem(ended_run, InvalidConfig, config_file=tmp_path / "none.toml")
    for name in ("run.json", "federation.json"):
        (ended_run / name).unlink()
    other = config_file(tmp_path, data={"classes": ["thin", "wide"]})
    assert "tensor 'classifier.weight' is float32[3, 128], but the model has float32[2, 128]" in problem(
        ended_run, config_file=other
    )


OWN_MODEL = """
from pathlib import Path
from typing import Any
from fedplcc.trainer.models.cnn import CNN

Path("imported").touch()

def make(num_classes, image_size):
    return CNN(num_classes, image_size, maps=(32, 64))
"""


def test_code_that_only_the_runs_folder_names_is_not_run(
    ended_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "their_model:make"
    config = config_file(tmp_path, model={"name": name})
    manifest = json.loads((ended_run / "run.json").read_bytes())
    manifest["config"]["model"] = {"name": name}
    (ended_run / "run.json").write_text(json.dumps(manifest))
    monkeypatch.delitem(sys.modules, "their_model", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_model.py").write_text(OWN_MODEL)

    sentence = problem(ended_run)
    assert f"{ended_run / 'run.json'} names the model {name!r}, which would import 'their_model'" in sentence
    assert "--config FILE" in sentence
    with pytest.raises(InvalidModel, match="config= of load_model"):
        fedplcc.load_model(ended_run)
    for command, *options in (
        ["predict", "images"],
        ["evaluate", "--data", "digits:synth"],
        ["export", "--onnx", "m.onnx"],
    ):
        result = CliRunner().invoke(app, ["model", command, str(ended_run), *options])
        assert (result.exit_code, result.stderr) == (ExitCode.USAGE, f"fedplcc: {sentence}\n")
    assert not Path("imported").exists()

    model = fedplcc.load_model(ended_run, config=config)
    assert Path("imported").exists()
    assert state_arrays(model).keys() == from_bytes((ended_run / "model.safetensors").read_bytes()).keys()


@pytest.mark.parametrize("name", ["prototypes.safetensors", "model.safetensors"])
def test_a_file_without_an_end_in_the_folder_of_somebody_else_is_not_read(ended_run: Path, name: str) -> None:
    (ended_run / name).unlink()
    os.mkfifo(ended_run / name)
    assert "no regular file" in problem(ended_run, StoreUnavailable)


def test_a_file_that_may_not_be_read_is_named(ended_run: Path) -> None:
    (ended_run / "prototypes.safetensors").unlink()
    (ended_run / "prototypes.safetensors").mkdir()
    assert "Is a directory" in problem(ended_run, StoreUnavailable)
