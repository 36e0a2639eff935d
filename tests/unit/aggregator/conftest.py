"""Fixtures of the aggregator's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient


@pytest.fixture
def federation(folder: Path) -> Iterator[LocalFederation]:
    """An aggregator in this process, which ann and bob have joined."""
    with LocalFederation(folder, map(NumpyClient, ("ann", "bob"))) as federation:
        federation.join()
        yield federation
