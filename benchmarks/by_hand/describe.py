"""Processor time of `data describe --check` of 5,000 JPEG beside an earlier checkout, in pairs that take turns.

`python -m benchmarks.by_hand.describe --before FOLDER` prints both times and the median of the ratios; it writes nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

NUM_CLASSES = 5
HERE = Path(__file__).parents[2]


def write_images(root: Path, count: int, size: int) -> None:
    """Write JPEG of smooth noise, evenly in `NUM_CLASSES` class folders."""
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"class-{number % NUM_CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), np.uint8))
        small.resize((size, size), Image.Resampling.BILINEAR).save(folder / f"{number:05d}.jpg", quality=90)


def seconds(checkout: Path, images: Path) -> float:
    """Return the processor time of the command in a checkout: other programs disturb it less than the clock's."""
    command = [sys.executable, "-m", "fedplcc", "data", "describe", f"folder:{images}", "--check"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder of the earlier checkout")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--size", type=int, default=256, help="height and width in pixels")
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder)
        write_images(images, given.images, given.size)
        seconds(HERE, images)  # the files are in memory from now on
        ratios = []
        for pair in range(given.pairs):
            order = (given.before, HERE) if pair % 2 else (HERE, given.before)
            took = {checkout: seconds(checkout.resolve(), images) for checkout in order}
            ratios.append(took[HERE] / took[given.before])
            print(f"before {took[given.before]:.2f} s, now {took[HERE]:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median of {given.pairs} pairs: {median(ratios):.3f}")


if __name__ == "__main__":
    main()
