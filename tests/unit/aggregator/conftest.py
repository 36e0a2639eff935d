"""Fixtures of the aggregator's tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.types import Run
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

JOINED = (NumpyClient("ann"), NumpyClient("bob"))


@pytest.fixture
def federation(folder: Path, request: pytest.FixtureRequest) -> Iterator[LocalFederation]:
    """An aggregator in this process, which ann and bob have joined. Of its module: FEDERATION, JOINED and LIMITS, where it
    has them."""
    own = vars(request.module)
    clients = copy.deepcopy(own.get("JOINED", JOINED))
    with own.get("FEDERATION", LocalFederation)(folder, clients, own.get("LIMITS")) as federation:
        federation.join()
        yield federation


@pytest.fixture
def ann(federation: LocalFederation) -> NumpyClient:
    return federation.clients["ann"]


@pytest.fixture
def run(federation: LocalFederation) -> Run:
    """A run whose round 1 has opened; nobody has trained in it."""
    run = federation.create("fedplcc")
    federation.step(["ann"])
    return federation.coordinator.get_run(run.run_id)
