"""The files of a site's decisions, in the folder `approval` of a trainer's state directory.

    secret             32 random bytes, made once and readable to this user alone
    decisions.jsonl    every decision: a line each with its HMAC, over the line and the HMAC of the line before it
    asked/RUN.json     what a run asks for that waits
    told               the last decision that the aggregator was told of
    page               address of the owner's page, with its secret, while the trainer serves one

A file is replaced whole, so a crash leaves the one before or the one after. Several processes may decide one after another.
Decisions that do not hold, because a line was changed, put elsewhere or made with another secret, count as none: then every
run waits. Who can write the folder can also put an older copy of both files back; that cannot be told from within it.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedplcc.shared.bounds import RUN_ID_PATTERN
from fedplcc.shared.config.initial_model import RunId
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import FailedPrecondition, InvalidConfig
from fedplcc.shared.process import disk
from fedplcc.trainer.owner.approval.asked import Asked

FOLDER = "approval"
SECRET, LOCK, DECISIONS, ASKED, TOLD, PAGE = "secret", "lock", "decisions.jsonl", "asked", "told", "page"
KEY_BYTES = 32
MAX_DECISIONS = 10_000
"""Most decisions of a site."""
MAX_DECISIONS_BYTES = 64 << 20
MAX_ASKED = 64
"""Most runs that wait at a site; of more, those that have waited longest are asked for again with their next task."""
MAX_ASKED_BYTES = 16 << 20
MAX_REASON = 500
"""Most characters of an owner's reason."""
NAME = re.compile(RUN_ID_PATTERN)
_FAILS = "the decisions of this site's owner cannot be read or kept"


