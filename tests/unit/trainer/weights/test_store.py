"""The store of backbones: a name by content, bytes that are hashed before use, and folders that survive kills."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from fedplcc.shared.config.settings import TrainerSettings, load, weights_folder
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable, WeightsMissing
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import Array
from fedplcc.trainer.weights.store import Backbone, Source, WeightsStore


def arrays(value: float = 1.0, size: int = 4) -> dict[str, Array]:
    return {"conv.weight": np.full(size, value, np.float32), "bn.num_batches_tracked": np.array(3)}


def added(store: WeightsStore, name: str = "net", value: float = 1.0) -> Backbone:
    return store.add(arrays(value), name=name, model="timm:net", source=Source(place="a file", licence="MIT"))


@pytest.fixture
def store(tmp_path: Path) -> WeightsStore:
    return WeightsStore(tmp_path / "state" / "weights")


def tensors_of(store: WeightsStore, backbone: Backbone) -> Path:
    return store.folder / f"{backbone.sha256}.safetensors"


def test_what_is_kept_comes_back_with_what_is_told_of_it(store: WeightsStore) -> None:
    assert store.backbones() == []
    assert store.find("net") is None
    backbone = added(store)
    assert store.backbones() == [backbone]
    assert (backbone.name, backbone.model, backbone.source, backbone.licence) == ("net", "timm:net", "a file", "MIT")
    assert (backbone.num_tensors, backbone.size_bytes) == (2, tensors_of(store, backbone).stat().st_size)
    found = store.load(backbone.sha256)
    assert torch.equal(found["conv.weight"], torch.ones(4))
    assert found["bn.num_batches_tracked"] == 3


def test_equal_tensors_in_another_order_are_the_same_backbone(store: WeightsStore) -> None:
    first = added(store)
    turned = dict(reversed(arrays().items()))
    assert store.add(turned, name="net", model="timm:net", source=Source(place="b")).sha256 == first.sha256
    assert [each.source for each in store.backbones()] == ["b"]


def test_a_name_stands_for_one_backbone(store: WeightsStore) -> None:
    first = added(store)
    with pytest.raises(InvalidConfig, match=f"stands for another backbone, {first.sha256}"):
        added(store, value=2.0)
    assert store.find("net") == first


def test_a_backbone_goes_with_its_last_name(store: WeightsStore) -> None:
    first = added(store)
    added(store, "other")
    store.remove("net")
    assert store.load(first.sha256)
    store.remove("other")
    with pytest.raises(WeightsMissing, match=f"no backbone 'net' of SHA-256 {first.sha256}; nothing was downloaded"):
        store.load(first.sha256, "net")
    with pytest.raises(InvalidConfig, match="there is no backbone named 'other'"):
        store.remove("other")
    assert [path.name for path in store.folder.iterdir()] == ["lock"]


@pytest.mark.parametrize("damage", ["truncated", "a bit", "another", "empty"])
def test_a_file_that_is_not_what_its_name_says_is_refused_before_any_use(
    damage: str, store: WeightsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, other = added(store), added(store, "other", 2.0)
    path = tensors_of(store, backbone)
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[:-1],
            "a bit": data[:-1] + bytes([data[-1] ^ 1]),
            "another": tensors_of(store, other).read_bytes(),
            "empty": b"",
        }[damage]
    )
    with monkeypatch.context() as context:
        context.setattr("safetensors.torch.load", lambda _data: pytest.fail("it was used"))
        with pytest.raises(WeightsMissing, match="does not have that SHA-256"):
            store.load(backbone.sha256, "net")
    added(store)  # the same command again mends it
    assert store.load(backbone.sha256)


def test_a_damaged_or_foreign_file_of_a_name_is_no_name(store: WeightsStore) -> None:
    backbone = added(store)
    (store.folder / "net.json").rename(store.folder / "stolen.json")
    (store.folder / "broken.json").write_text("{")
    (store.folder / "..json").write_text("{}")
    assert store.backbones() == []
    assert store.find("../net") is None
    assert store.load(backbone.sha256), "a run names it by content"


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot keep weights in"):
        added(WeightsStore(tmp_path / "file" / "weights"))


@pytest.mark.parametrize("step", ["weights.tensors", "weights.name"])
@pytest.mark.parametrize("at", ["rename", "fsync"])
def test_a_death_while_adding_leaves_the_whole_backbone_or_none(
    step: str, at: str, store: WeightsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        """The process ends here."""

    real = disk.durable_step

    def dying(*name: str) -> object:
        if name == (step, at):
            raise Died
        return real(*name)

    with monkeypatch.context() as context:
        context.setattr(disk, "durable_step", dying)
        with pytest.raises(Died):
            added(store)
    assert store.backbones() == []
    backbone = added(store)
    assert store.load(backbone.sha256)
    assert store.backbones() == [backbone]


def _adds(folder: Path, name: str, times: int) -> None:
    for _ in range(times):
        WeightsStore(folder).add(arrays(size=40_000), name=name, model="timm:net", source=Source(place=name))


@pytest.mark.slow
def test_two_processes_may_add_at_once_and_one_may_be_killed(store: WeightsStore) -> None:
    context = multiprocessing.get_context("fork")
    one, two = (context.Process(target=_adds, args=(store.folder, name, 30)) for name in ("one", "two"))
    killed = context.Process(target=_adds, args=(store.folder, "killed", 100_000))
    for process in (killed, one, two):
        process.start()
    one.join(60)
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    for process in (two, killed):
        process.join(60)
    assert (one.exitcode, two.exitcode) == (0, 0)
    sha256s = {each.sha256 for each in store.backbones()}
    assert {each.name for each in store.backbones()} >= {"one", "two"}
    (sha256,) = sha256s
    assert store.load(sha256)["conv.weight"].shape == (40_000,)


def test_another_backbone_of_the_same_name_is_told_with_both_digests(store: WeightsStore) -> None:
    mine = added(store)
    with pytest.raises(
        WeightsMissing, match=f"of SHA-256 {'0' * 64}, and 'net' at this site is another one, {mine.sha256}"
    ):
        store.load("0" * 64, "net")


def test_the_folder_is_a_trainers_setting_and_that_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = {"client": "ann", "data": "digits:mnist"}
    assert load(TrainerSettings, trainer).weights_dir == weights_folder() == Path("fedplcc-state/weights")
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", "/srv/weights")
    assert load(TrainerSettings, trainer).weights_dir == weights_folder() == Path("/srv/weights")
