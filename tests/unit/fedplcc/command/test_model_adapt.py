"""`fedplcc model adapt`, what other commands make of its file, and the mistakes that one can make with it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedplcc
from fedplcc.models.trained_model import read_trained_model
from fedplcc.shared.tensors import from_bytes, prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.models import build_model, state_arrays
from tests.support.federation import tiny_federation
from tests.unit.fedplcc.command.model_calls import called, refused

DIM = 512


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `run fetch` leaves of a run whose model has BatchNorm layers, and data of two sites beside it."""
    folder = tmp_path_factory.mktemp("adapt")
    tiny_federation.write_data(folder)
    values = tiny_federation.document(folder, "fedplcc", model={"name": "resnet10", "stem": "cifar3x3"})
    config = tiny_federation.federation(values).config
    model = to_bytes(state_arrays(build_model(config.model, 3, 32, 0)))
    prototypes = prototypes_to_bytes(PrototypeSet.of(np.eye(3, DIM), [0, 1, 2], [1.0] * 3))
    run = folder / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(model)
    (run / "prototypes.safetensors").write_bytes(prototypes)
    line = {"round": 3, "model_sha256": sha256_hex(model)}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    manifest = {"run_id": "r1", "method": "fedplcc", "config": json.loads(config.canonical_json)}
    (run / "run.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def run(fetched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fetched / "run", tmp_path / "run"))


def adapted(run: Path, data: str, *arguments: object) -> tuple[Path, dict[str, Any]]:
    """The file that a call writes, and what it says."""
    code, out, error = called("adapt", run, "--data", data, "--device", "cpu", "--json", *arguments)
    assert code == 0, error
    said = json.loads(out)
    return Path(said["file"]), said


def test_statistics_alone_change_and_the_file_is_used_like_a_runs(fetched: Path, run: Path) -> None:
    data = f"npz:{fetched / 'left.npz'}"
    before = (run / "model.safetensors").read_bytes()
    file, said = adapted(run, data)
    assert file.parent == run.resolve()
    assert (run / "model.safetensors").read_bytes() == before
    old, new = from_bytes(before), from_bytes(file.read_bytes())
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert changed == {name for name in old if name.endswith(("running_mean", "running_var"))}
    assert said == {
        "file": str(file),
        "calibrated_on": data,
        "calibration_images": 24,
        "run_model_sha256": sha256_hex(before),
        "model_sha256": sha256_hex(file.read_bytes()),
        "num_unreadable": 0,
    }
    trained = read_trained_model(file, device="cpu")
    assert (trained.run_id, trained.round) == ("r1", 3)
    assert trained.title == f"run r1, round 3, statistics of {data}"
    assert len(trained.prototypes) == 3
    loaded = state_arrays(fedplcc.load_model(file))
    assert all(np.array_equal(loaded[name], new[name]) for name in new)


def test_an_evaluation_tells_the_adaptation_and_lies_beside_that_of_the_runs_model(fetched: Path, run: Path) -> None:
    data = f"npz:{fetched / 'left.npz'}"
    file, _ = adapted(run, data)
    reports = []
    for model in (run, file):
        code, out, _ = called("evaluate", model, "--data", data, "--device", "cpu", "--json")
        assert code == 0
        reports.append(json.loads(out))
    assert "calibrated_on" not in reports[0]
    assert reports[1]["calibrated_on"] == data
    assert reports[1]["run_model_sha256"] == reports[0]["model_sha256"]
    folders = [Path(report["directory"]) for report in reports]
    assert folders[1] == folders[0].parent / file.stem / folders[0].name


def test_a_folder_without_class_folders_gives_the_statistics_of_its_images(
    fetched: Path, run: Path, tmp_path: Path
) -> None:
    """Labels are not looked at: neither their names, nor whether there are any."""
    with np.load(fetched / "left.npz") as arrays:
        images, labels = arrays["x_train"], arrays["y_train"]
    (tmp_path / "scans").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "scans" / f"{number:02}.png")
    (tmp_path / "scans" / "broken.png").write_bytes(b"x")
    (tmp_path / "scans" / ".hidden").write_text("")
    np.savez(
        tmp_path / "other.npz", x_train=images, y_train=labels, x_test=images, y_test=labels, classes=["x", "y", "z"]
    )
    file, said = adapted(run, f"folder:{tmp_path / 'scans'}", "--out", tmp_path / "a.safetensors")
    assert (said["calibration_images"], said["num_unreadable"]) == (24, 1)
    other, _ = adapted(run, f"npz:{tmp_path / 'other.npz'}", "-o", tmp_path / "b.safetensors")
    labelled, _ = adapted(run, f"npz:{fetched / 'left.npz'}")
    assert file.read_bytes() == other.read_bytes() == labelled.read_bytes()


