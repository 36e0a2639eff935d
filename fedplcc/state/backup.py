"""Backup and restore of an aggregator's state directory.

    BACKUP/aggregator.sqlite     the database as of one moment
    BACKUP/blobs/ab/ab12...      every blob that it names
    BACKUP/initial/              models to begin with
    BACKUP/identity/             the federation's roots with their keys, readable by its owner alone
    BACKUP/backup.json           written last: a backup without it is not complete

The database is copied first and then the blobs that the copy names, which never change; nothing is collected meanwhile.
Every blob is hashed on its way, into the backup and out of it. Uploads that are still going on are left out: trainers send
them again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedplcc.aggregator.identity.authority import AUTHORITY_FILE
from fedplcc.aggregator.identity.authority import FOLDER as IDENTITY_FOLDER
from fedplcc.aggregator.store.blobs.files import BlobFiles, sha256_of
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.aggregator.store.opening import SQLITE
from fedplcc.shared.errors import InvalidConfig, PayloadCorrupt, StoreUnavailable
from fedplcc.shared.identity.credentials import PRIVATE_FILE
from fedplcc.shared.process.disk import as_closed_as, fsync_folder, open_regular, read_regular
from fedplcc.shared.process.resources import remedy_for
from fedplcc.shared.version import VERSION
from fedplcc.state.snapshot import copy_database, named_blobs, require_state

MANIFEST = "backup.json"
AUTHORITY = Path(IDENTITY_FOLDER) / AUTHORITY_FILE
FORMAT = 1
"""Version of the folder's format; another one is refused."""
PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The content of a backup, as its manifest says."""

    database_sha256: str
    num_blobs: int
    blob_bytes: int
    created_at: float
    """Seconds since the epoch."""
    authority_sha256: str = ""
    """Of the file with the federation's keys; empty if its services speak plain text."""
    version: str = VERSION
    format: int = FORMAT


_BACKUP = TypeAdapter(Backup)


def make_backup(state: Path, folder: Path, *, url: str | None = None) -> Backup:
    """Back up a state directory, also while its aggregator runs. A database on a server becomes a SQLite file in the backup.

    Args:
        folder: Where the backup goes: a new folder, or an empty one.
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: `state` is no state directory, or `folder` is not empty or lies within it.
        PayloadCorrupt: A blob is gone or damaged.
        StoreUnavailable: Something cannot be read or written.
    """
    require_state(state, url)
    _apart(folder, state, "a backup within the state directory would be lost with it")
    with as_closed_as(state):
        return _made(state, folder, url)


def _made(state: Path, folder: Path, url: str | None) -> Backup:
    _claim(folder, "a backup")
    with _writing(folder), no_collection(state):
        created_at = time.time()
        copy_database(state, folder / SQLITE, url)
        _fsync(folder / SQLITE)
        named = named_blobs(folder / SQLITE)
        source, target = BlobFiles(state), BlobFiles(folder)
        for sha256, size_bytes in named.items():
            _copy_blob(source.stored_path(sha256), target.path(sha256), sha256, size_bytes)
        _copy_initial(state, folder)
        authority_sha256 = _copy_authority(state, folder)
        _fsync_folders(folder)
        backup = Backup(
            database_sha256=sha256_of(folder / SQLITE),
            num_blobs=len(named),
            blob_bytes=sum(named.values()),
            created_at=created_at,
            authority_sha256=authority_sha256,
        )
        _write(folder / MANIFEST, json.dumps(asdict(backup), indent=2).encode())
    return backup


def restore(folder: Path, state: Path) -> Backup:
    """Make a state directory from a backup. A failure leaves nothing behind.

    Args:
        state: The new state directory: one that is not there, or an empty one.

    Raises:
        InvalidConfig: `folder` is no complete backup, or `state` is not empty or lies within it.
        PayloadCorrupt: A blob, the database or the file with the keys of the backup is damaged.
        StoreUnavailable: Something cannot be read or written.
    """
    files = {folder / MANIFEST, folder / SQLITE, folder / AUTHORITY}
    for path in folder.rglob("*"):
        if not path.is_file() and (path in files or not path.is_dir()):  # a pipe or a device has no end
            raise InvalidConfig(f"{path} is no regular file: use another backup")
    backup = read_manifest(folder)
    if sha256_of(folder / SQLITE) != backup.database_sha256:
        raise PayloadCorrupt(f"{folder / SQLITE} is not what was backed up: use another backup")
    _apart(state, folder, "an aggregator would write into the backup")
    with as_closed_as(folder):
        _restore(backup, folder, state)
    return backup


