"""`python -m benchmarks`: all of them, one after the other; the flags are theirs."""

from __future__ import annotations

from benchmarks import (
    connections,
    finch,
    fleet,
    fold,
    memory,
    recovery,
    round_profile,
    rounds,
    scrape,
    simulated_round,
    steps,
)

for benchmark in (
    fold,
    finch,
    memory,
    connections,
    recovery,
    rounds,
    round_profile,
    fleet,
    scrape,
    steps,
    simulated_round,
):
    benchmark.main()