def test_a_clients_subset_is_that_of_its_trainer(fetched: Path, run: Path, tmp_path: Path) -> None:
    data = f"npz:{fetched / 'left.npz'}"
    whole, _ = adapted(run, data)
    models = [whole.read_bytes()]
    for client in ("left", "right"):
        subset = ("--client", client, "--samples-per-class", 3, "--validation-per-class", 2)
        file, said = adapted(run, data, *subset, "--out", tmp_path / f"{client}.safetensors")
        assert said["calibration_images"] == 9
        models.append(file.read_bytes())
    share, said = adapted(run, data, "--client", "left", "--fraction", 0.375, "-o", tmp_path / "share.safetensors")
    assert said["calibration_images"] == 9, "three of the eight images of each class"
    few, _ = adapted(run, data, "--client", "left", "--samples-per-class", 3, "-o", tmp_path / "few.safetensors")
    assert share.read_bytes() == few.read_bytes(), "the same images, counted or shared out"
    assert len(set(models)) == 3
    code, error = refused("adapt", run, "--data", data, "--samples-per-class", 3, "--fraction", 0.5)
    assert (code, "set at most one of 'samples_per_class' and 'fraction'" in error) == (2, True)
    code, error = refused("adapt", run, "--data", data, "--client", "left", "--fraction", 1.5)
    assert (code, "--fraction 1.5 is no share of a client's images: above 0, and 1 at most" in error) == (2, True)
    code, error = refused("adapt", run, "--data", data, "--samples-per-class", 3)
    assert code == 2
    assert error == "fedplcc: a client's subset is drawn by its name: name the client with --client\n"


def test_a_client_has_the_subset_that_the_runs_folder_tells(fetched: Path, run: Path, tmp_path: Path) -> None:
    data = f"npz:{fetched / 'left.npz'}"

    def of(client: str, *given: object, into: str = "found") -> bytes:
        return adapted(run, data, "--client", client, *given, "-o", tmp_path / f"{into}.safetensors")[0].read_bytes()

    few = ("--samples-per-class", 3)
    expected = {"left": of("left", *few, "--validation-per-class", 2), "right": of("right", "--fraction", 0.5)}
    of_left, of_right = of("left", "--fraction", 0.25, "--validation-per-class", 2), of("right", *few)
    tables = {
        "left": {"data": data, "samples_per_class": 3, "validation_per_class": 2},
        "right": {"data": data, "fraction": 0.5},
    }
    (run / "federation.json").write_text(json.dumps({"clients": tables}))
    assert {client: of(client) for client in tables} == expected
    assert of("left", "--fraction", 0.25) == of_left, "a given size stands for the folder's, and the rest stays"
    assert of("right", *few) == of_right


@pytest.mark.parametrize("source", ["roster", "run.json", "federation.json", "adapted"])
def test_a_client_that_the_run_does_not_have_is_refused(source: str, fetched: Path, run: Path, tmp_path: Path) -> None:
    model, manifest = run, json.loads((run / "run.json").read_text())
    if source == "adapted":
        model, _ = adapted(run, f"npz:{fetched / 'left.npz'}", "-o", tmp_path / "site.safetensors")
    if source in ("run.json", "federation.json"):
        del manifest["config"]["run"]["clients"]
        manifest["config"]["run"]["min_clients"] = 2
        clients = {name: {"data": f"npz:{name}.npz"} for name in tiny_federation.CLIENTS}
        (run / source).write_text(json.dumps({"clients": clients}))
        (run / "run.json").write_text(
            json.dumps({**manifest, **({"clients": clients} if source == "run.json" else {})})
        )
    words = ("--data", f"npz:{fetched / 'left.npz'}", "--client", "nobody", "-o", tmp_path / "no.safetensors")
    code, error = refused("adapt", model, *words)
    assert (code, error) == (2, "fedplcc: --client nobody: the run has no such client; it has left, right\n")
    assert not (tmp_path / "no.safetensors").exists()


def test_what_is_adapted_again_is_as_if_it_never_had_been(fetched: Path, run: Path, tmp_path: Path) -> None:
    left, right = (f"npz:{fetched / name}.npz" for name in tiny_federation.CLIENTS)
    first, _ = adapted(run, left)
    second, said = adapted(first, right)
    direct, _ = adapted(run, right, "--out", tmp_path / "direct.safetensors")
    assert second.read_bytes() == direct.read_bytes() != first.read_bytes()
    assert said["run_model_sha256"] == sha256_hex((run / "model.safetensors").read_bytes())
    again, _ = adapted(run, left)
    assert again == first, "an adapted model may be written anew"


