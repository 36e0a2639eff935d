"""A channel that keeps every call's messages as bytes, so that they can be sent again, by whomever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from fedplcc.shared.wire.statuses import translated

DEADLINE_S = 600.0

Metadata = tuple[tuple[str, str], ...]


@dataclass
class RecordedCall:
    """One call that was answered."""

    method: str
    is_request_stream: bool
    is_response_stream: bool
    requests: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)

    def send_again(self, channel: grpc.Channel, metadata: Metadata = ()) -> list[bytes]:
        """Send the same bytes over another channel; returns the answers, or raises the refusal."""
        kind = f"{_word(self.is_request_stream)}_{_word(self.is_response_stream)}"
        given: Any = iter(self.requests) if self.is_request_stream else self.requests[0]
        with translated():
            answer = getattr(channel, kind)(self.method)(given, timeout=DEADLINE_S, metadata=metadata)
            return list(answer) if self.is_response_stream else [answer]


class RecordingChannel:
    """A channel for generated stubs; `ended` is told of each call once its last answer has come."""

    def __init__(
        self, channel: grpc.Channel, ended: Callable[[RecordedCall], None], *, metadata: Metadata = ()
    ) -> None:
        self._channel, self._ended, self._metadata = channel, ended, metadata

    def close(self) -> None:
        self._channel.close()

    def unary_unary(self, path: str, **options: Any) -> Callable[..., Any]:
        return self._callable(path, options, is_request_stream=False, is_response_stream=False)

    def unary_stream(self, path: str, **options: Any) -> Callable[..., Any]:
        return self._callable(path, options, is_request_stream=False, is_response_stream=True)

    def stream_unary(self, path: str, **options: Any) -> Callable[..., Any]:
        return self._callable(path, options, is_request_stream=True, is_response_stream=False)

    def stream_stream(self, path: str, **options: Any) -> Callable[..., Any]:
        return self._callable(path, options, is_request_stream=True, is_response_stream=True)

    def _callable(
        self, path: str, options: dict[str, Any], *, is_request_stream: bool, is_response_stream: bool
    ) -> Callable[..., Any]:
        encode, decode = options["request_serializer"], options["response_deserializer"]
        raw = getattr(self._channel, f"{_word(is_request_stream)}_{_word(is_response_stream)}")(path)

        def call(request: Any, timeout: float = DEADLINE_S) -> Any:
            recorded = RecordedCall(path, is_request_stream, is_response_stream)

            def kept(message: Any) -> bytes:
                recorded.requests.append(encode(message))
                return recorded.requests[-1]

            def parts(messages: Iterable[Any]) -> Iterator[bytes]:
                return (kept(message) for message in messages)

            given = parts(request) if is_request_stream else kept(request)
            answer = raw(given, timeout=timeout, metadata=self._metadata)
            if is_response_stream:
                return self._answers(recorded, answer, decode)
            recorded.answers.append(answer)
            self._ended(recorded)
            return decode(answer)

        return call

    def _answers(self, recorded: RecordedCall, answers: Iterable[bytes], decode: Any) -> Iterator[Any]:
        for answer in answers:
            recorded.answers.append(answer)
            yield decode(answer)
        self._ended(recorded)


def _word(is_stream: bool) -> str:
    return "stream" if is_stream else "unary"
