"""`fedplcc model predict`, `evaluate` and `export` on a run that has ended, and the mistakes that one can make with them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file

import fedplcc
from fedplcc.models import evaluation, onnx_export
from fedplcc.models.confusion_matrix import confusion_matrix
from fedplcc.models.evaluation import evaluate_model, evaluation_folder
from fedplcc.models.onnx_export import Comparison
from fedplcc.models.prediction import image_files
from fedplcc.models.trained_model import read_trained_model
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.trainer.data import Split
from fedplcc.trainer.data.images.pixels import numbers_of
from fedplcc.trainer.data.images.store import ImageStore
from fedplcc.trainer.data.roles import TEST, has_role
from fedplcc.trainer.data.sets import folder
from tests.support.federation import tiny_federation
from tests.support.later import later
from tests.unit.fedplcc.command.model_calls import called, refused

onnxruntime = later("onnxruntime")


@pytest.fixture(scope="module")
def pictures(ended_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images of several forms, and files that are none."""
    folder = tmp_path_factory.mktemp("pictures")
    with np.load(ended_runs / "left.npz") as arrays:
        images = arrays["x_test"]
    Image.fromarray(images[0]).save(folder / "a.png")
    Image.fromarray(images[10]).resize((90, 50)).save(folder / "b.JPG")
    (folder / "inner").mkdir()
    Image.fromarray(images[20]).convert("L").save(folder / "inner" / "c.webp", lossless=True)
    Image.fromarray(images[20]).save(folder / ".hidden.png")
    (folder / "labels.txt").write_text("a thin\n")
    return folder


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A place below a file: nobody can make a folder there, root neither."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "out"


# Predict


def expected(run: Path, file: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """What an independent few lines make of an image: probabilities by class, and the nearest prototype."""
    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR), dtype=np.float32)
    x = torch.from_numpy((pixels / 255 - 0.5) / 0.5).permute(2, 0, 1)[None]
    model: Any = fedplcc.load_model(run)
    with torch.no_grad():
        feature = model.features(x)[0].double().numpy()
        probabilities = model(x)[0].softmax(-1).tolist()
    prototypes = prototypes_from_bytes((run / "prototypes.safetensors").read_bytes())
    vectors = prototypes.vectors.astype(np.float64)
    cosines = vectors @ feature / np.linalg.norm(vectors, axis=1) / np.linalg.norm(feature)
    best = int(cosines.argmax())
    nearest = {
        "class": tiny_federation.CLASSES[prototypes.class_ids[best]],
        "similarity": pytest.approx(cosines[best], abs=1e-5),
        "weight": pytest.approx(float(prototypes.weights[best])),
    }
    return dict(zip(tiny_federation.CLASSES, probabilities, strict=True)), nearest


def test_each_image_gets_its_class_its_probability_and_the_nearest_prototype(run: Path, pictures: Path) -> None:
    code, out, error = called("predict", run, pictures, "--json", "--top", 9)
    assert (code, error) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    files = [pictures / "a.png", pictures / "b.JPG", pictures / "inner" / "c.webp"]
    assert [line["image"] for line in found] == [str(file) for file in files]
    for line, file in zip(found, files, strict=True):
        probabilities, nearest = expected(run, file)
        ranked = sorted(probabilities, key=lambda name: -probabilities[name])
        assert [entry["class"] for entry in line["top"]] == ranked
        assert [entry["probability"] for entry in line["top"]] == pytest.approx(
            [probabilities[name] for name in ranked]
        )
        assert (line["class"], line["probability"]) == (ranked[0], line["top"][0]["probability"])
        assert line["prototype"] == nearest
    assert [line["class"] for line in found] == list(tiny_federation.CLASSES), "the run has learnt these stripes"


def test_the_table_has_a_line_per_image_under_a_heading(run: Path, pictures: Path) -> None:
    code, out, _ = called("predict", run, pictures / "a.png", pictures / "b.JPG", "--top", 2)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["class", "probability", "nearest", "prototype", "similarity", "weight", "image"]
    assert [line.split()[0] for line in lines[1::2]] == ["thin", "wide"]
    assert [line.split()[-1] for line in lines[1::2]] == [str(pictures / "a.png"), str(pictures / "b.JPG")]
    assert [len(line.split()) for line in lines[2::2]] == [2, 2]
    assert all("%" in line for line in lines[1:])


