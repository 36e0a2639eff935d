"""Wheel and source distribution of a commit, built twice in fresh folders to the same bytes.

The builds differ in folder, mask of permissions, time zone and seed of Python's hashes. What setuptools leaves to
those is written anew: order, times, modes and owners of members. The wheel is built from the unpacked source
distribution, and takes its list of parts (PEP 770) in the same pass.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from release.project import Project, Refused

BUILD_S = 600.0
"""Longest time of one build."""
SURROUNDINGS = (
    {"umask": "022", "TZ": "UTC", "PYTHONHASHSEED": "1"},
    {"umask": "077", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "2"},
)
"""What is different in the two builds, besides the length of the folder's path."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was built, each twice."""

    wheel: Path
    sdist: Path


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_twice(project: Project, parts: Mapping[str, bytes], work: Path, out: Path) -> Built:
    """Build both distributions twice, and keep the first.

    Args:
        project: The commit.
        parts: Files for the wheel's `.dist-info/sboms/`, by name.
        work: An empty folder for the builds.
        out: Where the distributions go.

    Raises:
        Refused: The two builds differ, or one failed.
    """
    rounds = []
    for number, surroundings in enumerate(SURROUNDINGS):
        folder = work.joinpath("build", *["deeper"] * number)
        project.export(folder / "tree")
        _build(folder, surroundings, project.epoch_s)
        (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
        rounds.append(
            {wheel.name: normal_wheel(wheel, parts, project), sdist.name: normal_sdist(sdist, project.epoch_s)}
        )
    first, second = rounds
    differing = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
    if differing:
        raise Refused(
            f"two builds of {project.commit[:12]} differ in {', '.join(sorted(differing))}: this is a bug of release/"
        )
    for name, content in first.items():
        (out / name).write_bytes(content)
    wheel_name, sdist_name = sorted(first, key=lambda name: not name.endswith(".whl"))
    return Built(out / wheel_name, out / sdist_name)


def _build(folder: Path, surroundings: Mapping[str, str], epoch_s: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {name: value for name, value in surroundings.items() if name.isupper()}
    environment["SOURCE_DATE_EPOCH"] = str(epoch_s)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "tree")],
        cwd=folder,
        env=environment,
        umask=int(surroundings["umask"], 8),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(f"the build failed; it needs the extra release: {(done.stderr or done.stdout).strip()[-2000:]}")


def normal_wheel(path: Path, parts: Mapping[str, bytes], project: Project) -> bytes:
    """Return a wheel's bytes with more files in `.dist-info/sboms/`: members sorted, RECORD last, one time and mode."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    (record,) = (name for name in members if name.endswith(".dist-info/RECORD"))
    del members[record]
    home = record.removesuffix("RECORD")
    members |= {f"{home}sboms/{name}": content for name, content in parts.items()}
    names = sorted(members, key=lambda name: (name.startswith(home), name))
    members[record] = _record(names, members, record)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*names, record]:
            info = zipfile.ZipInfo(name, project.time.timetuple()[:6])
            info.external_attr = 0o100644 << 16
            info.create_system = 3  # Unix
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, members[name], compresslevel=9)
    return packed.getvalue()


def _record(names: list[str], members: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in names:
        hashed = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={hashed}", len(members[name])])
    writer.writerow([record, "", ""])
    return text.getvalue().encode()


def normal_sdist(path: Path, epoch_s: int) -> bytes:
    """Return a source distribution's bytes: members sorted, one time and owner, modes 0644 and 0755."""
    packed = io.BytesIO()
    with tarfile.open(path) as archive, gzip.GzipFile("", "wb", 9, packed, mtime=epoch_s) as compressed:
        members = {member.name: member for member in archive.getmembers()}
        with tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as target:
            for _name, member in sorted(members.items()):
                content = archive.extractfile(member) if member.isfile() else None
                target.addfile(normal_member(member, epoch_s), content)
    return packed.getvalue()


def normal_member(member: tarfile.TarInfo, epoch_s: int) -> tarfile.TarInfo:
    """Give a member of an archive the time, owner and mode that all have."""
    member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    member.pax_headers = {}
    return member


def write_tar(path: Path, files: Mapping[str, Path | bytes], epoch_s: int) -> None:
    """Write a tar archive, compressed if its name ends with .gz: names sorted, one time, owner and mode."""
    with path.open("wb") as file:
        stream: io.IOBase = file
        if path.suffix == ".gz":
            stream = gzip.GzipFile("", "wb", 9, file, mtime=epoch_s)
        with stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, content in sorted(files.items()):
                _add(archive, name, content, epoch_s)


def _add(archive: tarfile.TarFile, name: str, content: Path | bytes, epoch_s: int) -> None:
    member = normal_member(tarfile.TarInfo(name), epoch_s)
    if isinstance(content, Path):
        member.size = content.stat().st_size
        with content.open("rb") as file:
            archive.addfile(member, file)
    else:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
