"""A troubled server on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as pb_grpc
from fedplcc.shared.wire.channels import SERVER_OPTIONS
from tests.unit.trainer.aggregator.troubled_server import Server


@pytest.fixture
def servicer() -> Server:
    return Server()


@pytest.fixture
def server(servicer: Server) -> Iterator[Server]:
    with ThreadPoolExecutor(8) as pool:
        grpc_server = grpc.server(pool, options=SERVER_OPTIONS)
        pb_grpc.add_RoundServiceServicer_to_server(servicer, grpc_server)
        servicer.port = grpc_server.add_insecure_port("127.0.0.1:0")  # type: ignore[attr-defined]
        grpc_server.start()
        yield servicer
        servicer.closing.set()
        grpc_server.stop(0).wait()
