"""Private class sums in whole runs: simulated and deployed they end in the same bytes, given the same secrets."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedplcc.local.demo import Demo
from fedplcc.runs.run_folder import RunFolder, claimed_folder
from fedplcc.simulation import simulate_in_folder
from fedplcc.terminal.progress import RunProgress, console_for
from fedplcc.trainer.privacy.budget import SECRET, Budget
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.integration.test_recovery import Rest
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import hashed
from tests.support.later import later

timm = later("timm")
pytestmark = pytest.mark.slow

NET = "timm:test_resnet"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightsStore:
    torch.manual_seed(3)
    made: Any = timm.create_model(NET.removeprefix("timm:"), num_classes=0)
    store = WeightsStore(tmp_path / "weights")
    arrays = {name: tensor.numpy() for name, tensor in made.state_dict().items()}
    store.add(arrays, name="tiny", model=NET, source=Source(place="here"))
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(store.folder))
    return store


def planted(folder: Path, name: str) -> None:
    """A client's secret, of its name alone."""
    Budget(folder).key()
    (folder / SECRET).write_bytes(name.encode().ljust(32, b"."))


def sums_document(folder: Path, weights: WeightsStore) -> dict[str, Any]:
    known = weights.find("tiny")
    assert known is not None
    values = tiny_federation.document(
        folder,
        "classsums",
        run={"rounds": 2},
        model={"name": NET, "weights": "tiny", "weights_sha256": known.sha256},
        training={"train": "head"},
    )
    return values | {
        "method": {"head": "means"},
        "privacy": {"clip": 0.1, "epsilon": 8.0, "delta": 1e-5, "claim": "site"},
    }


def means_document(folder: Path, _: WeightsStore | None) -> dict[str, Any]:
    values = tiny_federation.document(folder, "fedproto", run={"rounds": 2})
    privacy = {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5, "claim": "prototypes", "release_every": 1}
    return values | {"privacy": privacy}


@pytest.mark.parametrize(
    ("document", "claim", "releases"),
    [(sums_document, "site", 1), pytest.param(means_document, "prototypes", 2, marks=pytest.mark.full)],
)
def test_simulated_and_deployed_a_private_run_ends_in_the_same_bytes(
    weights: WeightsStore,
    tmp_path: Path,
    document: Callable[[Path, WeightsStore], dict[str, Any]],
    claim: str,
    releases: int,
) -> None:
    tiny_federation.write_data(tmp_path)
    values = document(tmp_path, weights)
    values["clients"] = {
        name: {key: value for key, value in client.items() if key != "samples_per_class"}
        for name, client in values["clients"].items()
    }
    federation = tiny_federation.federation(values)
    progress = RunProgress(console_for(json=True), total_rounds=2)

    def run(out: Path, *, is_deployed: bool) -> None:
        with claimed_folder(out, federation) as folder:
            folder.prepare()
            for name in tiny_federation.CLIENTS:
                planted(_privacy(folder, name, is_deployed=is_deployed), name)
            if is_deployed:
                asyncio.run(Demo(federation, folder, progress, device="cpu").run())
            else:
                simulate_in_folder(federation, folder, progress, device="cpu")

    run(tmp_path / "simulated", is_deployed=False)
    run(tmp_path / "deployed", is_deployed=True)
    assert hashed(tmp_path / "deployed") == hashed(tmp_path / "simulated")
    for out in ("simulated", "deployed"):
        manifest = json.loads((tmp_path / out / "run.json").read_text())
        told = manifest["privacy"]
        assert (told["claim"], told["epsilon"], told["delta"], told["releases"]) == (claim, 8.0, 1e-5, releases)
        assert claim == "prototypes" or all(client["class_counts"] == {} for client in manifest["clients"].values())


def _privacy(folder: RunFolder, name: str, *, is_deployed: bool) -> Path:
    return folder.state / f"trainer-{name}" / "privacy" if is_deployed else folder.aggregator_state / "privacy" / name


def test_a_site_that_goes_on_from_an_older_copy_of_its_state_or_its_budget_makes_no_release(tmp_path: Path) -> None:
    tiny_federation.write_data(tmp_path)
    values = means_document(tmp_path, None)
    left, right = tiny_federation.CLIENTS
    older, newer = tmp_path / "older", tmp_path / "newer"
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.3")
        federation.start_gateway()
        rest = Rest(federation)
        trainer = federation.start_trainer(left, f"npz:{tmp_path / left}.npz")
        federation.start_trainer(right, f"npz:{tmp_path / right}.npz")
        eventually(lambda: len(rest.activities()) == 2, "both join")
        state = tmp_path / f"trainer-{left}"

        def replaced(place: Path, copy: Path | None) -> None:
            trainer.end()
            shutil.rmtree(place)
            if copy is not None:
                shutil.copytree(copy, place)
            trainer.start()

        def refused(why: str) -> None:
            eventually(lambda: f"{why}; put the folder" in trainer.log(), why)
            eventually(lambda: "STORE_UNAVAILABLE" in json.dumps(rest.call("GET", "/v1/clients")), "it is told")

        trainer.end()
        shutil.copytree(state, older)
        trainer.start()
        first = rest.start(values)
        rest.wait(first, "completed")
        shutil.copytree(state, newer)
        replaced(state, older)
        second = rest.start({**values, "run": {**values["run"], "seed": 2}})
        refused(f"it lacks that of round 2 of run '{first}', which the aggregator has")
        replaced(state, newer)
        rest.wait(second, "completed")
        shutil.rmtree(older)
        shutil.copytree(state, older)
        plain = {key: value for key, value in values.items() if key != "privacy"}
        rest.wait(rest.start(plain), "completed")
        replaced(state, older)
        rest.start({**values, "run": {**values["run"], "seed": 4}})
        refused("it has 4 of the 5 that egress.jsonl counts")
        replaced(state / "privacy", None)
        rest.start({**values, "run": {**values["run"], "seed": 3}})
        refused("it has 0 of the 5 that egress.jsonl counts")
