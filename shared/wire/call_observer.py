"""Observer of a server's calls; imports no gRPC, so that metrics need none."""

from __future__ import annotations


class CallObserver:
    """Observer that ignores every call, for subclasses; a method is named "/fedplcc.v1.RoundService/Join"."""

    def serves(self, method: str, kind: str) -> None:
        """Note a served method; `kind` is unary, client_stream, server_stream or bidi_stream."""

    def call_started(self, method: str) -> None:
        """Note the start of a call."""

    def received_message(self, method: str) -> None:
        """Note a received message; a stream has many."""

    def sent_message(self, method: str) -> None:
        """Note a sent message."""

    def ended(self, method: str, code: str, seconds: float) -> None:
        """Note the end of a call: the name of its status code, and its duration."""
