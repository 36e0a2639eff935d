"""Damage of every kind of file and row of a stopped aggregator's state directory, and what the next start makes of it.

    python -m tests.chaos.damage            all of it
    python -m tests.chaos.damage --every 9  a sample

Two runs of FedPLCC stand in the middle of round 2: of one a client's update is committed, of the other an upload is whole
but not committed. A bit is flipped, a file cut or removed, or a row changed. Then the aggregator starts again on the
directory, and each case must end in one of:

    same        both runs end in their undisturbed bytes
    waits       a run waits with a reason that names the damage, and the other ends in its undisturbed bytes
    refused     the aggregator does not start, and says in one sentence what helps

A traceback, another result or a run that waits without a word is a violation. `fedplcc doctor` must find whatever is not
repaired by itself or refused.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Table

from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.rows import DIGEST, UNCOVERED
from fedplcc.doctor.aggregator_state import examine_state
from fedplcc.doctor.findings import Probes, Status, Subject
from fedplcc.shared.errors import FedplccError, RowCorrupt, RunNotFound
from fedplcc.shared.reasons import BlobDamaged, RowDamaged, UpdateDamaged
from fedplcc.shared.types import Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

DATABASE = "aggregator.sqlite"
RUNS = ("first", "second")
SAME, WAITS, REFUSED = "same", "waits", "refused"


class Violation(AssertionError):
    """A case that ended otherwise than it may."""


@dataclass(frozen=True)
class Case:
    """One damage: its name, and what makes it in a state directory."""

    name: str
    make: Callable[[Path], None]


@dataclass(frozen=True)
class Left:
    """A state directory as a killed aggregator left it, with the lines of metrics that its runs end with."""

    folder: Path
    runs: tuple[str, ...]
    lines: dict[str, list[str]]


def a_federation(folder: Path) -> LocalFederation:
    """Two clients, of three and of nine images."""
    folder.mkdir(parents=True, exist_ok=True)
    clients = [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]
    return LocalFederation(folder, clients)


def begin(federation: LocalFederation) -> tuple[str, ...]:
    """Bring a run to its end, and another into the middle of round 2."""
    federation.join()
    ann, bob = federation.clients.values()
    first, second = RUNS
    ended = federation.create("fedplcc", run={"name": first, "seed": 0, "rounds": 3}).run_id
    federation.run_to_end(ended)
    left = federation.create("fedplcc", run={"name": second, "seed": 1, "rounds": 3}).run_id
    while federation.coordinator.get_run(left).round_number < 2:
        federation.step()
    while not federation.coordinator.get_run(left).current_round.updates:  # type: ignore[union-attr]
        federation.perform(ann, federation.task(ann))
    task, _update, blobs = federation.work(bob)
    federation.upload(bob, task, blobs)
    return ended, left


def left(folder: Path) -> Left:
    """Make the state directory, and run its undisturbed copy to the end."""
    work, kept = folder / "work", folder / "left"
    with a_federation(work) as federation:
        runs = begin(federation)
        shutil.copytree(work, kept)  # as a kill leaves it: the write-ahead log is not in the database yet
    (kept / "lock").touch()
    (kept / "endpoint.json").write_text('{"port": 1, "metrics_port": null, "pid": 999999999}')
    whole = folder / "whole"
    shutil.copytree(kept, whole)
    with a_federation(whole) as federation:
        ended = {run_id: finished(federation, run_id) for run_id in runs}
        assert all(run.status is RunStatus.COMPLETED for run in ended.values())
        return Left(kept, runs, {run_id: federation.metrics_lines(run_id) for run_id in runs})


def finished(federation: LocalFederation, run_id: str) -> Run:
    """Go on with all runs until nothing moves any more."""
    federation.join()
    federation.coordinator.tick()
    for _ in range(200):
        try:
            if not federation.step():
                break
        except FedplccError:
            federation.join()  # a client that is told of damage tries again later; here the others go on first
            if not any(_moved(federation, client) for client in federation.clients.values()):
                break
    return federation.coordinator.get_run(run_id)


def _moved(federation: LocalFederation, client: NumpyClient) -> bool:
    try:
        moved = federation.perform(client, federation.task(client))
        while federation.coordinator.work():
            moved = True
    except FedplccError:
        return False
    return moved


# What may be damaged


def flipped(path: Path, where: float) -> None:
    """Flip a bit at a fraction of a file's length."""
    data = bytearray(path.read_bytes())
    if data:
        data[min(len(data) - 1, int(len(data) * where))] ^= 4
        path.write_bytes(data)


