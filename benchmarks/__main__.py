"""`python -m benchmarks`: all six, one after the other; the flags are theirs."""

from __future__ import annotations

from benchmarks import finch, fold, memory, recovery, rounds, transfer

for benchmark in (fold, finch, transfer, memory, recovery, rounds):
    benchmark.main()
