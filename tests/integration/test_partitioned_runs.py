"""Federations whose clients are parts of one data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.runs.configuration import federation_json, local_clients, read_federation
from fedplcc.shared.config.run import DataSection, parse_federation
from fedplcc.shared.config.settings import TrainerSettings, from_command_line
from fedplcc.trainer.data import load_dataset
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated

KINDS: dict[str, dict[str, Any]] = {
    "dirichlet with a long tail": {"kind": "dirichlet", "alpha": 0.5, "min_size": 2, "imbalance": 0.5},
    "sharding": {"kind": "sharding", "shards": 2},
    "domain": {"kind": "domain", "fraction": [0.5, 0.2, 0.3]},
}


def document(data: Path, kind: str, **more: Any) -> dict[str, Any]:
    values = tiny_federation.document(data, run={"rounds": 1, "clients": None}, training={"local_steps": 2})
    del values["clients"]
    pool = f"npz:{data}/left.npz"
    return {**values, "partition": {**KINDS[kind], "data": pool, "num_clients": 3, **more}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_over_parts_ends_and_repeats_to_the_same_bytes(kind: str, data: Path, tmp_path: Path) -> None:
    values = document(data, kind)
    last = simulated(values, tmp_path / "one")
    simulated(values, tmp_path / "two")
    assert hashed(tmp_path / "one") == hashed(tmp_path / "two")
    assert set(last["accuracy"]) == {"all", "mean", "worst"}
    assert last["round"] == 1


@pytest.mark.parametrize("kind", ["dirichlet with a long tail", "domain"])
def test_the_clients_test_images_are_the_whole_test_set_once(kind: str, data: Path) -> None:
    federation = parse_federation(document(data, kind))
    contract = federation.config.data
    whole = load_dataset(f"npz:{data}/left.npz", contract=contract).test
    tests = [load_dataset(client.data, contract=contract).test for client in local_clients(federation).values()]

    def pictures(images: Any) -> list[bytes]:
        return sorted(image.tobytes() for image in images)

    assert pictures(np.concatenate([test.images_NSS3 for test in tests])) == pictures(whole.images_NSS3)


def test_demo_simulation_and_a_trainers_command_line_mean_the_same_part(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        '[run]\nmethod = "fedavg"\nseed = 4\n[data]\nclasses = ["thin", "wide", "plain"]\n'
        f'[partition]\nkind = "sharding"\nshards = 2\nnum_clients = 3\ndata = "npz:{data}/left.npz"\n'
    )
    federation = read_federation(path)
    written_out = parse_federation(
        {
            "run": {"method": "fedavg", "seed": 4, "clients": ["client-00", "client-01", "client-02"]},
            "data": {"classes": list(tiny_federation.CLASSES)},
            "clients": {
                f"client-0{k}": {"domain": "all", "data": f"part:{k}/3:sharding(shards=2,seed=4):npz:{data}/left.npz"}
                for k in range(3)
            },
        }
    )
    assert federation_json(federation) == federation_json(written_out)
    flags = ["--client", "client-01", "--data", federation.clients["client-01"].data]
    settings = from_command_line(TrainerSettings, "trainer", "", flags)
    assert settings.data_spec == f"part:1/3:sharding(shards=2,seed=4):npz:{data}/left.npz"
    contract = DataSection(classes=tiny_federation.CLASSES)
    ours, theirs = (
        load_dataset(text, contract=contract) for text in (settings.data_spec, written_out.clients["client-01"].data)
    )
    assert np.array_equal(ours.train.images_NSS3, theirs.train.images_NSS3)
