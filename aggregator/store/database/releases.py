"""The newest committed release with noise of each client, in memory.

Whether a run's releases have noise stands in its document alone. So the database is read once, at the first question, and
again after the rare changes that take something away; an update that is committed replaces its client's older one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from fedplcc.aggregator.store.database import schema

_NAMED = '"privacy":{"c'
"""What the canonical JSON of a run with noise has; `model.options`, which may be any JSON, may have it too."""


@dataclass(frozen=True, slots=True, order=True)
class Committed:
    """An update: its place among all commits, and whose it is."""

    commit_order: int
    run_id: str
    round: int
    client_id: str


@dataclass(slots=True)
class Changes:
    """What a transaction does that concerns releases.

    Attributes:
        is_read_again: Whether something came or went that the memory cannot follow: a run with noise, or stored updates.
    """

    added: list[Committed] = field(default_factory=list)
    is_read_again: bool = False


class Releases:
    """The memory. Questions and changes may come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: frozenset[str] | None = None
        self._newest: dict[str, Committed] = {}

    def newest_of(self, client_id: str, read: Callable[[], tuple[frozenset[str], list[Committed]]]) -> Committed | None:
        """Return a client's newest one.

        Args:
            read: Returns what `read_releases` does, in a state that has every change that was followed.
        """
        with self._lock:
            if self._runs is None:
                runs, found = read()
                self._newest = {}
                self._add(found)
                self._runs = runs
            return self._newest.get(client_id)

    def follow(self, changes: Changes) -> None:
        """Take what a committed transaction changed."""
        if not changes.is_read_again and not changes.added:
            return
        with self._lock:
            if changes.is_read_again:
                self._runs = None
            elif self._runs is not None:
                runs = self._runs
                self._add(each for each in changes.added if each.run_id in runs and each.round > 0)

    def _add(self, found: Iterable[Committed]) -> None:
        for each in found:
            known = self._newest.get(each.client_id)
            if known is None or known < each:
                self._newest[each.client_id] = each


def read_releases(connection: Connection) -> tuple[frozenset[str], list[Committed]]:
    """Return the runs whose releases have noise, and the updates of their rounds."""
    runs, table = schema.runs, schema.updates
    may_have = runs.c.config_json.contains(_NAMED)
    query_of_documents = select(runs.c.run_id, runs.c.config_json).where(may_have)
    with connection.execute(query_of_documents, execution_options={"yield_per": 10}) as documents:  # they may be long
        noisy = frozenset(row.run_id for row in documents if has_noise(row.config_json))
    query = select(table.c.commit_order, table.c.run_id, table.c.round, table.c.client_id)
    found = []
    for run_id in noisy:
        rows = connection.execute(query.where(table.c.run_id == run_id, table.c.round > 0)).all()
        found += [Committed(*row) for row in rows]
    return noisy, found


def has_noise(config_json: str) -> bool:
    """Whether the releases of a run with this configuration have noise: all of that section needs `clip`."""
    if _NAMED not in config_json:
        return False
    try:
        return json.loads(config_json)["privacy"]["clip"] is not None
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # damaged
