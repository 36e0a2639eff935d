"""Tasks with the bytes of their small blobs, as far as the trainer takes them and does not hold them."""

from __future__ import annotations

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.servicer.calls import call
from fedplcc.shared.convert.tasks import taken_inline_from_proto, task_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.types import TakenInline, Task, TaskKind


class InlineTasks:
    """The tasks of one stream, and what its trainer holds by the rule of the contract (`InlineBlobs`)."""

    def __init__(self, coordinator: Coordinator, request: round_pb2.SyncRoundRequest) -> None:
        """Begin with what the trainer says.

        Raises:
            MalformedRequest: It says what cannot be.
        """
        self._coordinator, self._client_id = coordinator, request.client_id
        is_said = request.HasField("inline_blobs")
        taken = taken_inline_from_proto(request.inline_blobs) if is_said else TakenInline(0)
        self._max_bytes, self._held = taken.max_bytes, taken.held

    async def response(self, task: Task) -> round_pb2.SyncRoundResponse:
        """Return the message of a task, with the blobs that the trainer lacks."""
        blobs, encoded = self._coordinator.small_blobs, task.payload.encoded
        # Who sat out has no use for the difference and receives the model whole; who took part mostly evaluated it.
        left_out = {encoded.sha256} if encoded is not None and task.kind is TaskKind.TRAIN else set()
        wanted = blobs.wanted(task.payload, held=self._held | left_out, max_bytes=self._max_bytes)
        data = blobs.kept(wanted)
        if data is None:
            data = await call(blobs.read, wanted)
        if data:
            self._coordinator.transfers.count_inline(self._client_id, task, wanted)
        if task.payload.blobs:
            sent = {blob.sha256 for blob in wanted} if data else set()
            self._held = frozenset(
                blob.sha256 for blob in task.payload.moved if blob.sha256 in sent or blob.sha256 in self._held
            )
        return round_pb2.SyncRoundResponse(task=task_to_proto(task), inline_blobs=data)
