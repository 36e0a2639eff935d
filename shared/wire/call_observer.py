"""Who is told of the calls that a server answers; knows nothing of gRPC, so that metrics need not either."""

from __future__ import annotations


class CallObserver:
    """Takes no note of calls; a subclass does. A method is named as on the wire: "/fedplcc.v1.RoundService/Join"."""

    def serves(self, method: str, kind: str) -> None:
        """A method will be served; `kind` is unary, client_stream, server_stream or bidi_stream."""

    def begun(self, method: str) -> None:
        """A call begins."""

    def received_message(self, method: str) -> None:
        """A message of a call came; a stream has many."""

    def sent_message(self, method: str) -> None:
        """A message of a call goes."""

    def ended(self, method: str, code: str, seconds: float) -> None:
        """A call ended with a status, of which this is the code's name."""
