"""An aggregator with one of its bounds taken away: `SIEGE_MUTANT=NAME python -m tests.chaos.siege.mutant ...`.

A siege, or the search that the bound is of, must find each of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from fedplcc.aggregator.__main__ import main
from fedplcc.shared.process.repeated_lines import RepeatedLines
from fedplcc.shared.wire.serving import interceptor, requests
from fedplcc.shared.wire.serving.connections import Connections

VARIABLE = "SIEGE_MUTANT"
UNBOUNDED = 1 << 30


def every_refusal_is_a_line() -> None:
    """Refusals are written one by one."""
    as_given: Any = lambda _self, level, *_kind: level  # noqa: E731
    RepeatedLines.level = as_given  # type: ignore[method-assign]


def messages_have_no_bounds() -> None:
    """Requests of an admitted caller have no bound but the transport's, and no share of places."""
    requests.LARGE_BYTES.clear()
    requests.SMALL_BYTES = requests.MOST_FIELDS = interceptor.LARGE_AT_ONCE = UNBOUNDED


def no_connection_ends() -> None:
    """Nobody looks at the connections of a port."""
    nothing: Any = lambda *_given: None  # noqa: E731
    Connections.look = nothing  # type: ignore[method-assign]


MUTANTS: Mapping[str, Callable[[], None]] = {
    each.__name__: each for each in (every_refusal_is_a_line, messages_have_no_bounds, no_connection_ends)
}

if __name__ == "__main__":
    MUTANTS[os.environ[VARIABLE]]()
    sys.exit(main())
