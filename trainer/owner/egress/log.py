"""The log of what left a site, in its trainer's state directory.

    STATE_DIR/egress.jsonl              one line for each message that says something of the site, oldest first
    STATE_DIR/egress-00000001.jsonl     older lines; the higher the number, the newer
    STATE_DIR/egress.reserve            room for lines on a disk that is full: it is given up for them

A line is durable before the first byte of its message leaves, so the lines are never fewer than what left; a process that
dies between the two leaves a line of something that did not leave. The same bytes of the same run and round are one line,
however often they are sent, also by the next process; only where the file has been begun anew meanwhile, a second one. A
message whose line cannot be written is not sent.

A simulation has no such log: its clients are in one process, and no byte leaves it.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from fedplcc.shared.errors import DiskFull, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.resources import remedy_for
from fedplcc.shared.types import CommittedUpdate

LOG_FILE, RESERVE_FILE = "egress.jsonl", "egress.reserve"
OLD_FILES = "egress-*.jsonl"
MAX_BYTES = 8 << 20
"""Size from which on a new file is begun: about 25,000 lines."""
MAX_OLD_FILES = 9
"""Older files that are kept; where there is one more, the two oldest become one, see `_worth_keeping`."""
RESERVE_BYTES = 16 << 10
"""Room for about forty lines: those by which an aggregator learns that the site's disk is full."""
MAX_LINE_BYTES = 64 << 10
"""Longest line that is read."""
HOUR = len("2026-01-01T00")
"""Characters of a line's time that name its hour."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = get_logger("fedplcc.trainer.owner.egress")


class NotWrittenDown(StoreUnavailable):
    """The log of what leaves this site cannot be written, so a message was not sent."""


class NoRoomToWriteDown(NotWrittenDown, DiskFull):
    """The same, because the disk has no room."""


class What(StrEnum):
    """Kinds of messages that have lines."""

    JOIN = "join"
    UPLOAD = "upload"
    COMMIT = "commit"
    REPORT = "report"
    PROBLEM = "problem"
    READINGS = "readings"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line.

    Attributes:
        run: The run; empty where the message is of none.
        round: The round; None where the message is of none.
        sha256: SHA-256 of the message's bytes, of an upload those of its blob.
        claim: What the run claims; None where the message is of no run.
        epsilon: Epsilon of all releases of the client up to then; None where that is not known or has no bound.
        releases: The most releases that its budget has had up to then; one more where the state directory was an older copy.
    """

    time: str
    run: str
    round: int | None
    what: str
    roles: tuple[str, ...]
    sha256: str
    bytes: int
    claim: str | None
    epsilon: float | None
    releases: int = 0

    @property
    def name(self) -> str:
        """What makes two lines the same."""
        return _name(self.what, self.run, self.round, self.sha256)

    @property
    def num_releases(self) -> int:
        """The releases that the line knows of; one of a version that did not count them tells whether there were any."""
        return max(self.releases, int(bool(self.epsilon)))