class Ruling(StrEnum):
    """A decision about a run."""

    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision of the owner.

    Attributes:
        number: From 1, without a gap.
        time: Seconds since the epoch.
        run_id: The run.
        ruling: What was decided.
        document: SHA-256 of the document that was read; empty where none was.
        code: SHA-256 of its code.
        terms: SHA-256 of the document without what a matching run may change.
        rounds: Rounds of the run.
        by: Who decided, as this host names them.
        reason: What the owner says to it.
        before: HMAC of the decision before; empty for the first.
        mac: HMAC of all of this.
    """

    number: int
    time: float
    run_id: RunId
    ruling: Ruling
    document: str = ""
    code: str = ""
    terms: str = ""
    rounds: int = 0
    by: str = ""
    reason: str = ""
    before: str = ""
    mac: str = ""

    def signed(self, key: bytes) -> Decision:
        """Return it with its HMAC."""
        facts = {name: value for name, value in asdict(self).items() if name != "mac"}
        return replace(self, mac=hmac.digest(key, canonical_json(facts).encode(), "sha256").hex())


@dataclass(frozen=True, slots=True)
class Decisions:
    """All decisions that hold.

    Attributes:
        entries: In their order.
        trouble: Why there are none although there is a file; empty if all hold.
    """

    entries: tuple[Decision, ...] = ()
    trouble: str = ""

    def of(self, run_id: str) -> Decision | None:
        """Return the last decision about a run."""
        return next((each for each in reversed(self.entries) if each.run_id == run_id), None)

    def standing(self) -> list[Decision]:
        """Return the approvals that hold: the last word about their runs."""
        last = {each.run_id: each for each in self.entries}
        return [each for each in last.values() if each.ruling is Ruling.APPROVED]


_DECISION, _ASKED = TypeAdapter(Decision), TypeAdapter(Asked)


class Kept:
    """The files of one site; nothing is read or made before it is needed. Any thread may call a method."""

    def __init__(self, state_dir: Path) -> None:
        """Use the folder in a trainer's state directory; it need not exist."""
        self.folder = state_dir / FOLDER
        self._seen: tuple[object, Decisions] = (None, Decisions())

    # Decisions

    def decisions(self) -> Decisions:
        """Return the decisions that hold; read again only where the file has changed.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            try:
                state = (self.folder / DECISIONS).stat()
            except FileNotFoundError:
                return Decisions()
            mark = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)
            if self._seen[0] != mark:
                self._seen = (mark, self._read())
            return self._seen[1]

    def decide(self, ruling: Ruling, run_id: str, asked: Asked | None, *, reason: str = "") -> Decision:
        """Record a decision, durably; the same one again, about the same document and code, changes nothing.

        Args:
            ruling: It.
            run_id: The run.
            asked: What it asks for, as the owner was shown it; None for what the last decision about it was bound to.
            reason: What the owner says to it.

        Raises:
            FailedPrecondition: There are too many decisions.
            InvalidConfig: The reason is too long.
            StoreUnavailable: It cannot be kept.
        """
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise InvalidConfig(f"a reason has at most {MAX_REASON} printable characters")
        with self._held():
            known = self._read()
            if known.trouble:
                disk.rename(self.folder / DECISIONS, self.folder / f"{DECISIONS}.damaged", "trainer.approval")
                known = Decisions()
            last = known.of(run_id)
            facts = _bound_to(last if asked is None else asked)
            if last is not None and last.ruling is ruling and facts == _bound_to(last):
                self._forget(run_id)
                return last
            if len(known.entries) >= MAX_DECISIONS:
                raise FailedPrecondition(
                    f"this site has {len(known.entries)} decisions, and {MAX_DECISIONS} is the most: put "
                    f"{DECISIONS} away; every run then waits for a new approval"
                )
            decision = Decision(
                number=len(known.entries) + 1,
                time=time.time(),
                run_id=run_id,
                ruling=ruling,
                by=f"user {os.getuid()}",
                reason=reason,
                before=known.entries[-1].mac if known.entries else "",
                document=facts.document,
                code=facts.code,
                terms=facts.terms,
                rounds=facts.rounds,
            ).signed(self._key())
            lines = [canonical_json(_DECISION.dump_python(each, mode="json")) for each in (*known.entries, decision)]
            data = "".join(f"{line}\n" for line in lines).encode()
            disk.replace_file(self.folder / DECISIONS, data, "trainer.approval.decisions", mode=0o600)
            self._hand_over(self.folder / DECISIONS)
            self._forget(run_id)
            return decision

    def _read(self) -> Decisions:
        try:
            with (self.folder / DECISIONS).open("rb") as file:
                data = file.read(MAX_DECISIONS_BYTES + 1)
        except FileNotFoundError:
            return Decisions()
        entries: list[Decision] = []
        try:
            key = (self.folder / SECRET).read_bytes()
            if len(data) > MAX_DECISIONS_BYTES or (data and not data.endswith(b"\n")):
                raise ValueError
            for number, line in enumerate(data.splitlines(), 1):
                entry = _DECISION.validate_json(line)
                before = entries[-1].mac if entries else ""
                if (entry.number, entry.before) != (number, before) or not hmac.compare_digest(
                    entry.signed(key).mac, entry.mac
                ):
                    raise ValueError
                entries.append(entry)
        except (FileNotFoundError, ValueError):
            return Decisions(
                trouble=f"the decisions of this site's owner do not hold from number {len(entries) + 1} on: "
                f"{FOLDER}/{DECISIONS} in its state directory was changed or damaged, so none counts, and every run waits "
                "for a new approval"
            )
        return Decisions(tuple(entries))

    def _key(self) -> bytes:
        path = self.folder / SECRET
        if not path.exists():
            disk.replace_file(path, secrets.token_bytes(KEY_BYTES), "trainer.approval.secret", mode=0o600)
            self._hand_over(path)
        return path.read_bytes()

    # What was asked

    def ask(self, asked: Asked) -> None:
        """Keep what a run asks for until it is decided; the same again changes nothing.

        Raises:
            StoreUnavailable: It cannot be kept.
        """
        with self._held():
            known = self._asked(asked.run_id)
            if known is not None and replace(known, asked_at=asked.asked_at, model_bytes=asked.model_bytes) == asked:
                return
            disk.make_folder(self.folder / ASKED, "trainer.approval.asked", mode=0o700)
            waiting = sorted(self._all_asked(), key=lambda each: each.asked_at)
            for oldest in waiting[: max(0, len(waiting) - MAX_ASKED + 1)]:
                self._forget(oldest.run_id)
            data = canonical_json(_ASKED.dump_python(asked, mode="json")).encode()
            disk.replace_file(self._place(asked.run_id), data, "trainer.approval.asked", mode=0o600)

    def forget_asked(self, *, but_of: Collection[str]) -> None:
        """Forget what runs asked for, except these, which are open.

        Raises:
            StoreUnavailable: They cannot be read or removed.
        """
        gone = [each.run_id for each in self.all_asked() if each.run_id not in but_of]
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

    def _all_asked(self) -> Iterator[Asked]:
        for path in sorted((self.folder / ASKED).glob("*.json")):
            found = self._asked(path.name.removesuffix(".json"))
            if found is not None:
                yield found

    def _asked(self, run_id: str) -> Asked | None:
        try:
            with self._place(run_id).open("rb") as file:
                found = _ASKED.validate_json(file.read(MAX_ASKED_BYTES))
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
            try:
                number, _, mac = (self.folder / TOLD).read_text("ascii", errors="replace")[:128].strip().partition(" ")
            except FileNotFoundError:
                return list(entries)
        known = int(number) if number.isdecimal() else 0
        is_same = 0 < known <= len(entries) and entries[known - 1].mac == mac
        return list(entries[known:] if is_same else entries)

    def told(self, decision: Decision) -> None:
        """Record that the aggregator knows all decisions up to this one.

        Raises:
            StoreUnavailable: It cannot be kept; the aggregator is told again.
        """
        with self._held():
            text = f"{decision.number} {decision.mac}"
            disk.replace_file(self.folder / TOLD, text.encode(), "trainer.approval.told", mode=0o600)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Within the block no other process changes the files, and the folder is there."""
        with disk.told_without_paths(_FAILS):
            if not self.folder.is_dir():
                disk.make_state_folder(self.folder, "trainer.approval.folder")
            with (self.folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
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
