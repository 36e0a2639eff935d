"""Labels file of a folder of images: a table with `path` and `label`, and perhaps `split` and `group`, one line an image.

CSV with commas or semicolons, TSV, or parquet where pyarrow is installed. Other columns are left alone.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.images.endings import IMAGE_ENDINGS
from fedplcc.trainer.data.names import composed, decoded, listed, nearest, printable
from fedplcc.trainer.data.sets.doubts import columns_left
from fedplcc.trainer.data.sets.layout import TEST, TRAIN, VALIDATION, side_of

TABLES = (".csv", ".tsv", ".tab", ".parquet")
"""Endings of tables, in small letters."""
COLUMNS = ("path", "label", "split", "group")
MISSING = frozenset({"", "nan", "<na>", "null", "n/a", "#n/a"})
"""What tables have where nothing is known, in small letters; "none" may be a class."""


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
        group: Name of the column of groups; `group` where there is one if None.

    Raises:
        InvalidData: The file cannot be read, lacks a column, names an image twice, lists images that are not there, gives
            some images a side and others none, or a label that is a fraction or negative.
    """
    rows = _rows(path)
    if not rows:
        raise InvalidData(f"{path} lists no image")
    columns = list(rows[0][1])
    group = group.lower() if group is not None and group.lower() in COLUMNS else group
    for needed in ("path", "label", *([group] if group else [])):
        if needed not in columns:
            raise InvalidData(f"{path} has no column {needed!r}; it has {listed(columns)}")
    group = group or ("group" if "group" in columns else None)
    found: dict[str, Entry] = {}
    texts: dict[str, str] = {}
    for number, row in rows:
        entry = _entry(row, group, f"line {number} of {path}")
        number_of = entry.label.lstrip("0") or "0"
        if entry.label.isdecimal() and (text := texts.setdefault(number_of, entry.label)) != entry.label:
            raise InvalidData(
                f"line {number} of {path}: the label {entry.label} is written {text} before; write it in one way"
            )
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
    known = (*COLUMNS[:3], *([group, "group"] if group else []))
    left = columns_left([row for _, row in rows], known)
    return entries, (*_remarks(entries, root), *_unlisted(entries, path, root), *left)


def _unlisted(entries: Sequence[Entry], path: Path, root: Path) -> tuple[str, ...]:
    """Return a remark on images that lie beside listed ones and are not listed."""
    known = {entry.path for entry in entries}
    more = []
    for place in sorted({os.path.dirname(entry.path) for entry in entries}):
        with os.scandir(root / place) as beside:
            names = (each.name for each in beside if os.path.splitext(each.name)[1].lower() in IMAGE_ENDINGS)
            more += [name for name in (os.path.join(place, name) for name in names) if name not in known]
    return (f"{len(more)} images are not in {path.name}, {printable(min(more))} among them: left out",) if more else ()


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
    of_group = None if group is None else composed(str(row[group] if row[group] is not None else "")).strip()
    if group is not None and (of_group or "").lower() in MISSING:
        raise InvalidData(f"{where}: no {group}, which all images need where the column is used")
    return Entry(path=os.path.normpath(path), label=label, side=side, group=of_group)


def text_of(value: Any, where: str) -> str:
    """Return a label as the name of its class.

    Raises:
        InvalidData: It is missing, a fraction, negative, or no single line of text.
    """
    if isinstance(value, list | tuple | dict):
        raise InvalidData(f"{where}: the label {value!r} is not one name")
    value = value if isinstance(value, bytes) else str("" if value is None else value)
    text = decoded(value, f"{where}: the label").strip()
    if text.lower() in MISSING:
        raise InvalidData(f"{where}: no label")
    if printable(text) != text:
        raise InvalidData(
            f"{where}: the label '{printable(text[:60])}' is not one line of text; look for a quote without its end"
        )
    if "_" in text:
        return text  # no number, though Python takes 1_2 for one
    try:
        number = float(unicodedata.normalize("NFKC", text).replace(",", ".").replace("\u2212", "-"))
    except ValueError:
        return text
    if not math.isfinite(number) or number < 0 or not (text.isascii() and text.isdigit()):
        raise InvalidData(
            f"{where}: the label {text} is a fraction or negative; labels are names or whole numbers from 0"
        )
    return text


def _check_there(entries: Sequence[Entry], path: Path, root: Path) -> None:
    absent = [entry.path for entry in entries if not os.path.lexists(root / entry.path)]
    if absent:
        place, name = os.path.split(absent[0])
        beside = os.listdir(root / place) if os.path.isdir(root / place) else []
        raise InvalidData(
            f"{path} lists {len(absent)} images that are not in {root}, {absent[0]} among them{nearest(name, beside)}"
        )


def _remarks(entries: Sequence[Entry], root: Path) -> tuple[str, ...]:
    odd = sum(not stat.S_ISREG(os.stat(root / entry.path).st_mode) for entry in entries if (root / entry.path).exists())
    return (f"{odd} listed paths are no regular files and are never opened",) if odd else ()


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a table, each with the number of its last line."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidData(f"{path} is no regular file")
        if path.suffix.lower() == ".parquet":
            return _parquet(path)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidData(f"there is no labels file {path}") from error
    except UnicodeDecodeError as error:
        raise InvalidData(f"{path} is no text in UTF-8 ({error.reason}); save it as CSV in UTF-8") from error
    except OSError as error:
        raise InvalidData(f"cannot read {path}: {error.strerror or error}") from error
    is_tabbed, before = path.suffix.lower() in (".tsv", ".tab"), 0
    if re.match(r"sep=.\r?\n", text):  # which Excel takes for no row
        before, text = 1, text.split("\n", 1)[1]
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if is_tabbed else _delimiter(text), skipinitialspace=True
    )
    try:
        reader.fieldnames = _columns(reader.fieldnames or (), path)
        rows = [(before + reader.line_num, dict(row)) for row in reader if any(row.values())]
    except csv.Error as error:
        raise InvalidData(f"line {reader.line_num} of {path} cannot be read: {error}") from error
    for number, row in rows:
        if None in row or None in row.values():
            raise InvalidData(f"line {number} of {path} has another number of columns than its first line")
    return rows


def _columns(given: Sequence[str], path: Path) -> list[str]:
    """Return the names of columns, those of `COLUMNS` in small letters."""
    names = [name.strip() for name in given]
    names = [name.lower() if name.lower() in COLUMNS else name for name in names]
    twice = next((name for name in COLUMNS if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"{path} has two columns {twice!r}; leave one")
    return names


def _delimiter(text: str) -> str:
    """Return what stands between the columns: of the usual signs the one with which the first line names most of them."""
    head = text.lstrip().splitlines()[0] if text.strip() else ""

    def parts(sign: str) -> tuple[int, int]:
        names = {name.strip().strip('"').lower() for name in head.split(sign)}
        return len(names & {"path", "label"}), head.count(sign)

    return max(",;\t", key=parts)


def _parquet(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        parquet = import_module("pyarrow.parquet")  # has no types
    except ImportError as error:
        raise InvalidData(f"{path} needs pyarrow; write a CSV file, or install pyarrow") from error
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    # pyarrow raises its own errors on a damaged file.
    except Exception as error:
        raise InvalidData(f"cannot read {path} as parquet: {error}") from error
    columns = _columns(list(rows[0]) if rows else (), path)
    return [(number, dict(zip(columns, row.values(), strict=True))) for number, row in enumerate(rows, start=2)]
