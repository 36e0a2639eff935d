"""Changes of the disk by aggregator and trainer, and of identities, read from the source: each such call is a named step.


`unwatched()` finds the calls that change the disk beside shared/process/disk.py; `steps()` the names of the steps that
the source has, so that a sweep can say which of them it never passed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support import ROOT

PLACES = ("aggregator", "trainer", "shared/identity", "shared/wire/enrolling/renewal.py")
"""Folders and files of the source in which the disk is changed by what must survive."""

OS_CALLS = frozenset(
    {
        *("fdatasync", "fsync", "ftruncate", "link", "makedirs", "mkdir", "mkfifo", "mknod", "pwrite", "remove"),
        *("removedirs", "rename", "renames", "replace", "rmdir", "sendfile", "symlink", "truncate", "unlink", "write"),
        "writev",
    }
)
"""Functions of `os` that change what is on a disk."""
PATH_METHODS = frozenset(
    {
        *("hardlink_to", "link_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "truncate", "unlink"),
        *("write_bytes", "write_text"),
    }
)
"""Methods of a path, or of a file, that do. `replace` of a path has one argument, that of a text two."""
TEMPORARY = frozenset({"NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "mkdtemp", "mkstemp"})
HARMLESS_SHUTIL = frozenset({"disk_usage", "which", "get_terminal_size"})
WRITING = frozenset("wax+")
"""Letters of an `open` that writes."""

STEP_KINDS: Mapping[str, tuple[str, ...]] = {
    "allocate": ("allocate", "fsync", "fsync_folder"),
    "append": ("append", "fsync"),
    "durable_step": (),
    "fsync_file": ("fsync",),
    "fsync_folder": ("fsync_folder",),
    "link": ("link",),
    "make_folder": ("mkdir",),
    "make_state_folder": ("mkdir", "fsync_folder"),
    "remove": ("remove",),
    "remove_tree": ("remove_tree",),
    "rename": ("rename",),
    "replace_file": ("write", "fsync", "rename", "fsync_folder"),
}
"""Functions of shared/process/disk.py, and how the steps that each makes end."""

NOT_DURABLE: Mapping[tuple[str, str], str] = {
    ("aggregator/admin_socket.py", "_place"): "the folder holds a socket, which ends with the process",
    ("aggregator/app.py", "_locked"): "the lock file is empty: what counts is its lock, which ends with the process",
    (
        "aggregator/store/blobs/blob_store.py",
        "writing",
    ): "a file in staging/ is nothing until its fsync and link, and goes at the next start",
    (
        "aggregator/store/blobs/blob_store.py",
        "begin_initial",
    ): "a file in staging/ is nothing until its fsync, and goes at the next start",
    (
        "aggregator/store/blobs/blob_store.py",
        "hold_initial",
    ): "a file in staging/ is nothing until its fsync and rename",
    (
        "aggregator/store/blobs/uploads.py",
        "__init__",
    ): "a part of an upload promises nothing: its SHA-256 is checked at the end",
    (
        "aggregator/store/blobs/uploads.py",
        "_start_over",
    ): "a part of an upload promises nothing: its SHA-256 is checked at the end",
    ("aggregator/store/database/revisions.py", "_keep_copy"): "mode and removal of a copy that has no name yet",
    (
        "aggregator/store/database/engines/sqlite.py",
        "claim",
    ): "opens the count of transactions, which a named step has just written",
    (
        "aggregator/store/database/engines/sqlite.py",
        "note_committed",
    ): "a count that is behind the database refuses nothing: it is written after the commit, and not fsynced",
    ("trainer/features/cache.py", "_make_private"): "features: what is lost is computed again",
    ("trainer/data/sets/torchvision_sets.py", "fetch"): "data sets, before any run: another download mends them",
    (
        "trainer/devices/turns.py",
        "_lock_of",
    ): "lock files are empty: what counts is a lock, which ends with the process",
    ("trainer/devices/processes.py", "group_of"): "where the processes of one training meet, which ends with them",
    ("trainer/devices/rank.py", "main"): "messages to the process that started this one",
    ("trainer/devices/rank.py", "_end"): "where the processes of one training meet, which ends with them",
    **{
        (f"trainer/data/images/{file}.py", function): "decoded images: what is lost or damaged is decoded again"
        for file, function in (
            *(("store", name) for name in ("begin", "opened", "locked", "remove", "add", "scratch")),
            ("stored", "write"),
        )
    },
}
"""Where the disk may change without a failpoint, by file and function, and why."""


def unwatched(root: Path = ROOT) -> list[str]:
    """The calls that change the disk beside shared/process/disk.py and `NOT_DURABLE`, each as FILE:LINE (FUNCTION): CALL."""
    found = []
    for path in _sources(root):
        name = path.relative_to(root).as_posix()
        for function, call in _calls(_parsed(path)):
            if _changes_the_disk(call) and (name, function) not in NOT_DURABLE:
                found.append(f"{name}:{call.lineno} ({function or 'module'}): {ast.unparse(call)[:80]}")
    return found


def unneeded_exceptions(root: Path = ROOT) -> list[tuple[str, str]]:
    """Entries of `NOT_DURABLE` that excuse nothing any more."""
    used = {
        (path.relative_to(root).as_posix(), function)
        for path in _sources(root)
        for function, call in _calls(_parsed(path))
        if _changes_the_disk(call)
    }
    return sorted(set(NOT_DURABLE) - used)


def steps(root: Path = ROOT) -> dict[str, str]:
    """Every durable step in the source, "blob.put.fsync" and the like, with where the first one is."""
    found: dict[str, str] = {}
    for path in _sources(root):
        calls = list(_calls(_parsed(path)))
        passed_on = _endings_by_function(calls)
        for _function, call in calls:
            for step in (*_steps_of(call), *_steps_through(call, passed_on)):
                found.setdefault(step, f"{path.relative_to(root).as_posix()}:{call.lineno}")
    return found


def _sources(root: Path) -> Iterator[Path]:
    for place in PLACES:
        yield from [root / place] if (root / place).is_file() else sorted((root / place).rglob("*.py"))


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the name of the function that it is in."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
            if isinstance(child, ast.Call):
                yield inner, child
            yield from walk(child, inner)

    yield from walk(tree, "")


def _changes_the_disk(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="disk")):
            return False
        case ast.Attribute(value=ast.Name(id="os"), attr="open" | "fdopen"):
            return _opens_to_write(call)
        case ast.Attribute(value=ast.Name(id="os"), attr=name):
            return name in OS_CALLS
        case ast.Attribute(value=ast.Name(id="shutil"), attr=name):
            return name not in HARMLESS_SHUTIL
        case ast.Attribute(attr="open") | ast.Name(id="open"):
            return _opens_to_write(call)
        case ast.Attribute(attr="replace"):
            return len(call.args) == 1 and not call.keywords
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in TEMPORARY or (isinstance(call.func, ast.Attribute) and name in PATH_METHODS)
    return False


def _opens_to_write(call: ast.Call) -> bool:
    """Whether a mode or a flag among the arguments writes; one that is no literal counts as writing."""
    is_function = isinstance(call.func, ast.Name) or ast.unparse(call.func) in ("os.open", "os.fdopen", "io.open")
    mode = next((keyword.value for keyword in call.keywords if keyword.arg in ("mode", "flags")), None)
    place = 1 if is_function else 0
    if mode is None and len(call.args) > place:
        mode = call.args[place]
    if mode is None:
        return False
    if isinstance(mode, ast.Constant):
        return isinstance(mode.value, str) and bool(WRITING & set(mode.value)) and set(mode.value) <= set("rwaxbt+")
    return any(flag in ast.unparse(mode) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"))


def _disk_call(call: ast.Call) -> str:
    """Which function of shared/process/disk.py a call is of, or nothing."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="disk"), attr=kind) if kind in STEP_KINDS:
            return kind
    return ""


def _literals(call: ast.Call) -> list[str]:
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "step")]
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def _steps_of(call: ast.Call) -> list[str]:
    kind, literals = _disk_call(call), _literals(call)
    if not kind or not literals:
        return []
    if kind == "durable_step":
        return [".".join(literals)]
    return [f"{literals[-1]}.{ending}" for ending in STEP_KINDS[kind]]


def _endings_by_function(calls: Sequence[tuple[str, ast.Call]]) -> dict[str, list[str]]:
    """How the steps end that a function makes under the name that its caller gives it."""
    found: dict[str, list[str]] = {}
    for function, call in calls:
        if _disk_call(call) and any(isinstance(value, ast.Name) and value.id == "step" for value in call.args):
            found.setdefault(function, []).extend(STEP_KINDS[_disk_call(call)])
    return found


def _steps_through(call: ast.Call, passed_on: Mapping[str, Sequence[str]]) -> list[str]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    literals = _literals(call)
    return [f"{literals[-1]}.{ending}" for ending in passed_on.get(name, ())] if literals else []
