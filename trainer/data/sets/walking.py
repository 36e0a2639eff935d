"""Files below the class folders of a data set: images and what else lies there.

Links to folders are followed once and never in a circle; folders before links. Nothing but a regular file is ever opened:
a pipe would be waited for. Names that begin with a dot and the folders of systems are left alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from fedplcc.trainer.data.images.endings import IMAGE_ENDINGS, NUM_BYTES, OTHER_ENDINGS, begins_as_image
from fedplcc.trainer.data.names import listed, printable

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
"""Endings of what a class may lie in that nobody has unpacked."""
MOST_REMARKS = 8
"""Most kinds of files that are left out of which each has a sentence."""

MOST_HIDDEN = 1000
"""Most folders in a hidden one that are looked into for images."""

SYSTEM_FOLDERS = frozenset(
    {
        "$recycle.bin",
        "system volume information",
        "__macosx",
        "__pycache__",
        "@eadir",
        "@recycle",
        "@recently-snapshot",
        "#recycle",
        "#snapshot",
        "~snapshot",
        "lost+found",
        "lost.dir",
        "network trash folder",
        "temporary items",
        "_gsdata_",
        "recycler",
        "recycled",
    }
)
"""Folders that operating systems and file servers make, in small letters."""

APPLE_DOUBLE = b"\x00\x05\x16\x07"
"""First bytes of the file that a Mac writes beside another on a foreign disk, with `._` before its name (RFC 1740)."""

Key = TypeVar("Key")


def is_system(name: str) -> bool:
    """Whether a name is of an operating system and no class."""
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


def folders_in(place: Path) -> list[str]:
    """Return the folders of a folder, and links to folders, sorted; without those of systems."""
    with os.scandir(place) as entries:
        return sorted(entry.name for entry in entries if not is_system(entry.name) and _leads_to(entry.is_dir))


def _leads_to(is_one: Callable[[], bool]) -> bool:
    """Whether an entry is of a kind; not where it is a link in a circle."""
    try:
        return is_one()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def holds_images(place: Path) -> bool:
    """Whether files that are meant as images lie straight in a folder."""
    with os.scandir(place) as entries:
        return any(
            not entry.name.startswith(".")
            and os.path.splitext(entry.name)[1].lower() in IMAGE_ENDINGS
            and _leads_to(entry.is_file)
            for entry in entries
        )


class Walk:
    """A walk through the folders of one data set, which remembers where it has been.

    Attributes:
        hidden: Images, and folders that hold some, whose names begin with a dot.
        packed: Archives beside the class folders.
    """

    def __init__(self, root: Path, *, is_class: bool = False) -> None:
        """Prepare.

        Args:
            is_class: Whether it is the one folder to walk through itself.
        """
        self._root = root
        around = root.resolve().parents
        self._seen = {_identity(os.stat(place)) for place in (around if is_class else (root, *around))}
        self.left_out: Counter[str] = Counter()
        self.hidden: list[str] = []
        self.packed: list[str] = []

    def files(self, folders: Mapping[Key, Iterable[str]]) -> dict[Key, list[str]]:
        """Return the images of each class, as paths below the root, sorted.

        Args:
            folders: Folders of each class, as paths below the root.
        """
        for around in {os.path.dirname(place) for places in folders.values() for place in places}:
            with os.scandir(self._root / around) as entries:
                for entry in entries:
                    self.hidden += [os.path.join(around, entry.name)] if _is_hidden(entry) else []
                    is_packed = entry.name[0] != "." and entry.name.lower().endswith(ARCHIVES)
                    self.packed += [os.path.join(around, entry.name)] if is_packed and not entry.is_dir() else []
        found: dict[Key, list[str]] = {name: [] for name in folders}
        links: list[tuple[Key, str]] = []
        for name, places in folders.items():
            for place in places:
                if os.path.islink(self._root / place):
                    links.append((name, place))
                else:
                    self._into(place, found[name], links, name)
        while links:
            name, place = links.pop(0)
            self._into(place, found[name], links, name)
        return {name: sorted(paths) for name, paths in found.items()}

    def _into(self, place: str, found: list[str], links: list[tuple[Key, str]], name: Key) -> None:
        waiting = [place]
        while waiting:
            below = waiting.pop()
            identity = _identity(os.stat(self._root / below))
            if identity in self._seen:
                self.left_out["links to folders that are read already"] += 1
                continue
            self._seen.add(identity)
            with os.scandir(self._root / below) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    path = os.path.join(below, entry.name)
                    if is_system(entry.name) and not _is_damaged_twin(entry):
                        self.hidden += [path] if _is_hidden(entry) else []
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                    elif entry.is_symlink() and _leads_to(entry.is_dir):
                        links.append((name, path))
                    elif (what := self._what(entry)) is None:
                        found.append(path)
                    else:
                        self.left_out[what] += 1

    def _what(self, entry: os.DirEntry[str]) -> str | None:
        """Return what a file is that is no image; None for an image."""
        if not _leads_to(entry.is_file):
            return "broken links" if entry.is_symlink() and not os.path.exists(entry.path) else _kind(entry)
        ending = os.path.splitext(entry.name)[1].lower()
        if ending in IMAGE_ENDINGS:
            return None
        if ending not in OTHER_ENDINGS and not ending.endswith("~"):  # what an editor keeps of an image is its copy
            try:
                with open(entry.path, "rb") as file:
                    if begins_as_image(file.read(NUM_BYTES)):
                        return None
            except OSError:
                return "files that cannot be opened"
        return f"files {ending}" if ending else "files without an ending"

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence on each of the most frequent kinds of file that are left out, and one on the others together."""
        named, others = self.left_out.most_common(MOST_REMARKS), self.left_out.most_common()[MOST_REMARKS:]
        said = [f"{count} {what}: left out, no images" for what, count in sorted(named)]
        if others:
            said.append(f"{sum(count for _, count in others)} of {len(others)} more kinds: left out, no images")
        if self.packed:
            packed = listed(sorted(map(printable, self.packed)))
            said.append(f"archives beside the class folders are not unpacked, and no classes: {packed}")
        if self.hidden:
            said.append(
                f"names that begin with a dot are left out, images too: {listed(sorted(map(printable, self.hidden)))}"
            )
        return tuple(said)


def _is_hidden(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is an image, or a folder with images, that its name hides; not what a Mac writes beside others."""
    if not entry.name.startswith(".") or entry.name.startswith("._") or entry.is_symlink():
        return False
    if not entry.is_dir():
        return os.path.splitext(entry.name)[1].lower() in IMAGE_ENDINGS
    return any(
        os.path.splitext(name)[1].lower() in IMAGE_ENDINGS
        for _, _, names in islice(os.walk(entry.path), MOST_HIDDEN)
        for name in names
    ) or not os.access(entry.path, os.R_OK)


def _is_damaged_twin(entry: os.DirEntry[str]) -> bool:
    """Whether a file has the name of what a Mac writes beside an image, and not its first bytes: it may be a lost image."""
    if not entry.name.startswith("._") or os.path.splitext(entry.name)[1].lower() not in IMAGE_ENDINGS:
        return False
    try:
        if not entry.is_file():
            return False
        with open(entry.path, "rb") as file:
            return file.read(len(APPLE_DOUBLE)) != APPLE_DOUBLE
    except OSError:
        return True


def _kind(entry: os.DirEntry[str]) -> str:
    mode = os.stat(entry.path).st_mode
    if stat.S_ISFIFO(mode):
        return "named pipes"
    return "sockets" if stat.S_ISSOCK(mode) else "devices"


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
