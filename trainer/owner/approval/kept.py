"""The files of a site's decisions, in the folder `approval` of a trainer's state directory.

    secret             32 random bytes, made once and readable to this user alone
    decisions.jsonl    every decision: a line each with its HMAC, over the line and the HMAC of the line before it
    asked/RUN.json     what a run asks for that waits
    answered/HMAC      models that the run of this approval was answered with a task each: a kind and a SHA-256 a line
    page               address of the owner's page, with its secret, while the trainer serves one

    decisions.jsonl.damaged-N   decisions that did not hold, put aside when the next one was made

Beside the folder, so that an older copy of it shows: approval-told, the last decision that the aggregator was told of.

A file is replaced whole, so a crash leaves the one before or the one after. Several processes may decide one after another.
Decisions do not hold if a line was changed, put elsewhere or made with another secret, or if the last one is missing that
the aggregator was told of; see decisions.py. An older copy of the whole state directory cannot be told from within it.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedplcc.shared.bounds import RUN_ID_PATTERN
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import FailedPrecondition, InvalidConfig
from fedplcc.shared.process import disk
from fedplcc.trainer.owner.approval.asked import Asked
from fedplcc.trainer.owner.approval.decisions import (
    MAX_DECISIONS_BYTES,
    Decision,
    Decisions,
    Ruling,
    Told,
    begun_anew,
    line_of,
    read_decisions,
)

FOLDER = "approval"
SECRET, LOCK, DECISIONS, ASKED, TOLD, PAGE = "secret", "lock", "decisions.jsonl", "asked", "approval-told", "page"
ANSWERED = "answered"
KEY_BYTES = 32
MAX_DECISIONS = 10_000
"""Most decisions of a site."""
MAX_ASKED = 64
"""Most runs that wait at a site; of more, those that have waited longest are asked for again with their next task."""
MAX_ASKED_BYTES = 16 << 20
"""Most bytes of all that waits, on the disk and in memory; a run that does not fit waits until others are decided."""
MAX_REASON = 500
"""Most characters of an owner's reason."""
NAME = re.compile(RUN_ID_PATTERN)
_FAILS = "the decisions of this site's owner cannot be read or kept"


_ASKED = TypeAdapter(Asked)


class NoRoom(FailedPrecondition):
    """What runs ask for that wait at a site is too much to keep."""


