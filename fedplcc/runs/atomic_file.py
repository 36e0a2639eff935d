"""Files that exist whole or not at all."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.process.disk import fsync_folder


@contextmanager
def atomic_file(path: Path, *, option: str = "--out") -> Iterator[BinaryIO]:
    """Write a temporary file that takes its name when the block succeeds, and is deleted when it raises.

    Args:
        option: The command-line option for another place, for the error.

    Raises:
        StoreUnavailable: The folder cannot be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with disk_errors(path, option=option):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a file's content.

    Raises:
        StoreUnavailable: It cannot be written.
    """
    with atomic_file(path) as file:
        file.write(text.encode())


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet.

    Raises:
        InvalidConfig: It is there already.
        StoreUnavailable: It cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise InvalidConfig(f"{path} is there already; name another file, or remove it first") from None
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror or error}; name a file elsewhere") from error


def make_folder(path: Path) -> None:
    """Make a writable folder with its parents.

    Raises:
        StoreUnavailable: It cannot be made or written to.
    """
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


@contextmanager
def disk_errors(path: Path, *, option: str = "--out") -> Iterator[None]:
    """Turn errors of the operating system within the block into StoreUnavailable."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror or error}; choose another with {option}"
        ) from error