def test_what_cannot_be_read_is_named_and_the_others_are_predicted(run: Path, pictures: Path, tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.png", tmp_path / "empty"
    broken.write_bytes((pictures / "a.png").read_bytes()[:100])
    empty.mkdir()
    (empty / "notes.txt").write_text("none")
    stack = tmp_path / "stack.tif"
    Image.new("L", (8, 8)).save(stack, save_all=True, append_images=[Image.new("L", (8, 8))])
    code, out, error = called("predict", run, broken, stack, pictures / "a.png", tmp_path / "*.jpg", empty, "--json")
    assert code == 2
    assert [json.loads(line)["image"] for line in out.splitlines()] == [str(pictures / "a.png")]
    assert error.splitlines() == [
        f"fedplcc: {broken} cannot be read as an image: it is damaged or cut off",
        f"fedplcc: {stack} cannot be read as an image: it has several frames; save the one to classify as a file of its own",
        f"fedplcc: there is no file {tmp_path / '*.jpg'}",
        f"fedplcc: the folder {empty} holds no images",
    ]


def test_images_of_a_folder_are_those_that_data_of_the_same_folder_have(pictures: Path, tmp_path: Path) -> None:
    """By their first bytes, behind links and of DICOM too; what a system keeps beside them is none."""
    root, away = tmp_path / "root", tmp_path / "away"
    content = (pictures / "a.png").read_bytes()
    dicom = bytes(128) + b"DICM"
    places = {"1.PNG": content, "IM0001": dicom, "b/x.dcm": dicom, "__MACOSX/1.png": content, "notes.txt": b"none"}
    for place, there in {**places, "../away/2": content}.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(there)
    (root / "link").symlink_to(away)
    (root / "b" / "circle").symlink_to(root)
    problems: list[str] = []
    found = [str(path.relative_to(root)) for path in image_files([root], problems.append)]
    assert (found, problems) == (["1.PNG", "IM0001", "b/x.dcm", "link/2"], [])


def test_a_model_whose_logits_overflow_is_one_sentence(
    run: Path, ended_runs: Path, pictures: Path, tmp_path: Path
) -> None:
    overflowing = tmp_path / "run"
    shutil.copytree(run, overflowing)
    arrays = load_file(overflowing / "model.safetensors")
    save_file(
        {**arrays, "classifier.weight": np.full_like(arrays["classifier.weight"], 3e38)},
        overflowing / "model.safetensors",
    )
    code, error = refused("predict", overflowing, pictures)
    assert code == 2
    assert "its logits are not finite" in error
    found = called("evaluate", overflowing, "--data", f"npz:{ended_runs / 'left.npz'}", "--json")
    assert "of the images get no class and count as wrong: the model's logits are not finite there" in found[2]
    assert "auc" not in json.loads(found[1])


# Evaluate


@pytest.mark.parametrize("method", ["fedplcc", "fedavg"])
@pytest.mark.parametrize("domain", tiny_federation.CLIENTS)
def test_an_evaluation_on_a_clients_data_gives_exactly_the_accuracy_of_the_run(
    ended_runs: Path, tmp_path: Path, method: str, domain: str
) -> None:
    folder = ended_runs / method
    data = f"npz:{ended_runs / domain}.npz"
    code, out, _ = called("evaluate", folder, "--data", data, "--out", tmp_path / "out", "--json", "--device", "cpu")
    assert code == 0
    found, said = json.loads(out), json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["accuracy"] == said["accuracy"][domain]
    assert found["model_sha256"] == said["model_sha256"]
    assert (found["round"], found["num_examples"], found["num_unreadable"]) == (2, 24, 0)
    confusion = np.array(found["confusion"])
    assert confusion.sum() == 24
    assert confusion.trace() == found["num_correct"]
    assert [entry["num_correct"] for entry in found["classes"]] == confusion.diagonal().tolist()
    assert [entry["class"] for entry in found["classes"]] == list(tiny_federation.CLASSES)
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    for score in ("macro_f1", "macro_auc"):
        low, high = report[f"{score}_interval"]
        assert low <= report[score] <= high
    assert report == {name: value for name, value in found.items() if name != "directory"}
    with Image.open(tmp_path / "out" / "confusion.png") as picture:
        assert picture.format == "PNG"


def test_an_evaluation_is_read_by_a_person_and_kept_beside_the_model(ended_run: Path, ended_runs: Path) -> None:
    data = f"npz:{ended_runs / 'left.npz'}"
    code, out, error = called("evaluate", ended_run, "--data", data, "--split", "all")
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(f"round 2: 48 images of {data}")
    assert lines[1].startswith("accuracy ")
    assert [line.split()[:2] for line in lines[4:7]] == [[name, "16"] for name in tiny_federation.CLASSES]
    folder = evaluation_folder(read_trained_model(ended_run), data, "all")
    assert folder.parent == ended_run / "evaluations"
    assert {path.name for path in folder.iterdir()} == {"evaluation.json", "confusion.png", "reliability.png"}
    assert str(folder) in lines[-1]
    assert evaluation_folder(read_trained_model(ended_run), data, "test") != folder


@pytest.mark.parametrize("split", ["test", "all"])
def test_images_that_memory_would_not_hold_are_evaluated_to_the_same_report(
    ended_run: Path, ended_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: Split
) -> None:
    trained, data = read_trained_model(ended_run, device="cpu"), f"npz:{ended_runs / 'left.npz'}"
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(tmp_path))
    in_memory = evaluate_model(trained, data, split).as_json()
    assert not (tmp_path / "images").exists()
    monkeypatch.setattr(evaluation, "ImageStore", partial(ImageStore, in_memory_bytes=0))
    assert evaluate_model(trained, data, split).as_json() == in_memory
    assert (tmp_path / "images").exists()


