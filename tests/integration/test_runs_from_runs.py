"""Noise stays at chance in a run that begins with another run's model, whatever has happened to the images in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.runs.initial_model import doubts, with_model_file
from fedplcc.runs.kept_roles import ROLES
from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.config.trained_input import UNNAMED_CLASSES
from fedplcc.shared.errors import FedplccError
from tests.support.federation.simulations import simulated

NUM_IMAGES = 120
CHANCE = 0.5 + 4 * 0.5 / np.sqrt(NUM_IMAGES / 5)
"""Four standard deviations above half of the images for testing."""


def write_noise(folder: Path, first: int = 0, last: int = NUM_IMAGES) -> None:
    """Images of noise, each in one of two folders by a coin: nothing can be learnt of one from another."""
    for number in range(first, last):
        rng = np.random.default_rng(number)
        path = folder / str(rng.choice(["heads", "tails"])) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)


def federation(spec: str, rounds: int = 2, **sections: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run": {"name": "noise", "method": "fedavg", "rounds": rounds},
        "model": {"name": "cnn4"},
        "data": {"classes": ["heads", "tails"], "image_size": 16},
        "training": {"local_epochs": 20, "batch_size": 16, "optimizer": "adamw", "learning_rate": 0.003},
        "clients": {"site": {"data": spec}},
    }
    return {**values, **{name: {**values.get(name, {}), **table} for name, table in sections.items()}}


def accuracy(last: dict[str, Any]) -> float:
    return float(last["accuracy"]["mean"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt its noise by heart."""
    folder = tmp_path_factory.mktemp("noise")
    write_noise(folder / "images")
    first = simulated(federation(f"folder:{folder}/images"), folder / "first")
    assert accuracy(first) <= CHANCE
    return folder


def heir(trained: Path, out: str, data: str = "images", model: str = "first", **sections: Any) -> dict[str, Any]:
    run = {"initial_model": f"file:{trained}/{model}/model.safetensors", **sections.pop("run", {})}
    return simulated(federation(f"folder:{trained}/{data}", 1, run=run, **sections), trained / out)


def test_an_heir_learns_nothing_of_the_images_that_it_tests_on(trained: Path) -> None:
    assert accuracy(heir(trained, "second")) <= CHANCE
    write_noise(trained / "grown", last=NUM_IMAGES + 40)
    assert accuracy(heir(trained, "third", "grown", "second")) <= CHANCE
    (runs,) = [json.loads((trained / "third" / "run.json").read_text())["config"]["run"]["initial_runs"]]
    ids = [json.loads((trained / name / "run.json").read_text())["run_id"] for name in ("second", "first")]
    assert runs == ids
    assert {path.name for path in (trained / "third" / ROLES / "site").iterdir()} >= set(ids)
    assert heir(trained, "another seed", run={"seed": 5})["round"] == 1


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"data": {"test_every": 4}}, "data.test_every is 4, and was 5 in run noise-"),
        ({"data": {"validation_every": 4}}, "data.validation_every is 4, and was not set in run noise-"),
        ({"data": {"std": [0.5, 0.5, 0.4]}}, r"data.std is \[0.5, 0.5, 0.4\], and was \[0.5, 0.5, 0.5\] in run noise-"),
        (
            {"clients": {"site": {"data": "IMAGES", "validation_per_class": 4}}},
            r"8 images for testing or validation were trained on in run noise-.*validation_per_class \(not set, now 4\)",
        ),
    ],
)
def test_an_heir_that_divides_images_in_another_way_is_refused(
    trained: Path, tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    table = sections.get("clients", {}).get("site")
    if table:
        table["data"] = f"folder:{trained}/images"
    values = federation(
        f"folder:{trained}/images", 1, run={"initial_model": f"file:{trained}/first/model.safetensors"}, **sections
    )
    with pytest.raises(FedplccError, match=said):
        simulated(values, tmp_path / "out")


def test_images_that_change_sides_between_two_runs_are_refused(trained: Path, tmp_path: Path) -> None:
    for path in sorted((trained / "images").rglob("*.png")):
        other = tmp_path / "moved" / path.parent.name / f"{(int(path.stem) + 1) % NUM_IMAGES:04d}.png"
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, other)
    values = federation(f"folder:{tmp_path}/moved", 1, run={"initial_model": f"file:{trained}/first/model.safetensors"})
    with pytest.raises(FedplccError, match=r"were trained on in run noise-.* changed: the data specification"):
        simulated(values, tmp_path / "out")


def test_a_model_of_no_known_run_is_told_of_and_taken(trained: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copy(trained / "first" / "model.safetensors", tmp_path / "model.safetensors")
    values = federation(f"folder:{trained}/images", 1, run={"initial_model": f"file:{tmp_path}/model.safetensors"})
    assert simulated(values, tmp_path / "out")["round"] == 1
    said = capsys.readouterr().err.replace("\n", " ")
    assert "nobody says which runs trained the first model" in said
    assert "its outputs are taken in the order of data.classes" in said
    known = with_model_file(parse_federation({**values, "run": {**values["run"], "initial_runs": []}}))
    assert known.config.run.initial_runs == ()
    assert doubts(known) == (UNNAMED_CLASSES,)
    named = {**values["run"], "initial_classes": ["heads", "tails"]}
    assert doubts(with_model_file(parse_federation({**values, "run": named}))) == ()


def test_an_adapted_models_description_names_its_classes(trained: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.safetensors"
    shutil.copy(trained / "first" / "model.safetensors", site)
    shutil.copy(trained / "first" / "run.json", f"{site}.json")
    other = federation("folder:none", run={"initial_model": f"file:{site}"}, data={"classes": ["tails", "heads"]})
    assert with_model_file(parse_federation(other)).config.run.initial_classes == ("heads", "tails")


def test_an_heir_of_another_size_is_told_of(trained: Path) -> None:
    run = {"initial_model": f"file:{trained}/first/model.safetensors"}
    values = federation(f"folder:{trained}/images", 1, run=run, data={"image_size": 24})
    (doubt,) = doubts(with_model_file(parse_federation(values)))
    assert doubt.startswith("data.image_size is 24, and was 16 in run noise-")
