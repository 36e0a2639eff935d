"""`fedplcc model map` on runs that have ended, and the mistakes that one can make with it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.models.trained_model import read_trained_model
from fedplcc.pictures.image_sample import read_sample
from fedplcc.pictures.models import first_model, local_reports, points_of
from fedplcc.pictures.points import Kind
from fedplcc.pictures.shown_clients import shown_clients
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated
from tests.unit.fedplcc.command.model_calls import called, refused

# What is drawn


def test_the_model_of_before_training_is_round_0s_to_the_last_bit(tmp_path: Path) -> None:
    tiny_federation.write_data(tmp_path, num_per_class=3)
    simulated(
        tiny_federation.document(tmp_path, run={"rounds": 1, "seed": 5}, training={"local_steps": 1}), tmp_path / "run"
    )
    trained = read_trained_model(tmp_path / "run", device="cpu")
    with closing(SqlStore.in_folder(tmp_path / "run" / "state" / "aggregator")) as store:
        (of_run,) = store.list_runs(limit=2)
        begun = store.find_round(of_run.run_id, 0)
    assert begun is not None
    assert begun.model is not None
    assert first_model(trained).sha256 == begun.model.sha256 != trained.sha256


def test_a_panel_holds_the_prototypes_of_its_model(run: Path) -> None:
    trained = read_trained_model(run, device="cpu")
    clients = shown_clients(trained.file, trained.config)
    sample = read_sample(clients, trained.config.data, per_class=3)
    assert (sample.domains, len(sample.images)) == (tiny_federation.CLIENTS, 2 * 3 * 3)
    sets = local_reports(trained, clients)
    for prototypes in sets:
        counts = np.bincount(prototypes.class_ids, weights=prototypes.weights)
        assert counts.tolist() == [8, 8, 8], "each sample of a client is behind one prototype"
    shown = points_of(trained, sample, clients)
    assert shown.features_ND[shown.of(Kind.GLOBAL)].tobytes() == trained.prototypes.vectors.tobytes()
    assert shown.count(Kind.LOCAL) == sum(map(len, sets))
    before = points_of(first_model(trained), sample, clients)
    assert before.count(Kind.GLOBAL) > 0, "round 0 shows what the method makes of its model"
    assert before.class_ids_N[before.of(Kind.IMAGE)].tolist() == sample.images.labels_N.tolist()


def test_a_map_is_a_picture_of_the_same_bytes_every_time(run: Path, tmp_path: Path) -> None:
    arguments = ("map", run, "--per-class", 4, "--device", "cpu")
    code, out, _ = called(*arguments, "--out", tmp_path / "one" / "both.svg", "--json")
    assert (code, json.loads(out)) == (0, {"file": str(tmp_path / "one" / "both.svg")})
    assert called(*arguments, "--out", tmp_path / "two" / "both.svg")[0] == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["both.svg"]
    picture = (tmp_path / "one" / "both.svg").read_text()
    assert picture == (tmp_path / "two" / "both.svg").read_text()
    for text in ("fedplcc, round 0", "fedplcc, round 2", *tiny_federation.CLASSES, "local prototype"):
        assert f"<!-- {text} -->" in picture, text


def test_two_runs_are_compared_and_one_model_may_be_shown_on_other_data(
    run: Path, ended_runs: Path, tmp_path: Path
) -> None:
    words = ("map", run, "--out", tmp_path / "map.svg", "--per-class", 2)
    code, said, _ = called(*words, "--before", ended_runs / "fedavg")
    assert (code, said.strip()) == (0, f"written to {tmp_path / 'map.svg'}")
    picture = (tmp_path / "map.svg").read_text()
    assert "<!-- fedavg, round 2 -->" in picture
    assert "<!-- fedplcc, round 2 -->" in picture
    assert called(*words, "--before", "none", "--data", f"new=npz:{ended_runs / 'left.npz'}")[0] == 0
    picture = (tmp_path / "map.svg").read_text()
    assert "<!-- new -->" in picture
    assert "<!-- fedavg, round 2 -->" not in picture


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--out", "picture.jpg"),
            "picture.jpg does not say which kind of picture it is; end its name with .png or .svg",
        ),
        (("--data", "left=npz:gone.npz"), "client left: there is no file gone.npz"),
        (("--data", "left=npz:gone.npz"), "--data left=DATA"),
        (("--config", "none.toml"), "none.toml"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(ended_run: Path, arguments: tuple[str, ...], sentence: str) -> None:
    before = sorted(ended_run.iterdir())
    code, error = refused("map", ended_run, *arguments)
    assert code == 2
    assert sentence in error
    assert sorted(ended_run.iterdir()) == before


def changed(run: Path, folder: Path, section: str, **values: Any) -> Path:
    """A copy of a run whose run.json says something else."""
    shutil.copytree(run, folder)
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest["config"][section] |= values
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


def test_runs_of_other_data_contracts_are_not_compared(run: Path, tmp_path: Path) -> None:
    other = changed(run, tmp_path / "other", "data", mean=[0.1, 0.1, 0.1])
    code, error = refused("map", run, "--before", other, "--out", tmp_path / "map.png")
    assert code == 2
    assert "would not see the same images" in error
    assert refused("map", run, "--before", tmp_path / "nothing", "--out", tmp_path / "map.png")[0] == 2


def test_a_run_that_began_with_a_given_model_is_compared_with_something_else(run: Path, tmp_path: Path) -> None:
    warm = changed(run, tmp_path / "warm", "run", initial_model=f"sha256:{'0' * 64}")
    code, error = refused("map", warm)
    assert code == 2
    assert "began with a model that it was given" in error
    assert "--before none" in error
