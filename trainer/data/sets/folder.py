"""`folder:PATH`: images in class folders, or in a table of labels, with sides of their own or divided by their names."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.images.endings import DICOM_ENDINGS
from fedplcc.trainer.data.images.pixels import numbers_of, read_pixels, why_unreadable
from fedplcc.trainer.data.images.scaling import Pixels, Unreadable, Unstated, Window, auto_window
from fedplcc.trainer.data.images.store import image_key
from fedplcc.trainer.data.names import alike_said, code_points, composed, listed, printable
from fedplcc.trainer.data.roles import TEST, has_role, key_of
from fedplcc.trainer.data.sets.doubts import companions, families, groups_alike
from fedplcc.trainer.data.sets.labels_file import TABLES, Entry, read_labels
from fedplcc.trainer.data.sets.layout import TRAIN, VALIDATION, Layout, layout_of
from fedplcc.trainer.data.sets.walking import Walk, is_system
from fedplcc.trainer.data.source import AutoWindow, Reader, Samples, Source

SPLITS = ("train", "test")


ClassFiles = dict[str, list[str]]
"""The files of each class, as paths below the data set's folder, sorted by their path within the class folder."""

FORM = "folder:PATH?labels=FILE&group=COLUMN_OR_PATTERN&frame=NUMBER"
_OPTIONS = re.compile(r"\?(?=(?:labels|group|frame)=)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What follows the path of `folder:PATH?...`.

    Attributes:
        labels: The labels file, below PATH or absolute; None where class folders have the labels.
        group: A column of the labels file, or a pattern that is looked for in an image's path: what it finds (its first
            bracket, if it has one) names the image's patient, lesion or camera.
        frame: Number of the frame of files of several frames, from 1.
    """

    labels: str | None = None
    group: str | None = None
    frame: int | None = None


PLAIN = Options()


def split_options(text: str) -> tuple[str, Options]:
    """Return the path and the options of the text after `folder:`.

    Raises:
        InvalidData: An option is unknown or has no value.
    """
    path, *rest = _OPTIONS.split(text, maxsplit=1)
    if not rest:
        return path, PLAIN
    found: dict[str, str] = {}
    for part in re.split(r"&(?=[a-z]+=)", rest[0]):
        name, _, value = part.partition("=")
        if name not in ("labels", "group", "frame") or not value or name in found:
            raise InvalidData(f"data 'folder:{text}': cannot use {part!r}; write {FORM}, of which each option once")
        found[name] = value
    frame = found.pop("frame", None)
    if frame is not None and not (re.fullmatch("[0-9]{1,9}", frame) and int(frame) >= 1):
        raise InvalidData(f"data 'folder:{text}': a frame is a number from 1, not {frame!r}")
    return path, Options(
        labels=found.get("labels"), group=found.get("group"), frame=None if frame is None else int(frame)
    )


def open_folder(root: Path, test_every: int, splits: tuple[str, str] | None = None, options: Options = PLAIN) -> Source:
    """Return the images under `root`, without opening any of them.

    Layouts are those of layout.py. Where no side is given, each image has its role by its name: see roles.py. Files in
    folders within a class folder belong to the class.

    Args:
        test_every: Of so many images one is for testing, for a folder without sides.
        splits: Names of the folders for training and testing; those of layout.py if None.

    Raises:
        InvalidData: `root` or its labels file cannot be read, or its folders are none of a data set.
    """
    with reading(root):
        if options.labels is not None:
            return _labelled(root, test_every, options, options.labels)
        layout = layout_of(root) if splits is None else _named_layout(root, splits)
        walk = Walk(root)
        folders = (
            {(side, name): places for side, of_side in layout.sides.items() for name, places in of_side.items()}
            if layout.sides
            else {("", name): places for name, places in layout.classes.items()}
        )
        if not folders:
            raise InvalidData(
                f"{root} holds no class folders; put the images of each class in a folder of the class's name"
            )
        files = walk.files(folders)
    names = _class_names(root, folders)
    found = [
        (Entry(path=path, label=names[name], side=side or None, group=None), _below(path, places))
        for (side, name), places in folders.items()
        for path in files[side, name]
    ]
    if options.group is not None:
        found = [(_grouped(entry, options.group), below) for entry, below in found]
    remarks = (*layout.remarks, *_tables(root), *_empty(names, [entry for entry, _ in found]), *walk.remarks())
    return _source(root, sorted(set(names.values())), found, test_every, options.frame, remarks)


def _below(path: str, places: Sequence[str]) -> str:
    """Return a path below its class folder."""
    for place in places:
        if path.startswith(place + os.sep):
            return path[len(place) + 1 :]
    return path


def _named_layout(root: Path, splits: tuple[str, str]) -> Layout:
    present = [split for split in splits if (root / split).is_dir()]
    if len(present) == 1:
        absent = splits[1 - splits.index(present[0])]
        raise InvalidData(f"{root} has {present[0]}/ without {absent}/; add it")
    if not present:
        return Layout(sides={}, classes={name: [name] for name in _folders(root, "")})
    sides = {
        side: {name: [os.path.join(split, name)] for name in _folders(root, split)}
        for side, split in zip((TRAIN, TEST), splits, strict=True)
    }
    return Layout(sides=sides, classes={})


def _class_names(root: Path, folders: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the class of each folder by its name: that in Unicode's composed form."""
    known: dict[tuple[str, str], str] = {}
    for side, folder in folders:
        if printable(folder) != folder:
            raise InvalidData(
                f"the class folder {printable(folder)} in {root} has characters that are no text; rename it"
            )
        twin = known.setdefault((side, composed(folder)), folder)
        if twin != folder:
            raise InvalidData(
                f"{root} has two folders of the one name {composed(folder)!r}, {code_points(twin)} and "
                f"{code_points(folder)}; join them"
            )
    return {folder: name for (_, name), folder in known.items()}


