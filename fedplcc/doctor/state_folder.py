"""Checks of the state's folder: access, speed, room, and the features of its file system that the store needs."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from fedplcc.doctor.findings import Finding, Subject, in_bytes, ok, problem, warning
from fedplcc.shared.process.disk import open_regular, read_regular

LITTLE_ROOM, NO_ROOM = 10 << 30, 1 << 30
"""Bytes; every round of every client stores a model."""
SLOW_FSYNC_S = 0.05
NUM_FSYNCS = 12
NETWORKED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre", "afs")
IN_MEMORY = ("tmpfs", "ramfs")
OLDEST_SQLITE = (3, 35, 0)
DATABASE = "aggregator.sqlite"
SECRETS = (
    *("identity.pem", "identity/authority.json", "identity/identity.pem"),
    *("privacy/secret", "approval/secret", "approval/page"),
)
"""What nobody but the service's user reads in a state directory, which has mode 0750 itself."""


def folder(subject: Subject) -> Iterator[Finding]:
    """All checks of the folder, with temporary files in it."""
    place = _nearest(subject.state)
    where = f"{subject.state}" if place == subject.state else f"{subject.state}, to be made below {place.resolve()},"
    yield from room(subject, place)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".fedplcc-doctor-", dir=place))
    except OSError as error:
        yield problem("state", f"{where} cannot be written ({error.strerror}): change its owner, or choose --state-dir")
        return
    try:
        yield ok("state", f"{where} can be written")
        yield from file_system(subject, place)
        yield from durability(subject, scratch)
        yield links(scratch)
        yield locks(scratch)
        yield from database(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def room(subject: Subject, place: Path) -> Iterator[Finding]:
    """Free space where the state will be."""
    try:
        usage = subject.probes.disk_usage(place)
    except OSError as error:
        yield problem("disk", f"cannot ask for the free space of {place} ({error.strerror}); mount it again")
        return
    text = f"{in_bytes(usage.free)} of {in_bytes(usage.total)} free in {place.resolve()}"
    if usage.free < NO_ROOM:
        yield problem("disk", f"{text}: make room, or choose a folder elsewhere with --state-dir")
    elif usage.free < LITTLE_ROOM:
        yield warning("disk", f"{text}: every round of every client keeps its model; watch it, or choose --state-dir")
    else:
        yield ok("disk", text)


def open_secrets(state: Path) -> Iterator[Finding]:
    """Say that other users of the host can read a secret, as after a copy that kept no modes; nothing where none can."""
    for path in (state / name for name in SECRETS):
        if path.is_file() and path.stat().st_mode & 0o006 and path.parent.stat().st_mode & state.stat().st_mode & 0o001:
            yield warning("secrets", f"other users of this host can read {path}: chmod -R o= {shlex.quote(str(state))}")


def file_system(subject: Subject, place: Path) -> Iterator[Finding]:
    """The kind of file system: network and memory file systems lose databases."""
    kind = file_system_of(place.resolve(), subject.probes.read("/proc/self/mounts"))
    if kind in NETWORKED:
        yield warning("disk", f"it is on the network ({kind}), where databases get damaged: choose a local disk")
    elif kind in IN_MEMORY:
        yield warning("disk", f"it is in memory ({kind}) and is gone after a restart of the machine: choose a disk")


def durability(subject: Subject, scratch: Path) -> Iterator[Finding]:
    """The duration of fsync; every blob and every transaction waits for it."""
    seconds = []
    try:
        with (scratch / "fsync").open("wb", buffering=0) as file:
            for _ in range(NUM_FSYNCS):
                file.write(bytes(4096))
                begin = subject.probes.clock()
                os.fsync(file.fileno())
                seconds.append(subject.probes.clock() - begin)
    except OSError as error:
        yield problem("fsync", f"bytes cannot be made durable ({error.strerror}): choose another disk with --state-dir")
        return
    middle = statistics.median(seconds)
    text = f"{1000 * middle:.1f} ms until 4 KiB are on the disk"
    if middle > SLOW_FSYNC_S:
        yield warning(
            "fsync", f"{text}: rounds wait for it several times a client; choose a faster disk with --state-dir"
        )
    else:
        yield ok("fsync", text)


def links(scratch: Path, link: Callable[[Path, Path], None] = os.link) -> Finding:
    """Hard links, by which an upload becomes a blob."""
    source = scratch / "one"
    source.touch()
    try:
        link(source, scratch / "two")
    except OSError as error:
        return problem(
            "links", f"the file system has no hard links ({error.strerror}): choose another with --state-dir"
        )
    return ok("links", "hard links work")


def locks(scratch: Path, lock: Callable[[int, int], None] = fcntl.flock) -> Finding:
    """File locks, which keep a second process out of a state directory."""
    with (scratch / "lock").open("w") as first, (scratch / "lock").open("w") as second:
        try:
            lock(first.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return problem("locks", f"the file system has no locks ({error.strerror}): choose another with --state-dir")
        try:
            lock(second.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ok("locks", "file locks hold")
    return problem("locks", "two processes can hold one lock here, and so destroy a state: choose another --state-dir")


def database(
    scratch: Path,
    connect: Callable[[Path], sqlite3.Connection] = sqlite3.connect,
    version: tuple[int, ...] = sqlite3.sqlite_version_info,
) -> Iterator[Finding]:
    """SQLite with a write-ahead log in this folder."""
    text = f"SQLite {'.'.join(map(str, version))}"
    if version < OLDEST_SQLITE:
        yield problem("database", f"{text} is too old: use a Python with {'.'.join(map(str, OLDEST_SQLITE))} or newer")
        return
    try:
        with closing(connect(scratch / "wal.sqlite")) as writer, closing(connect(scratch / "wal.sqlite")) as reader:
            mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            with writer:
                writer.execute("CREATE TABLE rows (number)")
                writer.execute("INSERT INTO rows VALUES (1)")
            found = reader.execute("SELECT number FROM rows").fetchone()
    except sqlite3.Error as error:
        yield problem("database", f"{text} cannot keep a database here ({error}): choose a local disk with --state-dir")
        return
    if mode != "wal" or found != (1,):
        yield problem("database", f"{text} has no write-ahead log here: choose a local disk with --state-dir")
    else:
        yield ok("database", f"{text}, the write-ahead log works")


def aggregator_state(subject: Subject) -> Iterator[Finding]:
    """The content of an aggregator's state, if there is one; it is only read."""
    state = next((path for path in (subject.state, subject.state / "aggregator") if (path / DATABASE).is_file()), None)
    if state is None:
        return
    file = state / DATABASE
    parts = [
        path for path in (file, *(file.with_name(f"{DATABASE}-{part}") for part in ("wal", "shm"))) if path.exists()
    ]
    # Without a write-ahead log no process writes, and SQLite needs no files of its own.
    mode = "mode=ro" if len(parts) > 1 else "immutable=1"
    committed = _committed(state)  # first: while an aggregator writes, the database is never behind it
    try:
        with closing(sqlite3.connect(f"file:{_quoted(file)}?{mode}", uri=True, timeout=2)) as connection:
            revision = _revision(connection)
            count = _transactions(connection)
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            runs = dict(connection.execute("SELECT status, COUNT(*) FROM runs GROUP BY status").fetchall())
    except (sqlite3.Error, TypeError) as error:
        yield problem("aggregator", f"{file} cannot be read ({error}): restore a backup of the folder")
        return
    if damage != "ok":
        yield problem("aggregator", f"{file} is damaged ({damage.splitlines()[0]}): restore a backup of the folder")
        return
    if committed is not None and count is not None and count < committed:
        yield problem(
            "history",
            f"{file} lacks {committed - count:,} of {committed:,} committed transactions: its write-ahead log "
            f"({file.name}-wal) was removed or cut, or an older copy took its place; put it back, or restore a backup into "
            "an empty directory",
        )
    blobs = [path.stat().st_size for path in (state / "blobs").glob("*/*") if path.is_file()]
    listed = ", ".join(f"{count} {status}" for status, count in sorted(runs.items())) or "none"
    size = in_bytes(sum(path.stat().st_size for path in parts))
    text = f"{state}: database {size}, {len(blobs):,} blobs of {in_bytes(sum(blobs))}, runs: {listed}"
    yield _judged(subject, f"{text}, revision {revision}", revision)
    copies = sorted(path.name for path in state.glob(f"{DATABASE}.revision-*"))
    if copies:
        yield ok(
            "aggregator", f"copies from before migrations, to be deleted when nobody goes back: {', '.join(copies)}"
        )
    yield from _running(state)


def _running(state: Path) -> Iterator[Finding]:
    """Whether an aggregator runs on the state: its lock says so, which ends with it, and not a file that it left."""
    try:
        with open_regular(state / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        is_running = False
    except BlockingIOError:
        is_running = True
    except FileNotFoundError:
        is_running = False
        if _is_alive(state / "endpoint.json"):
            yield warning("aggregator", "its file lock is gone, and the process of endpoint.json lives: end that first")
            return
    except OSError as error:
        yield warning(
            "aggregator", f"cannot tell whether an aggregator runs on it ({error.strerror}): run doctor there"
        )
        return
    left = "; endpoint.json is left from one that was killed" if (state / "endpoint.json").exists() else ""
    yield ok("aggregator", "an aggregator runs on it" if is_running else f"no aggregator runs on it{left}")


def _is_alive(endpoint: Path) -> bool:
    try:
        os.kill(int(json.loads(read_regular(endpoint))["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return True


def _committed(state: Path) -> int | None:
    """The number of committed transactions beside the database; None if it is not there or not whole."""
    try:
        text = read_regular(state / "committed").strip()
    except OSError:
        return None
    return int(text) if len(text) == 19 and text.isdigit() else None


def _transactions(connection: sqlite3.Connection) -> int | None:
    """The number of transactions in the database; None before an aggregator has written to it."""
    try:
        row = connection.execute("SELECT transactions FROM writer").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else int(row[0])


def file_system_of(place: Path, mounts: str) -> str:
    """A folder's kind of file system, from the text of /proc/self/mounts; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if place.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _judged(subject: Subject, text: str, revision: str) -> Finding:
    if not subject.probes.is_installed("sqlalchemy"):
        return ok("aggregator", text)
    schema = subject.probes.load("fedplcc.aggregator.store.database.schema")
    if revision == schema.REVISION:
        return ok("aggregator", text)
    migrations = Path(schema.__file__).parents[1] / "migrations" / "versions"
    if any(migrations.glob(f"r{revision}_*.py")):
        return warning(
            "aggregator", f"{text}: the next start brings it to {schema.REVISION} and keeps a copy; make room"
        )
    return problem("aggregator", f"{text}, which this version does not know: use the version that wrote it")


def _revision(connection: sqlite3.Connection) -> str:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "alembic_version" in tables:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    return "0001"


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _quoted(file: Path) -> str:
    from urllib.parse import quote

    return quote(str(file.resolve()))