LESSER = frozenset((What.PROBLEM.value, What.READINGS.value, What.LOG.value))
"""Kinds whose old lines go first: an aggregator that is refused for ever makes as many as it likes."""
_LINE = TypeAdapter(Line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that is about to leave; see `Line` for the attributes of the same names.

    Attributes:
        same_as: Names what it says, where that is not its bytes: heartbeats differ in time and speed alone.
    """

    what: What
    run: str = ""
    round: int | None = None
    roles: tuple[str, ...] = ()
    sha256: str
    bytes: int
    same_as: str = ""

    @classmethod
    def whole(cls, what: What, data: builtins.bytes, **facts: Any) -> Self:
        """Return the message of these bytes."""
        return cls(what=what, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), **facts)

    @property
    def name(self) -> str:
        """What makes two messages one line."""
        return _name(self.what.value, self.run, self.round, self.same_as or self.sha256)


class EgressLog:
    """The log in one state directory, which one process writes at a time; any of its threads may."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
        releases: Callable[[], int] = lambda: 0,
    ) -> None:
        """Prepare; nothing is read or made before the first message.

        Args:
            folder: The trainer's state directory, which is there when the first message leaves.
            clock: Seconds since the epoch.
        """
        self._folder, self._path, self._max_bytes, self._clock = folder, folder / LOG_FILE, max_bytes, clock
        self._releases, self._most = releases, 0
        self._committed: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._known: set[str] | None = None
        self._end = 0
        self._is_named = self._is_refused = False

    def write(self, message: Message, claim: str | None, epsilon: Callable[[], float | None]) -> None:
        """Write the line of a message durably, unless there is one.

        Args:
            epsilon: Returns what releases have cost up to now.

        Raises:
            NoRoomToWriteDown, NotWrittenDown: It cannot be kept; the message must not leave.
        """
        if self._known is not None and message.name in self._known:
            return
        with self._lock:
            try:
                self._begin()
                assert self._known is not None, "it has begun"
                if message.name not in self._known:
                    self._look_for_committed(self._known)
                    self._append(self._line(message, claim, epsilon()), may_use_reserve=message.what is not What.LOG)
                    self._known.add(message.name)
            except OSError as error:
                raise self._refusal(error) from error
            self._is_refused = False

    def _line(self, message: Message, claim: str | None, epsilon: float | None) -> bytes:
        self._most = max(self._most, self._releases())
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = Line(
            time=now,
            run=message.run,
            round=message.round,
            what=message.what.value,
            roles=message.roles,
            sha256=message.sha256,
            bytes=message.bytes,
            claim=claim,
            epsilon=epsilon,
            releases=self._most,
        )
        return json.dumps(asdict(line)).encode() + b"\n"

    def _begin(self) -> None:
        """Learn, once, what the file has, and where its last whole line ends: what is beyond never left."""
        if self._known is not None:
            return
        known, end = set[str](), 0
        if _is_kept(self._folder):
            disk.remove(self._path, "trainer.egress")
        with suppress(FileNotFoundError), disk.open_regular(self._path) as file:
            for raw in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
                line = parsed(raw)
                if line is not None:
                    known.add(line.name)
                    self._most = max(self._most, line.num_releases)
                if raw.endswith(b"\n"):
                    end = file.tell()
        if not known:
            self._most = max(self._most, most_releases(self._folder))
        self._known, self._end = known, end

    def num_releases(self) -> int:
        """Return the most releases that the lines say the client's budget has had.

        Raises:
            DiskFull, StoreUnavailable: They cannot be read.
        """
        with self._lock:
            try:
                self._begin()
                assert self._known is not None, "it has begun"
                self._look_for_committed(self._known)
            except OSError as error:
                raise self._refusal(error) from error
            return self._most

    def saw_commit(self, committed: CommittedUpdate | None) -> None:
        """Take the client's last commit that the aggregator has; any thread may call it."""
        self._committed = None if committed is None else (committed.run_id, committed.round)

    def _look_for_committed(self, known: set[str]) -> None:
        """Count a release more where that commit has no line but others have: in an older directory some may be missing."""
        if self._committed is None:
            return
        run, round = self._committed
        begin, end = _name(What.COMMIT.value, "", round, "").rstrip() + " ", f" {run}"
        if not any(name.startswith(begin) and name.endswith(end) for name in known):
            commits = {(line.run, line.round) for line in lines_in(self._folder) if line and line.what == What.COMMIT}
            if commits and (run, round) not in commits:
                self._most = max(self._most, self._releases() + 1)
        self._committed = None

    def _append(self, line: bytes, *, may_use_reserve: bool) -> None:
        if self._end and self._end + len(line) > self._max_bytes:
            self._begin_anew()
        try:
            self._append_durably(line)
        except OSError as error:
            if error.errno not in NO_ROOM or not may_use_reserve or not (self._folder / RESERVE_FILE).exists():
                raise
            disk.remove(self._folder / RESERVE_FILE, "trainer.egress.reserve")
            self._append_durably(line)
        if not (self._folder / RESERVE_FILE).exists():
            with suppress(OSError):  # the next line tries again
                disk.allocate(self._folder / RESERVE_FILE, RESERVE_BYTES, "trainer.egress.reserve")

    def _append_durably(self, line: bytes) -> None:
        end = disk.append(self._path, line, "trainer.egress", at=self._end, mode=0o600)
        if not self._is_named:
            disk.fsync_folder(self._folder, "trainer.egress")
            self._is_named = True
        self._end = end

    def _begin_anew(self) -> None:
        """Keep the file under a number, and make one of the two oldest where there are too many."""
        old = old_files(self._folder)
        number = 1 + max((number_of(path) for path in old), default=0)
        disk.link(self._path, self._folder / f"egress-{number:08}.jsonl", "trainer.egress.old")
        disk.fsync_folder(self._folder, "trainer.egress.old")  # before the other name goes
        disk.remove(self._path, "trainer.egress")
        self._known, self._end, self._is_named = set(), 0, False
        for path, younger in list(itertools.pairwise(old))[: max(0, len(old) + 1 - MAX_OLD_FILES)]:
            num_lines: int | None = None
            with suppress(OSError):  # without room for another file all of the oldest go
                kept, num_lines = _worth_keeping((path, younger), self._max_bytes)
                disk.replace_file(younger, kept, "trainer.egress.old", mode=0o600)
            disk.remove(path, "trainer.egress.old")
            log.info("egress_lines_dropped", file=path.name, num_lines=num_lines)

    def _refusal(self, error: OSError) -> NotWrittenDown:
        """Return the error for a disk that refuses, without its path, which stays on this machine."""
        why = f"what leaves this site cannot be written down, so it does not leave: {error.strerror or type(error).__name__}"
        has_room = error.errno not in NO_ROOM
        kind = NotWrittenDown if has_room else NoRoomToWriteDown
        detail = f"{why}{remedy_for(error) or '; see that the state directory can be read and written'}"
        refusal = kind(detail if has_room else f"{why}; make room on its disk")
        if not self._is_refused:
            log.error("egress_not_written", reason=refusal.reason, detail=refusal.detail)
        self._is_refused = True
        return refusal


