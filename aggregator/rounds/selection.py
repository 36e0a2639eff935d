"""Selection of a round's cohort: pure in (seed, round, roster), so a restarted aggregator selects the same clients."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def select_cohort(roster: Sequence[str], *, seed: int, round_number: int, cohort_size: int | None) -> tuple[str, ...]:
    """Return the clients of a round, sorted.

    Each client gets a pseudo-random number from (seed, round, client id), and the clients with the `cohort_size` lowest
    numbers take part. A client that joins or leaves the roster changes no other client's number.
    """

    def lot(client_id: str) -> bytes:
        return hashlib.sha256(f"{seed}/{round_number}/{client_id}".encode()).digest()

    chosen = sorted(roster, key=lambda client_id: (lot(client_id), client_id))
    return tuple(sorted(chosen[:cohort_size]))