def test_no_two_data_sets_share_a_folder_of_evaluations(run: Path) -> None:
    trained = read_trained_model(run)
    long = "x" * 80
    specs = ["digits:mnist", "digits-mnist", "digits::mnist", ".digits-mnist", long, f"npz:{long}", f"folder:{long}"]
    names = [evaluation_folder(trained, spec, "test").name for spec in specs]
    assert len(set(names)) == len(specs)
    assert names[0] == f"digits-mnist-{hashlib.sha256(b'digits:mnist').hexdigest()[:6]}"
    assert (names[1], names[4]) == ("digits-mnist", long), "what is a name for a folder stays as it is"


def test_a_folder_without_a_training_part_is_evaluated_and_bad_files_are_counted(
    run: Path, pictures: Path, tmp_path: Path
) -> None:
    for name, picture in (("thin", "a.png"), ("wide", "b.JPG")):
        (tmp_path / "data" / name).mkdir(parents=True)
        path = tmp_path / "data" / name / picture
        path = path.with_stem(next(stem for stem in ("x1", "x2") if not has_role(stem, TEST, 5)))
        path.write_bytes((pictures / picture).read_bytes())
    (tmp_path / "data" / "wide" / "broken.png").write_bytes(b"x")
    arguments = ("evaluate", run, "--data", f"folder:{tmp_path / 'data'}", "--out", tmp_path / "out")
    code, error = refused(*arguments)
    assert code == 2
    assert "has no test image; --split all takes every image there is" in error
    code, out, error = called(*arguments, "--split", "all")
    assert code == 0
    assert "accuracy 100.0% [34.2, 100.0] (2 of 2)" in out
    assert "files that could not be read are left out: 1, the first is wide/broken.png" in error


