"""`fedplcc deploy files`: it writes what is not there, and nothing over what differs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.deployment import files
from fedplcc.deployment.files import WHEEL, deployment_files, write_files
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_those_of_the_tree_and_read_by_all(tmp_path: Path) -> None:
    folder, before = tmp_path / "new", os.umask(0o077)
    try:
        written = write_files(folder)
    finally:
        assert os.umask(before) == 0o077, "the mask is the caller's again"
    assert contents(folder) == {name: path.read_bytes() for name, path in deployment_files().items()}
    assert {"deploy/compose.yaml", "locks/aggregator.txt", "Dockerfile.trainer", ".dockerignore"} <= set(written)
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in [folder, *folder.rglob("*")]}
    assert modes == {(True, 0o755), (False, 0o644)}
    assert write_files(folder) == []


def test_nothing_is_written_where_a_file_differs(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "deploy/compose.yaml").write_text("name: mine\n")
    (tmp_path / "deploy/systemd/gateway.env").unlink()
    (tmp_path / "locks/trainer.txt").unlink()
    (tmp_path / "locks/trainer.txt").mkdir()
    before = contents(tmp_path)
    with pytest.raises(InvalidConfig, match=r"nothing was written: deploy/compose\.yaml, locks/trainer\.txt; name"):
        write_files(tmp_path)
    assert contents(tmp_path) == before
    (tmp_path / "deploy/compose.yaml").unlink()
    (tmp_path / "locks/trainer.txt").rmdir()
    assert write_files(tmp_path) == ["deploy/compose.yaml", "deploy/systemd/gateway.env", "locks/trainer.txt"]


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="the argument FOLDER"):
        write_files(tmp_path / "file" / "below")


def test_hidden_files_of_whoever_works_in_the_clone_are_not_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TREE", tmp_path)
    (tmp_path / "deploy").mkdir()
    for name in (".dockerignore", "deploy/.env", "deploy/compose.yaml"):
        (tmp_path / name).touch()
    assert list(deployment_files()) == [".dockerignore", "deploy/compose.yaml"]


def test_the_command_says_what_it_wrote_and_which_wheel_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, count = CliRunner().invoke(app, ["deploy", "files"]), len(deployment_files())
    assert first.exit_code == ExitCode.OK
    assert first.stdout.startswith(f"wrote {count} of {count} files into {tmp_path}; begin with deploy/README.md\n")
    assert f"copy {WHEEL} into the same folder" in first.stdout
    (tmp_path / WHEEL).touch()
    (tmp_path / "Dockerfile.trainer").unlink()
    second = CliRunner().invoke(app, ["deploy", "files", str(tmp_path)]).stdout
    assert second.startswith(f"wrote 1 of {count} files into {tmp_path};")
    assert WHEEL not in second
    (tmp_path / "Dockerfile.trainer").write_text("FROM scratch\n")
    third = CliRunner().invoke(app, ["deploy", "files", str(tmp_path)])
    assert (third.exit_code, "Dockerfile.trainer" in third.stderr) == (ExitCode.USAGE, True)
