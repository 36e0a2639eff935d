"""ClassSums in simulations of real nets: what a run says of joining, and of a site that comes later or leaves."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedplcc.aggregator.metrics.transfers import Direction
from fedplcc.command.all_commands import app
from fedplcc.models.site_model import state_folder, write_site_model
from fedplcc.runs.artifacts import describe, read_record
from fedplcc.shared.errors import InvalidConfig, InvalidModel, NotFound
from fedplcc.shared.methods.heads.classsums import GLOBAL_SUMS, SCORES, SUMS
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import BlobRef
from fedplcc.simulation.in_process_aggregator import InProcessAggregator
from fedplcc.trainer.models import build_model, state_arrays
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated, write_config

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stripes that begin anywhere, under much noise, of two domains."""
    folder = tmp_path_factory.mktemp("data")
    for domain, name in enumerate(tiny_federation.CLIENTS):
        rng = np.random.default_rng(domain)
        arrays: dict[str, Any] = {"classes": np.array(tiny_federation.CLASSES)}
        for part in ("train", "test"):
            labels = np.repeat(np.arange(3), 16)
            columns = np.arange(32) + rng.integers(0, 12, (len(labels), 1))
            stripes = 40 * (columns // (2 + 4 * labels[:, None]) % 2) * (labels < 2)[:, None]
            images = stripes[:, None, :, None] + rng.integers(0, 200, (len(labels), 32, 32, 3)) + 15 * domain
            arrays |= {f"x_{part}": images.astype(np.uint8), f"y_{part}": labels}
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def a_document(data: Path, rounds: int = 2, **hyper: Any) -> dict[str, Any]:
    return {**tiny_federation.document(data, "classsums", run={"rounds": rounds}), "method": hyper}


def test_a_run_ends_with_a_head_that_was_not_trained_and_says_what_joining_is_worth(data: Path, tmp_path: Path) -> None:
    values = a_document(data)
    last = simulated(values, tmp_path)
    config = tiny_federation.federation(values).config
    first = state_arrays(build_model(config.model, 3, 32, config.run.seed))
    made = from_bytes((tmp_path / "model.safetensors").read_bytes())
    changed = {name for name, array in first.items() if array.tobytes() != made[name].tobytes()}
    assert changed == {name for name in first if name.startswith("classifier")}
    assert last["accuracy"]["mean"] > 0.5
    for name in tiny_federation.CLIENTS:
        gain = last["accuracy_local"][name] - last["accuracy_alone"][name]
        assert last["joining"][name] == pytest.approx(gain)
    record = read_record(tmp_path)
    assert any(text.startswith("joining: left ") for text in describe(record, tmp_path))


def test_a_round_is_enough_for_a_given_shrinkage_and_not_for_a_choice(data: Path, tmp_path: Path) -> None:
    last = simulated(a_document(data, rounds=1, shrinkage=0.3), tmp_path)
    assert last["accuracy"]["mean"] > 0.5
    assert last["accuracy_local"]["mean"] is None
    with pytest.raises(InvalidConfig, match=r"run.rounds = 1: as it is set, method classsums needs 2"):
        tiny_federation.federation(a_document(data, rounds=1))


def test_later_rounds_change_nothing(data: Path, tmp_path: Path) -> None:
    simulated(a_document(data, rounds=2), tmp_path / "two")
    simulated(a_document(data, rounds=4), tmp_path / "four")
    assert hashed(tmp_path / "two")["model.safetensors"] == hashed(tmp_path / "four")["model.safetensors"]


def test_sums_that_have_not_changed_are_sent_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round's update names the first one's blob, which the aggregator has from this client."""
    sent: list[tuple[str, str]] = []
    count = InProcessAggregator._count

    def counted(self: InProcessAggregator, blob: BlobRef, *place: int, direction: Direction, kind: str) -> None:
        sent.append((direction, blob.role))
        count(self, blob, *place, direction=direction, kind=kind)

    monkeypatch.setattr(InProcessAggregator, "_count", counted)
    monkeypatch.setattr(InProcessAggregator, "max_inline_bytes", 0)
    simulated(a_document(data), tmp_path)
    num_clients = len(tiny_federation.CLIENTS)
    assert sent.count(("received", SUMS)) == num_clients
    assert sent.count(("received", SCORES)) == 2 * num_clients
    assert sent.count(("sent", GLOBAL_SUMS)) == num_clients


def test_a_comparison_says_what_joining_is_worth(data: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "run.toml", a_document(data))
    (tmp_path / "compare.toml").write_text(
        '[datasets.stripes]\nconfig = "run.toml"\n\n[rows.sums]\nmethod = "classsums"\nlabel = "Sums"\n'
    )
    words = ["compare", "--config", str(tmp_path / "compare.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert CliRunner().invoke(app, words).exit_code == 0
    cell = tmp_path / "out" / "stripes" / "sums" / "seed-0" / "metrics.jsonl"
    joining = json.loads(cell.read_text().splitlines()[-1])["joining"]
    gains = [*joining.values(), sum(joining.values()) / 2, min(joining.values())]
    texts = [f"{round(100 * gain, 1) + 0.0:+.1f}" for gain in gains]
    report = (tmp_path / "out" / "report.md").read_text()
    assert f"| Sums: joining is worth | {' | '.join(texts)} | 1 |" in report
    with (tmp_path / "out" / "summary.csv").open() as file:
        models = {line["model"] for line in csv.DictReader(file)}
    assert {"global", "local", "alone"} <= models


def test_a_site_makes_its_own_model_of_the_state_that_it_keeps_and_nobody_else_does(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    last = simulated(a_document(data), run)
    states = next(path for path in run.rglob("trainers/left") if path.is_dir())
    before = sorted((path, path.stat().st_mtime_ns) for path in states.iterdir())
    made = write_site_model(run, states)
    assert made.stat().st_mode & 0o777 == 0o600
    assert sorted((path, path.stat().st_mtime_ns) for path in states.iterdir()) == before
    words = ["model", "evaluate", str(made), "--data", f"npz:{data / 'left.npz'}", "--device", "cpu", "--json"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["accuracy"] == pytest.approx(last["accuracy_local"]["left"])
    assert made.read_bytes() != (run / "model.safetensors").read_bytes()

    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines(keepends=True)[0])
    with pytest.raises(InvalidModel, match=r"client left keeps its state of round 2 of run .*, and .* has round 1"):
        write_site_model(run, states)
    with pytest.raises(NotFound, match="has no client's state; a site's model is made on the host of its trainer"):
        state_folder(str(tmp_path / "elsewhere"))
