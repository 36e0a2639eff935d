"""Parts of every benchmark: alternating measurements, the machine they ran on, a table, a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("grpcio", "protobuf", "numpy", "scipy", "safetensors", "SQLAlchemy", "torch", "finch-clust")

Row = Mapping[str, Any]
"""One line of a table: numbers, texts and booleans by column."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    wall_s: float
    cpu_s: float
    """Processor time, user and system, of every process that took part; steadier than `wall_s` on a shared machine."""


def timed(function: Callable[[], object]) -> Sample:
    """Measure a call that works in this process alone."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes have used so far, user and system, from Linux's /proc."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def with_children(pid: int) -> set[int]:
    """A process and all that it has started, and they, as far as they live."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, newest = {pid}, {pid}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest} - found
        found |= newest
    return found


def alternate(cases: Mapping[str, Callable[[], Sample]], repeats: int) -> dict[str, list[Sample]]:
    """Measure the cases in turn, `repeats` times, so that a machine that slows down slows all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, measure in cases.items():
            samples[name].append(measure())
    return samples


def median(samples: Sequence[Sample], what: str = "wall_s") -> float:
    """The median of one of the two times."""
    return float(statistics.median(getattr(sample, what) for sample in samples))


def ratio(samples: Sequence[Sample], base: Sequence[Sample], what: str = "wall_s") -> float:
    """The median of the ratios of neighbours in time: what the machine did to both drops out."""
    return float(statistics.median(_ratios(samples, base, what)))


def quartiles(samples: Sequence[Sample], base: Sequence[Sample], what: str = "wall_s") -> tuple[float, float]:
    """Between what the middle half of these ratios lies."""
    ratios = _ratios(samples, base, what)
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return lower, upper


def _ratios(samples: Sequence[Sample], base: Sequence[Sample], what: str) -> list[float]:
    pairs = zip(samples, base, strict=True)
    return [getattr(mine, what) / max(getattr(other, what), 1e-9) for mine, other in pairs]


def options(
    description: str | None, more: Callable[[argparse.ArgumentParser], None] = lambda parser: None
) -> argparse.Namespace:
    """The flags that every benchmark has, and those that `more` adds."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, seconds in all: shows that it runs, not how fast"
    )
    parser.add_argument(
        "--results", type=Path, help="folder for the JSON file; benchmarks/results if not given, none with --quick"
    )
    parser.add_argument("--plain", action="store_true", help="plain text and no keys; else mutual TLS")
    more(parser)
    return parser.parse_args()


def finish(name: str, rows: Sequence[Row], arguments: argparse.Namespace, **details: Any) -> None:
    """Print the table, and write it with machine, versions and commit."""
    print(f"\n{name}\n\n{table(rows)}\n", flush=True)
    folder = arguments.results or (None if arguments.quick else RESULTS)
    if folder is None:
        return
    document = {
        "benchmark": name,
        "quick": arguments.quick,
        "plain": arguments.plain,
        **environment(),
        "rows": rows,
        **details,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, columns aligned."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def environment() -> dict[str, Any]:
    """Machine, versions and commit: what somebody who repeats the numbers has to know."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.release().partition('-')[0]}",
            "load_average": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "commit": _git("rev-parse", "HEAD"),
        "has_uncommitted_changes": bool(
            _git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results")
        ),
    }


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return "" if value is None else str(value)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return ""
    return answer.stdout.strip()
