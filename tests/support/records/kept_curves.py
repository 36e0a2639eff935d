"""The curves that trackers keep, read by the trackers' own readers: values in order of time, by number and round."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from tests.support.later import later

if TYPE_CHECKING:
    from mlflow import MlflowClient

wandb_internal_pb2 = later("wandb.proto.wandb_internal_pb2")  # its types are made when it loads
tensorboard = later("tensorboard.backend.event_processing.event_accumulator")
Curves = dict[str, list[tuple[int, float]]]
"""(round, value) of each number by name; a value that is kept twice is there twice."""
BLOCK = 32_768
HEADER = 7


def of_jsonl(file: Path, label: str | None = None) -> Curves:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rounds = [line for line in lines if line["entry"] == "round" and label in (None, line["label"])]
    names = sorted({name for line in rounds for name, value in line.items() if isinstance(value, float)})
    return {name: [(line["round"], line[name]) for line in rounds if name in line] for name in names}


def of_tensorboard(folder: Path) -> Curves:
    found = tensorboard.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def of_mlflow(client: MlflowClient, run_id: str) -> Curves:
    names = client.get_run(run_id).data.metrics
    return {name: [(each.step, each.value) for each in client.get_metric_history(run_id, name)] for name in names}


def of_wandb(folders: Iterable[Path]) -> Curves:
    """Of offline runs, all taken together as `wandb sync` would send them."""
    curves: Curves = {}
    for folder in folders:
        for file in folder.glob("*.wandb"):
            for data in _records(file.read_bytes()):
                record = wandb_internal_pb2.Record()
                try:
                    record.ParseFromString(data)
                except DecodeError:
                    continue
                if record.WhichOneof("record_type") == "history":
                    _take(record.history, curves)
    return curves


def _take(history: Any, curves: Curves) -> None:
    values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in history.item}
    step = int(values.get("_step", history.step.num))
    for name, value in values.items():
        if not name.startswith("_"):
            curves.setdefault(name, []).append((step, float(value)))


def _records(data: bytes) -> Iterable[bytes]:
    """Records of a .wandb file, which is a LevelDB log: blocks with fragments of records."""
    position, parts = HEADER, b""
    while position + HEADER <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        if not kind:
            return
        parts += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""
