"""Labels file of a folder of images: a table with `path` and `label`, and perhaps `split` and `group`, one line an image.

CSV with commas or semicolons, TSV, or parquet where pyarrow is installed. Other columns are left alone.
"""

from __future__ import annotations

import csv
import math
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.names import composed, listed
from fedplcc.trainer.data.sets.layout import TEST, TRAIN, VALIDATION, side_of

COLUMNS = ("path", "label", "split", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One image of the table: its path below the folder, its class, its side where the table gives one, and its group."""

    path: str
    label: str
    side: str | None
    group: str | None


def read_labels(path: Path, root: Path, group: str | None) -> tuple[list[Entry], tuple[str, ...]]:
    """Return the images of a labels file in the order of their paths, and remarks for the owner.

    Args:
        path: The file.
        root: The folder that the paths are below.
        group: Name of the column of groups; `group` where there is one if None.

    Raises:
        InvalidData: The file cannot be read, lacks a column, names an image twice, lists images that are not there, gives
            some images a side and others none, or a label that is a fraction or negative.
    """
    rows = _rows(path)
    if not rows:
        raise InvalidData(f"{path} lists no image")
    columns = list(rows[0])
    for needed in ("path", "label", *([group] if group else [])):
        if needed not in columns:
            raise InvalidData(f"{path} has no column {needed!r}; it has {listed(columns)}")
    group = group or ("group" if "group" in columns else None)
    found: dict[str, Entry] = {}
    for number, row in enumerate(rows, start=2):
        entry = _entry(row, group, f"line {number} of {path}")
        if entry.path in found:
            raise InvalidData(f"line {number} of {path} lists {entry.path} again, as {entry.label!r}; leave one line")
        found[entry.path] = entry
    entries = [found[name] for name in sorted(found)]
    _check_there(entries, path, root)
    given = Counter(entry.side is not None for entry in entries)
    if len(given) > 1:
        raise InvalidData(
            f"{path} gives {given[True]} images a split and {given[False]} none; give it to all or to none"
        )
    return entries, _remarks(entries, root)


def _entry(row: Mapping[str, Any], group: str | None, where: str) -> Entry:
    label, split = text_of(row["label"], where), row.get("split")
    path = str(row["path"] or "").strip().replace("\\", "/")
    if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise InvalidData(f"{where}: {path!r} is no path below the folder")
    side = None
    if split is not None and str(split).strip():
        side = side_of(str(split).strip())
        if side is None:
            raise InvalidData(f"{where}: the split {split!r} is none of {TRAIN}, {TEST} and {VALIDATION}")
    of_group = None if group is None else str(row[group] if row[group] is not None else "").strip()
    if group is not None and not of_group:
        raise InvalidData(f"{where}: no {group}, which all images need where the column is used")
    return Entry(path=os.path.normpath(path), label=label, side=side, group=of_group)


def text_of(value: Any, where: str) -> str:
    """Return a label as the name of its class.

    Raises:
        InvalidData: It is missing, a fraction, or negative.
    """
    text = composed(str(value if value is not None else "")).strip()
    if not text or (isinstance(value, float) and math.isnan(value)):
        raise InvalidData(f"{where}: no label")
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number) or number < 0 or not text.isdigit():
        raise InvalidData(
            f"{where}: the label {text} is a fraction or negative; labels are names or whole numbers from 0"
        )
    return str(int(text))


def _check_there(entries: Sequence[Entry], path: Path, root: Path) -> None:
    absent = [entry.path for entry in entries if not os.path.lexists(root / entry.path)]
    if absent:
        raise InvalidData(f"{path} lists {len(absent)} images that are not in {root}, {absent[0]} among them")


def _remarks(entries: Sequence[Entry], root: Path) -> tuple[str, ...]:
    odd = sum(not stat.S_ISREG(os.stat(root / entry.path).st_mode) for entry in entries if (root / entry.path).exists())
    return (f"{odd} listed paths are no regular files and are never opened",) if odd else ()


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidData(f"{path} is no regular file")
        if path.suffix.lower() == ".parquet":
            return _parquet(path)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidData(f"there is no labels file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    head = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else max(",;\t", key=head.count)
    reader = csv.DictReader(text.splitlines(), delimiter=delimiter)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    rows = [dict(row) for row in reader]
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InvalidData(f"line {number} of {path} has another number of columns than its first line")
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        parquet = import_module("pyarrow.parquet")  # has no types
    except ImportError as error:
        raise InvalidData(f"{path} needs pyarrow; write a CSV file, or install pyarrow") from error
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    # pyarrow raises its own errors on a damaged file.
    except Exception as error:
        raise InvalidData(f"cannot read {path} as parquet: {error}") from error
    return rows
