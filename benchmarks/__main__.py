"""`python -m benchmarks`: all four, one after the other; the flags are theirs."""

from __future__ import annotations

from benchmarks import finch, fold, rounds, transfer

for benchmark in (fold, finch, transfer, rounds):
    benchmark.main()