def _empty(names: Mapping[str, str], entries: Sequence[Entry]) -> tuple[str, ...]:
    filled = {entry.label for entry in entries}
    empty = sorted({name for name in names.values() if name not in filled})
    return (f"class folders without an image: {listed(empty)}",) if empty else ()


def _tables(root: Path) -> tuple[str, ...]:
    """Return a remark on tables beside the folders, which may have the labels: the folders' names are then no classes."""
    with os.scandir(root) as entries:
        found = sorted(entry.name for entry in entries if entry.name.lower().endswith(TABLES) and entry.name[0] != ".")
    if not found:
        return ()
    return (
        f"{root} holds {listed(found)}, and folders are taken as classes: if a table has the labels, "
        f"name folder:{root}?labels={found[0]}",
    )


def _by_side(names: Sequence[str], sides: Mapping[str, Sequence[tuple[Entry, str]]]) -> tuple[str, ...]:
    """Return remarks on names that are alike, and on classes that data with sides of their own have on one side alone."""
    said = alike_said(names)
    if not sides[TEST] and (sides[TRAIN] or sides[VALIDATION]):
        said.append("no image is for testing")
    else:
        of = {side: {entry.label for entry, _ in found} for side, found in sides.items()}
        for side in (TEST, TRAIN):
            if not of[side]:
                said.append("no image is for training")
            elif missing := sorted(set().union(*of.values()) - of[side]):
                said.append(f"no image for {side}ing: {listed(missing)}")
    return tuple(said)


def _grouped(entry: Entry, pattern: str) -> Entry:
    try:
        match = re.search(pattern, entry.path.replace(os.sep, "/"))
    except re.error as error:
        raise InvalidData(f"the group {pattern!r} is no pattern: {error}") from error
    if match is None:
        raise InvalidData(f"the group {pattern!r} finds nothing in {entry.path}; every image needs a group")
    group = next((part for part in match.groups() if part), match[0])
    if not group:
        raise InvalidData(
            f"the group {pattern!r} finds a text without letters in {entry.path}; every image needs a group"
        )
    return Entry(path=entry.path, label=entry.label, side=entry.side, group=composed(group))


def _labelled(root: Path, test_every: int, options: Options, labels: str) -> Source:
    path = root / os.path.expanduser(labels)
    has_column = options.group is not None and not re.search(r"[^\w .-]", options.group)
    entries, remarks = read_labels(path, root, options.group if has_column else None)
    if options.group is not None and not has_column:
        entries = [_grouped(entry, options.group) for entry in entries]
    names = sorted({entry.label for entry in entries})
    return _source(root, names, [(entry, entry.path) for entry in entries], test_every, options.frame, remarks)