def test_a_window_that_is_of_the_images_at_hand_is_said_and_found_once(
    ended_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = json.loads((ended_run / "run.json").read_bytes())
    manifest["config"]["data"]["window"] = "auto"
    (ended_run / "run.json").write_text(json.dumps(manifest))
    picture = tmp_path / "data" / "thin" / "1.tif"
    picture.parent.mkdir(parents=True)
    Image.fromarray(np.arange(-200, 200, dtype=np.int32).reshape(20, 20)).save(picture)
    looked = list[Path]()

    def counted(path: Path, frame: int | None) -> Any:
        looked.append(path)
        return numbers_of(path, frame)

    monkeypatch.setattr(folder, "numbers_of", counted)
    out = called("evaluate", ended_run, "--data", f"folder:{tmp_path / 'data'}", "--split", "all")[1]
    assert looked == [picture]
    assert 'data.window = "auto" is -200 to 199 here, and may have been another where the model was trained' in out
    assert 'data.window = "auto" is that of a whole data set' in refused("predict", ended_run, picture)[1]


def test_a_folder_that_cannot_be_written_is_told_after_the_result(
    run: Path, ended_runs: Path, unwritable: Path
) -> None:
    code, out, error = called("evaluate", run, "--data", f"npz:{ended_runs / 'left.npz'}", "--out", unwritable)
    assert code == 4
    assert "accuracy" in out
    assert error.startswith(f"fedplcc: cannot write {unwritable}")
    assert "--out" in error


# Export


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An ONNX file, and what the command said of it; made once, because torch takes seconds."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    code, out, _ = called("export", run, "--onnx", path, "--json")
    assert code == 0
    return path, json.loads(out)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_an_exported_model_gives_torchs_logits_and_features_for_any_batch(
    run: Path, exported: tuple[Path, dict[str, Any]], batch_size: int
) -> None:
    path, said = exported
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).standard_normal((batch_size, 3, 32, 32)).astype(np.float32)
    logits, features = session.run(["logits", "features"], {"images": images})
    model: Any = fedplcc.load_model(run)
    with torch.no_grad():
        np.testing.assert_allclose(features, model.features(torch.from_numpy(images)), atol=1e-4)
        np.testing.assert_allclose(logits, model(torch.from_numpy(images)), atol=1e-4)
    assert max(said["difference"].values()) < 1e-4


def test_an_exported_model_says_what_its_user_needs(run: Path, exported: tuple[Path, dict[str, Any]]) -> None:
    path, said = exported
    graph = onnx.load(path)
    found = {entry.key: entry.value for entry in graph.metadata_props}
    assert found == said["metadata"]
    assert json.loads(found["classes"]) == list(tiny_federation.CLASSES)
    assert (json.loads(found["mean"]), json.loads(found["std"])) == ([0.5] * 3, [0.5] * 3)
    assert (found["image_size"], found["round"], found["method"]) == ("32", "2", "fedplcc")
    assert found["run_id"] == json.loads((run / "run.json").read_bytes())["run_id"]
    assert [entry.name for entry in graph.graph.input] == ["images"]
    assert [entry.name for entry in graph.graph.output] == ["logits", "features"]
    assert path.parent.joinpath("model.onnx.data").exists() is False


def test_a_file_that_is_no_onnx_file_is_never_replaced(run: Path) -> None:
    model = run / "model.safetensors"
    before = model.read_bytes()
    code, error = refused("export", run, "--onnx", model)
    assert (code, error) == (
        2,
        f"fedplcc: {model} is there already and is no .onnx file, so it is kept; name another with --onnx\n",
    )
    assert model.read_bytes() == before


