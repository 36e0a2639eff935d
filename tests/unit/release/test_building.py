from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.building import normal_sdist, normal_wheel, write_tar
from release.project import Project

PROJECT = Project(Path(), "0" * 40, 1_700_000_000, "1.0", {"name": "sapling"}, "", "")
HOME = "sapling-1.0.dist-info"
MEMBERS = {"sapling/b.py": b"B = 2\n", "sapling/a.py": b"A = 1\n", f"{HOME}/WHEEL": b"w", f"{HOME}/RECORD": b"stale"}


def write_wheel(path: Path, names: list[str], mode: int, year: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            info.external_attr = mode << 16
            archive.writestr(info, MEMBERS[name])
    return path


def write_sdist(path: Path, names: list[str], mode: int, mtime: int) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime, member.uname = len(MEMBERS[name]), mode, mtime, f"owner-{mode}"
            archive.addfile(member, io.BytesIO(MEMBERS[name]))
    return path


def test_order_times_and_modes_do_not_change_a_wheel(tmp_path: Path) -> None:
    first = write_wheel(tmp_path / "first.whl", list(MEMBERS), 0o100600, 1999)
    second = write_wheel(tmp_path / "second.whl", list(reversed(MEMBERS)), 0o100664, 2026)
    parts = {"sapling.cdx.json": b"{}"}
    normal = normal_wheel(first, parts, PROJECT)
    assert normal == normal_wheel(second, parts, PROJECT)
    with zipfile.ZipFile(io.BytesIO(normal)) as archive:
        names = archive.namelist()
        assert names == [
            "sapling/a.py",
            "sapling/b.py",
            f"{HOME}/WHEEL",
            f"{HOME}/sboms/sapling.cdx.json",
            f"{HOME}/RECORD",
        ]
        assert {(info.date_time, info.external_attr >> 16) for info in archive.infolist()} == {
            ((2023, 11, 14, 22, 13, 20), 0o100644)
        }


def test_order_times_modes_and_owners_do_not_change_a_source_distribution(tmp_path: Path) -> None:
    first = write_sdist(tmp_path / "first.tar.gz", list(MEMBERS), 0o600, 1)
    second = write_sdist(tmp_path / "second.tar.gz", list(reversed(MEMBERS)), 0o664, 2)
    assert normal_sdist(first, 5) == normal_sdist(second, 5)
    assert normal_sdist(first, 5) != normal_sdist(first, 6)


@pytest.mark.parametrize("name", ["bundle.tar", "site.tar.gz"])
def test_an_archive_has_its_files_and_the_commits_time(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"on disk")
    write_tar(tmp_path / name, {"b": tmp_path / "file", "a": b"in memory"}, 7)
    with tarfile.open(tmp_path / name) as archive:
        members = archive.getmembers()
        assert [(member.name, member.mtime, member.mode) for member in members] == [("a", 7, 0o644), ("b", 7, 0o644)]
        read = [archive.extractfile(member) for member in members]
        assert [file.read() for file in read if file is not None] == [b"in memory", b"on disk"]
