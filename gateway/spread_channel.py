"""A channel over several connections: each has a bound of open calls, and a call must not wait until others' have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc.aio

CONNECTIONS = 8
"""Connections of a gateway at most: event streams, downloads and what else may go on at once has room on them."""
CALLS_OF_ONE = 48
"""Open calls of a connection before the next one is used; the aggregator admits 64."""


class SpreadChannel:
    """Channels to one address that serve stubs as one. Each connects when it is first used: often the first alone is."""

    def __init__(self, channels: Sequence[grpc.aio.Channel]) -> None:
        """Use these; who made them closes them."""
        self._channels = list(channels)
        self.num_calls = [0] * len(self._channels)
        """Open calls of each."""

    def unary_unary(self, *named: Any, **options: Any) -> Callable[..., Any]:
        """See grpc.aio.Channel."""
        return self._spread([channel.unary_unary(*named, **options) for channel in self._channels])

    def unary_stream(self, *named: Any, **options: Any) -> Callable[..., Any]:
        """See grpc.aio.Channel."""
        return self._spread([channel.unary_stream(*named, **options) for channel in self._channels])

    def stream_unary(self, *named: Any, **options: Any) -> Callable[..., Any]:
        """See grpc.aio.Channel."""
        return self._spread([channel.stream_unary(*named, **options) for channel in self._channels])

    def stream_stream(self, *named: Any, **options: Any) -> Callable[..., Any]:
        """See grpc.aio.Channel."""
        return self._spread([channel.stream_stream(*named, **options) for channel in self._channels])

    def _spread(self, calls: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
        def call(*request: Any, **options: Any) -> Any:
            which = self._which()
            self.num_calls[which] += 1
            try:
                made = calls[which](*request, **options)
                made.add_done_callback(lambda _: self._ended(which))
            except BaseException:
                self._ended(which)
                raise
            return made

        return call

    def _ended(self, which: int) -> None:
        self.num_calls[which] -= 1

    def _which(self) -> int:
        for which, num_calls in enumerate(self.num_calls):
            if num_calls < CALLS_OF_ONE:
                return which
        return min(range(len(self.num_calls)), key=self.num_calls.__getitem__)
