"""gRPC connection of a trainer to its aggregator: Join, heartbeats, the task stream, and the calls of each task.

Unary calls have deadlines. Transfers have a limit on standing still, none on their whole time, and resume at the last byte
that arrived. Calls of a task are tried again for as long as the task is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedplcc.shared.types import Task
from fedplcc.trainer.aggregator.round_service import RoundServiceCalls
from fedplcc.trainer.aggregator.task_connection import TaskConnection
from fedplcc.trainer.aggregator.task_stream import StreamEnd, TaskStream
from fedplcc.trainer.cancellation import ShouldStop


class AggregatorConnection(RoundServiceCalls):
    """One trainer's connection to its aggregator, for any number of threads."""

    def _prepare(self) -> None:
        self._stream = TaskStream(self)

    def use_renewed_certificate(self) -> None:
        """Go over to connections with the certificate of now; transfers in progress end over the old ones.

        gRPC reads a client's certificate once for each channel. The task stream is opened anew, which moves no blob again.
        Any thread may call it.
        """
        self.reconnect()
        self._stream.refresh()

    def follow(self) -> Iterator[Task | StreamEnd]:
        """Follow the client's tasks; see `TaskStream.follow`."""
        return self._stream.follow()

    def refresh(self) -> None:
        """Have the thread that follows tasks ask for the present one anew."""
        self._stream.refresh()

    def for_task(self, should_stop: ShouldStop) -> TaskConnection:
        """Return the aggregator as one task sees it; its calls give up when `should_stop()` holds."""
        return TaskConnection(self, self._stream, should_stop)
