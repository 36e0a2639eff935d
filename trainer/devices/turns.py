"""Turns on a GPU: of one user's trainers on a host, one at a time trains on a card.

A turn is a lock of the kernel on a file named after the card, in a folder that is its user's alone: it ends with the process
that has it, and no other user can hold it. Where the folder cannot be used training goes on without turns, and says so once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedplcc.shared.config.settings import cache_folder
from fedplcc.shared.process.log import get_logger
from fedplcc.trainer.cancellation import POLL_S, ShouldStop, check, pause

FOLDER = "fedplcc-turns"
"""Folder of the locks, below the user's folder of caches."""

log = get_logger("fedplcc.trainer.devices.turns")


class Turns:
    """Turns on all cards of a trainer; on none there is nothing to wait for."""

    def __init__(self, cards: Iterable[str] = (), folder: Path | None = None) -> None:
        """Name the cards, as file names, and the folder of their locks; the user's own if None."""
        # In one order everywhere: two trainers with the same two cards would else wait for each other.
        self._cards, self._folder = sorted(set(cards)), folder
        self._has_told = False

    @contextmanager
    def taken(self, should_stop: ShouldStop) -> Iterator[None]:
        """Have the turn on every card within the block; wait for it, and say so.

        Raises:
            Cancelled: `should_stop()` held before the turn came.
        """
        with ExitStack() as held:
            for card in self._cards:
                try:
                    lock = _lock_of(card, cache_folder() / FOLDER if self._folder is None else self._folder)
                    held.callback(os.close, lock)
                    _wait(lock, card, should_stop)
                except OSError as error:
                    self._go_without(error)
            yield

    def _go_without(self, error: OSError) -> None:
        if not self._has_told:
            log.warning("no_turns", detail=f"trainers that share a card train at the same time: {error}")
        self._has_told = True


NO_TURNS = Turns()


def _lock_of(card: str, folder: Path) -> int:
    """Return the descriptor of a card's lock file."""
    if not folder.is_absolute():
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder", str(folder))
    folder.mkdir(0o700, parents=True, exist_ok=True)
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(inside)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(errno.EPERM, "it is not this user's alone", str(folder))
        how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(card, how, 0o600, dir_fd=inside)
    finally:
        os.close(inside)


def _wait(lock: int, card: str, should_stop: ShouldStop) -> None:
    """Wait for the lock."""
    is_told = False
    while True:
        check(should_stop)
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_told:
                log.info("waits_for_turn", device=card, detail="another trainer of this user trains on the card")
            is_told = True
        pause(POLL_S, should_stop)
