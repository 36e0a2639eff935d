"""Prototype maps of committed rounds, computed from the prototypes that are kept.

A map needs its round's prototypes and, for alignment, the centres of a key round's map (see shared/prototype_map.py). The
centres stay in memory until the process ends, even after the key round's prototypes were removed, so that later maps keep
the alignment. The latest maps are cached too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedplcc.aggregator.garbage.rules import Keep, kept_rounds
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import (
    BlobNotFound,
    InvalidConfig,
    MalformedUpdate,
    NoPrototypes,
    PayloadCorrupt,
    RoundNotFound,
)
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.prototype_map import (
    Centres,
    MappedClient,
    RoundMap,
    key_rounds,
    map_prototypes,
    reference_round,
    spans,
)
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import BlobRef, PrototypeSet, Run

MAX_RUNS = 4
"""Runs whose maps are cached."""
MAX_PICTURES = 32
"""Maps cached for each run."""
PAGE = 100
"""Rounds read at a time."""


@dataclass(slots=True)
class _Drawn:
    """Cached maps and facts of one run."""

    is_there: dict[int, bool] = field(default_factory=dict)
    """Whether each kept round had prototypes when it was checked; a kept round's prototypes stay."""
    keys: dict[int, tuple[Centres, int]] = field(default_factory=dict)
    """The centres of key rounds and the round that they are aligned with, including the last key round whose prototypes
    were removed."""
    pictures: OrderedDict[int, RoundMap] = field(default_factory=OrderedDict)


