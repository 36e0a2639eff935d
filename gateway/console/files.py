"""The console's files: read once, named by their SHA-256, compressed where that makes them smaller."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
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


@dataclass(frozen=True)
class ConsoleFile:
    """A file of the console."""

    name: str
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
    found = sorted(files("gateway.console").joinpath("static").iterdir(), key=lambda entry: entry.name)
    return MappingProxyType(
        {
            entry.name: ConsoleFile(entry.name, entry.read_bytes())
            for entry in found
            if _suffix(entry.name) in MEDIA_TYPES
        }
    )


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2]
