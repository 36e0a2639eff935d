"""FedRep in real federations: no head that a client keeps is in any message that it sends, however clients are run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from fedplcc.models.trained_model import read_trained_model
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.tensors import from_bytes
from fedplcc.trainer.task.client_state import ClientStates
from tests.integration.test_methods_everywhere import document
from tests.support.federation import simulations, tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation
from tests.support.hosts.proxies import CallProxy

pytestmark = pytest.mark.slow

HEADS = ("classifier.weight", "classifier.bias")
INLINE = {"in commits": ("--max-inline-bytes", str(1 << 20)), "in chunks": ("--max-inline-bytes", "0")}


class Listening(CallProxy):
    """Remembers the messages of every call on their way to the aggregator, with the call's name."""

    def __init__(self, target: str) -> None:
        super().__init__(target, idle_s=60.0)
        self.calls: list[tuple[str, list[bytes]]] = []

    def service(self, handler_call_details: Any) -> Any:
        """Every method, as bytes in both directions."""
        forward = super().service(handler_call_details).stream_stream
        heard: list[bytes] = []
        self.calls.append((handler_call_details.method.rpartition("/")[2], heard))

        async def listened(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for message in requests:
                heard.append(message)
                yield message

        async def answers(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for answer in forward(listened(requests), context):
                yield answer

        return grpc.stream_stream_rpc_method_handler(answers)


def uploads(calls: list[tuple[str, list[bytes]]]) -> Iterator[tuple[int, bytes]]:
    """The bytes of every blob that was sent, with its round."""
    for name, messages in calls:
        if name == "CommitUpdate":
            request = round_pb2.CommitUpdateRequest.FromString(messages[0])
            yield from ((request.round, data) for data in request.inline_blobs)
        if name == "UploadModel":
            header, *parts = map(round_pb2.UploadModelRequest.FromString, messages)
            yield header.header.round, b"".join(part.chunk.data for part in parts)


def kept_heads(federation: Federation, run_id: str) -> list[Mapping[str, np.ndarray]]:
    """What each client keeps at the end."""
    states = [
        ClientStates(federation.folder / f"trainer-{client}" / "client-state" / client).state(run_id)
        for client in tiny_federation.CLIENTS
    ]
    assert all(state is not None and tuple(sorted(state)) == tuple(sorted(HEADS)) for state in states)
    return [state for state in states if state is not None]


def test_a_model_of_which_clients_keep_a_part_is_not_evaluated_by_itself(tmp_path: Path) -> None:
    tiny_federation.write_data(tmp_path)
    values = document(tmp_path, "fedrep", {"head_epochs": 1, "upload_head": False})
    simulations.simulated({**values, "run": {**values["run"], "rounds": 1}}, tmp_path / "run")
    with pytest.raises(InvalidModel, match=r"in part what the run began with.*fedrep, shares no whole model"):
        read_trained_model(tmp_path / "run")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [pytest.param("in commits", marks=pytest.mark.full), "in chunks"])
@pytest.mark.parametrize("upload_head", [False, True], ids=["kept", "uploaded"])
def test_a_head_that_a_client_keeps_is_in_none_of_its_messages(tmp_path: Path, way: str, upload_head: bool) -> None:
    """Where heads are uploaded they are found: the same look would see one that leaves by mistake."""
    tiny_federation.write_data(tmp_path)
    with Federation(tmp_path, tls=False) as federation:
        federation.start_aggregator(*INLINE[way])
        with Listening(federation.address) as wire, closing(RunControl(federation.address)) as control:
            for client in tiny_federation.CLIENTS:
                trainer = federation.trainer(
                    f"trainer-{client}",
                    client,
                    f"npz:{tmp_path / client}.npz",
                    state_dir=tmp_path / f"trainer-{client}",
                )
                trainer.arguments[trainer.arguments.index("--aggregator") + 1] = wire.address
                trainer.start()
            values = document(tmp_path, "fedrep", {"head_epochs": 1, "upload_head": upload_head})
            run_id = control.create(tiny_federation.run_document(values)).run_id
            control.end_of(run_id)
            heads = kept_heads(federation, run_id)
        models = [(number, from_bytes(data)) for number, data in uploads(wire.calls)]
        assert sorted(number for number, _ in models) == [0, 1, 1, 2, 2, 3, 3]
        has_heads = [bool(set(HEADS) & model.keys()) for number, model in models if number]
        assert has_heads == [upload_head] * 6
        everything = b"".join(data for _, data in uploads(wire.calls)) + b"".join(
            message for _, messages in wire.calls for message in messages
        )
        found = [array.tobytes() in everything for head in heads for array in head.values()]
        assert found == [upload_head] * 4