def _source(
    root: Path,
    names: Sequence[str],
    found: Sequence[tuple[Entry, str]],
    test_every: int,
    frame: int | None,
    remarks: tuple[str, ...],
) -> Source:
    """Return images as a source, each on the side that it was given or has by its name."""
    sides: dict[str, list[tuple[Entry, str]]] = {TRAIN: [], TEST: [], VALIDATION: []}
    for entry, below in found:
        key = key_of(below) if entry.group is None else entry.group
        sides[entry.side or (TEST if has_role(key, TEST, test_every) else TRAIN)].append((entry, key))
    _check_groups(sides)
    paths = [entry.path for of_side in sides.values() for entry, _ in of_side]
    alike = groups_alike(entry.group for entry, _ in found if entry.group is not None)
    if all(entry.group is None for entry, _ in found):
        train, test = ([entry.path for entry, _ in sides[side]] for side in (TRAIN, TEST))
        alike += families(train, test, len(names))
    remarks = (*remarks, *_by_side(names, sides), *companions(paths), *alike)
    ids = {name: i for i, name in enumerate(names)}
    auto = _auto_of(root, paths, frame)

    def samples(*of_sides: str) -> Samples:
        chosen = sorted(
            (
                (ids[entry.label], number, entry, key)
                for number, side in enumerate(of_sides)
                for entry, key in sides[side]
            ),
            key=itemgetter(0, 1),
        )
        aside = np.array([i for i, (_, number, _, _) in enumerate(chosen) if number], np.int64)
        return file_samples(
            root,
            [entry.path for _, _, entry, _ in chosen],
            np.array([label for label, _, _, _ in chosen], np.int64),
            keys=[key for _, _, _, key in chosen],
            groups=None
            if not chosen or chosen[0][2].group is None
            else [entry.group or "" for _, _, entry, _ in chosen],
            aside=aside if len(aside) else None,
            frame=frame,
            auto=auto,
        )

    return Source(
        tuple(names),
        samples(TRAIN, VALIDATION),
        samples(TEST),
        class_noun="class folder",
        remarks=remarks,
        is_divided=any(entry.side is None for entry, _ in found),
    )


def _check_groups(sides: Mapping[str, Sequence[tuple[Entry, str]]]) -> None:
    """Refuse a group that has images on two sides."""
    of_group: dict[str, str] = {}
    for side, found in sides.items():
        for entry, _ in found:
            if entry.group is not None and of_group.setdefault(entry.group, side) != side:
                raise InvalidData(
                    f"the group {entry.group!r} has images for {of_group[entry.group]} and for {side}, "
                    f"{entry.path} among them; a group is on one side"
                )


def open_unlabelled(root: Path) -> Samples | None:
    """Return the images of a folder without folders in it, sorted by name, as samples of one class.

    Names that begin with a dot are ignored. None where there are folders, or no files.

    Raises:
        InvalidData: `root` cannot be read.
    """
    with reading(root), os.scandir(root) as entries:
        seen = [entry for entry in entries if not is_system(entry.name)]
        if not seen or any(entry.is_dir() for entry in seen):
            return None
        names = sorted(entry.name for entry in seen if entry.is_file())
    return file_samples(root, names, np.zeros(len(names), np.int64))


