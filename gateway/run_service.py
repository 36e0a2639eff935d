"""A typed asyncio client of RunService, and of what callers ask AdminService about themselves, with the errors of
shared/errors.py.

No other module of the gateway knows gRPC or the generated code. Unary calls have a deadline; transfers have a limit on
silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedplcc.gateway.caller_key import call_metadata
from fedplcc.gateway.refused_requests import Refused
from fedplcc.gateway.spread_channel import SpreadChannel
from fedplcc.shared.convert.audit import audit_entry_from_proto
from fedplcc.shared.convert.clients import client_from_proto
from fedplcc.shared.convert.evaluations import evaluation_from_proto
from fedplcc.shared.convert.events import event_from_proto
from fedplcc.shared.convert.payloads import blob_from_proto
from fedplcc.shared.convert.prototype_maps import prototype_map_from_proto
from fedplcc.shared.convert.reading.enums import LOG_LEVEL
from fedplcc.shared.convert.rounds import round_from_proto
from fedplcc.shared.convert.run_lists import change_to_proto, list_from_proto, query_to_proto
from fedplcc.shared.convert.runs import RunView, run_from_proto
from fedplcc.shared.convert.site_logs import log_from_proto
from fedplcc.shared.convert.steering import steering_to_proto
from fedplcc.shared.convert.uploads import initial_model_to_proto
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FedplccError,
    Internal,
    MalformedRequest,
    PayloadCorrupt,
    TlsFailed,
    Unavailable,
)
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as pb2_grpc
from fedplcc.shared.identity.audit_chain import AuditEntry
from fedplcc.shared.prototype_map import RoundMap
from fedplcc.shared.run_lists import LabelChange, RunList, RunQuery, RunSummary
from fedplcc.shared.steering import Verb
from fedplcc.shared.types import BlobRef, Client, ClientLog, Evaluation, Event, EventQuery, LogLevel, Round
from fedplcc.shared.wire.call_logs import OutgoingCalls
from fedplcc.shared.wire.statuses import translated

CALL_S = 30.0
"""Deadline of a unary call, and longest silence of a download: enough for a page of the aggregator (pages.MAX_PAGE_BYTES)
at 50 kB/s with a second of delay each way. An absent aggregator is noticed at once, without the deadline."""
SIGN_ON_S = 45.0
"""Longest time of a step of a sign-on, for which the aggregator asks the provider up to six times."""
HEALTH_S = 5.0
"""Deadline of a health check: two round trips over such a link, one of them to connect."""
ROUNDS_PER_CALL = 100
"""Most rounds of one call; the aggregator sends fewer where the metrics and timings of many clients are large."""
STORE_S, STORE_BYTES_PER_S = 60.0, 20e6
"""Time in which the aggregator checks an uploaded model: a constant part, and a rate for its bytes."""
DELETE_S = 300.0
"""Deadline of a deletion: thousands of files are removed, after those of the deletions before it."""
REASON_S = 5.0
"""Longest wait for the reason why an upload ended that it could not be read from."""
UPLOAD_BYTES = 128 << 10
"""Largest piece of a model in one message."""
SERVICE = "fedplcc.v1.RunService"

ArtifactKind = Literal["model", "prototypes"]
_KINDS = {"model": pb2.ARTIFACT_KIND_MODEL, "prototypes": pb2.ARTIFACT_KIND_PROTOTYPES}

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]

Message = TypeVar("Message")
Record = TypeVar("Record")


class EndedInWriting(Unavailable):
    """The aggregator ended an upload while a piece was written, and its reason cannot be read from the call."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A model or prototypes: its reference, and its bytes from an offset on. The caller closes it."""

    blob: BlobRef
    chunks: AsyncGenerator[bytes, None]
    close: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, as the aggregator sees it."""

    caller: str
    """key:ID; gateway:NAME where the request has no key."""
    label: str
    scopes: tuple[str, ...]
    expires_at: float
    """Seconds since the epoch; 0 if never."""
    federation: str


@dataclass(frozen=True, slots=True)
class SignOnStep:
    """What follows from a step of a sign-on; see `SignOnResponse`."""

    url: str
    user_code: str
    handle: str
    interval_s: float
    text: str = field(repr=False)
    expires_at: float


class RunServiceClient:
    """RunService of one aggregator. Every method raises the aggregator's error, or `Unavailable` without an answer."""

    def __init__(
        self,
        channel: grpc.aio.Channel | SpreadChannel,
        address: str = "",
        explained: Callable[[AggregatorUnavailable], Awaitable[AggregatorUnavailable]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            channel: Where the aggregator is; the caller closes it.
            address: HOST:PORT of it, for messages.
            explained: Returns the error to raise where no aggregator answers; the same one if None.
        """
        self._runs: Any = pb2_grpc.RunServiceStub(channel)
        self._admin: Any = admin_grpc.AdminServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._address, self._explained = address, explained
        self._made = OutgoingCalls(address, refusals_are_quiet=True)

    async def create_run(self, config_json: str, *, request_id: str) -> RunView:
        """Create a run, or return the run that this request id created."""
        request = pb2.CreateRunRequest(request_id=request_id, config_json=config_json)
        return await self._run(self._runs.CreateRun, request)

    async def store_model(self, blob: BlobRef, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Upload a model to begin with. `pieces` are not read if the aggregator refuses the model or holds it already."""
        header = pb2.UploadInitialModelRequest(header=initial_model_to_proto(blob, name))
        try:
            await self._send_model(header, blob.size_bytes, pieces)
        except EndedInWriting:
            await self._ask_for_the_reason(header)
            raise

    async def _ask_for_the_reason(self, header: Any) -> None:
        """Begin an upload anew to hear why the aggregator ended it; raises that, and nothing where it does not say."""
        call = self._runs.UploadInitialModel(metadata=call_metadata())
        with suppress(EndedInWriting, TimeoutError):
            try:
                async with asyncio.timeout(REASON_S):
                    await self._write(call, header)
                    while not await self._says_stored(call, CALL_S):
                        pass
            finally:
                call.cancel()

    async def _send_model(self, header: Any, size_bytes: int, pieces: AsyncIterator[bytes]) -> None:
        call = self._runs.UploadInitialModel(metadata=call_metadata())
        try:
            await self._write(call, header)
            is_stored = await self._says_stored(call, CALL_S)
            if is_stored:
                return
            async for piece in pieces:
                for begin in range(0, len(piece), UPLOAD_BYTES):
                    data = piece[begin : begin + UPLOAD_BYTES]
                    await self._write(call, pb2.UploadInitialModelRequest(data=data))
            await call.done_writing()
            await self._says_stored(call, STORE_S + size_bytes / STORE_BYTES_PER_S)
        finally:
            call.cancel()

    async def get_run(self, run_id: str) -> RunView:
        """Return a run with its manifest."""
        return await self._run(self._runs.GetRun, pb2.GetRunRequest(run_id=run_id))

    async def list_runs(self, query: RunQuery, *, page_token: str = "") -> tuple[RunList, str]:
        """Return at most `query.limit` runs that match a query, the counts, and the next page's token."""
        found: list[RunSummary] = []
        while True:
            request = query_to_proto(replace(query, limit=query.limit - len(found)), page_token=page_token)
            response = await self._call(self._runs.ListRuns, request)
            page = _decoded(list_from_proto, response)
            found += page.runs
            page_token = response.next_page_token
            if not page_token or len(found) == query.limit:
                return replace(page, runs=found), page_token

    async def list_rounds(self, run_id: str, *, after: int = -1, limit: int) -> list[Round]:
        """Return at most `limit` rounds after one, in order."""
        found: list[Round] = []
        while True:
            rounds, has_more = await self.some_rounds(run_id, after=after, limit=limit - len(found))
            found += rounds
            if not has_more or len(found) == limit:
                return found
            after = found[-1].number

    async def some_rounds(
        self, run_id: str, *, after: int = -1, limit: int = ROUNDS_PER_CALL
    ) -> tuple[list[Round], bool]:
        """Return the rounds after one of a single answer, in order, and whether there are more."""
        request = pb2.ListRoundsRequest(run_id=run_id, after_round=after, page_size=min(ROUNDS_PER_CALL, limit))
        response = await self._call(self._runs.ListRounds, request)
        return [_decoded(round_from_proto, entry) for entry in response.rounds], response.has_more

    async def list_evaluations(self, run_id: str, round_number: int) -> list[tuple[int, Evaluation]]:
        """Return the reports of a round with its number, by client."""
        pages = self._pages(self._runs.ListEvaluations, pb2.ListEvaluationsRequest(run_id=run_id, round=round_number))
        return [_decoded(evaluation_from_proto, entry) async for page in pages for entry in page.evaluations]

    async def get_prototype_map(self, run_id: str, *, round_number: int = -1) -> RoundMap:
        """Return the prototype map of a committed round; -1 is the last round whose prototypes are kept."""
        request = pb2.GetPrototypeMapRequest(run_id=run_id, round=round_number)
        return _decoded(prototype_map_from_proto, await self._call(self._runs.GetPrototypeMap, request))

    async def steer(self, run_id: str, verb: Verb, *, request_id: str) -> RunView:
        """Steer a run. A request id counts once; empty is none."""
        return await self._run(self._runs.SteerRun, steering_to_proto(run_id, verb, request_id))

    async def update_run(self, run_id: str, change: LabelChange, *, request_id: str) -> RunView:
        """Change what people note about a run."""
        return await self._run(self._runs.UpdateRun, change_to_proto(run_id, change, request_id))

    async def delete_run(self, run_id: str) -> int:
        """Delete a run that has ended; return the bytes that became free."""
        request = pb2.DeleteRunRequest(run_id=run_id)
        return int((await self._call(self._runs.DeleteRun, request, timeout_s=DELETE_S)).freed_bytes)

    async def forget_client(self, client_id: str) -> Client:
        """Forget a client that takes part in no open run; return it as it was."""
        answer = await self._call(self._runs.ForgetClient, pb2.ForgetClientRequest(client_id=client_id))
        return _decoded(client_from_proto, answer.client)

    async def list_events(self, query: EventQuery) -> list[Event]:
        """Return the events that match a query."""
        request = pb2.WatchRunRequest(
            run_id=query.run_id,
            after_sequence=query.after,
            before_sequence=query.before,
            page_size=query.limit,
            types=query.types,
            client_id=query.client_id,
            newest_first=query.newest_first,
        )
        call = self._runs.WatchRun(request, timeout=CALL_S, metadata=call_metadata())
        async with self._calling("WatchRun"):
            return [_decoded(event_from_proto, response.event) async for response in call]

    async def follow_events(self, run_id: str, *, after: int) -> AsyncGenerator[Event, None]:
        """Yield the events after one, in order, as they happen, until the run ends or the aggregator stops."""
        request = pb2.WatchRunRequest(run_id=run_id, after_sequence=after, follow=True)
        call = self._runs.WatchRun(request, metadata=call_metadata())
        try:
            async with self._calling("WatchRun"):
                async for response in call:
                    yield _decoded(event_from_proto, response.event)
        finally:
            call.cancel()

    async def list_clients(self, *, after: str = "", limit: int) -> Sequence[Client]:
        """Return at most `limit` clients that ever joined, by id, after one."""
        found: list[Client] = []
        while True:
            request = pb2.ListClientsRequest(page_size=limit - len(found), page_token=after)
            response = await self._call(self._runs.ListClients, request)
            found += [_decoded(client_from_proto, client) for client in response.clients]
            after = response.next_page_token
            if not after or len(found) == limit:
                return found

    async def client_log(self, client_id: str, *, after: int, level: LogLevel) -> ClientLog:
        """Return the log lines of a client that its site lets out, after a number, of a level or a graver one."""
        query = pb2.ClientLogQuery(client_id=client_id, after=after, level=LOG_LEVEL.number(level))
        response = await self._call(self._runs.ListClients, pb2.ListClientsRequest(log=query))
        return _decoded(log_from_proto, response.log)

    async def list_audit(self, *, after: int, limit: int) -> Sequence[AuditEntry]:
        """Return the audit's entries after a number, in order."""
        request = admin_pb2.ListAuditRequest(after=after, page_size=limit)
        response = await self._call(self._admin.ListAudit, request)
        return [_decoded(audit_entry_from_proto, entry) for entry in response.entries]

    async def fetch_artifact(
        self, run_id: str, kind: ArtifactKind, *, round_number: int = -1, offset_bytes: int = 0
    ) -> Artifact:
        """Return the model or prototypes of a committed round, from an offset on; -1 is the last round."""
        request = pb2.FetchArtifactRequest(
            run_id=run_id, round=round_number, kind=_KINDS[kind], offset_bytes=offset_bytes
        )
        call = self._runs.FetchArtifact(request, metadata=call_metadata())
        try:
            first = await self._next_part(call, "FetchArtifact")
            if first is _EOF or first.WhichOneof("part") != "blob":
                raise Internal("the aggregator sent bytes before their reference")
            blob = _decoded(blob_from_proto, first.blob)
        except BaseException:
            call.cancel()
            raise
        return Artifact(blob, self._chunks(call, blob.size_bytes - offset_bytes), call.cancel)

    async def get_caller(self) -> Caller:
        """Return whose key the request has. Raises KeyInvalid."""
        found = await self._call(self._admin.GetCaller, admin_pb2.GetCallerRequest())
        return Caller(found.caller, found.label, tuple(found.scopes), found.expires_at, found.federation)

    async def report_refusals(self, refusals: Sequence[Refused]) -> None:
        """Report requests that this gateway refused by itself, for the audit."""
        reported = [
            admin_pb2.RefusedRequests(reason=each.reason, limit=each.limit, address=each.address, count=each.count)
            for each in refusals
        ]
        await self._call(self._admin.ReportRefusals, admin_pb2.ReportRefusalsRequest(refusals=reported))

    async def revoke_own_key(self) -> None:
        """Revoke the key of the request. Raises KeyInvalid."""
        await self._call(self._admin.RevokeOwnKey, admin_pb2.RevokeOwnKeyRequest())

    async def redeem_console_code(self, code: str) -> tuple[str, float]:
        """Return a session's text and its end, in seconds since the epoch, for a console code. Raises KeyInvalid."""
        made = await self._call(self._admin.RedeemConsoleCode, admin_pb2.RedeemConsoleCodeRequest(code=code))
        return made.text, made.expires_at

    async def sign_on_provider(self) -> str:
        """Return the name of the provider at which people sign on; empty where none is set."""
        return str((await self._call(self._admin.SignOn, admin_pb2.SignOnRequest())).name)

    async def sign_on(self, address: str, **step: Any) -> SignOnStep:
        """Make one step of a sign-on, by its name in `SignOnRequest`. Raises SignOnRefused, SignOnUnavailable."""
        request = admin_pb2.SignOnRequest(address=address, **step)
        made = await self._call(self._admin.SignOn, request, timeout_s=SIGN_ON_S)
        return SignOnStep(made.url, made.user_code, made.handle, made.interval_s, made.text, made.expires_at)

    async def check_health(self) -> None:
        """Check that the aggregator serves.

        Raises:
            AggregatorUnavailable: It does not answer in time, or says that it does not serve; TlsFailed where TLS is why.
        """
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        try:
            response = await self._call(self._health.Check, request, timeout_s=HEALTH_S)
        except TlsFailed:
            raise
        except FedplccError as error:
            raise AggregatorUnavailable(error.detail, part="aggregator", address=self._address) from error
        if response.status != health_pb2.HealthCheckResponse.SERVING:
            detail = f"the aggregator at {self._address} does not serve yet, or not any more"
            raise AggregatorUnavailable(detail, part="aggregator", address=self._address)

    async def _chunks(self, call: Any, size_bytes: int) -> AsyncGenerator[bytes, None]:
        missing = size_bytes
        try:
            while (part := await self._next_part(call, "FetchArtifact")) is not _EOF:
                missing -= len(part.data)
                yield part.data
        finally:
            call.cancel()
        if missing:
            raise PayloadCorrupt(f"{size_bytes - missing} of {size_bytes} bytes arrived")

    async def _write(self, call: Any, message: Any) -> None:
        async with self._calling("UploadInitialModel"):
            try:
                await asyncio.wait_for(call.write(message), CALL_S)
            except asyncio.InvalidStateError as error:
                # The call has ended before: reading it raises the reason.
                await asyncio.wait_for(call.read(), CALL_S)
                raise EndedInWriting(f"the aggregator at {self._address} ended the upload") from error
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.INTERNAL:
                    raise
                # gRPC fails the write itself, and then keeps that for the reason that the aggregator gave.
                raise EndedInWriting(f"the aggregator at {self._address} ended the upload") from error
            except TimeoutError as error:
                raise Unavailable(f"the aggregator at {self._address} took nothing for {CALL_S:.0f} s") from error

    async def _says_stored(self, call: Any, timeout_s: float) -> bool:
        response = await self._next_part(call, "UploadInitialModel", timeout_s)
        if response is _EOF:
            raise Internal("the aggregator did not say whether it holds the model")
        return bool(response.is_stored)

    async def _next_part(self, call: Any, method: str, timeout_s: float = CALL_S) -> Any:
        async with self._calling(method):
            try:
                return await asyncio.wait_for(call.read(), timeout_s)
            except TimeoutError as error:
                raise Unavailable(f"the aggregator at {self._address} sent nothing for {timeout_s:.0f} s") from error

    async def _pages(self, method: Any, request: Any) -> AsyncGenerator[Any, None]:
        """Yield the pages of a request, up to the last; the tokens are written into the request."""
        while True:
            response = await self._call(method, request)
            yield response
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def _run(self, method: Any, request: Any) -> RunView:
        """Return the run of an answer."""
        return _decoded(run_from_proto, (await self._call(method, request)).run)

    async def _call(self, method: Any, request: Any, *, timeout_s: float = CALL_S) -> Any:
        async with self._calling(type(request).__name__.removesuffix("Request")):
            return await method(request, timeout=timeout_s, metadata=call_metadata())

    @asynccontextmanager
    async def _calling(self, method: str) -> AsyncGenerator[None, None]:
        """Translate gRPC's errors of a method's call in this block."""
        try:
            with self._made.logged(method), translated(self._address):
                yield
        except AggregatorUnavailable as error:
            if self._explained is None:
                raise
            raise await self._explained(error) from error


def _decoded(decode: Callable[[Message], Record], message: Message) -> Record:
    """Return the record of a message. A malformed message is an internal error, not a fault of the request."""
    try:
        return decode(message)
    except MalformedRequest as error:
        raise Internal(f"the aggregator's answer is malformed: {error.detail}") from error
