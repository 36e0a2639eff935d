"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation
from tests.support.federation.served_gateway import ServedGateway


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of the tiny federation, an archive for each of its clients."""
    from tests.support.federation import tiny_federation  # loads torch

    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    return folder


@pytest.fixture
def control(federation: Federation) -> Iterator[RunControl]:
    """RunService of the test's aggregator, which has started."""
    with closing(RunControl(federation.address, tls=federation.operator_tls)) as control:
        yield control


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    """A gateway in front of a federation in this process."""
    with ServedGateway(tmp_path) as gateway:
        yield gateway
