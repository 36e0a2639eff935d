"""The two ways to send an attempt: over gRPC to an aggregator's process, and to a coordinator in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from fedplcc.shared.convert.updates import inline_blobs_of, update_from_commit
from fedplcc.shared.convert.uploads import upload_header_from_proto
from fedplcc.shared.errors import FedplccError, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS
from fedplcc.shared.wire.statuses import translate
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.fuzz_attempt import Attempt, Sending
from tests.support.federation.in_process import LocalFederation

DEADLINE_S = 20.0
OK = "OK"
BUGS = frozenset({"UNKNOWN", "INTERNAL", "DATA_LOSS", "DEADLINE_EXCEEDED", "UNAVAILABLE", "UNIMPLEMENTED", "CANCELLED"})
"""Statuses that no client's mistake may be answered with."""
SERVICES = {
    "RoundService": pb2.DESCRIPTOR.services_by_name["RoundService"],
    "RunService": run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of an attempt.

    Attributes:
        answers: The reason of each call's refusal with the check that found it, or OK, in order.
        is_accepted: Whether its commit was taken.
        bugs: What no client's mistake may cause.
    """

    answers: tuple[str, ...]
    is_accepted: bool
    bugs: tuple[str, ...]


class Door(Protocol):
    """A receiver of attempts."""

    def send(self, attempt: Attempt) -> Outcome:
        """Make the calls of an attempt, in order."""


class GrpcDoor:
    """Sends over a channel of its own that keeps to no limit, bytes as they are."""

    def __init__(self, address: str, tls: ClientTls) -> None:
        limits = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        options = [*limits, ("grpc.ssl_target_name_override", AGGREGATOR_DNS)]
        self._channel = grpc.secure_channel(address, tls.credentials(), options=options)

    def close(self) -> None:
        self._channel.close()

    def send(self, attempt: Attempt) -> Outcome:
        """See `Door.send`."""
        answers = [self._call(f"RoundService/{upload.kind}", _parts(upload)) for upload in attempt.uploads]
        is_accepted = False
        if attempt.commit is not None:
            answers.append(self._call("RoundService/CommitUpdate", [attempt.commit.SerializeToString()]))
            is_accepted = answers[-1] == (OK, OK)
        if attempt.stray is not None:
            method, data = attempt.stray
            answers.append(self._call(method, [data]))
            is_accepted = method == "RoundService/CommitUpdate" and answers[-1] == (OK, OK)
        bugs = tuple(f"{status} {reason}" for status, reason in answers if status in BUGS)
        return Outcome(answers=tuple(reason for _, reason in answers), is_accepted=is_accepted, bugs=bugs)

    def _call(self, method: str, messages: list[bytes]) -> tuple[str, str]:
        """Status and reason."""
        service, _, name = method.partition("/")
        described = SERVICES[service].methods_by_name[name]
        ways = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, False): self._channel.stream_unary,
            (True, True): self._channel.stream_stream,
        }
        path = f"/{SERVICES[service].full_name}/{name}"
        way: Any = ways[described.client_streaming, described.server_streaming]
        call = way(path, request_serializer=bytes, response_deserializer=bytes)
        request = iter(messages) if described.client_streaming else messages[0]
        try:
            answer = call(request, timeout=DEADLINE_S)
            if described.server_streaming:
                for _ in answer:
                    answer.cancel()  # the first message of a stream that may have no end
                    break
        except grpc.RpcError as error:
            raised: Any = error
            return raised.code().name, _reason(translate(error))
        return OK, OK


class LocalDoor:
    """Hands what a servicer would hand to the coordinator of a local federation."""

    def __init__(self, federation: LocalFederation) -> None:
        self._coordinator = federation.coordinator

    def send(self, attempt: Attempt) -> Outcome:
        """See `Door.send`."""
        answers: list[str] = []
        bugs: list[str] = []
        for upload in attempt.uploads:
            with _answered(answers, bugs):
                self._upload(upload)
        is_accepted = False
        if attempt.commit is not None:
            with _answered(answers, bugs):
                self._commit(attempt.commit)
            is_accepted = answers[-1] == OK
        # A stray call is for the server: there is no message here that could be torn.
        return Outcome(answers=tuple(answers), is_accepted=is_accepted, bugs=tuple(bugs))

    def _upload(self, upload: Sending) -> None:
        if upload.header is None:
            raise MalformedRequest("an upload begins with its header")
        header = upload_header_from_proto(upload.header)
        receiver = self._coordinator.transfers.begin_upload(
            header.client_id, header.instance_token, header.run_id, header.round, header.blob
        )
        if receiver is None:
            return
        try:
            for offset, data in upload.chunks:
                receiver.write(offset, data)
            if upload.has_second_header:
                raise MalformedRequest("an upload has one header")
            receiver.finish()
        finally:
            receiver.close()

    def _commit(self, request: pb2.CommitUpdateRequest) -> None:
        update = update_from_commit(request)
        self._coordinator.commit_update(
            request.client_id,
            request.instance_token,
            request.run_id,
            request.round,
            update,
            inline_blobs_of(request),
        )


def _reason(error: FedplccError) -> str:
    return f"{error.reason} {error.metadata.get('check', '')}".rstrip()


@contextmanager
def _answered(answers: list[str], bugs: list[str]) -> Iterator[None]:
    """Note how the block ended."""
    try:
        yield
    except FedplccError as error:
        answers.append(_reason(error))
        if error.code.name in BUGS:
            bugs.append(f"{error.code.name} {error.reason}")
    except Exception as error:  # a bug, whatever it is: that is what is looked for
        answers.append("CRASHED")
        bugs.append(repr(error))
    else:
        answers.append(OK)


def _parts(upload: Sending) -> list[bytes]:
    """The messages of an upload; chunks come between two headers where it has two."""
    make = getattr(pb2, f"{upload.kind}Request")
    parts = [make(chunk=pb2.Chunk(offset_bytes=offset, data=data)) for offset, data in upload.chunks]
    if upload.header is not None:
        parts.insert(0, make(header=upload.header))
    if upload.has_second_header:
        parts.append(make(header=upload.header))
    return [part.SerializeToString() for part in parts]
