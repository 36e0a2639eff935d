"""Memory of a trainer by the number of its images of 224 pixels, and the time until it has its first batch.

`python -m benchmarks.by_hand.images --counts 1000 10000 200000` prints a table; it writes nothing. For each number a process
reads a folder of JPEG for a run as a trainer does, trains a few steps, evaluates, and reads every image once more; then
another process does the same with the images that the first one decoded. The folder has a few hundred JPEG under many names.
200,000 images take 30 GB below `TMPDIR`, removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.support.report import table

SIZE, NUM_CLASSES, DISTINCT = 224, 5, 300
STEPS, TEST_EVERY = 3, 500
WAIT_S = 2.5
"""Until times of files tell whether they have changed."""


def write_images(root: Path, count: int, size: int) -> None:
    """Write JPEG of smooth noise, evenly in `NUM_CLASSES` class folders."""
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"class-{number % NUM_CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), np.uint8))
        small.resize((size, size), Image.Resampling.BILINEAR).save(folder / f"{number:05d}.jpg", quality=90)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--act", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.act is not None:
        print(json.dumps(act(given.act)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="fedplcc-images-") as name:
        pictures = Path(name) / "pictures"
        write_images(pictures, DISTINCT, SIZE)
        for count in given.counts:
            with tempfile.TemporaryDirectory(dir=name) as folder:
                link_images(pictures, Path(folder) / "data", count)
                time.sleep(WAIT_S)
                rows += [{"images": count, "decoded": when, **measured(Path(folder))} for when in ("now", "before")]
    print(table(rows))


def link_images(pictures: Path, root: Path, count: int) -> None:
    """Give a few images many names, evenly in class folders."""
    known = [sorted((pictures / f"class-{label}").iterdir()) for label in range(NUM_CLASSES)]
    for label in range(NUM_CLASSES):
        (root / f"class-{label}").mkdir(parents=True)
    for number in range(count):
        label = number % NUM_CLASSES
        source = known[label][number // NUM_CLASSES % len(known[label])]
        os.link(source, root / f"class-{label}" / f"{number:07d}.jpg")


def measured(folder: Path) -> dict[str, Any]:
    """Run the process of a trainer's work in a folder."""
    command = [sys.executable, "-m", "benchmarks.by_hand.images", "--act", str(folder)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def act(folder: Path) -> dict[str, Any]:
    """Do a trainer's work on the images of a folder."""
    import torch

    from fedplcc.shared.config.run import parse_run_config
    from fedplcc.trainer.data.record import RunRecord
    from fedplcc.trainer.learning.evaluation import evaluate
    from fedplcc.trainer.learning.training import RoundInputs, local_train
    from fedplcc.trainer.owner.consent import Consent
    from fedplcc.trainer.task.inputs import TaskInputs
    from fedplcc.trainer.task.site import ClientSite
    from fedplcc.trainer.weights.store import WeightsStore

    classes = [f"class-{label}" for label in range(NUM_CLASSES)]
    config = parse_run_config(
        {
            "run": {"method": "fedavg", "rounds": 1, "clients": ["bench"]},
            "model": {"name": "cnn4"},
            "data": {"classes": classes, "image_size": SIZE, "test_every": TEST_EVERY},
            "training": {"local_steps": STEPS, "batch_size": 8, "evaluation_batch_size": 16},
        }
    )
    consent = Consent(weights=WeightsStore(folder / "kept"))
    site = ClientSite.at("bench", "bench", f"folder:{folder / 'data'}", consent=consent, device="cpu")
    inputs = TaskInputs(site, None, keeps_evaluated=False, latest_model=None)
    begin, idle_mib = time.perf_counter(), peak_mib()
    loaded = inputs.data(config, None)
    loaded.train.batch(torch.randperm(len(loaded.train))[:32])
    first_batch_s = time.perf_counter() - begin
    RunRecord(places={"0": loaded.record.sha256}, latest=loaded.record).to_bytes()
    loaded_mib = peak_mib()
    model = site.new_model(config, with_weights=True)
    round_inputs = RoundInputs(config=config, method=config.algorithm, round=1, client_id="bench")
    local_train(model, loaded.train, round_inputs)
    evaluate(model, loaded.test, config)
    begin = time.perf_counter()
    for _ in loaded.train.in_order(32):
        pass
    return {
        "images on": loaded.train.place,
        "first batch (s)": round(first_batch_s, 2),
        "peak before (MiB)": idle_mib,
        "peak with data (MiB)": loaded_mib,
        "peak at the end (MiB)": peak_mib(),
        "images read (1/s)": round(len(loaded.train) / (time.perf_counter() - begin)),
    }


def peak_mib() -> int:
    """The most resident memory that this process has had, mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) // 1024


if __name__ == "__main__":
    main()