def test_without_onnxruntime_the_file_is_written_and_not_compared(
    exported: tuple[Path, dict[str, Any]], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = onnx.load(exported[0])
    monkeypatch.setattr(onnx_export, "_graph", lambda trained: graph)  # the same graph again would take seconds
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, _ = called("export", run, "--onnx", tmp_path / "model.onnx")
    assert code == 0
    assert "not compared with torch: onnxruntime is not installed" in out
    assert (tmp_path / "model.onnx").stat().st_size == exported[0].stat().st_size


def test_a_file_that_answers_otherwise_than_torch_is_not_written(
    exported: tuple[Path, dict[str, Any]], ended_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = onnx.load(exported[0])
    monkeypatch.setattr(onnx_export, "_graph", lambda trained: graph)
    code, error = refused("export", ended_runs / "fedavg", "--onnx", tmp_path / "model.onnx")  # another run's graph
    assert code == 2
    assert "differs from torch's by" in error
    assert list(tmp_path.iterdir()) == []
    assert Comparison(logits=1e-5, features=1e-5, scale=1.0).agrees


# Mistakes that all three share


@pytest.mark.parametrize(
    "command", [("predict", "image.png"), ("evaluate", "--data", "digits:mnist"), ("export", "--onnx", "m.onnx")]
)
def test_a_model_that_is_not_there_and_a_device_that_is_not_there_are_one_sentence(
    run: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    assert refused(name, tmp_path / "none", *rest)[0] == 2
    (tmp_path / "model.safetensors").write_bytes(b"no model")
    code, error = refused(name, tmp_path, *rest)
    assert code == 2
    assert "--config FILE" in error
    if name != "export":
        code, error = refused(name, run, *rest, "--device", "cuda:99")
        assert code == 2
        assert "'cuda:99' is not there" in error


def test_without_prototypes_the_table_has_no_columns_for_them(ended_runs: Path, pictures: Path) -> None:
    _, out, _ = called("predict", ended_runs / "fedavg", pictures / "a.png")
    assert out.splitlines()[0].split() == ["class", "probability", "image"]
    _, out, _ = called("predict", ended_runs / "fedavg", pictures / "a.png", "--json")
    assert json.loads(out)["prototype"] is None


def test_a_batch_of_images_is_predicted_as_each_alone(run: Path, pictures: Path, tmp_path: Path) -> None:
    config = json.loads((run / "run.json").read_bytes())["config"]
    config["training"]["evaluation_batch_size"] = 2
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("model.safetensors", "prototypes.safetensors"):
        (folder / name).write_bytes((run / name).read_bytes())
    (folder / "run.json").write_text(json.dumps({"config": config}))
    whole, small = (called("predict", path, pictures, "--json")[1].splitlines() for path in (run, folder))
    for one, other in zip(whole, small, strict=True):
        one, other = json.loads(one), json.loads(other)
        assert (one["image"], one["class"]) == (other["image"], other["class"])
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


def test_a_class_without_images_has_no_accuracy_and_its_mistakes_are_told(run: Path, tmp_path: Path) -> None:
    images = np.zeros((4, 32, 32, 3), np.uint8)
    path = tmp_path / "black.npz"
    np.savez(
        path, x_train=images, y_train=[0] * 4, x_test=images, y_test=[0] * 4, classes=list(tiny_federation.CLASSES)
    )
    code, out, _ = called("evaluate", run, "--data", f"npz:{path}", "--out", tmp_path / "out")
    assert code == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines()[4:7]}
    given = json.loads((tmp_path / "out" / "evaluation.json").read_text())["confusion"][0].index(4)
    assert rows["wide"][1:4] == ["0", "-", "-"]
    assert rows["thin"] == ["thin", "4", "0.0%", "-", "-", tiny_federation.CLASSES[given], "(4)"]


def test_without_matplotlib_there_is_no_picture_and_that_is_said(
    run: Path, ended_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    code, out, _ = called("evaluate", run, "--data", f"npz:{ended_runs / 'left.npz'}", "--out", tmp_path)
    assert code == 0
    assert "confusion.png is not drawn: matplotlib is not installed" in out
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


@pytest.mark.parametrize("num_classes", [2, 65])
def test_a_confusion_matrix_is_a_picture_that_one_can_open(num_classes: int, tmp_path: Path) -> None:
    confusion = np.eye(num_classes, dtype=np.int64) * 7
    confusion[-1] = 0  # a class without images
    classes = ["x" * 128, *(rf"$\frac{{{i}$" for i in range(1, num_classes))]
    data = confusion_matrix(confusion, classes, title="folder:" + "long/" * 50 + "\n97.1 %")
    (tmp_path / "confusion.png").write_bytes(data)
    with Image.open(tmp_path / "confusion.png") as picture:
        picture.load()
        assert 700 < picture.width < 3000
        assert 700 < picture.height < 3000


def test_a_missing_extra_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    code, error = refused("export", run, "--onnx", tmp_path / "model.onnx")
    assert code == 2
    assert error == "fedplcc: exporting needs onnxscript, which is not installed: pip install 'fedplcc[export]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_torch_cannot_export_is_one_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("no operator for aten::bucketize\nand a hundred lines more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    code, error = refused("export", run, "--onnx", tmp_path / "model.onnx")
    assert code == 2
    assert error.endswith("to ONNX: no operator for aten::bucketize\n")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told_before_the_work(run: Path, unwritable: Path) -> None:
    code, error = refused("export", run, "--onnx", unwritable)
    assert code == 4
    assert "choose another with --onnx" in error
