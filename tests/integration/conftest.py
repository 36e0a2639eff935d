"""Fixtures of the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of the tiny federation, an archive for each of its clients."""
    from tests.support.federation import tiny_federation  # loads torch

    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    return folder
