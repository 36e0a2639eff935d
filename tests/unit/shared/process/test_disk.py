from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.process.disk import allocate, append, locked, read_regular, replace_file, why_unusable
from tests.support import ROOT

STATE_READERS = (
    *("trainer/owner", "trainer/privacy", "trainer/task", "trainer/instance.py", "trainer/audit_witness.py"),
    *("aggregator/app.py", "aggregator/identity", "aggregator/store", "gateway/messages/place.py"),
    *("gateway/http/server_tls.py", "shared/identity", "shared/wire/enrolling", "shared/config/initial_model.py"),
    *("fedplcc/runs", "fedplcc/comparison", "fedplcc/models", "fedplcc/doctor", "fedplcc/remote", "fedplcc/state"),
)
"""Where states of processes and folders of runs are read, which others may write into; also by commands of their owners."""
GUARDED = {
    "aggregator/identity/sign_on/provider.py": "a secret's file, which the owner may give as /dev/stdin",
    "aggregator/store/blobs/files.py": "it asks is_file first",
    "aggregator/store/blobs/hashed_reading.py": "whoever gives it the path has asked is_file",
    "aggregator/store/blobs/uploads.py": "an open file for reading and writing waits for nobody",
    "aggregator/store/database/engines/sqlite.py": "it has replaced the file just before",
    "aggregator/store/database/revisions.py": "its own temporary file",
    "fedplcc/doctor/findings.py": "files of the system",
    "fedplcc/doctor/state_folder.py": "its own scratch folder",
    "fedplcc/runs/atomic_file.py": "its own temporary file",
    "fedplcc/runs/run_folder.py": "folders",
    "fedplcc/state/audit.py": "a file that the owner names, as /dev/stdin perhaps",
    "fedplcc/state/backup.py": "its own new folder",
    "shared/config/initial_model.py": "it asks is_file first",
    "shared/wire/enrolling/joining.py": "an invitation's file, which the owner may give as /dev/stdin",
}
"""Files of these in which something else keeps a pipe from being waited for."""


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


def test_nothing_is_written_into_a_pipe_or_a_device(tmp_path: Path) -> None:
    """Also where another has put it in the place of a temporary file, of which the name is known."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "file.tmp")
    (tmp_path / "null").symlink_to("/dev/null")
    for wrong in (
        lambda: append(tmp_path / "pipe", b"1", "test", at=0),
        lambda: append(tmp_path / "null", b"1", "test", at=0),
        lambda: allocate(tmp_path / "pipe", 1, "test"),
        lambda: replace_file(tmp_path / "file", b"1", "test"),
    ):
        with pytest.raises(OSError, match=r"no regular file|No such device or address"):
            wrong()


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
    """Lines that open a file other than by fedplcc.shared.process.disk, unless they wait for nobody or make a new one."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(
            isinstance(mode, ast.Constant) and mode.value in ("x", "xb") for mode in node.args
        ):
            continue
        if "O_NONBLOCK" in ast.unparse(node):
            continue
        match node.func:
            case ast.Attribute(attr="read_text" | "read_bytes") | ast.Name(id="open"):
                yield node.lineno
            case ast.Attribute(attr="open", value=of) if not (isinstance(of, ast.Name) and of.id[:1].isupper()):
                yield node.lineno


def test_no_state_and_no_runs_folder_is_opened_but_by_who_refuses_what_has_no_end() -> None:
    planted = ("x.open('rb')", "open(x)", "x.read_bytes()", "os.open(x)", "(a / b).read_text()", "disk.open_regular(x)")
    fine = ("Authority.open(x)", "x.open('xb')", "os.open(x, os.O_RDWR | os.O_NONBLOCK)")
    assert list(unguarded("\n".join((*planted, *fine)))) == [1, 2, 3, 4, 5]
    places = [ROOT / place for place in STATE_READERS]
    files = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])]
    assert len(files) > 150
    found = {str(path.relative_to(ROOT)): list(unguarded(path.read_text())) for path in files}
    assert {name: lines for name, lines in found.items() if bool(lines) is not (name in GUARDED)} == {}
