"""Content of a run's pictures, on made-up numbers; they are drawn with equal bytes every time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.pictures.feature_map import FeatureMap, Panel
from fedplcc.pictures.image_sample import MOST_IMAGES, balanced, images_per_class
from fedplcc.pictures.map_drawing import draw_map
from fedplcc.pictures.points import NO_DOMAIN, Kind, Points, points, shares_of_class
from fedplcc.pictures.projection import project
from fedplcc.pictures.shown_clients import ShownClient, shown_clients
from fedplcc.pictures.style import MARKERS
from fedplcc.shared.config.run import RunConfig, parse_federation
from fedplcc.shared.errors import InvalidConfig, InvalidData, InvalidModel
from fedplcc.shared.types import PrototypeSet
from tests.support.federation import tiny_federation


def some_points(num_classes: int = 3, num_domains: int = 2, per_cell: int = 6) -> Points:
    """Classes along axes of their own, domains as small shifts, a local prototype of every cell and a global one of each
    class."""
    rng = np.random.default_rng(0)
    class_ids = np.repeat(np.arange(num_classes), num_domains * per_cell)
    domain_ids = np.tile(np.repeat(np.arange(num_domains), per_cell), num_classes)
    features = np.eye(num_classes, num_classes + 4)[class_ids] + 0.05 * rng.standard_normal(
        (len(class_ids), num_classes + 4)
    )
    local = [
        PrototypeSet.of(
            [features[(class_ids == m) & (domain_ids == k)].mean(0) for m in range(num_classes)],
            np.arange(num_classes),
            np.full(num_classes, per_cell),
        )
        for k in range(num_domains)
    ]
    global_ = PrototypeSet.of(np.eye(num_classes, num_classes + 4), np.arange(num_classes), np.ones(num_classes))
    return points(features.astype(np.float32), class_ids, domain_ids, local=list(enumerate(local)), global_=global_)


def placed(shown: Points, title: str = "fedplcc, round 2") -> Panel:
    """A panel without a projection: the first two features are the plane."""
    return Panel(title=title, points=shown, xy_N2=shown.features_ND[:, :2].astype(np.float64))


def a_map(
    *panels: Panel, classes: Sequence[str] = tiny_federation.CLASSES, domains: Sequence[str] = tiny_federation.CLIENTS
) -> FeatureMap:
    return FeatureMap(panels=panels, classes=tuple(classes), domains=tuple(domains))


# Points


def test_images_come_first_then_local_and_global_prototypes() -> None:
    shown = some_points()
    assert [shown.count(kind) for kind in Kind] == [36, 6, 3]
    assert shown.kinds_N.tolist() == sorted(shown.kinds_N)
    local = shown.of(Kind.LOCAL)
    assert shown.domain_ids_N[local].tolist() == [0, 0, 0, 1, 1, 1]
    assert shown.class_ids_N[local].tolist() == [0, 1, 2] * 2
    assert shown.domain_ids_N[shown.of(Kind.GLOBAL)].tolist() == [NO_DOMAIN] * 3
    assert shown.shares_N[shown.of(Kind.IMAGE)].tolist() == [0.0] * 36


def test_shares_are_of_the_class_and_averages_beside_a_pool_are_a_whole_of_their_own() -> None:
    plain = PrototypeSet.of(np.ones((3, 2)), [0, 0, 1], [30, 10, 7])
    assert shares_of_class(plain).tolist() == [0.75, 0.25, 1.0]
    pool = PrototypeSet(
        np.ones((3, 2), np.float32), np.array([0, 0, 0]), np.array([3, 1, 1], np.float32), np.array([0, 1, -1])
    )
    assert shares_of_class(pool).tolist() == [0.75, 0.25, 1.0]
    assert shares_of_class(PrototypeSet.empty(2)).tolist() == []


# Which images


def test_a_sample_is_balanced_by_class_and_taken_from_the_sources_in_turn() -> None:
    labels = np.array([0, 0, 0, 0, 1, 0, 0, 1, 1, 1])
    sources = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert balanced(labels, sources, 3).tolist() == [0, 1, 4, 5, 7, 8]
    assert balanced(labels, sources, 99).tolist() == list(range(10))
    assert balanced(labels[:0], sources[:0], 3).tolist() == []


@pytest.mark.parametrize(
    ("domains", "classes", "expected"), [(5, 10, 40), (4, 10, 40), (6, 10, 33), (6, 345, 1), (1, 2, 40)]
)
def test_a_map_has_as_many_images_as_it_can_show(domains: int, classes: int, expected: int) -> None:
    found = images_per_class(40, num_domains=domains, num_classes=classes)
    assert found == expected
    assert found == 1 or found * domains * classes <= MOST_IMAGES


# The plane, and what it cannot say


def test_the_same_points_have_the_same_places_to_the_last_bit_and_neighbours_stay_together() -> None:
    shown = some_points()
    first, second = (project(shown.features_ND) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    distances = np.linalg.norm(first[:, None] - first[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert np.mean(shown.class_ids_N[distances.argmin(1)] == shown.class_ids_N) == 1


def test_a_map_that_cannot_be_is_one_sentence() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidData, match="there are 4 images and prototypes to map, and a map needs 5"):
        project(rng.standard_normal((4, 3)).astype(np.float32))
    scales = np.arange(1, 21, dtype=np.float32)[:, None]
    with pytest.raises(InvalidModel, match="features of the same direction"):
        project(scales * np.ones((20, 3), np.float32))


# The map as data


# Drawing


TITLE = "Features and prototypes: fedavg, round 2 beside fedplcc, round 2"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_map_is_drawn_with_the_same_bytes_every_time_and_says_what_it_shows(suffix: str, tmp_path: Path) -> None:
    feature_map = a_map(placed(some_points(), "fedavg, round 2"), placed(some_points()))
    first, second = (draw_map(feature_map, suffix) for _ in range(2))
    assert first == second
    file = tmp_path / f"map{suffix}"
    file.write_bytes(first)
    if suffix == ".png":
        with Image.open(file) as picture:
            picture.load()
            assert 1500 < picture.width < 3000
            assert picture.info["Title"] == TITLE
            assert "Software" not in picture.info
    elif suffix == ".svg":
        text = "".join(ET.parse(file).getroot().itertext())
        assert TITLE in text
        assert "matplotlib" not in text.lower()
    else:
        assert first.startswith(b"%PDF-")
        assert b"CreationDate" not in first


def test_names_that_trouble_a_plotter_and_more_classes_and_domains_than_eyes_tell_apart_are_drawn() -> None:
    classes = ["$5", "_hidden", "猫", "x" * 128, *(f"class {i}" for i in range(8))]
    shown = some_points(len(classes), len(MARKERS) + 1, per_cell=1)
    feature_map = a_map(placed(shown), classes=classes, domains=[f"site {i}" for i in range(len(MARKERS) + 1)])
    text = draw_map(feature_map, ".svg").decode()
    # matplotlib writes each piece of text as a comment above its outlines.
    assert "<!-- 2 other classes -->" in text
    assert "<!-- 9, not told apart -->" in text
    assert "<!-- $5 -->" in text
    assert "<!-- _hidden -->" in text
    assert f"<!-- {'x' * 21}… -->" in text


# Sizes of clusters


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return parse_federation(tiny_federation.document(tmp_path)).config


def recorded(folder: Path, clients: dict[str, Any]) -> Path:
    """The path of a model beside which federation.json names these clients."""
    (folder / "federation.json").write_text(json.dumps({"config": {}, "clients": clients}))
    return folder / "model.safetensors"


def test_clients_are_those_that_the_runs_folder_names(tmp_path: Path, config: RunConfig) -> None:
    tables = {"right": {"data": "npz:r.npz", "domain": "east"}, "left": {"data": "npz:l.npz", "samples_per_class": 3}}
    model = recorded(tmp_path, tables)
    left = ShownClient(name="left", domain="left", data="npz:l.npz", samples_per_class=3)
    right = ShownClient(name="right", domain="east", data="npz:r.npz")
    assert shown_clients(model, config) == (left, right)
    moved = ShownClient(name="right", domain="east", data="npz:a=b.npz")
    other = ShownClient(name="far", domain="far", data="digits:mnist")
    assert shown_clients(model, config, named=["right=npz:a=b.npz", "far=digits:mnist"]) == (other, moved)


def test_a_configuration_file_names_the_clients_too(tmp_path: Path, config: RunConfig) -> None:
    file = tmp_path / "run.toml"
    text = '[run]\nmethod = "fedavg"\n[data]\nclasses = ["a", "b"]\n'
    file.write_text(text + '[clients.ann]\ndata = "own.code:factory"\n')
    (found,) = shown_clients(tmp_path / "model", config, config_file=file)
    assert found.data == "own.code:factory", "a file that somebody names may name code"
    file.write_text(text.replace("fedavg", 'fedavg"\nclients = ["ann"]\nname = "x'))
    with pytest.raises(InvalidConfig, match="does not say where the data of the run's clients lie"):
        shown_clients(tmp_path / "model", config, config_file=file)


@pytest.mark.parametrize(
    "data",
    [
        "own.code:factory",
        "part:0/2:dirichlet(alpha=0.5,seed=0):own.code:factory",
        "long_tail(imbalance=0.1):own.code:factory",
    ],
)
def test_a_runs_folder_chooses_no_code(tmp_path: Path, config: RunConfig, data: str) -> None:
    model = recorded(tmp_path, {"left": {"data": data}, "right": {"data": "npz:r.npz"}})
    with pytest.raises(InvalidConfig, match="would import code and run it"):
        shown_clients(model, config)
    assert len(shown_clients(model, config, named=[f"left={data}"])) == 1


@pytest.mark.parametrize(
    ("named", "content", "sentence"),
    [
        (["left="], "{}", "write NAME=DATA"),
        (["left=a", "left=b"], '{"clients": {}}', "--data names 'left' twice"),
        ([], "[]", "does not name a run's clients"),
        ([], '{"clients": {"left": {}}}', "clients.left.data is missing"),
        ([], None, "name them with --data NAME=DATA, once for each client"),
    ],
)
def test_clients_that_nobody_names_rightly_are_one_sentence(
    tmp_path: Path, config: RunConfig, named: list[str], content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "federation.json").write_text(content)
    with pytest.raises(InvalidConfig, match=sentence):
        shown_clients(tmp_path / "model.safetensors", config, named=named)


@pytest.mark.parametrize(
    ("data", "name"),
    [("digits:mnist", "mnist"), ("folder:/data/scans", "scans"), ("digit5:usps:../shared/data/digit5", "usps")],
)
def test_data_without_a_name_get_one(tmp_path: Path, config: RunConfig, data: str, name: str) -> None:
    assert shown_clients(tmp_path / "model", config, named=[data]) == (ShownClient(name=name, domain=name, data=data),)
