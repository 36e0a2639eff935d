"""Files of a deployment, which the wheel carries, and their writing into a folder that is laid out as a clone is."""

from __future__ import annotations

import os
from pathlib import Path

from fedplcc.runs.atomic_file import atomic_file, disk_errors
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.version import VERSION

TREE = Path(__file__).parent / "tree"
"""The files: in a clone links to the places where they are kept."""
WHEEL = f"fedplcc-{VERSION}-py3-none-any.whl"
"""What the Dockerfiles install, from the folder that they are in."""
_HIDDEN = ".dockerignore"
"""The one hidden file: another one, as Compose's .env, is of whoever works in the clone."""
_READ_BY_ALL = 0o022
"""Mask of permissions. Containers read the files as users of their own, and none of them has a secret."""


def deployment_files() -> dict[str, Path]:
    """Return the files by the paths that they are written to, in order."""
    found = [Path(folder, name) for folder, _, names in os.walk(TREE, followlinks=True) for name in names]
    named = {path.relative_to(TREE).as_posix(): path for path in found}
    return {name: named[name] for name in sorted(named) if named[name].name[0] != "." or name == _HIDDEN}


def write_files(folder: Path) -> list[str]:
    """Write the files that are not there yet, or none of them; returns their paths.

    Raises:
        InvalidConfig: Other content is at the place of some of them.
        StoreUnavailable: The folder cannot be read or written.
    """
    contents = {name: path.read_bytes() for name, path in deployment_files().items()}
    with disk_errors(folder, option="the argument FOLDER"):
        there = {name: folder / name for name in contents if (folder / name).exists()}
        other = [name for name, path in there.items() if not path.is_file() or path.read_bytes() != contents[name]]
        if other:
            raise InvalidConfig(
                f"{folder} has other files than fedplcc {VERSION} at these places, and nothing was written: "
                f"{', '.join(other)}; name another folder and compare, or move them away"
            )
        before = os.umask(_READ_BY_ALL)
        try:
            for name in contents.keys() - there.keys():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(folder / name, option="the argument FOLDER") as file:
                    file.write(contents[name])
        finally:
            os.umask(before)
    return [name for name in contents if name not in there]
