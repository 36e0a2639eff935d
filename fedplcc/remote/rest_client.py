"""A typed asyncio client of the gateway: documents of shared/documents in and out, errors of shared/errors.py.

Every operation may be done twice, so a request whose answer was lost is sent again; what a gateway refuses for now (503,
429) is asked again a few times. A gateway that is not there at all is said at once. An event stream that breaks goes on
after the last event.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, TypeVar
from urllib.parse import quote

import httpx
from httpx_sse import EventSource
from pydantic import ValidationError

from fedplcc.remote.gateway_tls import context_for
from fedplcc.remote.own_keys import key_for
from fedplcc.runs.initial_model import PIECE_BYTES, model_blob
from fedplcc.shared.documents import (
    Client,
    ClientPage,
    DeletedRun,
    Document,
    Event,
    InitialModel,
    Problem,
    Round,
    RoundPage,
    Run,
    RunPage,
    RunSummary,
)
from fedplcc.shared.errors import (
    BlobTooLarge,
    Code,
    FedplccError,
    Internal,
    InvalidConfig,
    RoundNotFound,
    TlsFailed,
    TooManyOpenRuns,
    Unavailable,
    from_reason,
)
from fedplcc.shared.types import BlobRef, RoundPhase
from fedplcc.shared.wire.addresses import is_loopback, join_address, require_secure
from fedplcc.shared.wire.connection_trouble import speaks_grpc, unknown_name
from fedplcc.shared.wire.tls_trouble import certificate_at

CONNECT_S, ANSWER_S = 10.0, 45.0
"""Longest wait for a connection, and for the next bytes of an answer: longer than the gateway waits for its aggregator."""
SILENCE_S = 45.0
"""Silence after which an event stream counts as broken; the gateway sends a comment every 15 s."""
ATTEMPTS = 4
"""Most attempts of a request."""
STORE_BYTES_PER_S = 20e6
"""Least speed at which a federation checks and stores a model."""
BUFFERED_BYTES, LINK_BYTES_PER_S = 4 << 20, 50e3
"""Most sent bytes that this system's buffers may still hold, and the least speed of the link to the gateway."""
PATIENCE_S = 300.0
"""Longest absence of a gateway before `follow` gives up."""
PAUSE_S = (0.25, 5.0)
"""First and longest pause between attempts; each lasts between half and all of it."""
MAX_ASKED_PAUSE_S = 30.0
"""Longest pause between attempts that a gateway may ask for."""
PAGE_SIZE = 200
DELETE_S = 310.0
"""Longest wait for the answer to a deletion: thousands of files are removed, after those of the deletions before it."""

Answer = TypeVar("Answer", bound=Document)

_CODES = {code.http_status: code for code in reversed(Code)}


