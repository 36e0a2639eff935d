"""Request ids that were used: the same request again changes nothing, and an id never gets another meaning."""

from __future__ import annotations

from aggregator.store.base import ControlRequest, Store
from shared.errors import RequestIdReused

MAX_REQUEST_ID = 128
"""Most characters of a request id."""


class Requests:
    """Request ids that were used. Hold the ledger's lock from the question to what is done about the answer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def created(self, request_id: str, request_hash: str) -> str | None:
        """The run that this request created before.

        Raises:
            RequestIdReused: It came with another configuration, or steered a run.
        """
        known = self._store.find_request(request_id)
        if known is not None:
            run_id, known_hash = known
            if known_hash != request_hash:
                raise RequestIdReused(
                    f"request id {request_id!r} created run {run_id} with another configuration", run_id=run_id
                )
            return run_id
        steered = self._store.find_control_request(request_id)
        if steered is not None:
            raise RequestIdReused(
                f"request id {request_id!r} steered run {steered.run_id} before; send a new one with a new run",
                run_id=steered.run_id,
            )
        return None

    def was_done(self, request: ControlRequest) -> bool:
        """Whether this very request steered its run before.

        Raises:
            RequestIdReused: Its id came with another wish, or created a run.
        """
        known = self._store.find_control_request(request.request_id)
        if known is not None and known.request_hash == request.request_hash:
            return True
        if known is not None or self._store.find_request(request.request_id) is not None:
            raise RequestIdReused(
                f"request id {request.request_id!r} asked for something else before; send a new one with a new wish",
                run_id=request.run_id,
            )
        return False
