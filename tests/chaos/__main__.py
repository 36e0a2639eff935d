"""Every fault at full size, one part after another: `make chaos`, or `make chaos ARGS="sweep fuzz"` for some of them.

`make test` runs a sample of each part. Ends with 1 if any part found a violation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tests.support import ROOT

PARTS: Mapping[str, str] = {
    "sweep": "SIGKILL at every crash point of aggregator and trainers",
    "postgres_sweep": "the crash points around commits, with the store on PostgreSQL",
    "recorder": "a power cut at every moment of a run",
    "network": "the link cut at every k-th chunk, both ways",
    "slow_link": "50 kB/s with a second of delay, and loopback, with one configuration",
    "short_certificates": "certificates of 60 s, renewed in mid-transfer; an aggregator that is away for two lives of them",
    "exactly_once": "duplicates, replays, late arrivals, restarts, judged by an oracle",
    "exploration": "every reachable state of small federations",
    "damage": "a bit, a cut, a removal in every file and row of a state directory",
    "complexity": "every route and RPC at a quarter, a half and the whole of its size limit",
    "written_bytes": "a thousand calls of every RPC of members and every operation of REST, and what they leave on the disk",
    "searches": "refused calls, shares, ports, headers, names, flipped blobs and liars: tests that search, at full size",
    "patterns": "every regular expression, against repetitions of its own words",
    "fuzz": "ten thousand poisoned updates",
    "resources": "connections, files, memory, disk and aggregations, each taken by one member while an honest run goes on",
    "siege": "every attack at once for two minutes, by a member, one that was revoked, a key's holder and a stranger",
    "numeric_limits": "every number of every RPC and key at the limits of its type, alone and in pairs",
}
"""Modules of this folder, and what they do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; returns 1 if any found a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").splitlines()[0])
    listed = "; ".join(f"{name}: {what}" for name, what in PARTS.items())
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which; all if none is named. {listed}")
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    results: dict[str, tuple[int, float]] = {}
    for name in chosen:
        print(f"== {name}: {PARTS[name]}", flush=True)
        began = time.monotonic()
        ended = subprocess.run([sys.executable, "-m", f"tests.chaos.{name}"], cwd=ROOT, check=False)
        results[name] = (ended.returncode, time.monotonic() - began)
        print(flush=True)
    for name, (code, seconds) in results.items():
        print(f"{name:>14}  {'holds' if code == 0 else 'VIOLATED'}  {seconds / 60:5.1f} min")
    print(f"{'':>14}  {sum(seconds for _, seconds in results.values()) / 60:.1f} min in all")
    return int(any(code for code, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
