"""The console's files: read once, tagged by SHA-256, compressed with gzip."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath
from types import MappingProxyType

INDEX = "index.html"
"""The page, which loads all other files."""
MEDIA_TYPES = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
"""Media types of the served files by suffix; no other files are served."""

_IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*\bfrom "(\.{1,2}/[^"]+)";$""", re.MULTILINE)


@dataclass(frozen=True)
class ConsoleFile:
    """A file of the console."""

    name: str
    """Path below `static`, with slashes: "lib/dom.js"."""
    content: bytes

    @property
    def media_type(self) -> str:
        """Media type."""
        return MEDIA_TYPES[_suffix(self.name)]

    @cached_property
    def etag(self) -> str:
        """Entity tag; weak, as the compressed file has the same one."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes:
        """Content in gzip; the same bytes each time."""
        return gzip.compress(self.content, mtime=0)


def console_files() -> Mapping[str, ConsoleFile]:
    """Return every file of the console by name, sorted."""
    found = sorted(_below(files("fedplcc.gateway.console").joinpath("static")), key=lambda file: file.name)
    return MappingProxyType({file.name: file for file in found})


def version_of(found: Mapping[str, ConsoleFile]) -> str:
    """Return the version of these files: another content, name or file gives another version."""
    names = "".join(f"{name}\0{file.etag}\0" for name, file in found.items())
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def imported_by(found: Mapping[str, ConsoleFile], *names: str) -> list[str]:
    """Return these modules and all modules that they import statically, each once, in a browser's order."""
    needed = list(names)
    for name in needed:  # grows on the way
        imported = (normpath(join(dirname(name), path)) for path in _IMPORT.findall(found[name].content.decode()))
        needed += [other for other in imported if other not in needed]
    return needed


def _below(folder: Traversable, prefix: str = "") -> Iterator[ConsoleFile]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _below(entry, f"{name}/")
        elif _suffix(name) in MEDIA_TYPES:
            yield ConsoleFile(name, entry.read_bytes())


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2]
