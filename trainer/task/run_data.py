"""The data that a run began with, compared whenever a client's data are read for it again.

A trainer that starts again, a simulation that goes on and a stage that begins read the client's folders anew. What a client
trains on and is tested on at a place of a run is kept with the client's state. Images that have arrived since are left out,
where the run has no stages; other data are refused, and so is a stage that would test on images that were trained on before.
So is a run that begins with another one's model and would test on images that the other trained on: its record stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedplcc.shared.config.initial_model import lineage
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.config.trained_input import names_classes
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import ClientProblem
from fedplcc.trainer.data.images.store import FORMAT
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord, RunRecord, changes
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.site import ClientSite

log = get_logger("fedplcc.trainer.task.run_data")

WHOLE = "0"
"""The place of a run without stages."""
DATA_KEY = "the data specification"
"""Key of the data in `Beginning.rule`; it holds a path of the site, which no refusal says."""

PIXELS_KEY = "the reading of pixels"
"""Key in `Beginning.rule` of the way in which pixels are read, by which their digests are made."""

OnProblem = Callable[[ClientProblem], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a run's first model is known to come from, and what divides a client's images in the run.

    Attributes:
        runs: The runs that trained it, the last first; None where nobody says.
        order: What is to be said of the order of its classes.
        withholds: Whether nothing that is made of training images leaves but releases with noise, no word of copies either.
    """

    runs: tuple[str, ...] | None = ()
    order: str = ""
    rule: Mapping[str, str] = field(default_factory=dict)
    withholds: bool = False


AFRESH = Beginning()


def beginning_of(config: RunConfig, site: ClientSite) -> Beginning:
    """Return what a run begins with at a client."""
    data, run = config.data, config.run
    rule = {
        DATA_KEY: site.data,
        PIXELS_KEY: FORMAT,
        "data.test_every": data.test_every,
        "data.validation_every": data.validation_every,
        "run.seed": run.seed,
        "samples_per_class": site.samples_per_class,
        "fraction": site.fraction,
        "validation_per_class": site.validation_per_class,
    }
    runs = run.initial_runs if run.initial_runs is not None or run.initial_model is not None else ()
    of_weights = site.consent.weights.runs_of(config.model.weights_sha256)
    return Beginning(
        runs=lineage(runs or (), of_weights) if runs is not None or of_weights else None,
        order=""
        if names_classes(run.model_dump(mode="json"))
        else ", and its outputs are taken in the order of data.classes",
        rule={key: "not set" if value is None else str(value) for key, value in rule.items()},
        withholds=config.withholds,
    )


