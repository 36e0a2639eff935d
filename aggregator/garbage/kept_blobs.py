"""Index of the blobs that runs keep, in memory: each commit of a round adds some names, and says which others it frees.

The names of a round are read once, when it has committed. A run that has ended changes no more: of its names 8 bytes each
stay, and how many runs have them, until the run is deleted. So a collection after a commit, or a deletion, costs what that
changed, not what all runs and files come to.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from fedplcc.aggregator.garbage.rules import PAGE, Keep, KeptRounds, all_runs, initial_model, kept_rounds
from fedplcc.aggregator.histories.best_rounds import find_best
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.errors import RowCorrupt, StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import RowDamaged, sentence_of
from fedplcc.shared.types import BlobRef, Round, Run, Update, result_blobs, state_blobs

log = get_logger(__name__)

PAGE_OF_UPDATES = 500
"""Updates read at a time."""
MERGE_AFTER = 1 << 14
"""Names of ended runs that are gathered before they are merged into the sorted array."""

Name = bytes
"""SHA-256 of a blob, 32 bytes."""


@dataclass(slots=True)
class RoundNames:
    """Names of the blobs of one committed round."""

    model: list[Name]
    prototypes: list[Name]
    """The global ones."""
    state: list[Name] = field(default_factory=list)
    """What only the next round needs."""
    tensor_groups: list[Name] = field(default_factory=list)
    """Of the updates, as are the prototype sets."""
    prototype_sets: list[Name] = field(default_factory=list)

    @property
    def all(self) -> list[Name]:
        """Every name of the round."""
        return [*self.model, *self.prototypes, *self.state, *self.tensor_groups, *self.prototype_sets]

    def kept(self, number: int, kept: KeptRounds) -> list[Name]:
        """Return the names that this round, with this number, keeps."""
        names: list[Name] = []
        has_results = kept.has_results(number)
        if has_results:
            names += self.model
        if has_results or number >= kept.prototypes_from:
            names += self.prototypes
        if number >= kept.results_from:
            names += self.state
        if number >= kept.updates_from:
            names += self.tensor_groups
        if number >= min(kept.pooled_from, kept.prototypes_from):
            names += self.prototype_sets
        return names


@dataclass(slots=True)
class _Followed:
    """An open run as of its last committed round."""

    kept: KeptRounds
    committed: int
    base: tuple[Name, ...]
    """Names of the run itself: its last results and its initial model."""
    rounds: dict[int, RoundNames] = field(default_factory=dict)


_UNKNOWN = (-1, 0)
"""Stands for names that were added in two ways."""


class EndedNames:
    """Names of the blobs of ended runs, by their first 8 bytes, each with the number of runs that keep it.

    Of 10^19 other names about one seems to be in it.
    """

    def __init__(self) -> None:
        self._sorted, self._counts = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        self._new: Counter[int] = Counter()
        """Differences to the arrays."""
        self._of_run: dict[str, tuple[int, int]] = {}

    def __contains__(self, name: Name) -> bool:
        prefix = _prefix(name)
        at = int(np.searchsorted(self._sorted, np.uint64(prefix)))
        is_there = at < len(self._sorted) and int(self._sorted[at]) == prefix
        return self._new[prefix] + (int(self._counts[at]) if is_there else 0) > 0

    def add(self, run_id: str, names: Iterable[Name]) -> None:
        """Add the names of a run; the same again changes nothing."""
        prefixes = {_prefix(name) for name in names}
        known, added = self._of_run.get(run_id), _sum_of(prefixes)
        if known != added:
            self._of_run[run_id] = added if known is None else _UNKNOWN
            self._count(prefixes, 1)

    def take_out(self, run_id: str, names: Iterable[Name]) -> bool:
        """Take out the names of a run, if it was added; return False if they are not those that were added."""
        prefixes = {_prefix(name) for name in names}
        if run_id not in self._of_run:
            return True
        if self._of_run[run_id] != _sum_of(prefixes):
            return False
        del self._of_run[run_id]
        self._count(prefixes, -1)
        return True

    def _count(self, prefixes: Iterable[int], number: int) -> None:
        for prefix in prefixes:
            self._new[prefix] += number
        if len(self._new) >= MERGE_AFTER:
            new = np.fromiter(self._new, np.uint64, len(self._new))
            together, places = np.unique(np.concatenate([self._sorted, new]), return_inverse=True)
            counts = np.zeros(len(together), np.int32)
            differences = np.fromiter(self._new.values(), np.int32, len(self._new))
            np.add.at(counts, places, np.concatenate([self._counts, differences]))
            self._sorted, self._counts = together[counts > 0], counts[counts > 0]
            self._new.clear()


class KeptBlobs:
    """Names of the blobs that runs keep; call it from one thread at a time."""

    def __init__(self, store: Store, keep: Keep) -> None:
        self._store, self._keep = store, keep
        self._uses: Counter[Name] = Counter()
        self._ended = EndedNames()
        self._followed: dict[str, _Followed] = {}
        self.unreadable: set[str] = set()
        """Runs of which a row could not be read. What is known of them stays, and so does every file that nobody freed."""
        self._forgotten: set[str] = set()
        """Runs that were deleted while all were read."""

    def __contains__(self, sha256: str) -> bool:
        name = bytes.fromhex(sha256)
        return name in self._uses or name in self._ended

    def read_all(self) -> Iterator[None]:
        """Read every run in the store, one a step; a run whose rows cannot be read stays among `unreadable`.

        Raises:
            StoreUnavailable: The database cannot be read.
        """
        # Nobody can tell what such a run keeps.
        self.unreadable.update(self._store.damaged_deletions())
        try:
            for run in all_runs(self._store):
                if run.run_id not in self._forgotten:
                    self.follow(run, is_new=False)
                yield
        except StoreUnavailable:
            raise
        except Exception:  # a row of some run: one by one
            for run_id in self._store.run_ids():
                self.follow_by_id(run_id, functools.partial(self._store.find_run, run_id), is_new=False)
                yield
        self._forgotten.clear()

    def follow(self, run: Run, *, is_new: bool = True) -> list[str]:
        """Take over what a run keeps now; return the SHA-256 of each blob that it has freed and nobody else keeps.

        Args:
            is_new: Whether all its rounds are read where the run is not known; else those that it keeps anything of.

        Raises:
            StoreUnavailable: The database cannot be read; nothing has changed.
        """
        return self.follow_by_id(run.run_id, lambda: run, is_new=is_new)

    def follow_by_id(self, run_id: str, find: Callable[[], Run | None], *, is_new: bool = True) -> list[str]:
        """As `follow`, for a run that is still to be found: if that fails its blobs stay."""
        try:
            run = find()
            freed = [] if run is None else self._follow(run, is_new)
        except StoreUnavailable:
            raise
        except Exception:
            if run_id not in self.unreadable:
                log.exception("run_not_collected", run_id=run_id, detail="a row cannot be read; its blobs are kept")
                self.unreadable.add(run_id)
                self._ended.add(run_id, self._readable(run_id))
            return []
        self.unreadable.discard(run_id)
        return [name.hex() for name in freed if name not in self._uses and name not in self._ended]

    def forget(self, run: Run) -> list[str] | None:
        """Forget a run that was deleted; return the SHA-256 of each blob that it kept and nobody else is known to keep.

        None if what it kept cannot be told, since rows of it cannot be read: then all runs must be read anew.

        Raises:
            StoreUnavailable: The database cannot be read; nothing has changed.
        """
        if run.run_id in self.unreadable:
            return None
        self._forgotten.add(run.run_id)
        freed: list[Name] = []
        try:
            if run.run_id in self._followed:  # it has only just ended
                freed = self._follow(run, is_new=True)
            names = self._kept_at_end(run)
        except (RowCorrupt, ValueError, TypeError, LookupError, AttributeError):
            log.exception("deleted_run_unreadable", run_id=run.run_id)
            return None
        if not self._ended.take_out(run.run_id, names):
            return None
        names.update(freed)
        return sorted(name.hex() for name in names if name not in self._uses and name not in self._ended)

    def _kept_at_end(self, run: Run) -> set[Name]:
        """Return the names that an ended run keeps, from its rows."""
        if isinstance(run.reason, RowDamaged):
            raise RowCorrupt(sentence_of(run.reason))
        last = run_facts.last_committed(run)
        kept = kept_rounds(run, self._keep, find_best(self._store, run.run_id))
        read = self._read(run.run_id, _first_kept(kept), -1 if last is None else last)
        return {*_base(run), *(name for number, each in read.items() for name in each.kept(number, kept))}

    def _follow(self, run: Run, is_new: bool) -> list[Name]:
        if isinstance(run.reason, RowDamaged):
            raise RowCorrupt(sentence_of(run.reason))
        last = run_facts.last_committed(run)
        committed, known = -1 if last is None else last, self._followed.get(run.run_id)
        kept = kept_rounds(run, self._keep, find_best(self._store, run.run_id))
        if known is None:
            before, first = _Followed(kept, -1, ()), 0 if is_new else _first_kept(kept)
        else:
            before, first = known, known.committed + 1
        read = self._read(run.run_id, first, committed)
        freed = self._left_open(run.run_id, committed) if run.status.is_final and is_new else []
        after = _Followed(kept, committed, _base(run), {**before.rounds, **read})
        gained, dropped = list(after.base), list(before.base)
        for number in read.keys() | (_between(before.kept, kept) & before.rounds.keys()):
            names = after.rounds[number].kept(number, kept)
            gained += names
            if number in before.rounds:
                dropped += before.rounds[number].kept(number, before.kept)
            else:
                freed += read[number].all
            if not names:
                del after.rounds[number]
        self._uses.update(gained)
        self._release(dropped)
        self._followed[run.run_id] = after
        if run.status.is_final:
            self._end(run.run_id)
        return [*freed, *dropped]

    def _readable(self, run_id: str) -> list[Name]:
        """Return the names in the rounds of a run that can be read, where others cannot."""
        names: list[Name] = []
        for number in itertools.count():
            try:
                found = self._store.find_round(run_id, number)
            except StoreUnavailable:
                raise
            except Exception as error:
                log.warning("round_unreadable", run_id=run_id, round=number, detail=str(error))
                continue
            if found is None:
                return names
            names += map(_name, result_blobs(found))
            names += (_name(blob) for update in found.updates.values() for blob in update.payload.blobs)
        raise AssertionError("a run has an end")

    def _release(self, names: Sequence[Name]) -> None:
        self._uses.subtract(names)
        for name in names:
            if not self._uses[name]:
                del self._uses[name]

    def _end(self, run_id: str) -> None:
        """Move the names of a run that has ended to those that stay for good."""
        run = self._followed.pop(run_id)
        names = [*run.base, *(name for number, each in run.rounds.items() for name in each.kept(number, run.kept))]
        self._ended.add(run_id, names)
        self._release(names)

    def _read(self, run_id: str, first: int, last: int) -> dict[int, RoundNames]:
        """Read the names of round 0 and of the rounds `first` to `last`, a page at a time and without evaluation reports."""
        found: dict[int, RoundNames] = {}
        if first > 0 and run_id not in self._followed:
            found |= _results(self._store.list_rounds(run_id, limit=1))
        number = first - 1
        while number < last and (page := self._store.list_rounds(run_id, after=number, limit=min(PAGE, last - number))):
            found |= _results(page)
            number = page[-1].number
        for number, update in self._updates(run_id, first, last):
            if number in found:
                _add(found[number], update)
        return found

    def _left_open(self, run_id: str, committed: int) -> list[Name]:
        """Return the names of the round that an ended run left open."""
        rounds = self._store.list_rounds(run_id, after=committed, limit=1)
        names = [name for found in _results(rounds).values() for name in found.all]
        for _number, update in self._updates(run_id, committed + 1, committed + 1):
            names += map(_name, update.payload.blobs)
        return names

    def _updates(self, run_id: str, first: int, last: int) -> Iterator[tuple[int, Update]]:
        after, is_more = (first, ""), first <= last
        while is_more:
            page = self._store.list_updates(run_id, after=after, limit=PAGE_OF_UPDATES)
            yield from ((number, update) for number, update in page if number <= last)
            if page:
                after = (page[-1][0], page[-1][1].client_id)
            is_more = len(page) == PAGE_OF_UPDATES and after[0] <= last


def named_by(run: Run) -> set[str]:
    """Return the SHA-256 of each blob that an open run needs for its open round, as it is in memory."""
    current = run.current_round
    blobs = list(result_blobs(run))
    if current is not None:
        blobs += result_blobs(current)
        blobs += (blob for update in current.updates.values() for blob in update.payload.blobs)
    return {blob.sha256 for blob in blobs}


def _base(run: Run) -> tuple[Name, ...]:
    names = {blob.sha256 for blob in result_blobs(run)} | initial_model(run)
    return tuple(map(bytes.fromhex, sorted(names)))


def _results(rounds: Iterable[Round]) -> dict[int, RoundNames]:
    return {
        each.number: RoundNames(
            _names(each.model),
            _names(each.prototypes),
            state=[*map(_name, state_blobs(each))],
        )
        for each in rounds
    }


def _add(names: RoundNames, update: Update) -> None:
    names.tensor_groups += map(_name, update.payload.tensor_groups)
    names.prototype_sets += map(_name, update.payload.prototype_sets)


def _names(blob: BlobRef | None) -> list[Name]:
    return [] if blob is None else [_name(blob)]


def _name(blob: BlobRef) -> Name:
    return bytes.fromhex(blob.sha256)


def _sum_of(prefixes: Set[int]) -> tuple[int, int]:
    """Return what tells sets of prefixes apart."""
    return len(prefixes), functools.reduce(operator.xor, prefixes, 0)


def _prefix(name: Name) -> int:
    return int.from_bytes(name[:8], "little")


def _first_kept(kept: KeptRounds) -> int:
    milestones = [] if kept.best is None else [kept.best.round]
    if kept.every is not None:
        milestones.append(kept.every)
    return min(kept.results_from, kept.updates_from, kept.pooled_from, kept.prototypes_from, *milestones)


def _between(before: KeptRounds, after: KeptRounds) -> set[int]:
    """Return the numbers of the rounds that one of the two keeps something of and the other does not."""
    edges = (
        (before.results_from, after.results_from),
        (before.updates_from, after.updates_from),
        (before.pooled_from, after.pooled_from),
        (before.prototypes_from, after.prototypes_from),
    )
    best = {each.round for each in (before.best, after.best) if each is not None and before.best != after.best}
    return best | {number for old, new in edges for number in range(min(old, new), max(old, new))}
