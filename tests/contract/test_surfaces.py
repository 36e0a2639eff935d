"""Interfaces change on purpose only: REST, configuration keys, metrics, commands, exit codes, errors and crash points."""

from pathlib import Path

import pytest

from tests.support.records import surfaces


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surfaces")
    surfaces.written_in_a_fresh_process(folder)
    return folder


@pytest.mark.parametrize("name", surfaces.SURFACES)
def test_a_surface_is_the_recorded_one(current: Path, name: str) -> None:
    recorded = (surfaces.FOLDER / name).read_text()
    assert (current / name).read_text() == recorded, "python -m tests.support.records.surfaces writes the surfaces anew"


def test_every_recorded_file_is_a_surface() -> None:
    assert {path.name for path in surfaces.FOLDER.iterdir()} == set(surfaces.SURFACES)