class RunData:
    """The data of one client's runs."""

    def __init__(self, client_id: str, states: ClientStates) -> None:
        self._client_id, self._states = client_id, states
        self._seen: tuple[str, str, DataRecord] | None = None
        self._met: str | None = None

    def meets(self, run_id: str) -> None:
        """Note that data are read for a run; of one without an id, as a simulation's at first, they are the next one's."""
        self._met = run_id

    def is_new(self, run_id: str) -> bool:
        """Whether this process meets a run of which nothing is kept: asked a second time in a row, no.

        Raises:
            StoreUnavailable: The record cannot be read.
        """
        met, self._met = self._met, run_id
        return met not in ("", run_id) and self._states.data_record(run_id) is None

    def began(self, run_id: str, place: Place | None) -> DataRecord | None:
        """Return the images that a run without stages began with; None where this process knows that it has them.

        Raises:
            StoreUnavailable: The record cannot be read.
        """
        if place is not None or (self._seen is not None and self._seen[:2] == (run_id, WHOLE)):
            return None
        known = self._states.data_record(run_id)
        return None if known is None else known.latest

    def check(
        self,
        run_id: str,
        place: Place | None,
        record: DataRecord,
        beginning: Beginning = AFRESH,
        on_problem: OnProblem | None = None,
    ) -> None:
        """Compare a client's data with those that the run had at this place; keep them where it was not here before.

        Args:
            place: Its place; None in a run without stages.
            beginning: Where its first model comes from.
            on_problem: Told where nobody knows on which images that was trained.

        Raises:
            InvalidData: They are other data, or test on images that were trained on.
            DiskFull, StoreUnavailable: The record cannot be read or kept.
        """
        at = WHOLE if place is None else f"{place.number}.{place.stage}"
        if self._seen is not None and self._seen[:2] == (run_id, at) and self._seen[2] is record:
            return
        known = self._states.data_record(run_id)
        if known is None:
            trained = self._trained_before(run_id, record, beginning, on_problem)
            kept = RunRecord(places={at: record.sha256}, latest=record, trained=trained, rule=beginning.rule)
            self._states.keep_data_record(run_id, kept)
            self._report_copies(run_id, record, None if beginning.withholds else on_problem)
        elif at not in known.places:
            self._enter(run_id, at, known, record)
        elif known.places[at] != record.sha256:
            raise self._changed(run_id, known, record)
        self._seen = (run_id, at, record)

    def _trained_before(
        self, run_id: str, record: DataRecord, beginning: Beginning, on_problem: OnProblem | None
    ) -> frozenset[str]:
        """Return the digests of images that earlier runs trained on which made the first model; refuse tests on them."""
        trained: frozenset[str] = frozenset()
        unknown: list[str] = []
        for earlier in beginning.runs or ():
            before = self._states.data_record(earlier)
            if before is None:
                unknown.append(earlier)
                continue
            names = self._leaked(record, before.barred, run_id)
            if names:
                raise InvalidData(
                    f"{names} images for testing or validation were trained on in run {earlier}, which trained the model "
                    f"that run {run_id} begins with; {_what_changed(before.rule, beginning.rule)}; the log of this trainer "
                    "names the first; divide the images as that run did, or begin with a model that was not trained on them"
                )
            trained |= before.barred
            if _is_read_otherwise(before.rule, beginning.rule):
                self._warn(
                    run_id,
                    f"run {earlier}, which trained the first model of this run, read pictures with colour profiles "
                    "otherwise: those of them that it trained on are not known again",
                    "divide the images as they were then, if any has a colour profile",
                    on_problem,
                )
        if beginning.runs is None:
            self._warn(
                run_id,
                "nobody says which runs trained the first model of this run: it may be tested on images that it has seen"
                + beginning.order,
                "name them in run.initial_runs, or write [] if none of the client's images were trained on",
                on_problem,
            )
        elif unknown:
            self._warn(
                run_id,
                f"this client has no record of its images in {', '.join(unknown[:3])}, which trained the first model of "
                "this run: if it took part there, it may be tested on images that were trained on",
                "see that its images are divided as they were then; a record stays with a client's state directory",
                on_problem,
            )
        return trained

    def _warn(self, run_id: str, detail: str, hint: str, on_problem: OnProblem | None) -> None:
        log.warning("trained_images_unknown", client_id=self._client_id, run_id=run_id, detail=detail, hint=hint)
        if on_problem is not None:
            on_problem(ClientProblem(reason="TRAINED_IMAGES_UNKNOWN", detail=detail, hint=hint))

    def _report_copies(self, run_id: str, record: DataRecord, on_problem: OnProblem | None) -> None:
        """Tell of images that are tested on and have the pixels of images that are trained on."""
        copied = record.digests(TRAIN) & record.digests(TEST, VALIDATION)
        if not copied:
            return
        names = record.names(copied, TEST, VALIDATION)
        log.warning("copies_on_two_sides", client_id=self._client_id, run_id=run_id, count=len(names), first=names[:6])
        if on_problem is not None:
            on_problem(
                ClientProblem(
                    reason="COPIES_ON_TWO_SIDES",
                    detail=f"{len(names)} images for testing or validation have the pixels of images that are trained on: "
                    "scores are too high by them",
                    hint="`fedplcc data describe SPEC --check` names them; leave one of each, on one side",
                )
            )

    def _leaked(self, record: DataRecord, trained: frozenset[str], run_id: str) -> int:
        """Return how many images for testing or validation were trained on; the log names the first."""
        leaked = record.digests(TEST, VALIDATION) & trained
        if not leaked:
            return 0
        names = record.names(leaked, TEST, VALIDATION)
        log.error("trained_images_tested", client_id=self._client_id, run_id=run_id, count=len(names), first=names[:6])
        return len(names)

    def _enter(self, run_id: str, at: str, known: RunRecord, record: DataRecord) -> None:
        trained = known.trained | known.latest.digests(TRAIN)
        count = self._leaked(record, trained - known.latest.digests(TEST, VALIDATION), run_id)
        if count:
            raise InvalidData(
                f"{count} images for testing or validation were trained on earlier in run {run_id}; the log of this "
                "trainer names the first; put them back among the training images"
            )
        self._states.keep_data_record(
            run_id,
            RunRecord(
                places={**known.places, at: record.sha256}, latest=record, trained=frozenset(trained), rule=known.rule
            ),
        )

    def _changed(self, run_id: str, known: RunRecord, record: DataRecord) -> InvalidData:
        found = changes(known.latest, record)
        log.error("data_changed", client_id=self._client_id, run_id=run_id, changes=str(found), first=list(found.first))
        return InvalidData(
            f"other data than run {run_id} began with: {found}; put them back as they were until the run has ended, or "
            "begin a new run from its model; the log of this trainer names the first"
        )


def _is_read_otherwise(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether images may have changed sides and digests both: by another rule, and another way to read pixels."""
    changed = {key for key in now if before.get(key) != now[key]}
    return PIXELS_KEY in changed and len(changed) > 1


def _what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return in words what divides the images in another way than before."""
    changed = [
        key if key == DATA_KEY else f"{key} ({before.get(key, 'not set')}, now {now[key]})"
        for key in now
        if key != PIXELS_KEY and before and before.get(key, "not set") != now[key]
    ]
    return f"since then changed: {', '.join(changed)}" if changed else "the files have changed sides since then"
