"""Errors of shared/errors.py as gRPC statuses, and back.

A status carries google.rpc.ErrorInfo (domain "fedplcc"): `to_status` writes it, `translate` reads it into the same error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FailedPrecondition,
    FedplccError,
    Internal,
    ResourceExhausted,
    Unavailable,
    from_reason,
)

ERROR_DOMAIN = "fedplcc"
"""Domain of ErrorInfo; its reasons are those of shared/errors.py."""
MAX_DETAIL = 1000
"""Most characters of an error's sentence, and of each of its facts, on the wire. Statuses travel in headers, which are
limited, and a fact may be a name that the peer made up.
"""
STATUS_S = 5.0
"""Longest wait for a status to leave: it queues behind messages that the peer has not read."""


async def abort(context: Any, error: FedplccError) -> None:
    """End a call of a grpc.aio servicer with an error's status; always raises.

    Raises:
        grpc.aio.AbortError: The status is on its way.
        asyncio.CancelledError: The peer reads nothing. gRPC keeps the status for it; the call's resources are released.
    """
    status = rpc_status.to_status(to_status(error))
    try:
        async with asyncio.timeout(STATUS_S):
            await context.abort(status.code, status.details, status.trailing_metadata)
    except TimeoutError:
        raise asyncio.CancelledError from error


def to_status(error: FedplccError) -> Status:
    """Return the status of an error."""
    metadata = {name: value[:MAX_DETAIL] for name, value in error.metadata.items()}
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata)
    packed = AnyMessage()
    packed.Pack(info)
    return Status(code=int(error.code), message=error.detail[:MAX_DETAIL], details=[packed])


def translate(error: grpc.RpcError, address: str = "") -> FedplccError:
    """Return the error that the peer raised, or the error that a transport failure means.

    Args:
        error: Error of a synchronous or an asyncio call.
    """
    call: Any = error
    # The peer's two statuses may disagree, or what it sent be no status.
    with suppress(ValueError, DecodeError):
        status = rpc_status.from_call(call)
        for detail in status.details if status is not None else ():
            info = ErrorInfo()
            if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                facts = {key: value for key, value in info.metadata.items() if key not in ("self", "detail")}
                return from_reason(info.reason, status.message, facts, status.code)
    return _transport_failure(call.code(), call.details() or "", f" at {address}" if address else "")


def _transport_failure(code: grpc.StatusCode, details: str, where: str) -> FedplccError:
    if code is grpc.StatusCode.UNAVAILABLE:
        return AggregatorUnavailable(f"no aggregator answers{where}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"the aggregator{where} did not answer in time")
    if code is grpc.StatusCode.CANCELLED:
        return Unavailable(f"the call to the aggregator{where} was cancelled")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ResourceExhausted(f"a message is over the limit: {details}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return FailedPrecondition(f"the server{where} is no aggregator, or one of another version")
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        # A bug of a peer comes with ErrorInfo; without it, a connection broke within a message.
        return Unavailable(f"the connection to the aggregator{where} broke: {details}")
    return Internal(f"the server{where} answered {code.name}: {details}")


@contextmanager
def translated(address: str = "") -> Iterator[None]:
    """Turn gRPC errors that leave the block into errors of shared/errors.py; for synchronous and awaited calls."""
    try:
        yield
    except grpc.RpcError as error:
        raise translate(error, address) from error
