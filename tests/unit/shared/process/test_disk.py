from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.process.disk import locked, read_regular, why_unusable
from tests.support import ROOT

STATE_READERS = ("trainer/owner", "trainer/privacy", "trainer/task", "trainer/instance.py", "trainer/audit_witness.py")
"""Where a trainer's state directory is read, which others may write into; also by commands of its owner."""


def test_a_folder_of_another_user_is_told_with_the_number_that_must_be_let_in() -> None:
    sentence = why_unusable(Path("/var/lib/fedplcc"), PermissionError(errno.EACCES, "Permission denied"))
    assert sentence.startswith("cannot use the state directory /var/lib/fedplcc: Permission denied; ")
    assert f"user id {os.geteuid()}" in sentence
    assert "--state-dir" in sentence


def test_another_trouble_is_told_in_the_systems_words_with_its_own_remedy() -> None:
    sentence = why_unusable(Path("state"), OSError(errno.EROFS, "Read-only file system"))
    assert sentence == "cannot use the state directory state: Read-only file system; mount it so that it can be written"
    unknown = why_unusable(Path("state"), OSError(errno.EXDEV, "Invalid cross-device link"))
    assert unknown == "cannot use the state directory state: Invalid cross-device link"


def test_a_pipe_a_device_and_a_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert (read_regular(tmp_path / "file"), read_regular(tmp_path / "file", 2)) == (b"12345", b"12")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match="no regular file"):
            read_regular(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)


def test_a_lock_is_one_processs_alone_and_a_pipe_in_its_place_holds_nobody(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "lock"):
        with locked(path), pytest.raises(BlockingIOError), locked(path, waits=False):
            pass
        with locked(path, waits=False):
            pass
    os.mkfifo(tmp_path / "pipe")
    with locked(tmp_path / "pipe"):
        pass


def unguarded(text: str) -> Iterator[int]:
    """Lines that open a file to read it, or to lock it, other than by fedplcc.shared.process.disk."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(attr="read_text" | "read_bytes") | ast.Name(id="open"):
                yield node.lineno
            case ast.Attribute(attr="open", value=of) if not (isinstance(of, ast.Name) and of.id[:1].isupper()):
                yield node.lineno


def test_nothing_of_a_trainers_state_is_opened_but_by_who_refuses_what_has_no_end() -> None:
    planted = ("x.open('rb')", "open(x)", "x.read_bytes()", "os.open(x)", "(a / b).read_text()", "disk.open_regular(x)")
    assert list(unguarded("\n".join((*planted, "Authority.open(x)")))) == [1, 2, 3, 4, 5]
    places = [ROOT / place for place in STATE_READERS]
    files = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])]
    assert len(files) > 50
    found = {str(path.relative_to(ROOT)): list(unguarded(path.read_text())) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