def file_cases(folder: Path) -> Iterator[Case]:
    """A bit, a cut and a removal in every file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()

        def damage(change: Callable[[Path], None], name: str = name) -> Callable[[Path], None]:
            return lambda state: change(state / name)

        for where in (0.0, 0.5, 0.999):
            yield Case(f"bit at {where} of {name}", damage(lambda path, where=where: flipped(path, where)))  # type: ignore[misc]
        yield Case(f"half of {name}", damage(lambda path: os.truncate(path, path.stat().st_size // 2)))
        yield Case(f"nothing in {name}", damage(lambda path: os.truncate(path, 0)))
        yield Case(f"no {name}", damage(Path.unlink))
    for name in ("blobs", "incoming", "staging", "initial"):
        yield Case(f"no folder {name}", lambda state, name=name: shutil.rmtree(state / name))  # type: ignore[misc]


def row_cases(folder: Path) -> Iterator[Case]:
    """A change of every column of a row of every table, and a value that is none."""
    with tempfile.TemporaryDirectory() as copy, closing(_copied(folder, Path(copy))) as connection:
        counts = {
            table.name: connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0] for table in _tables()
        }
    for table in _tables():
        if not counts[table.name]:
            continue
        for column in table.columns:
            for what, value in (("changed", f"{_quoted(column.name)} || '7'"), ("emptied", "''")):
                if column.name in UNCOVERED.get(table.name, ()):
                    continue
                yield Case(f"{what} {table.name}.{column.name}", _changed(table.name, column.name, value))


def _copied(folder: Path, copy: Path) -> sqlite3.Connection:
    for path in folder.glob(f"{DATABASE}*"):
        shutil.copy(path, copy)  # whoever closes a database takes its write-ahead log away
    return sqlite3.connect(copy / DATABASE)


def _tables() -> list[Table]:
    return [table for table in schema.metadata.sorted_tables if DIGEST in table.columns]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _changed(table: str, column: str, value: str) -> Callable[[Path], None]:
    def change(state: Path) -> None:
        with closing(sqlite3.connect(state / DATABASE)) as connection, connection:
            (last,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()
            connection.execute(f"UPDATE {table} SET {_quoted(column)} = {value} WHERE rowid = ?", [last])

    return change


# Judgement


def judged(case: Case, before: Left, folder: Path) -> str:
    """Make the damage, start again, and return how it ended.

    Raises:
        Violation: It ended otherwise than it may.
    """
    shutil.copytree(before.folder, folder)
    case.make(folder)
    said = findings(folder)
    try:
        federation = a_federation(folder)
    except FedplccError as error:
        if len(error.detail) < 20 or "\n" in error.detail:
            raise Violation(f"{case.name}: refused without a sentence: {error.detail!r}") from error
        return REFUSED
    with federation:
        same, waiting = [], []
        for run_id in before.runs:
            try:
                run, lines = finished(federation, run_id), federation.metrics_lines(run_id)
            except RowCorrupt:
                waiting.append(run_id)  # its results are not given out
                continue
            except RunNotFound as error:
                if not any(isinstance(run.reason, RowDamaged) for run in federation.coordinator.list_runs(limit=9)):
                    raise Violation(f"{case.name}: run {run_id} is gone") from error
                waiting.append(run_id)
                continue
            if run.status is RunStatus.COMPLETED and not isinstance(run.reason, RowDamaged):
                if lines != before.lines[run_id]:
                    raise Violation(f"{case.name}: run {run_id} ended in other bytes without a word")
                same.append(run_id)
            elif isinstance(run.reason, UpdateDamaged | BlobDamaged | RowDamaged):
                waiting.append(run_id)
            else:
                raise Violation(
                    f"{case.name}: run {run_id} is {run.status} without a reason that names the damage: {run.reason}"
                )
        if not same:
            raise Violation(f"{case.name}: both runs wait")
        if waiting and not said:
            raise Violation(f"{case.name}: a run waits, and doctor found nothing")
        return WAITS if waiting else SAME


def findings(folder: Path) -> list[str]:
    """Problems that `fedplcc doctor` finds."""
    subject = Subject(state=folder, probes=Probes())
    return [finding.sentence for finding in examine_state(subject) if finding.status is not Status.OK]


def search(every: int = 1, *, report: Callable[[str], None] = print) -> int:
    """Try every n-th case; returns the number of violations."""
    ends: Counter[str] = Counter()
    violations = []
    with tempfile.TemporaryDirectory(prefix="fedplcc-damage-") as name:
        folder = Path(name)
        before = left(folder)
        cases = [*file_cases(before.folder), *row_cases(before.folder)][::every]
        for number, case in enumerate(cases):
            try:
                ends[judged(case, before, folder / str(number))] += 1
            except Violation as violation:
                violations.append(str(violation))
                report(f"VIOLATED {violation}")
            except Exception as error:
                violations.append(f"{case.name}: {error!r}")
                report(f"VIOLATED {case.name}: {error!r}")
            shutil.rmtree(folder / str(number))
    report(f"{len(cases)} cases: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    report(f"{len(violations)} violations")
    return len(violations)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all cases; returns 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try every N-th case")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    return int(search(chosen.every) > 0)


if __name__ == "__main__":
    sys.exit(main())
