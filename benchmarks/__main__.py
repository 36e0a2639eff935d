"""`python -m benchmarks`: all five, one after the other; the flags are theirs."""

from __future__ import annotations

from benchmarks import finch, fold, recovery, rounds, transfer

for benchmark in (fold, finch, transfer, recovery, rounds):
    benchmark.main()