def _restore(backup: Backup, folder: Path, state: Path) -> None:
    _claim(state, "a restored state")
    with _writing(state), _locked(state):  # no aggregator may start on an incomplete state
        try:
            named = named_blobs(folder / SQLITE)
            if (len(named), sum(named.values())) != (backup.num_blobs, backup.blob_bytes):
                raise PayloadCorrupt(f"{folder / MANIFEST} is not what was backed up: use another backup")
            source, target = BlobFiles(folder), BlobFiles(state)
            for sha256, size_bytes in named.items():
                _copy_blob(source.stored_path(sha256), target.path(sha256), sha256, size_bytes)
            _copy_initial(folder, state)
            if _copy_authority(folder, state) != backup.authority_sha256:
                raise PayloadCorrupt(f"{folder / AUTHORITY} is not what was backed up: use another backup")
            _fsync_folders(state)
            # Last: an aggregator finds either no state or a complete one.
            shutil.copyfile(folder / SQLITE, state / f"{SQLITE}.tmp")
            _fsync(state / f"{SQLITE}.tmp")
            (state / f"{SQLITE}.tmp").replace(state / SQLITE)
            fsync_folder(state)
        except BaseException:
            for name in ("blobs", "initial", AUTHORITY.parent):
                shutil.rmtree(state / name, ignore_errors=True)
            for name in (f"{SQLITE}.tmp", "lock"):
                (state / name).unlink(missing_ok=True)
            raise


def read_manifest(folder: Path) -> Backup:
    """The manifest of a backup.

    Raises:
        InvalidConfig: It is none, not complete, or of another format.
    """
    try:
        document: dict[str, Any] = json.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        raise InvalidConfig(
            f"{folder} is no complete backup: there is no {MANIFEST} in it; 'fedplcc state backup' writes it last"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{folder / MANIFEST} cannot be read ({error}): use another backup") from None
    try:
        if document["format"] != FORMAT:
            raise InvalidConfig(f"{folder} was written by version {document['version']}: restore it with that version")
        return _BACKUP.validate_python(document)
    except (KeyError, TypeError, ValidationError):
        raise InvalidConfig(
            f"{folder / MANIFEST} is not what 'fedplcc state backup' writes: use another backup"
        ) from None


def _apart(target: Path, source: Path, why: str) -> None:
    """Refuse to write a folder into its own source."""
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidConfig(f"{target} lies within {source}: {why}; choose another folder")


def _claim(folder: Path, what: str) -> None:
    """Make the folder, which must not exist or be empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise StoreUnavailable(f"cannot use {folder}: {error.strerror or error}; choose another folder") from error
    if not is_empty:
        raise InvalidConfig(
            f"{folder} is not empty: {what} needs a new or an empty folder; choose another or move it away"
        )


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {folder}: {error.strerror or error}{remedy_for(error)}; or choose another folder"
        ) from error


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Hold the lock of the aggregator that uses a state directory."""
    with (state / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidConfig(f"an aggregator has just begun on {state}: end it, or choose another folder") from None
        yield


def _copy_blob(source: Path, target: Path, sha256: str, size_bytes: int) -> None:
    """Copy a blob, and check its hash."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if _copied(source, target) != sha256 or target.stat().st_size != size_bytes:
        raise PayloadCorrupt(
            f"the blob {source} is damaged: 'fedplcc doctor' says which round it belongs to", sha256=sha256
        )


def _copied(source: Path, target: Path) -> str:
    """Copy a file durably; returns the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    with open_regular(source) as reading, target.open("xb") as writing:
        while piece := reading.read(PIECE_BYTES):
            digest.update(piece)
            writing.write(piece)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def _copy_initial(source: Path, target: Path) -> None:
    (target / "initial").mkdir()
    for label in sorted((source / "initial").glob("*.name")):
        model = label.with_suffix("")
        if model.is_file():
            _copy_blob(model, target / "initial" / model.name, model.name, model.stat().st_size)
            _copied(label, target / "initial" / label.name)


def _copy_authority(source: Path, target: Path) -> str:
    """Copy the federation's roots and their keys, if there are any; returns the SHA-256 of what was copied.

    The aggregator's own certificate is not copied: it makes itself another one of these roots.
    """
    try:
        data = read_regular(source / AUTHORITY)
    except FileNotFoundError:
        return ""
    file = target / AUTHORITY
    file.parent.mkdir(0o700)
    _write(file, data, mode=PRIVATE_FILE)
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(path.parent)


def _fsync(path: Path) -> None:
    with open_regular(path) as file:
        os.fsync(file.fileno())


def _fsync_folders(folder: Path) -> None:
    for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        fsync_folder(each)