class PrototypeMaps:
    """Prototype maps of the rounds of all runs. Any thread may call it; calls run one at a time."""

    def __init__(self, ledger: Ledger, store: Store, blobs: BlobStore, keep: Keep) -> None:
        self._ledger, self._store, self._blobs, self._keep = ledger, store, blobs, keep
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Drawn] = OrderedDict()

    def of(self, run_id: str, number: int) -> RoundMap:
        """Return the map of a round; -1 is the last committed round whose prototypes are kept.

        Raises:
            RunNotFound: There is no such run.
            NoPrototypes: Its method has none.
            RoundNotFound: The round has not committed.
            BlobNotFound: Its prototypes were collected.
            PayloadCorrupt: Stored prototypes are gone or damaged.
        """
        run = self._ledger.get(run_id)
        config = _config_with_prototypes(run)
        with self._lock:
            known = self._known(run_id)
            there = self._there(run, known)
            if number < 0 and there:
                number = there[-1]
            if number not in there:
                raise self._why_not(run, number, there)
            picture = known.pictures.get(number) or self._draw(run, config, number, there, known)
            known.pictures[number] = picture
            known.pictures.move_to_end(number)
            while len(known.pictures) > MAX_PICTURES:
                known.pictures.popitem(last=False)
            return replace(picture, rounds=spans(there))

    def _known(self, run_id: str) -> _Drawn:
        known = self._runs.setdefault(run_id, _Drawn())
        self._runs.move_to_end(run_id)
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return known

    def _there(self, run: Run, known: _Drawn) -> list[int]:
        """Return the rounds whose prototypes exist and are kept, in rising order; each is checked once."""
        last, kept = run_facts.last_committed(run), kept_rounds(run, self._keep)
        first = max(1, min(kept.results_from, kept.prototypes_from))
        window = range(first, 0 if last is None else last + 1)
        known.is_there = {number: known.is_there[number] for number in window if number in known.is_there}
        after = next((number for number in window if number not in known.is_there), window.stop) - 1
        while after < window.stop - 1:
            page = self._store.list_rounds(run.run_id, after=after, limit=PAGE)
            if not page:
                break
            for each in page:
                if each.number in window:
                    found = each.prototypes is not None and self._store.find_blob(each.prototypes.sha256) is not None
                    known.is_there[each.number] = found
            after = page[-1].number
        there = [number for number in window if known.is_there.get(number)]
        last_before = max((key for key in known.keys if key < first), default=first)
        known.keys = {key: value for key, value in known.keys.items() if key >= last_before}
        return there

    def _draw(self, run: Run, config: RunConfig, number: int, there: Sequence[int], known: _Drawn) -> RoundMap:
        """Return the map of a round; computes first the key rounds that it is aligned with, unless they are cached."""
        keys = sorted({*key_rounds(there), *known.keys})
        chain = [number]
        while (reference := reference_round(chain[-1], keys)) is not None and reference not in known.keys:
            chain.append(reference)
        while True:
            each = chain.pop()
            reference = reference_round(each, keys)
            centres, aligned_from = ({}, each) if reference is None else known.keys[reference]
            picture = self._drawn(run, config, each, centres, aligned_from)
            if each in keys:
                known.keys[each] = picture.drawn.centres, aligned_from
            if not chain:
                return picture

    def _drawn(self, run: Run, config: RunConfig, number: int, reference: Centres, aligned_from: int) -> RoundMap:
        record = self._store.find_round(run.run_id, number)
        assert record is not None
        exchange = config.algorithm.part(PrototypeExchange)
        assert exchange is not None
        sets = {
            client_id: blob
            for client_id, update in sorted(record.updates.items())
            if (blob := update.payload.prototype_set(exchange.kind)) is not None
        }
        gone: set[str] = set()
        made = self._read(record.prototypes)
        if made is None:
            raise self._why_not(run, number, ())
        try:
            drawn = map_prototypes(
                self._local(sets, gone),
                made,
                comparison=exchange.comparison,
                num_classes=len(config.data.classes),
                reference=reference,
            )
        except (MalformedUpdate, ValueError) as error:
            raise PayloadCorrupt(
                f"stored prototypes of round {number} of run {run.run_id} are not what was checked when they came: examine "
                "the state directory with 'fedplcc doctor'"
            ) from error
        domains = self._store.domains(tuple(sets))
        return RoundMap(
            number=number,
            drawn=drawn,
            clients=tuple(
                MappedClient(client_id, domains.get(client_id, ""), client_id not in gone) for client_id in sets
            ),
            comparison=exchange.comparison,
            aligned_from=aligned_from,
        )

    def _local(self, sets: Mapping[str, BlobRef], gone: set[str]) -> Iterator[tuple[str, PrototypeSet]]:
        """Yield clients with their prototypes, one set at a time; adds clients whose set was removed to `gone`."""
        for client_id, blob in sets.items():
            found = self._read(blob)
            if found is None:
                gone.add(client_id)
            yield client_id, PrototypeSet.empty() if found is None else found

    def _read(self, blob: BlobRef | None) -> PrototypeSet | None:
        """Return stored prototypes, or None if they were removed."""
        if blob is None:
            return None
        with self._blobs.holds.reading(blob.sha256) as is_kept:
            if not is_kept or self._store.find_blob(blob.sha256) is None:
                return None
            return prototypes_from_bytes(self._blobs.read(blob.sha256))

    def _why_not(self, run: Run, number: int, there: Sequence[int]) -> RoundNotFound | BlobNotFound:
        last = run_facts.last_committed(run)
        if last is None or last == 0:
            return RoundNotFound(
                f"run {run.run_id} has not committed a round with prototypes yet", run_id=run.run_id, round=number
            )
        if number == 0:
            detail = f"round 0 of run {run.run_id} made the first model; prototypes begin with round 1"
            return RoundNotFound(detail, run_id=run.run_id, round=number)
        if number > last:
            return RoundNotFound(f"run {run.run_id} has not committed round {number}", run_id=run.run_id, round=number)
        number = last if number < 0 else number
        which = ", ".join(f"{first} to {last}" if first < last else f"{first}" for first, last in spans(there))
        return BlobNotFound(
            f"the prototypes of round {number} of run {run.run_id} were collected; there are those of "
            f"{'rounds ' + which if which else 'no round'}: an aggregator with a larger keep_prototypes keeps those of more",
            run_id=run.run_id,
            round=number,
            rounds=which,
        )


def _config_with_prototypes(run: Run) -> RunConfig:
    try:
        config = config_of(run)
    except InvalidConfig as error:
        raise NoPrototypes(
            f"this version cannot read the configuration of run {run.run_id}: {error.detail}", run_id=run.run_id
        ) from error
    if not config.algorithm.has_prototypes:
        raise NoPrototypes(
            f"run {run.run_id} trains by {run.method}, which has no prototypes, so there is no map of them",
            run_id=run.run_id,
        )
    return config
