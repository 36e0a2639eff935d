"""Health of a service over the network: gRPC health of an aggregator or trainer, `/readyz` of a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from fedplcc.remote.own_identity import STATE, identity_below
from fedplcc.shared.errors import FailedPrecondition, FedplccError, InvalidConfig, TlsFailed, Unavailable
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire.addresses import require_secure, split_address

READY_PATH = "/readyz"
"""What a gateway is asked if the URL names no path."""
MAX_ANSWER_BYTES = 64 << 10
"""Most bytes of a gateway's answer that are read."""


def first_serving(
    addresses: Sequence[str],
    *,
    service: str = "",
    timeout_s: float = 6.0,
    insecure: bool = False,
    identity: Path | None = None,
) -> str:
    """Return the first address that serves.

    Args:
        addresses: HOST:PORT of gRPC health, or a gateway's URL.
        service: The gRPC service to ask for; "" is the whole process.
        timeout_s: Seconds for each address to answer in.
        insecure: Whether plain text is accepted off loopback.
        identity: File with the certificate for gRPC over TLS, and with the roots for a gateway over HTTPS; plain text if
            None, and for a gateway what `fedplcc login` kept.

    Raises:
        InvalidConfig: One is no such address, or is off loopback in plain text without `insecure`; or the file is none.
        FailedPrecondition: None serves, but one answers.
        Unavailable: Nobody answers.
    """
    refusals: list[FedplccError] = []
    for address in addresses:
        try:
            if "://" in address:
                asyncio.run(_ask_gateway(address, timeout_s=timeout_s, insecure=insecure, identity=identity))
            else:
                _ask_grpc(address, service, timeout_s=timeout_s, insecure=insecure, identity=identity)
        except (FailedPrecondition, Unavailable) as error:
            refusals.append(error)
        else:
            return address
    # Who answers knows more than who does not.
    raise next((error for error in refusals if isinstance(error, FailedPrecondition)), refusals[0])


def _ask_grpc(address: str, service: str, *, timeout_s: float, insecure: bool, identity: Path | None) -> None:
    host, _port = split_address(address, "address")
    require_secure(host, insecure=insecure or identity is not None, what=f"asking {address}")
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from fedplcc.shared.identity.credentials import Credentials
    from fedplcc.shared.wire.channels import open_channel
    from fedplcc.shared.wire.tls import ClientTls
    from fedplcc.shared.wire.trouble.connection_trouble import cause_of_failure, speaks_http

    held = None if identity is None else Credentials.load(identity)
    tls = None if held is None else ClientTls(lambda: held)
    with open_channel(address, tls=tls, insecure=True) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                if speaks_http(address, over_tls=held is not None):
                    raise Unavailable(
                        f"what answers at {address} speaks HTTP, not gRPC; a gateway is asked at http://HOST:PORT"
                    ) from error
                cause = cause_of_failure(address, held)
                if held is None and isinstance(cause, TlsFailed):
                    own = identity_below(STATE)
                    file = "FILE, the identity.pem of a member" if own is None else str(own)
                    raise TlsFailed(f"{address} speaks TLS: give --identity {file}, or ask its health port") from error
                if cause is not None:
                    raise cause from error
            raise _grpc_refusal(address, service, error.code(), timeout_s) from error
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise FailedPrecondition(f"{address} answers but does not serve now; its log says why")


def _grpc_refusal(address: str, service: str, code: object, timeout_s: float) -> FedplccError:
    import grpc

    if code is grpc.StatusCode.UNAVAILABLE:
        return Unavailable(
            f"no gRPC service answers at {address}; is it running, do address, port and firewall fit "
            "(a gateway is asked at http://HOST:PORT)?"
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"{address} did not answer within {timeout_s:g} s; look at the process, or give --timeout-s")
    if code is grpc.StatusCode.NOT_FOUND:
        return FailedPrecondition(f"{address} has no service {service!r}")
    return FailedPrecondition(f"what answers at {address} does not speak grpc.health.v1; is it a service of fedplcc?")


async def _ask_gateway(address: str, *, timeout_s: float, insecure: bool, identity: Path | None) -> None:
    import httpx

    from fedplcc.gateway_client.gateway_tls import context_for

    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidConfig(f"address = {address!r}: write http://HOST:PORT for a gateway, HOST:PORT for gRPC")
    if url.scheme == "http":
        require_secure(url.host, insecure=insecure, what=f"asking {address}")
    verify = context_for(str(url.copy_with(path="/")), identity)
    if url.path == "/":
        url = url.copy_with(path=READY_PATH)
    try:
        async with (
            asyncio.timeout(timeout_s),
            # A proxy that the environment names cannot reach this machine's own loopback.
            httpx.AsyncClient(timeout=None, trust_env=not is_loopback(url.host), verify=verify) as client,
            client.stream("GET", url) as answer,
        ):
            body = await anext(answer.aiter_bytes(MAX_ANSWER_BYTES), b"")
    except TimeoutError as error:
        sentence = f"{address} did not answer within {timeout_s:g} s; look at the process, or give --timeout-s"
        raise Unavailable(sentence) from error
    except httpx.HTTPError as error:
        raise Unavailable(
            f"no gateway answers at {address}; is it running, and do address, port and firewall fit?"
        ) from error
    _judge(str(url), answer.status_code, body)


def _judge(url: str, status: int, body: bytes) -> None:
    """Check that this is the answer of a serving gateway: a document with `"status": "ok"`."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "status" not in document:
        raise FailedPrecondition(f"what answers at {url} is no gateway of fedplcc (HTTP status {status})")
    if status != 200 or document["status"] != "ok":
        raise FailedPrecondition(f"{url} answers but does not serve now: {document.get('detail', f'status {status}')}")
