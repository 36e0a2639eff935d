"""The console's files: read once, named by their SHA-256, compressed where that makes them smaller."""

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
"""The page; everything else is loaded by it."""
MEDIA_TYPES = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
"""What is served, by the end of its name; nothing else is."""

_IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*\bfrom "(\.{1,2}/[^"]+)";$""", re.MULTILINE)


@dataclass(frozen=True)
class ConsoleFile:
    """A file of the console."""

    name: str
    """Where it is below `static`, with slashes between: "lib/dom.js"."""
    content: bytes

    @property
    def media_type(self) -> str:
        """What it is."""
        return MEDIA_TYPES[_suffix(self.name)]

    @cached_property
    def etag(self) -> str:
        """Its entity tag. Weak: the compressed file has the same one."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes:
        """It in gzip; the same bytes each time."""
        return gzip.compress(self.content, mtime=0)


def console_files() -> Mapping[str, ConsoleFile]:
    """Every file of the console by its name, in the order of their names."""
    found = sorted(_below(files("gateway.console").joinpath("static")), key=lambda file: file.name)
    return MappingProxyType({file.name: file for file in found})


def version_of(found: Mapping[str, ConsoleFile]) -> str:
    """What names these files as they are: another content, name or file gives another version."""
    names = "".join(f"{name}\0{file.etag}\0" for name, file in found.items())
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def imported_by(found: Mapping[str, ConsoleFile], *names: str) -> list[str]:
    """These modules and all that they need before they run, each once, in the order in which a browser meets them.

    What a module imports only when it is asked for is left out.
    """
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
