"""Gate through which every request of RoundService leaves a trainer: its line is written before its bytes are sent.

It is around the channel, below the generated stubs: a call that goes round it would need a channel of its own. Requests are
serialised here, once, so that what is written down is what is sent. Enrolment and renewal of certificates (EnrolService,
AdminService) carry a site's identity alone and have no lines.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.readings import READINGS, UNREADABLE_FILES
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import Membership, RunSpec
from fedplcc.trainer.owner.egress.log import EgressLog, Message, What
from fedplcc.trainer.owner.refusals import CLAIMS

MAX_CLAIMS = 1000
"""Most runs whose claims are kept in memory; the oldest is let go for another."""
OF_SPEED = frozenset(READINGS) - {UNREADABLE_FILES.name}
"""Readings whose numbers differ in each heartbeat: that they are told is one line, not each number."""

Serializer = Callable[[Any], bytes]


class EgressGate:
    """Writes down what leaves; any thread may pass it."""

    def __init__(self, log: EgressLog, epsilon: Callable[[], float | None]) -> None:
        """Prepare.

        Args:
            epsilon: Returns what releases have cost up to now; None where that is not known or has no bound.
        """
        self._log, self._epsilon = log, epsilon
        self._claims: dict[str, str] = {}

    def saw(self, run: RunSpec) -> None:
        """Keep what a run claims; its tasks come before anything leaves for it."""
        self._claims[run.run_id] = _claim_of(run)
        if len(self._claims) > MAX_CLAIMS:
            del self._claims[next(iter(self._claims))]

    def joined(self, membership: Membership) -> None:
        """Take what the answer to Join says of what the aggregator has."""
        self._log.saw_commit(membership.last_committed)

    def check(self, method: str, request: Any, data: bytes) -> None:
        """Write the line of a request, or of the first message of a stream, if it says anything of the site.

        Raises:
            DiskFull, StoreUnavailable: It cannot be written down, so it must not leave.
        """
        for message in messages_of(method, request, data):
            self._log.write(message, self._claims.get(message.run), self._epsilon)

    def around(self, channel: grpc.Channel) -> Any:
        """Return a channel for generated stubs whose requests pass the gate."""
        return _GatedChannel(channel, self)


def messages_of(method: str, request: Any, data: bytes) -> tuple[Message, ...]:
    """Return what the log says of a request of RoundService; nothing where that says nothing of the site.

    Raises:
        StoreUnavailable: The method is none that the log knows.
    """
    match method:
        case "SyncRound" | "DownloadBlob":
            return ()
        case "Join":
            return (Message.whole(What.JOIN, data),)
        case "Heartbeat":
            number = request.round if request.run_id else None
            told = {What.PROBLEM if request.HasField("problem") else What.READINGS: _told(request)}
            told[What.LOG] = _lines(request)
            return tuple(
                Message.whole(what, data, run=request.run_id, round=number, same_as=facts)
                for what, facts in told.items()
                if facts is not None
            )
        case "GetUploadStatus" | "UploadModel" | "UploadPrototypes":
            header = request.header
            upload = Message(
                what=What.UPLOAD,
                run=header.run_id,
                round=header.round,
                roles=(header.blob.role,),
                sha256=header.blob.sha256,
                bytes=header.blob.size_bytes,
            )
            return (upload,)
        case "CommitUpdate":
            blobs = (*request.payload.tensor_groups, *request.payload.prototype_sets)
            blobs += (request.payload.encoded,) if request.payload.HasField("encoded") else ()
            roles = tuple(blob.role for blob in blobs)
            return (Message.whole(What.COMMIT, data, run=request.run_id, round=request.round, roles=roles),)
        case "ReportEvaluation":
            return (Message.whole(What.REPORT, data, run=request.run_id, round=request.round),)
    raise StoreUnavailable(f"the log of what leaves this site knows no {method}, so nothing was sent")


def _told(heartbeat: Any) -> str | None:
    """Name what a heartbeat says of the site, but for numbers that differ in each; None where it says nothing."""
    readings = {name: None if name in OF_SPEED else value for name, value in sorted(heartbeat.readings.items())}
    problem = heartbeat.problem
    if not readings and not heartbeat.HasField("problem"):
        return None
    facts = [problem.reason, problem.detail, problem.hint, problem.is_fatal, list(readings.items())]
    return sha256_hex(json.dumps(facts).encode())


def _lines(heartbeat: Any) -> str | None:
    """Name the log lines that a heartbeat tells; None where there are none. Their times tell them apart."""
    lines = [line.SerializeToString(deterministic=True).hex() for line in heartbeat.log_lines]
    return sha256_hex(json.dumps(lines).encode()) if lines else None


def _claim_of(run: RunSpec) -> str:
    try:
        claim = json.loads(run.config_json)["privacy"]["claim"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "none"  # not in the document where it is the default
    return claim if claim in CLAIMS else "none"  # it may be of any length: nobody has checked the document yet


class _GatedChannel:
    """A channel in the form that generated stubs use."""

    def __init__(self, channel: grpc.Channel, gate: EgressGate) -> None:
        self._channel, self._gate = channel, gate

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def unary_unary(self, path: str, request_serializer: Serializer, response_deserializer: Any, **how: Any) -> Any:
        """Return the callable of a method with one request."""
        return self._unary(self._channel.unary_unary, path, request_serializer, response_deserializer, how)

    def unary_stream(self, path: str, request_serializer: Serializer, response_deserializer: Any, **how: Any) -> Any:
        """Return the callable of a method with one request and streamed answers."""
        return self._unary(self._channel.unary_stream, path, request_serializer, response_deserializer, how)

    def stream_unary(self, path: str, request_serializer: Serializer, response_deserializer: Any, **how: Any) -> Any:
        """Return the callable of a method with streamed requests."""
        send = self._channel.stream_unary(path, None, response_deserializer, **how)
        return _Stream(send, _short(path), request_serializer, self._gate)

    def _unary(
        self, kind: Callable[..., Any], path: str, serialize: Serializer, deserialize: Any, how: dict[str, Any]
    ) -> Callable[..., Any]:
        send, method = kind(path, None, deserialize, **how), _short(path)

        def call(request: Any, **options: Any) -> Any:
            data = serialize(request)
            self._gate.check(method, request, data)
            return send(data, **options)

        return call


class _Stream:
    """Callable of a method with streamed requests, of which the first says what the others are."""

    def __init__(self, send: Any, method: str, serialize: Serializer, gate: EgressGate) -> None:
        self._send, self._method, self._serialize, self._gate = send, method, serialize, gate

    def future(self, requests: Iterable[Any], **options: Any) -> Any:
        """Send the requests; the first one has passed the gate when this returns."""
        messages = iter(requests)
        first = next(messages)
        data = self._serialize(first)
        self._gate.check(self._method, first, data)
        return self._send.future(itertools.chain([data], map(self._serialize, messages)), **options)


def _short(path: str) -> str:
    return path.rpartition("/")[2]
