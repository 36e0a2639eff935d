"""The offline bundle: wheels for hosts without a package index, and requirements by whose hashes pip installs them."""

from __future__ import annotations

import email.parser
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from email.message import Message
from pathlib import Path

from packaging.utils import parse_wheel_filename

from release.building import digest, write_tar
from release.locks import FOLDER, Pin
from release.project import Project, Refused

FETCH_S = 3600.0
"""Longest time until pip has the wheels of one lock."""
INSTALL = "python -m pip install --no-index --find-links wheels --require-hashes --requirement {lock}.txt"
"""The line that installs, in the unpacked bundle."""


def fetch_wheels(root: Path, locks: Sequence[str], folder: Path) -> None:
    """Let pip fetch what some locks have for this Python, each file checked against the lock's hashes."""
    for lock in locks:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--requirement", f"{FOLDER}/{lock}.txt", "--wheel-dir", str(folder)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=FETCH_S, check=False)
        if done.returncode != 0:
            raise Refused(f"pip did not get the wheels of {FOLDER}/{lock}.txt: {done.stderr.strip()[-2000:]}")


def wheels_by_name(folder: Path) -> dict[str, Path]:
    """Wheels of a folder by the normalised names of their distributions."""
    return {parse_wheel_filename(path.name)[0]: path for path in sorted(folder.glob("*.whl"))}


def metadata_of(wheel: Path) -> Message:
    """Metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        return email.parser.Parser().parsestr(archive.read(name).decode())


def chosen_pins(pins: Sequence[Pin]) -> list[Pin]:
    """Those of a lock that are installed in this Python."""
    return [pin for pin in pins if pin.is_for()]


def write_bundle(
    project: Project,
    wheel: Path,
    wheels: Mapping[str, Path],
    locks: Mapping[str, tuple[Sequence[str], Sequence[Pin]]],
    out: Path,
) -> Path:
    """Write the bundle.

    Args:
        project: The commit.
        wheel: The project's own wheel.
        wheels: All others, by name.
        locks: By name, the extras of each lock and those of its packages that are for this Python.
        out: Where the bundle goes.
    """
    top = f"{project.name}-{project.version}-offline"
    files: dict[str, Path | bytes] = {f"{top}/wheels/{path.name}": path for path in [wheel, *wheels.values()]}
    for lock, (extras, pins) in locks.items():
        own = f"{project.name}[{','.join(extras)}]=={project.version} --hash=sha256:{digest(wheel)}\n"
        lines = [f"{pin.name}=={pin.version} --hash=sha256:{digest(wheels[pin.name])}\n" for pin in pins]
        files[f"{top}/{lock}.txt"] = (own + "".join(lines)).encode()
    files[f"{top}/INSTALL.txt"] = _instructions(project, list(locks)).encode()
    path = out / f"{top}.tar"
    write_tar(path, files, project.epoch_s)
    return path


def _instructions(project: Project, locks: Sequence[str]) -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    lines = "".join(f"    {INSTALL.format(lock=lock)}\n" for lock in locks)
    return (
        f"{project.name} {project.version} for {platform.python_implementation()} {python} "
        f"on {platform.system()} {platform.machine()}.\n\n"
        "Verify the bundle by SHA256SUMS and its signature before you unpack it. Then, here, in an environment of\n"
        f"your own, one of:\n\n{lines}\n"
        "pip refuses every file that has not the hash of the list.\n"
    )