class Kept:
    """The files of one site; nothing is read or made before it is needed. Any thread may call a method."""

    def __init__(self, state_dir: Path) -> None:
        """Use the folder in a trainer's state directory; it need not exist."""
        self.folder, self._told_at = state_dir / FOLDER, state_dir / TOLD
        self._seen: tuple[object, Decisions] = (None, Decisions())

    # Decisions

    def decisions(self) -> Decisions:
        """Return the decisions that hold; read again only where the file has changed.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            told = self._told()  # first: what was told before is in what is read after
            try:
                state = (self.folder / DECISIONS).stat()
                mark: object = (told, state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)
            except FileNotFoundError:
                mark = told
            if self._seen[0] != mark:
                self._seen = (mark, self._read(told))
            aside = [f"{FOLDER}/{each.name}" for each in self._aside()]
            return replace(self._seen[1], aside=aside[-1]) if aside else self._seen[1]

    def decide(self, ruling: Ruling, run_id: str, asked: Asked | None, *, reason: str = "") -> Decision:
        """Record a decision, durably; the same one again changes nothing, unless its rounds are spent.

        Args:
            asked: What it asks for, as the owner was shown it; None for what the last decision about it was bound to.

        Raises:
            FailedPrecondition: There are too many decisions.
            InvalidConfig: The reason is too long.
            StoreUnavailable: It cannot be kept.
        """
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise InvalidConfig(f"a reason has at most {MAX_REASON} printable characters")
        with self._held():
            told, key = self._told(), self._key()
            known = self._read(told)
            entries = known.entries
            if known.trouble:
                entries = tuple(begun_anew(known.noes, key, told))
            last = next((each for each in reversed(entries) if each.run_id == run_id), None)
            facts = _bound_to(last if asked is None else asked)
            is_new = last is None or last.ruling is not ruling or facts != _bound_to(last) or self.is_spent(last)
            if is_new:
                if len(entries) >= MAX_DECISIONS:
                    raise FailedPrecondition(
                        f"this site has {len(entries)} decisions, and {MAX_DECISIONS} is the most: put {DECISIONS} and "
                        f"{TOLD} away; every run then waits for a new approval"
                    )
                last = Decision(
                    number=len(entries) + 1,
                    time=time.time(),
                    run_id=run_id,
                    ruling=ruling,
                    by=f"user {os.getuid()}",
                    reason=reason,
                    torch="" if asked is None else asked.torch,
                    before=entries[-1].mac if entries else told.mac if known.trouble else "",
                    document=facts.document,
                    code=facts.code,
                    terms=facts.terms,
                    rounds=facts.rounds,
                ).signed(key)
                entries = (*entries, last)
            assert last is not None
            if known.trouble:
                self._put_aside()
            if is_new or known.trouble:
                data = "".join(map(line_of, entries)).encode()
                disk.replace_file(self.folder / DECISIONS, data, "trainer.approval.decisions", mode=0o600)
                self._hand_over(self.folder / DECISIONS)
            self._forget(run_id)
            return last

    def _read(self, told: Told) -> Decisions:
        try:
            data = disk.read_regular(self.folder / DECISIONS, MAX_DECISIONS_BYTES + 1)
        except FileNotFoundError:
            data = b""
        try:
            key = disk.read_regular(self.folder / SECRET)
        except FileNotFoundError:
            key = b""
        return read_decisions(data, key, told, f"{FOLDER}/{DECISIONS}")

    def _told(self) -> Told:
        try:
            return Told.of(disk.read_regular(self._told_at, 128).decode("ascii", errors="replace"))
        except FileNotFoundError:
            return Told()

    def _aside(self) -> list[Path]:
        """Return what was put aside, the last one at the end."""
        found = self.folder.glob(f"{DECISIONS}.damaged*")
        return sorted(found, key=lambda each: (len(each.name), each.name))

    def _put_aside(self) -> None:
        """Give decisions that do not hold a name by which they stay; an empty file stands for those that are missing."""
        path, before = self.folder / DECISIONS, self._aside()
        number = next(n for n in itertools.count(1) if not path.with_name(f"{DECISIONS}.damaged-{n}").exists())
        aside = path.with_name(f"{DECISIONS}.damaged-{number}")
        if path.exists():
            if not any(path.samefile(each) for each in before):
                disk.link(path, aside, "trainer.approval.aside")
                disk.fsync_folder(self.folder, "trainer.approval.aside")
        elif not before:
            disk.replace_file(aside, b"", "trainer.approval.aside", mode=0o600)
        if aside.exists():
            self._hand_over(aside)

    def _key(self) -> bytes:
        path = self.folder / SECRET
        if not path.exists():
            disk.replace_file(path, secrets.token_bytes(KEY_BYTES), "trainer.approval.secret", mode=0o600)
            self._hand_over(path)
        return disk.read_regular(path)

    # What was asked

    def ask(self, asked: Asked) -> None:
        """Keep what a run asks for until it is decided; the same again changes nothing.

        Raises:
            NoRoom: What waits is too much together.
            StoreUnavailable: It cannot be kept.
        """
        with self._held():
            known = self._asked(asked.run_id)
            if known is not None and replace(known, asked_at=asked.asked_at, model_bytes=asked.model_bytes) == asked:
                return
            disk.make_folder(self.folder / ASKED, "trainer.approval.asked", mode=0o700)
            place, data = self._place(asked.run_id), canonical_json(_ASKED.dump_python(asked, mode="json")).encode()
            sizes = {path: path.stat().st_size for path in self._places() if path != place}
            if len(sizes) >= MAX_ASKED:
                waiting = sorted(self._all_asked(), key=lambda each: each.asked_at)
                for oldest in waiting[: len(sizes) - MAX_ASKED + 1]:
                    self._forget(oldest.run_id)
                    sizes.pop(self._place(oldest.run_id), None)
            if sum(sizes.values()) + len(data) > MAX_ASKED_BYTES:
                raise NoRoom(
                    f"its document and what else it asks for are {len(data):,} bytes, and what {len(sizes)} other runs ask "
                    f"for that wait here leaves no room for it: {MAX_ASKED_BYTES:,} bytes are the most of all. Decide about "
                    "those first: fedplcc site pending"
                )
            disk.replace_file(place, data, "trainer.approval.asked", mode=0o600)

    def answers(self, decision: Decision, kind: str, question: str) -> bool:
        """Count a task against the rounds of an approval, durably and before it is begun; the same one again costs nothing.

        Args:
            kind: The task's kind; those of each kind are counted on their own.
            question: SHA-256 of what it comes with.

        Returns:
            Whether it may be done.

        Raises:
            StoreUnavailable: It cannot be counted.
        """
        line = f"{kind} {question}"
        with self._held():
            known, path = self._answered(decision), self.folder / ANSWERED / decision.mac
            if line in known:
                return True
            if sum(each.startswith(f"{kind} ") for each in known) >= decision.rounds:
                return False
            disk.make_folder(path.parent, "trainer.approval.answered", mode=0o700)
            data = "".join(f"{each}\n" for each in (*known, line)).encode()
            disk.replace_file(path, data, "trainer.approval.answered", mode=0o600)
            return True

    def is_spent(self, decision: Decision) -> bool:
        """Return whether as many tasks of one kind were answered under an approval as it has rounds.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            kinds = Counter(each.partition(" ")[0] for each in self._answered(decision))
        return bool(kinds) and max(kinds.values()) >= decision.rounds

    def _answered(self, decision: Decision) -> list[str]:
        try:
            return disk.read_regular(self.folder / ANSWERED / decision.mac).decode("ascii").splitlines()
        except FileNotFoundError:
            return []

    def forget_asked(self, *, but_of: Collection[str]) -> None:
        """Forget what runs asked for, except these, which are open.

        Raises:
            StoreUnavailable: They cannot be read or removed.
        """
        with disk.told_without_paths(_FAILS):
            gone = [run_id for run_id in (path.stem for path in self._places()) if run_id not in but_of]
        if gone:
            with self._held():
                for run_id in gone:
                    self._forget(run_id)

    def asked(self, run_id: str) -> Asked | None:
        """Return what a run that waits asks for; None where none of this id waits.

        Raises:
            StoreUnavailable: It cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            return self._asked(run_id)

    def all_asked(self) -> list[Asked]:
        """Return what all runs that wait ask for, those first that have waited longest.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            return sorted(self._all_asked(), key=lambda each: (each.asked_at, each.run_id))

    def _places(self) -> list[Path]:
        return [path for path in sorted((self.folder / ASKED).glob("*.json")) if NAME.fullmatch(path.stem)]

    def _all_asked(self) -> Iterator[Asked]:
        for path in self._places():
            found = self._asked(path.stem)
            if found is not None:
                yield found

    def _asked(self, run_id: str) -> Asked | None:
        try:
            found = _ASKED.validate_json(disk.read_regular(self._place(run_id), MAX_ASKED_BYTES))
        except (FileNotFoundError, ValidationError):
            return None  # one that cannot be read is asked for again
        return found if found.run_id == run_id else None

    def _forget(self, run_id: str) -> None:
        disk.remove(self._place(run_id), "trainer.approval.asked")

    def _place(self, run_id: str) -> Path:
        if not NAME.fullmatch(run_id):
            raise InvalidConfig(f"{run_id[:64]!a} is no id of a run")
        return self.folder / ASKED / f"{run_id}.json"

    # The page, and what the aggregator was told

    def say_page(self, address: str | None) -> None:
        """Keep the address of the owner's page; None where there is none any more.

        Raises:
            StoreUnavailable: It cannot be kept.
        """
        with self._held():
            if address is None:
                disk.remove(self.folder / PAGE, "trainer.approval.page")
            else:
                disk.replace_file(self.folder / PAGE, f"{address}\n".encode(), "trainer.approval.page", mode=0o600)

    def untold(self) -> list[Decision]:
        """Return the decisions that the aggregator was not told of, the oldest first.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        entries = self.decisions().entries
        if not entries:
            return []
        with disk.told_without_paths(_FAILS):
            told = self._told()
        return list(entries[told.number :] if told.is_in(entries) else entries)

    def told(self, decision: Decision) -> None:
        """Record that the aggregator knows all decisions up to this one.

        Raises:
            StoreUnavailable: It cannot be kept; the aggregator is told again.
        """
        with self._held():
            text = Told(decision.number, decision.mac).text
            disk.replace_file(self._told_at, text.encode(), "trainer.approval.told", mode=0o600)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Within the block no other process changes the files, and the folder is there."""
        with disk.told_without_paths(_FAILS):
            if not self.folder.is_dir():
                disk.make_state_folder(self.folder, "trainer.approval.folder")
            with disk.locked(self.folder / LOCK):
                self._hand_over(self.folder, self.folder / LOCK)
                yield

    def _hand_over(self, *paths: Path) -> None:
        """Give what root has made to the user of the trainer, who could not read it."""
        if os.geteuid() == 0:
            owner = self.folder.parent.stat()
            for path in paths:
                if path.stat().st_uid != owner.st_uid:
                    os.chown(path, owner.st_uid, owner.st_gid)


class _Bound(NamedTuple):
    """What a decision is bound to; see `Decision`."""

    document: str = ""
    code: str = ""
    terms: str = ""
    rounds: int = 0


def _bound_to(what: Asked | Decision | None) -> _Bound:
    if what is None:
        return _Bound()
    if isinstance(what, Decision):
        return _Bound(what.document, what.code, what.terms, what.rounds)
    return _Bound(what.document_sha256, what.code_sha256, what.terms_sha256, what.rounds)
