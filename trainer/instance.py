"""Identity of a trainer over its restarts: a state directory that only it uses, with its instance token."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedplcc.shared.convert.membership import TOKEN_CHARACTERS
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.disk import why_unusable

TOKEN_FILE = "instance-token"  # nosec B105 # a file's name
LOCK_FILE = "lock"


@contextmanager
def held_state_dir(folder: Path) -> Iterator[str]:
    """Lock the state directory within the block, and yield the instance token that is kept in it.

    The token tells the aggregator that a restarted trainer is the same one, so that it takes over at once. Two trainers with
    one token would displace each other in turn. The lock prevents that; the system releases it when a process dies.

    Raises:
        InvalidConfig: Another trainer holds the directory.
        StoreUnavailable: It cannot be made, read or written.
    """
    with ExitStack() as held:
        try:
            disk.make_state_folder(folder, "trainer.state")
            held.enter_context(disk.locked(folder / LOCK_FILE, waits=False))
            token = _token(folder / TOKEN_FILE)
        except BlockingIOError:
            raise InvalidConfig(
                f"another trainer uses the state directory {folder}; end it, or give this one its own with --state-dir"
            ) from None
        except OSError as error:
            raise StoreUnavailable(why_unusable(folder, error)) from error
        yield token


def _token(path: Path) -> str:
    """Return the token in the file; a new one where there is none, or where a crash left a part of one."""
    shortest, longest = TOKEN_CHARACTERS
    if path.exists():
        token = disk.read_regular(path, 1024).decode("ascii", errors="replace").strip()
        if shortest <= len(token) <= longest and token.isascii() and token.isprintable():
            return token
    token = secrets.token_urlsafe(32)
    disk.replace_file(path, token.encode("ascii"), "trainer.token", mode=0o600)
    return token