class Gateway:
    """A gateway at a URL; use it as an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        *,
        insecure: bool = False,
        ca: Path | None = None,
        key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: `https://HOST:PORT` or `http://HOST:PORT`; the scheme may be left out.
            insecure: Whether plain text is accepted off loopback.
            ca: File with the certificates that an https gateway is checked against; see gateway_tls.py.
            key: Key that is shown; the one that this user keeps for the gateway if None.
            transport: How to reach it, for tests.
            sleep: How to pause, for tests.

        Raises:
            InvalidConfig: It is no such URL, or off loopback without TLS and `insecure`; or others may read the user's keys.
        """
        self.url = checked_url(url, insecure)
        self._sleep = sleep
        key = key_for(self.url) if key is None else key
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # A proxy that the environment names cannot reach this machine's own loopback.
            trust_env=not is_loopback(httpx.URL(self.url).host),
            verify=context_for(self.url, ca) if self.url.startswith("https:") else True,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    # Runs

    async def start_run(self, config: Mapping[str, Any], *, request_id: str) -> Run:
        """Create a run, or return the one that this request id created before.

        Raises:
            InvalidConfig, RequestIdReused: The gateway refuses it.
        """
        headers = {"Idempotency-Key": request_id}
        return _document(Run, await self._request("POST", "/v1/runs", json=dict(config), headers=headers))

    async def store_model(self, file: Path, *, on_bytes: Callable[[int], None] = lambda count: None) -> BlobRef:
        """Upload a model that runs can begin with; returns its name.

        Args:
            file: A safetensors file.
            on_bytes: Called with the number of bytes of each sent piece; a second attempt counts again.

        Raises:
            InvalidConfig: The file cannot be read, or is no safetensors file.
            InvalidModel, BlobTooLarge, BlobCorrupt: The gateway refuses it.
        """
        blob = model_blob(file)

        async def pieces() -> AsyncIterator[bytes]:
            with file.open("rb") as source:
                while piece := source.read(PIECE_BYTES):
                    yield piece
                    on_bytes(len(piece))

        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size_bytes)}
        buffered_s = min(blob.size_bytes, BUFFERED_BYTES) / LINK_BYTES_PER_S
        answer_s = ANSWER_S + buffered_s + blob.size_bytes / STORE_BYTES_PER_S
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=answer_s)
        name = "".join(each if each.isprintable() else "?" for each in file.name)  # as the history takes it
        parts: dict[str, Any] = {"params": {"name": name}, "headers": headers, "timeout": timeout}
        answer = await self._request("PUT", f"/v1/models/{blob.sha256}", make_content=pieces, **parts)
        stored = _document(InitialModel, answer)
        return BlobRef(blob.role, stored.sha256, stored.size_bytes)

    async def list_runs(self, *, limit: int, **filters: str | Sequence[str]) -> RunPage:
        """The first runs that match, as one page; the newest ones if nothing else is said.

        Args:
            limit: Most runs.
            filters: Parameters of the request: status, method, name, tag, since, order, show.

        Raises:
            MalformedRequest: The gateway refuses a filter.
        """
        runs: list[RunSummary] = []
        asked: dict[str, Any] = {name: value for name, value in filters.items() if value}
        while True:
            params = {**asked, "page_size": min(PAGE_SIZE, limit - len(runs))}
            page = _document(RunPage, await self._request("GET", "/v1/runs", params=params))
            runs += page.runs
            if page.next_page_token is None or len(runs) >= limit:
                return page.model_copy(update={"runs": runs[:limit]})
            asked["page_token"] = page.next_page_token

    async def get_run(self, run_id: str) -> Run:
        """A run and its latest round."""
        return _document(Run, await self._request("GET", _path(run_id)))

    async def update(
        self,
        run_id: str,
        *,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
        is_archived: bool | None = None,
    ) -> Run:
        """Change what people note about a run; None leaves what is there."""
        asked = {"tags": None if tags is None else list(tags), "notes": notes, "is_archived": is_archived}
        change = {name: value for name, value in asked.items() if value is not None}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return _document(Run, await self._request("PATCH", _path(run_id), json=change, headers=headers))

    async def delete(self, run_id: str) -> DeletedRun:
        """Delete a run that has ended."""
        return _document(
            DeletedRun, await self._request("DELETE", _path(run_id), timeout=httpx.Timeout(DELETE_S, connect=CONNECT_S))
        )

    async def forget_client(self, client_id: str) -> Client:
        """Forget a client that takes part in no open run; return it as it was."""
        return _document(Client, await self._request("DELETE", f"/v1/clients/{quote(client_id, safe='')}"))

    async def pause(self, run_id: str, *, now: bool, request_id: str = "") -> Run:
        """Pause a run when its open round commits, or at once.

        Here and below all attempts use one request id, a random one if none is given, so that a delayed attempt that arrives
        after a newer request changes nothing.
        """
        return await self._steer(run_id, "pause", request_id, json={"now": now})

    async def resume(self, run_id: str, *, request_id: str = "") -> Run:
        """Resume a run, or take back a pause that waits."""
        return await self._steer(run_id, "resume", request_id)

    async def stop(self, run_id: str, *, reason: str = "", request_id: str = "") -> Run:
        """Stop a run."""
        return await self._steer(run_id, "stop", request_id, json={"reason": reason})

    async def extend(self, run_id: str, *, rounds: int, request_id: str = "") -> Run:
        """Let a completed run go on to more rounds."""
        return await self._steer(run_id, "extend", request_id, json={"rounds": rounds})

    async def quarantine(self, run_id: str, client_id: str, *, reason: str = "", request_id: str = "") -> Run:
        """Leave a client out of a run until it is released."""
        action = f"clients/{quote(client_id, safe='')}/quarantine"
        return await self._steer(run_id, action, request_id, json={"reason": reason})

    async def release(self, run_id: str, client_id: str, *, request_id: str = "") -> Run:
        """Let a quarantined client take part in a run again."""
        return await self._steer(run_id, f"clients/{quote(client_id, safe='')}/release", request_id)

    async def admit(self, run_id: str, client_id: str, *, request_id: str = "") -> Run:
        """Admit a client to a run from the next round on."""
        return await self._steer(run_id, f"clients/{quote(client_id, safe='')}", request_id, method="PUT")

    async def retire(self, run_id: str, client_id: str, *, forgets: bool = False, request_id: str = "") -> Run:
        """Retire a client from a run."""
        action, params = f"clients/{quote(client_id, safe='')}", {"forget": forgets}
        return await self._steer(run_id, action, request_id, method="DELETE", params=params)

    async def advance(self, run_id: str, *, request_id: str = "") -> Run:
        """End the present stage of a run."""
        return await self._steer(run_id, "stages", request_id)

    # Results

    async def manifest(self, run_id: str) -> dict[str, Any]:
        """The content of run.json."""
        answer = await self._request("GET", _path(run_id, "manifest"))
        return dict(_json(answer))

    async def lines(self, run_id: str, name: Literal["metrics", "timings"], *, after: int = -1) -> list[str]:
        """The lines of metrics.jsonl or timings.jsonl, of the rounds after one."""
        return (await self._request("GET", _path(run_id, f"{name}.jsonl"), params={"after": after})).text.splitlines()

    async def seconds_of(self, run_id: str, number: int) -> float | None:
        """Duration of a committed round; None if its line of timings.jsonl has none."""
        for line in await self.lines(run_id, "timings", after=number - 1):
            timings = json.loads(line)
            if timings.get("round") == number:
                total: float | None = timings.get("seconds", {}).get("total")
                return total
        return None

    async def last_rounds(self, run: Run) -> list[Round]:
        """A run's open round, if one is open, and the one before it."""
        params = {"after": max(run.round - 2, -1)}
        return _document(RoundPage, await self._request("GET", _path(run.run_id, "rounds"), params=params)).rounds

    async def results(self, run_id: str, number: int) -> tuple[BlobRef, BlobRef]:
        """The names of the global model and the global prototypes of a committed round.

        Raises:
            RoundNotFound: It has not committed.
        """
        params = {"after": number - 1, "page_size": 1}
        page = _document(RoundPage, await self._request("GET", _path(run_id, "rounds"), params=params))
        found = next((current for current in page.rounds if current.round == number), None)
        if found is None or found.phase is not RoundPhase.COMMITTED or not (found.model and found.prototypes):
            raise RoundNotFound(f"run {run_id} has not committed round {number} yet", run_id=run_id, round=number)
        model, prototypes = found.model, found.prototypes
        return (
            BlobRef("model", model.sha256, model.size_bytes),
            BlobRef("prototypes", prototypes.sha256, prototypes.size_bytes),
        )

    async def download(
        self,
        run_id: str,
        blob: BlobRef,
        file: BinaryIO,
        *,
        round_number: int,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Write a model or prototypes into a file; a transfer that breaks goes on where it was.

        The caller checks the SHA-256 of what came.

        Args:
            run_id: Of which run.
            blob: What `results` named; its role says which of the two it is.
            file: Empty, to be written to.
            round_number: Of which round.
            on_bytes: Called with the number of bytes of each piece.
        """
        received, failures = 0, 0
        while received < blob.size_bytes:
            headers = {"Range": f"bytes={received}-", "If-Range": f'"{blob.sha256}"'} if received else {}
            before = received
            try:
                async with self._stream(
                    "GET", _path(run_id, blob.role), params={"round": round_number}, headers=headers
                ) as answer:
                    if received and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                        raise Unavailable(f"the {blob.role} changed while it was being downloaded; try again")
                    async for piece in answer.aiter_bytes():
                        file.write(piece)
                        received += len(piece)
                        on_bytes(len(piece))
                if received < blob.size_bytes:
                    raise Unavailable(f"the {blob.role} ended at byte {received} of {blob.size_bytes}")
            except Unavailable:
                failures = 1 if received > before else failures + 1
                if failures >= ATTEMPTS:
                    raise
                await self._pause(failures)

    # Events

    async def follow(
        self, run_id: str, *, after: int = 0, on_trouble: Callable[[str], None] = lambda why: None
    ) -> AsyncGenerator[Event | Run, None]:
        """Yield the events of a run after a cursor, each once and in order; then the run, when it has ended.

        Args:
            run_id: Of which run.
            after: The last event that is known already.
            on_trouble: Called with the reason at each attempt to reconnect, and with "" when events may come again.

        Raises:
            FedplccError: The gateway refuses; or it was not there at first, or was away for longer than `PATIENCE_S`.
        """
        clock = asyncio.get_running_loop().time
        failures, last_sign, has_answered = 0, clock(), False
        while True:
            try:
                headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
                async with self._stream("GET", _path(run_id, "events"), headers=headers, silence_s=SILENCE_S) as answer:
                    has_answered, failures, last_sign = True, 0, clock()
                    on_trouble("")
                    async for item in EventSource(answer).aiter_sse():
                        if not item.data:
                            continue  # by the standard a frame without data is no event; the library yields it
                        last_sign = clock()
                        if item.event == "problem":
                            raise _error_of(item.data, answer)
                        if item.event == "end":
                            yield _parsed(Run, item.data)
                            return
                        event = _parsed(Event, item.data)
                        after = event.sequence
                        yield event
                why = f"the gateway at {self.url} ended the stream of events"
            except Unavailable as error:
                if not has_answered or clock() - last_sign > PATIENCE_S:
                    raise
                why = error.detail
            on_trouble(why)
            failures += 1
            await self._pause(failures)

    # The federation and the gateway itself

    async def list_clients(self, *, attempts: int = ATTEMPTS) -> list[Client]:
        """Every client that ever joined, with its activity; a caller that polls needs one attempt only."""
        asked = {"page_size": "1000"}
        clients: list[Client] = []
        while True:
            answer = await self._request("GET", "/v1/clients", attempts=attempts, params=asked)
            page = _document(ClientPage, answer)
            clients += page.clients
            if page.next_page_token is None:
                return clients
            asked["page_token"] = page.next_page_token

    async def revoke_key(self) -> None:
        """Revoke the key of this client.

        Raises:
            KeyInvalid: It does not hold any more.
        """
        await self._request("POST", "/v1/session/end")

    async def is_ready(self) -> bool:
        """Whether the gateway and its aggregator serve; one request."""
        try:
            answer = await self._http.get("/readyz")
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    async def request(self, method: str, path: str, **parts: Any) -> httpx.Response:
        """Make a request, again where it failed for a reason that passes; returns a successful answer.

        Raises:
            FedplccError: The gateway refuses, or does not answer.
        """
        return await self._request(method, path, **parts)

    # Shared parts

    async def _steer(self, run_id: str, action: str, request_id: str, method: str = "POST", **parts: Any) -> Run:
        headers = {"Idempotency-Key": request_id or uuid.uuid4().hex}
        return _document(Run, await self._request(method, _path(run_id, action), headers=headers, **parts))

    async def _request(
        self,
        method: str,
        path: str,
        make_content: Callable[[], AsyncIterator[bytes]] | None = None,
        attempts: int = ATTEMPTS,
        **parts: Any,
    ) -> httpx.Response:
        for attempt in range(1, attempts + 1):
            try:
                content = None if make_content is None else make_content()
                with self._transport_errors():
                    answer = await self._http.request(method, path, content=content, **parts)
                return _successful(answer)
            except (GatewayAbsent, TlsFailed, BlobTooLarge, TooManyOpenRuns):
                raise
            except FedplccError as error:
                if error.code not in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED) or attempt == attempts:
                    raise
                asked_s = _asked_pause_s(error)
            await self._pause(attempt, at_least_s=asked_s)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, *, silence_s: float = ANSWER_S, **parts: Any
    ) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        with self._transport_errors():
            async with self._http.stream(method, path, timeout=timeout, **parts) as answer:
                if answer.is_error:
                    await answer.aread()
                yield _successful(answer)

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
        except httpx.TransportError as error:
            broken = Unavailable(f"the connection to the gateway at {self.url} broke: {error}")
            if self.url.startswith("http:") and certificate_at(_address(self.url)) is not None:
                broken = TlsFailed(f"the gateway at {self.url} speaks TLS; write https://")
            raise _with_another_port(self.url, broken) from error

    async def _pause(self, failures: int, *, at_least_s: float = 0.0) -> None:
        first, longest = PAUSE_S
        pause_s = min(first * 2 ** (failures - 1), longest) * random.uniform(0.5, 1.0)  # nosec B311 # no secret
        await self._sleep(max(pause_s, at_least_s))


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


def _path(run_id: str, part: str = "") -> str:
    # Any text given as a run's id stays one part of the path.
    return f"/v1/runs/{quote(run_id, safe='')}/{part}".rstrip("/")


def _successful(answer: httpx.Response) -> httpx.Response:
    """The answer if it is a success; raises its error otherwise."""
    if answer.is_success:
        return answer
    raise _error_of(answer.text, answer)


def _error_of(text: str, answer: httpx.Response) -> FedplccError:
    """The error in a problem document."""
    try:
        problem = Problem.model_validate_json(text)
    except ValidationError:
        return _no_gateway(answer)
    return from_reason(
        problem.code,
        problem.detail or problem.title,
        problem.metadata or {},
        _CODES.get(problem.status, Code.INTERNAL),
    )


def _no_gateway(answer: httpx.Response) -> FedplccError:
    if answer.status_code in (502, 503, 504):
        return Unavailable(f"the gateway behind {answer.request.url} is away (HTTP status {answer.status_code})")
    return Internal(f"what answers at {answer.request.url} is no fedplcc gateway (HTTP status {answer.status_code})")


def _document(kind: type[Answer], answer: httpx.Response) -> Answer:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise _no_gateway(answer) from error


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise _no_gateway(answer) from error


def _parsed(kind: type[Answer], text: str) -> Answer:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise Internal(f"the gateway sent an event that is not understood: {error.error_count()} problems") from error
