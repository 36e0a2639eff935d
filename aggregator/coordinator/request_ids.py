"""Used request ids: a repeated request changes nothing, and an id is refused for another request."""

from __future__ import annotations

from fedplcc.aggregator.store.base import ControlRequest, Store
from fedplcc.shared.errors import RequestIdReused

MAX_REQUEST_ID = 128
"""Most characters of a request id."""


class Requests:
    """Used request ids. Callers hold the ledger's lock from the look-up to the change that depends on it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def created(self, request_id: str, request_hash: str) -> str | None:
        """The run that this request created before.

        Raises:
            RequestIdReused: The id was used with another configuration, or to control a run.
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
                f"request id {request_id!r} was used to control run {steered.run_id}; send this one with a new id",
                run_id=steered.run_id,
            )
        return None

    def was_done(self, request: ControlRequest) -> bool:
        """Whether the same request was carried out before.

        Raises:
            RequestIdReused: The id was used for another request, or created a run.
        """
        known = self._store.find_control_request(request.request_id)
        if known is not None and known.request_hash == request.request_hash:
            return True
        if known is not None or self._store.find_request(request.request_id) is not None:
            raise RequestIdReused(
                f"request id {request.request_id!r} was used for another request; send this one with a new id",
                run_id=request.run_id,
            )
        return False