def test_an_adapted_model_is_read_wherever_it_lies_with_its_description(
    fetched: Path, run: Path, tmp_path: Path
) -> None:
    """Prototypes come with it only where they are those of its run."""
    file, _ = adapted(run, f"npz:{fetched / 'left.npz'}", "--out", tmp_path / "site" / "here.safetensors")
    assert [path.name for path in sorted(file.parent.iterdir())] == ["here.safetensors", "here.safetensors.json"]
    image = tmp_path / "image.png"
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(image)
    code, out, _ = called("predict", file, image, "--json")
    assert code == 0
    assert json.loads(out)["prototype"] is None
    (file.parent / "prototypes.safetensors").write_bytes(
        prototypes_to_bytes(PrototypeSet.of(np.ones((1, DIM)), [0], [1.0]))
    )
    assert not len(read_trained_model(file).prototypes)
    shutil.copy(run / "prototypes.safetensors", file.parent)
    assert len(read_trained_model(file).prototypes) == 3


def test_a_description_that_is_wrong_is_refused_by_its_name(fetched: Path, run: Path) -> None:
    file, _ = adapted(run, f"npz:{fetched / 'left.npz'}")
    description = file.with_name(f"{file.name}.json")
    whole = json.loads(description.read_bytes())
    for text, sentence in [
        ("{", "does not describe an adapted model: it is not JSON"),
        ("3", "does not describe an adapted model"),
        (json.dumps({**whole, "num_images": 0}), "num_images = 0"),
        (json.dumps({**whole, "model_sha256": "f" * 64}), "describes another model than the one beside it"),
        (json.dumps({**whole, "colour": "blue"}), "unknown key 'colour'"),
        (json.dumps({**whole, "config": {}}), "is missing"),
        (json.dumps({**whole, "config": {**whole["config"], "model": {"name": "a.b:c"}}}), "would import 'a.b'"),
    ]:
        description.write_text(text)
        code, error = refused("predict", file, "image.png")
        assert code == 2
        assert str(description) in error
        assert sentence in error


def test_a_file_that_is_no_adapted_model_is_never_replaced(fetched: Path, run: Path) -> None:
    model = run / "model.safetensors"
    before = model.read_bytes()
    code, error = refused("adapt", run, "--data", f"npz:{fetched / 'left.npz'}", "--out", model)
    assert code == 2
    assert "is there already and is no adapted model, so it is kept; name another with --out" in error
    assert model.read_bytes() == before


def test_a_model_without_batch_norm_is_told_so(ended_runs: Path, tmp_path: Path) -> None:
    place = tmp_path / "site.safetensors"
    code, error = refused("adapt", ended_runs / "fedavg", "--data", f"npz:{ended_runs / 'left.npz'}", "-o", place)
    assert code == 2
    assert "'cnn4', has no BatchNorm layer with running statistics, so there is nothing to adapt" in error
    assert not place.exists()


def test_a_temperature_changes_probabilities_and_no_class(
    fetched: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"npz:{fetched / 'left.npz'}"
    file, said = adapted(run, data, "--temperature", "--validation-per-class", 4, "-o", tmp_path / "t.safetensors")
    assert (said["temperature_images"], said["temperature_of"]) == (12, data)
    assert said["temperature"] != pytest.approx(1.0)
    assert "calibrated_on" not in said
    assert file.read_bytes() == (run / "model.safetensors").read_bytes()
    trained = read_trained_model(file, device="cpu")
    assert trained.temperature == said["temperature"]
    assert trained.title.startswith("run r1, round 3, temperature ")
    shutil.copy(run / "prototypes.safetensors", tmp_path)
    Image.fromarray(np.full((32, 32, 3), 90, np.uint8)).save(tmp_path / "=1+1.png")
    monkeypatch.chdir(tmp_path)
    tables = []
    for model in (run, file):
        code, out, error = called(
            "predict", model.absolute(), "=1+1.png", "--csv", tmp_path / "p.csv", "--device", "cpu"
        )
        assert code == 0, error
        assert "1 predictions written to" in out
        tables += list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    plain, scaled = ([float(table[f"probability of {name}"]) for name in tiny_federation.CLASSES] for table in tables)
    powers = np.array(plain) ** (1 / said["temperature"])
    assert scaled == pytest.approx((powers / powers.sum()).tolist(), rel=1e-6)
    assert [float(table["probability"]) for table in tables] == [max(plain), max(scaled)]
    assert tables[0]["class"] == tables[1]["class"]
    assert tables[0]["image"] == "'=1+1.png", "a spreadsheet computes no name"
    assert set(tables[1]) >= {"image", "prototype_class", "prototype_similarity", "prototype_weight"}
    both, said = adapted(run, data, "-o", tmp_path / "site.safetensors")
    scaled_site, said = adapted(both, data, "--temperature", "--validation-per-class", 4)
    assert (said["calibrated_on"], scaled_site.name.startswith("site-temperature-")) == (data, True)


def test_a_temperature_needs_validation_images(fetched: Path, run: Path) -> None:
    _, error = refused("adapt", run, "--temperature", "--data", f"npz:{fetched / 'left.npz'}")
    assert "has no validation images, to which a temperature is fitted; set some aside with" in error