def old_files(folder: Path) -> list[Path]:
    """Return the files of older lines, the oldest first."""
    return sorted((path for path in folder.glob(OLD_FILES) if number_of(path)), key=number_of)


def _is_kept(folder: Path) -> bool:
    """Whether the file is one of the older ones too: who began it anew has died before its name went."""
    try:
        return any(path.samefile(folder / LOG_FILE) for path in old_files(folder)[-1:])
    except FileNotFoundError:
        return False


def number_of(path: Path) -> int:
    """Return the number in the name of a file of older lines; 0 if it is none of ours."""
    text = path.stem.removeprefix("egress-")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def lines_in(folder: Path) -> Iterator[Line | None]:
    """Yield the lines of a state directory, oldest first, and None for each that is damaged.

    What a crash has left of a last line, whose message did not leave, is passed over.

    Raises:
        OSError: A file cannot be read.
    """
    for path in (*old_files(folder), *(() if _is_kept(folder) else (folder / LOG_FILE,))):
        with suppress(FileNotFoundError), disk.open_regular(path) as file:
            for raw in iter(lambda file=file: file.readline(MAX_LINE_BYTES), b""):  # type: ignore[misc]  # bound now
                if raw.endswith(b"\n") or len(raw) == MAX_LINE_BYTES:
                    yield parsed(raw)


def _worth_keeping(paths: Iterable[Path], max_bytes: int) -> tuple[bytes, int]:
    """Return the lines of two old files that stay, none of a refusal and each once, and how many go.

    Who asks in vain, one run for ever or for run after run takes no room of others' lines: each hour has an equal share, or
    what it needs, and in it each run, whose newest lines stay.
    """
    lines: dict[str, tuple[str, str, builtins.bytes]] = {}
    for path in paths:
        with disk.open_regular(path) as file:
            for raw in iter(lambda file=file: file.readline(MAX_LINE_BYTES), b""):  # type: ignore[misc]  # bound now
                line = parsed(raw)
                if line is not None and line.what not in LESSER:
                    lines.setdefault(line.name, (line.time[:HOUR], line.run, raw))
    of_run, of_hour = Counter[tuple[str, str]](), Counter[str]()
    turns: dict[str, int] = {}
    for name, (hour, run, _) in reversed(lines.items()):
        turns[name] = of_run[hour, run]
        of_run[hour, run] += 1
    for name in sorted(lines, key=lambda name: turns[name]):  # of an hour's lines of one turn the oldest first
        hour = lines[name][0]
        turns[name], of_hour[hour] = of_hour[hour], of_hour[hour] + 1
    left = max_bytes
    kept = set[str]()
    for name in sorted(lines, key=lambda name: turns[name]):
        left -= len(lines[name][-1])
        if left < 0:
            break
        kept.add(name)
    return b"".join(raw for name, (*_, raw) in lines.items() if name in kept), len(lines) - len(kept)


def most_releases(folder: Path) -> int:
    """Return the most releases that the lines of a state directory say its budget has had.

    Raises:
        OSError: A file cannot be read.
    """
    return max((line.num_releases for line in lines_in(folder) if line is not None), default=0)


def parsed(raw: bytes) -> Line | None:
    """Return the line of a file; None where it is damaged."""
    try:
        return _LINE.validate_json(raw, strict=True) if raw.endswith(b"\n") else None
    except ValueError:
        return None


def _name(what: str, run: str, round: int | None, sha256: str) -> str:
    return f"{what} {round} {sha256} {run}"
