"""An aggregator that dies between the upload of a model and the first round that begins with it: nothing is lost or half."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.failing_disk import Disk, Killed

ANN = NumpyClient("ann", size=3)
DATA = to_bytes(ANN.first_model(seed=7))


def upload(federation: LocalFederation) -> str:
    """Have the model held; doing it again changes nothing. Returns how a configuration names it."""
    blob = blob_ref(MODEL, DATA)
    receiver = federation.coordinator.initial_models.begin_upload(blob, "model.safetensors")
    if receiver is not None:
        with closing(receiver):
            receiver.write(DATA[:200])
            receiver.write(DATA[200:])
            receiver.finish()
    return f"sha256:{blob.sha256}"


def warm_run(federation: LocalFederation) -> Run:
    """Everything from the upload to the end of a round; doing it again goes on with the same run."""
    federation.join()
    run = {"rounds": 1, "initial_model": upload(federation)}
    created = federation.coordinator.create_run("the run", a_document("fedplcc", clients=("ann",), run=run))
    return federation.run_to_end(created.run_id)


def told(federation: LocalFederation, run: Run) -> tuple[list[str], Counter[tuple[str, int, str]]]:
    return federation.metrics_lines(run.run_id), federation.happenings(run.run_id)


def undisturbed(folder: Path, disk: Disk) -> tuple[list[str], tuple[list[str], Counter[tuple[str, int, str]]]]:
    """The steps on disk of a whole warm run, and how it ends."""
    (folder / "undisturbed").mkdir()
    with LocalFederation(folder / "undisturbed", [ANN]) as federation:
        disk.revive()
        run = warm_run(federation)
        return list(disk.steps), told(federation, run)


def assert_held_is_whole(folder: Path) -> None:
    for path in folder.joinpath("initial").iterdir():
        if path.suffix != ".name":
            assert path.read_bytes() == DATA
            assert path.with_suffix(".name").read_text() == "model.safetensors"


def test_an_aggregator_killed_between_any_two_steps_ends_where_an_undisturbed_one_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    steps, ending = undisturbed(folder, disk)
    for step, name in enumerate(steps, start=1):
        (folder / str(step)).mkdir()
        with LocalFederation(folder / str(step), [ANN]) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                warm_run(federation)
            disk.revive()
            assert_held_is_whole(federation.folder)
            federation.restart()
            run = warm_run(federation)
            assert run.status is RunStatus.COMPLETED, f"killed before step {step}, {name}"
            assert told(federation, run) == ending, f"killed before step {step}, {name}"
            assert not list(federation.folder.joinpath("staging").iterdir()), f"killed before step {step}, {name}"


def test_a_run_names_its_model_only_when_a_power_cut_would_keep_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    with LocalFederation(folder, [ANN]) as federation:
        federation.join()
        sha256 = upload(federation).removeprefix("sha256:")
        assert disk.is_durable(folder, folder / "initial" / sha256, sha256)
        assert federation.store.find_blob(sha256) is None, "no row names what nobody begins with"
        run = {"initial_model": f"sha256:{sha256}"}
        federation.coordinator.create_run("the run", a_document(clients=("ann",), run=run))
        assert federation.store.find_blob(sha256) == len(DATA)
        assert disk.is_durable(folder, folder / "blobs" / sha256[:2] / sha256, sha256)