@contextmanager
def reading(root: Path) -> Iterator[None]:
    """Turn errors of the file system into one message.

    Raises:
        InvalidData: Instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        advice = "; name a folder: an archive is unpacked first" if isinstance(error, NotADirectoryError) else ""
        if isinstance(error, FileNotFoundError) and "?" in root.name:
            advice = f"; write {FORM}"
        elif isinstance(error, FileNotFoundError) and not root.is_absolute():
            advice = "; it is looked for from the folder that the command runs in"
        raise InvalidData(
            f"cannot read the folder {error.filename or root}: {error.strerror or error}{advice}"
        ) from error


def class_files(root: Path, below: str = "", names: Collection[str] | None = None) -> ClassFiles:
    """Return the files of the class folders in the folder `below` of `root`: of those with the given names, or of all."""
    chosen = [name for name in _folders(root, below) if names is None or name in names]
    return Walk(root).files({name: [os.path.join(below, name)] for name in chosen})


def _folders(root: Path, below: str) -> list[str]:
    with os.scandir(root / below) as entries:
        return sorted(entry.name for entry in entries if not is_system(entry.name) and entry.is_dir())


def divided(classes: ClassFiles, below: str, test_every: int) -> tuple[ClassFiles, ClassFiles]:
    """Return the training and the test files of class folders in `below`: each has its role by its name, see roles.py."""

    def of_role(is_test: bool) -> ClassFiles:
        return {
            name: [
                path
                for path in paths
                if has_role(key_of(os.path.relpath(path, os.path.join(below, name))), TEST, test_every) is is_test
            ]
            for name, paths in classes.items()
        }

    return of_role(False), of_role(True)


def folder_source(root: Path, names: Sequence[str], train: ClassFiles, test: ClassFiles) -> Source:
    """Return the files as a source with these class names."""

    def samples(side: ClassFiles) -> Samples:
        paths = [side.get(name, []) for name in names]
        labels_N = np.repeat(np.arange(len(names)), [len(files) for files in paths]).astype(np.int64)
        return file_samples(root, [path for files in paths for path in files], labels_N)

    return Source(tuple(names), samples(train), samples(test), class_noun="class folder", is_divided=True)


def file_samples(
    root: Path,
    paths: Sequence[str],
    labels_N: IntArray,
    *,
    keys: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    aside: IntArray | None = None,
    frame: int | None = None,
    auto: AutoWindow | None = None,
) -> Samples:
    """Return image files below `root` as samples; see `Samples` for the others."""
    of_site, absolute = auto or _auto_of(root, paths, frame), os.path.abspath(root)

    def windowed(window: Window) -> Reader:
        if window == "auto":
            window = of_site()
        return (
            lambda i: _or_none(root / paths[i], window, frame),
            lambda i: why_unreadable(root / paths[i], window, frame),
            lambda i: _identity(os.path.join(absolute, paths[i]), window, frame),
        )

    read, why, identity = windowed(None)
    return Samples(
        labels_N,
        read,
        lambda i: printable(_plain(paths[i])),
        why,
        windowed,
        None if keys is None else tuple(keys),
        None if groups is None else tuple(groups),
        aside,
        of_site,
        identity,
    )


def _plain(path: str) -> str:
    """Return a path as pathlib writes it, which takes time and is the same for most paths."""
    is_plain = os.sep == "/" and "//" not in path and "./" not in path and not path.endswith(("/", "."))
    return path if is_plain and path else Path(path).as_posix()


SETTLED_S = 2.0
"""Age from which a file's times tell whether it has changed: some file systems count in steps of two seconds."""


def _identity(path: str, window: Window, frame: int | None) -> bytes | None:
    """Return what decides the pixels of a file; None while its times do not tell yet whether it has changed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if time.time() - max(found.st_mtime, found.st_ctime) < SETTLED_S:
        return None
    return image_key(path, window, frame, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _auto_of(root: Path, paths: Sequence[str], frame: int | None) -> AutoWindow:
    """Return how to find the one window of these pictures; it is found once, with the first picture that is read."""

    @cache
    def found() -> tuple[float, float] | None:
        lowest, highest, is_whole = float("inf"), float("-inf"), True
        for path in paths:
            if os.path.splitext(path)[1].lower() in DICOM_ENDINGS:
                continue  # states its own
            try:
                values = numbers_of(root / path, frame)
            except Unreadable:
                continue
            if values is not None and values.size and np.isfinite(values).all():
                lowest, highest = min(lowest, float(values.min())), max(highest, float(values.max()))
                is_whole = is_whole and values.dtype.kind in "iu"
        return auto_window(lowest, highest, is_whole) if lowest <= highest else None

    return found


def _or_none(path: Path, window: Window, frame: int | None) -> Pixels | None:
    try:
        return read_pixels(path, window, frame)
    except Unreadable:
        return None


def read_image(path: Path) -> Pixels | None:
    """Return the file's first image as RGB for a look at it, or None if it cannot be read; see pixels.py.

    Whole numbers whose range the file does not state are shown by the smallest of the usual depths that holds them, with a
    warning: nothing that is trained on is read so. Scripts of others look at pictures by it.
    """
    try:
        return read_pixels(path)
    except Unstated:
        values = numbers_of(path)
        if values is None or values.dtype.kind not in "iu":
            return None
        window = auto_window(float(values.min(initial=0)), float(values.max(initial=0)), True)
        warnings.warn(
            f"{path.name} states no range for its bits; shown from {window[0]:g} to {window[1]:g}", stacklevel=2
        )
        return _or_none(path, window, None)
    except Unreadable:
        return None
