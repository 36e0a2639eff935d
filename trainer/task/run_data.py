"""The data that a run began with, compared whenever a client's data are read for it again.

A trainer that starts again, a simulation that goes on and a stage that begins read the client's folders anew. What a client
trains on and is tested on at a place of a run is kept with the client's state. Images that have arrived since are left out,
where the run has no stages; other data are refused, and so is a stage that would test on images that were trained on before.
"""

from __future__ import annotations

from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.process.log import get_logger
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord, RunRecord, changes
from fedplcc.trainer.task.client_state import States

log = get_logger("fedplcc.trainer.task.run_data")

WHOLE = "0"
"""The place of a run without stages."""


class RunData:
    """The data of one client's runs."""

    def __init__(self, client_id: str, states: States) -> None:
        """Prepare.

        Args:
            client_id: The client.
            states: Keeps records over restarts.
        """
        self._client_id, self._states = client_id, states
        self._seen: tuple[str, str, DataRecord] | None = None

    def began(self, run_id: str, place: Place | None) -> DataRecord | None:
        """Return the images that a run without stages began with; None where this process knows that it has them.

        Raises:
            StoreUnavailable: The record cannot be read.
        """
        if place is not None or (self._seen is not None and self._seen[:2] == (run_id, WHOLE)):
            return None
        known = self._states.data_record(run_id)
        return None if known is None else known.latest

    def check(self, run_id: str, place: Place | None, record: DataRecord) -> None:
        """Compare a client's data with those that the run had at this place; keep them where it was not here before.

        Args:
            run_id: The run.
            place: Its place; None in a run without stages.
            record: The client's data there.

        Raises:
            InvalidData: They are other data, or test on images that were trained on.
            DiskFull, StoreUnavailable: The record cannot be read or kept.
        """
        at = WHOLE if place is None else f"{place.number}.{place.stage}"
        if self._seen is not None and self._seen[:2] == (run_id, at) and self._seen[2] is record:
            return
        known = self._states.data_record(run_id)
        if known is None or at not in known.places:
            self._begin(run_id, at, known, record)
        elif known.places[at] != record.sha256:
            raise self._changed(run_id, known, record)
        self._seen = (run_id, at, record)

    def _begin(self, run_id: str, at: str, known: RunRecord | None, record: DataRecord) -> None:
        if known is None:
            self._states.keep_data_record(run_id, RunRecord(places={at: record.sha256}, latest=record))
            return
        trained = known.trained | known.latest.digests(TRAIN)
        leaked = (record.digests(TEST, VALIDATION) - known.latest.digests(TEST, VALIDATION)) & trained
        if leaked:
            names = [
                f"{side}: {name}"
                for side in (TEST, VALIDATION)
                for name, value in record.sides[side].items()
                if value.partition(" ")[2] in leaked
            ]
            log.error(
                "trained_images_tested", client_id=self._client_id, run_id=run_id, count=len(names), first=names[:6]
            )
            raise InvalidData(
                f"{len(names)} images for testing or validation were trained on earlier in run {run_id}; the log of this "
                "trainer names the first; put them back among the training images"
            )
        self._states.keep_data_record(
            run_id,
            RunRecord(places={**known.places, at: record.sha256}, latest=record, trained=trained),
        )

    def _changed(self, run_id: str, known: RunRecord, record: DataRecord) -> InvalidData:
        found = changes(known.latest, record)
        log.error("data_changed", client_id=self._client_id, run_id=run_id, changes=str(found), first=list(found.first))
        return InvalidData(
            f"other data than run {run_id} began with: {found}; put them back as they were until the run has ended, or "
            "begin a new run from its model; the log of this trainer names the first"
        )
