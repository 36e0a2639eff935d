"""Connections to a gateway: a request is sent again where that is safe, and what fails says what to do.

Every operation may be done twice, so a request whose answer was lost is sent again; what a gateway refuses for now (503,
429) is asked again a few times. A gateway that is not there at all is said at once.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from fedplcc.gateway_client.answers import successful
from fedplcc.gateway_client.gateway_tls import context_for
from fedplcc.gateway_client.own_keys import key_for
from fedplcc.shared.codes import Code
from fedplcc.shared.errors import (
    BlobTooLarge,
    FedplccError,
    Internal,
    InvalidConfig,
    TlsFailed,
    TooManyOpenRuns,
    Unavailable,
)
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire.addresses import join_address, require_secure
from fedplcc.shared.wire.peer_versions import USER_AGENT
from fedplcc.shared.wire.trouble.connection_trouble import speaks_grpc, unknown_name
from fedplcc.shared.wire.trouble.tls_trouble import certificate_at

CONNECT_S, ANSWER_S = 10.0, 45.0
"""Longest wait for a connection, and for the next bytes of an answer: longer than the gateway waits for its aggregator."""
ATTEMPTS = 4
"""Most attempts of a request."""
STORE_BYTES_PER_S = 20e6
"""Least speed at which a federation checks and stores a model."""
BUFFERED_BYTES, LINK_BYTES_PER_S = 4 << 20, 50e3
"""Most sent bytes that this system's buffers may still hold, and the least speed of the link to the gateway."""
PAUSE_S = (0.25, 5.0)
"""First and longest pause between attempts; each lasts between half and all of it."""
MAX_ASKED_PAUSE_S = 30.0
"""Longest pause between attempts that a gateway may ask for."""
MAX_ANSWER_BYTES = 1 << 30
"""Most bytes of an answer that is read whole, unpacked: a few packed ones can be as many as they like."""
_OF_TRANSFER = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that hold for a body on its way."""
DELETE_S = 310.0
"""Longest wait for the answer to a deletion: thousands of files are removed, after those of the deletions before it."""


class Transport:
    """Connections to a gateway at a URL."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: Path | None = None,
        insecure: bool = False,
        attempts: int = ATTEMPTS,
        connections: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """Prepare connections; nothing is sent yet.

        Args:
            url: `https://HOST:PORT` or `http://HOST:PORT`; the scheme may be left out.
            key: Key that is shown; the one that this user keeps for the gateway if None.
            ca: File with the certificates that an https gateway is checked against; see gateway_tls.py.
            insecure: Whether plain text is accepted off loopback.
            attempts: Most attempts of a request.
            connections: How to reach it, for tests.
            sleep: How to pause, for tests.

        Raises:
            InvalidConfig: It is no such URL, or off loopback without TLS and `insecure`; or others may read the user's keys.
        """
        self.url = checked_url(url, insecure)
        self._attempts, self._sleep = attempts, sleep
        key = key_for(self.url) if key is None else key
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"User-Agent": USER_AGENT, **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # A proxy that the environment names cannot reach this machine's own loopback.
            trust_env=not is_loopback(httpx.URL(self.url).host),
            verify=context_for(self.url, ca),
            transport=connections,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def request(self, method: str, path: str, *, sent_bytes: int = 0, **parts: Any) -> httpx.Response:
        """Make a request, again where it failed for a reason that passes; returns a successful answer.

        Args:
            method: HTTP method. The answer to a DELETE may take long.
            path: Below the URL.
            sent_bytes: Size of a body of bytes, which the gateway passes on and checks before it answers.
            parts: Other parts of an httpx request.

        Raises:
            FedplccError: The gateway refuses, or does not answer.
        """
        buffered_s = min(sent_bytes, BUFFERED_BYTES) / LINK_BYTES_PER_S
        answer_s = DELETE_S if method == "DELETE" else ANSWER_S + buffered_s + sent_bytes / STORE_BYTES_PER_S
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=answer_s)
        for attempt in range(1, self._attempts + 1):
            try:
                with self._transport_errors():
                    answer = await self._whole(self._http.build_request(method, path, timeout=timeout, **parts))
                return successful(answer)
            except (GatewayAbsent, TlsFailed, BlobTooLarge, TooManyOpenRuns):
                raise
            except FedplccError as error:
                if error.code not in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED) or attempt == self._attempts:
                    raise
                asked_s = _asked_pause_s(error)
            await self.pause(attempt, at_least_s=asked_s)
        raise AssertionError("the last attempt returns or raises")

    async def _whole(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request with its body; see `_read`."""
        answer = await self._http.send(request, stream=True)
        try:
            return await _read(answer)
        finally:
            await answer.aclose()

    @asynccontextmanager
    async def stream(self, path: str, *, silence_s: float = ANSWER_S, **parts: Any) -> AsyncIterator[httpx.Response]:
        """Get a successful answer whose body is read piece by piece; one attempt.

        Raises:
            FedplccError: The gateway refuses, does not answer, or sends nothing for `silence_s`.
        """
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        with self._transport_errors():
            async with self._http.stream("GET", path, timeout=timeout, **parts) as answer:
                yield answer if answer.is_success else successful(await _read(answer))

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            refused = _tls_error(error)
            if refused is not None:
                raise _with_another_port(self.url, TlsFailed(_tls_sentence(self.url, refused))) from error
            unknown = unknown_name(_address(self.url))
            raise GatewayAbsent(
                unknown
                or f"no gateway answers at {self.url}; start one with 'fedplcc gateway', or name another with --gateway"
            ) from error
        except httpx.TimeoutException as error:
            raise Unavailable(f"the gateway at {self.url} did not answer in time") from error
        except httpx.RequestError as error:
            broken = Unavailable(f"the connection to the gateway at {self.url} broke: {error}")
            if self.url.startswith("http:") and certificate_at(_address(self.url)) is not None:
                broken = TlsFailed(f"the gateway at {self.url} speaks TLS; write https://")
            raise _with_another_port(self.url, broken) from error

    async def pause(self, failures: int, *, at_least_s: float = 0.0) -> None:
        """Wait before another attempt, longer after each failure."""
        first, longest = PAUSE_S
        pause_s = min(first * 2 ** (failures - 1), longest) * random.uniform(0.5, 1.0)  # nosec B311 # no secret
        await self._sleep(max(pause_s, at_least_s))


async def _read(answer: httpx.Response) -> httpx.Response:
    """Return an answer with its body, unpacked.

    Raises:
        Internal: It is longer than any gateway's.
    """
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise without_end(answer)
    headers = {name: value for name, value in answer.headers.items() if name not in _OF_TRANSFER}
    return httpx.Response(answer.status_code, headers=headers, content=bytes(body), request=answer.request)


def without_end(answer: httpx.Response) -> Internal:
    """Return the error for an answer that is longer than any gateway's."""
    return Internal(f"what answers at {answer.request.url} is no fedplcc gateway: its answer has no end")


class GatewayAbsent(Unavailable):
    """No process listens at the address."""


def checked_url(url: str, insecure: bool) -> str:
    """Return a gateway's URL without a slash at its end.

    Without a scheme it is http on loopback, and where plain text is accepted; https elsewhere.

    Raises:
        InvalidConfig: It is no such URL, or off loopback without TLS and `insecure`.
    """
    try:
        parsed = httpx.URL(url if "://" in url else f"http://{url}")
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    text = url
    if "://" not in url:
        text = f"{'http' if insecure or is_loopback(parsed.host) else 'https'}://{url}"
        parsed = parsed.copy_with(scheme=text.partition(":")[0]) if parsed.host else parsed
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidConfig(f"gateway = {url!r}: write https://HOST:PORT or http://HOST:PORT")
    if parsed.scheme == "http":
        require_secure(parsed.host, insecure=insecure, what=f"the gateway at {text}")
    return text.rstrip("/")


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the refusal of TLS that an error of a connection comes from."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _tls_sentence(url: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the gateway at {url} is not trusted ({error.verify_message}); `fedplcc login` on the "
            "aggregator's host keeps the federation's roots, and --gateway-ca FILE names those of another authority"
        )
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return f"what answers at {url} speaks no TLS; is it http://?"
    return f"the TLS handshake with the gateway at {url} fails: {error.reason or type(error).__name__}"


def _with_another_port(url: str, error: Unavailable) -> Unavailable:
    """Return the error, or one that says that the URL is the aggregator's."""
    if not speaks_grpc(_address(url)):
        return error
    return GatewayAbsent(
        f"what answers at {url} speaks gRPC, not HTTP: that is the aggregator's port; the gateway's is 8080 unless it was "
        "started with another --port"
    )


def _address(url: str) -> str:
    parsed = httpx.URL(url)
    return join_address(parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80))


def _asked_pause_s(error: FedplccError) -> float:
    """Return the pause that a refusal asks for, within bounds; 0 if it asks for none."""
    text = error.metadata.get("retry_after_s", "")
    return min(float(text), MAX_ASKED_PAUSE_S) if re.fullmatch(r"[0-9]{1,6}", text) else 0.0
