"""`fedplcc.simulate` from Python: the command's bytes, callbacks that change none, clients from memory, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import fedplcc
from fedplcc.command.all_commands import app
from fedplcc.python_api.federation import federation_of
from fedplcc.runs.changed_files import changed_since
from fedplcc.shared.config.recipes import recipe
from fedplcc.shared.config.run import load_federation
from fedplcc.shared.errors import InvalidConfig, InvalidData
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, write_config

RUN_S = 120.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    write_config(folder / "run.toml", tiny_federation.document(folder))
    return folder


@pytest.fixture(scope="module")
def reference(data: Path) -> Path:
    """The folder of the same run from the command line."""
    out = data / "reference"
    words = ["simulate", "--config", str(data / "run.toml"), "--out", str(out), "--device", "cpu"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return out


def arrays(data: Path, name: str) -> dict[str, Any]:
    with np.load(data / f"{name}.npz") as found:
        return dict(found)


def clients_of_arrays(data: Path) -> dict[str, fedplcc.Client]:
    found = {name: arrays(data, name) for name in tiny_federation.CLIENTS}
    return {
        name: fedplcc.Client(
            train=(each["x_train"], each["y_train"]),
            test=(each["x_test"], each["y_test"]),
            classes=each["classes"].tolist(),
        )
        for name, each in found.items()
    }


def clients_of_torch_data(data: Path) -> dict[str, fedplcc.Client]:
    def dataset(found: dict[str, Any], split: str) -> TensorDataset:
        images = torch.tensor(found[f"x_{split}"]).permute(0, 3, 1, 2).float() / 255
        return TensorDataset(images, torch.tensor(found[f"y_{split}"]))

    found = {name: arrays(data, name) for name in tiny_federation.CLIENTS}
    return {
        name: fedplcc.Client(train=dataset(each, "train"), test=dataset(each, "test"), classes=each["classes"].tolist())
        for name, each in found.items()
    }


def clients_of_specifications(data: Path) -> dict[str, fedplcc.Client]:
    return {name: fedplcc.Client(data=f"npz:{data / name}.npz") for name in tiny_federation.CLIENTS}


@pytest.mark.parametrize("clients", [clients_of_arrays, clients_of_torch_data, clients_of_specifications])
def test_clients_from_python_give_the_bytes_of_the_command(
    clients: Any, data: Path, reference: Path, tmp_path: Path
) -> None:
    result = fedplcc.simulate(data / "run.toml", clients=clients(data), out=tmp_path / "out", device="cpu")
    assert result.status == "completed"
    assert hashed(tmp_path / "out") == hashed(reference)


def test_a_client_may_have_a_share_validation_images_and_its_own_kind_of_model(data: Path, tmp_path: Path) -> None:
    own: dict[str, Any] = {"fraction": 0.5, "validation_per_class": 1, "model": {"name": "cnn5"}}
    document = tiny_federation.document(data, "fedproto", run={"rounds": 1}) | {"method": {"share_model": False}}
    clients = {name: fedplcc.Client(data=f"npz:{data / name}.npz", **own) for name in document["clients"]}
    fedplcc.simulate(document, clients=clients, out=tmp_path / "python", device="cpu")
    tables = {name: {**table, **own} for name, table in document["clients"].items()}
    fedplcc.simulate({**document, "clients": tables}, out=tmp_path / "tables", device="cpu")
    assert hashed(tmp_path / "python") == hashed(tmp_path / "tables")
    entries = json.loads((tmp_path / "python" / "run.json").read_text())["clients"].values()
    assert {entry["model_kind"] for entry in entries} == {"cnn5"}
    averaged = {**document, "run": {**document["run"], "method": "fedavg"}, "method": {}}
    with pytest.raises(InvalidConfig, match=r"clients\.left\.model: method fedavg averages models"):
        fedplcc.simulate(averaged, clients=clients, out=tmp_path / "averaged", device="cpu")


def test_clients_from_python_stand_for_the_roster_of_the_file(data: Path, tmp_path: Path) -> None:
    left, right = clients_of_specifications(data).values()
    clients = {"south": right, "north": left, "east": fedplcc.Client(data="npz:/east.npz")}

    def roster(settings: dict[str, Any]) -> tuple[str, ...] | None:
        return federation_of(data / "run.toml", clients, settings, tmp_path / "run").config.run.clients

    assert load_federation(data / "run.toml").config.run.clients == tiny_federation.CLIENTS
    assert roster({}) == ("east", "north", "south")
    assert roster({"run": {"clients": ["south", "north"]}}) == ("north", "south")
    assert roster({"run.min_clients": 2}) is None
    with pytest.raises(InvalidConfig, match=r"run\.clients names 'west', but there is no table"):
        roster({"run.clients": ["west"]})


@pytest.mark.parametrize(("side", "name"), [(32, "small-images"), (70, "photos")])
def test_clients_without_a_configuration_get_the_recipe_for_their_images(side: int, name: str, tmp_path: Path) -> None:
    images, others = ((np.full((20, side, 80, 3), light, np.uint8), np.arange(20) % 2) for light in (0, 1))
    clients = {
        site: fedplcc.Client(train=own, test=own, classes=["cat", "dog"])
        for site, own in (("north", images), ("south", others))
    }
    config = federation_of(None, clients, None, tmp_path / "run").config
    assert config.run.clients == ("north", "south")
    assert config.data.classes == ("cat", "dog")
    assert config.model.weights == recipe(name)["model"].get("weights")
    assert config.run.method == recipe(name)["run"]["method"]
    averaged = federation_of(None, clients, {"run.method": "fedavg"}, tmp_path / "run").config
    assert (averaged.run.rounds, averaged.model.options.get("hidden_dim")) == ((40, 128) if side == 70 else (30, None))
    clients["east"] = fedplcc.Client(train=images, test=images)
    with pytest.raises(InvalidData, match=r"client east has the classes 0, 1 and client north has cat, dog"):
        federation_of(None, clients, None, tmp_path / "run")
    digits = {"a": fedplcc.Client(train=images, classes=["0", "1"])}
    digits["b"] = fedplcc.Client(train=(images[0], np.arange(20) % 3), classes=["0", "1", "none"])
    with pytest.warns(UserWarning, match="has no 'none'"):  # numbers that another one has beside names are names
        assert federation_of(None, digits, None, tmp_path / "run").config.data.classes == ("0", "1", "none")
    clients["east"] = fedplcc.Client(train=images, test=images, classes=["Cat", "dog"])
    with pytest.warns(UserWarning, match="client east has ('Cat', which no other client has|no 'cat'); see that"):
        federation_of(None, clients, None, tmp_path / "run")


def test_a_mapping_and_a_checked_configuration_give_the_bytes_of_the_file(
    data: Path, reference: Path, tmp_path: Path
) -> None:
    document = tiny_federation.document(data)
    fedplcc.simulate(document, out=tmp_path / "mapping", device="cpu")
    checked = load_federation(data / "run.toml").config
    fedplcc.simulate(checked, clients=clients_of_arrays(data), out=tmp_path / "checked", device="cpu")
    assert hashed(tmp_path / "mapping") == hashed(tmp_path / "checked") == hashed(reference)


class Meddler(fedplcc.Callback):
    """Does to this process what a careless callback does."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def on_start(self, run: fedplcc.RunStart) -> None:
        self.seen.append(("start", run.total_rounds))

    def on_round(self, result: fedplcc.RoundResult) -> None:
        self.seen.append(("round", result.number))
        torch.manual_seed(1)
        np.random.seed(1)  # as others' code does
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(False)
        result.metrics.clear()  # type: ignore[attr-defined]

    def on_end(self, end: fedplcc.RunEnd) -> None:
        self.seen.append(("end", end.status))


def test_a_callback_sees_each_round_and_changes_no_byte(data: Path, reference: Path, tmp_path: Path) -> None:
    meddler = Meddler()
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    fedplcc.simulate(data / "run.toml", callbacks=[meddler], out=tmp_path / "out", device="cpu")
    assert meddler.seen == [("start", 3), ("round", 1), ("round", 2), ("round", 3), ("end", "completed")]
    assert hashed(tmp_path / "out") == hashed(reference)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert torch.get_default_dtype() == torch.float32


def test_a_callback_ends_the_run_after_the_round_that_it_was_told_of(data: Path, tmp_path: Path) -> None:
    def enough(result: fedplcc.RoundResult) -> None:
        if result.number == 2:
            raise fedplcc.StopRun("good enough")

    result = fedplcc.simulate(data / "run.toml", callbacks=[enough], out=tmp_path / "out", device="cpu")
    for read in (result, fedplcc.Result(tmp_path / "out")):
        assert (read.status, read.reason, len(read.rounds)) == ("stopped", "good enough", 2)
    assert hashed(tmp_path / "out")["model.safetensors"] == result.rounds[1].model_sha256


def test_an_error_of_a_callback_is_raised_and_the_same_call_goes_on(
    data: Path, reference: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, bool]] = []

    def breaks(result: fedplcc.RoundResult) -> None:
        if result.number == 2:
            raise LookupError("of my own")

    with pytest.raises(LookupError, match="of my own") as caught:
        fedplcc.simulate(data / "run.toml", callbacks=[breaks], out=tmp_path / "out", device="cpu")
    assert "on_round of round 2" in "".join(caught.value.__notes__)
    fedplcc.simulate(
        data / "run.toml",
        callbacks=[lambda result: seen.append((result.number, result.is_new))],
        out=tmp_path / "out",
        device="cpu",
    )
    assert seen == [(1, False), (2, False), (3, True)]
    assert hashed(tmp_path / "out") == hashed(reference)


def test_a_run_that_is_there_is_returned_at_once_and_its_rounds_are_repeated(data: Path, reference: Path) -> None:
    seen: list[tuple[int, bool]] = []
    before = hashed(reference)
    result = fedplcc.simulate(
        data / "run.toml", callbacks=[lambda each: seen.append((each.number, each.is_new))], out=reference
    )
    assert seen == [(1, False), (2, False), (3, False)]
    assert (len(result.rounds), hashed(reference)) == (3, before)


@pytest.mark.parametrize(
    "form",
    [
        "{0}",
        "part:0/2:domain(stages=2):{0}",
        "long_tail(imbalance=0.5):part:0/2:sharding(shards=1):{0}",
        'stages:["digits:mnist", "{0}"]',
    ],
)
def test_a_run_that_is_there_is_said_to_be_of_other_files_than_there_are_now(
    form: str, data: Path, tmp_path: Path
) -> None:
    federation = load_federation(data / "run.toml")
    (name, client), *_ = federation.clients.items()
    (tmp_path / "linked").symlink_to(client.data.removeprefix("npz:"))
    spec = form.format(f"npz:{tmp_path}/linked")
    federation = federation.model_copy(update={"clients": {name: client.model_copy(update={"data": spec})}})
    for file in ("run.json", "federation.json"):
        (tmp_path / file).touch()
    assert changed_since(federation, tmp_path) is None
    os.utime(tmp_path / "federation.json", (0, 0))
    assert "have changed since this run began" in str(changed_since(federation, tmp_path))


def test_a_run_whose_files_change_while_it_lasts_is_said_to_be_of_other_files(data: Path, tmp_path: Path) -> None:
    (file, *_) = (
        data / client.data.removeprefix("npz:") for client in load_federation(data / "run.toml").clients.values()
    )
    wanted: dict[str, Any] = {"settings": {"run.rounds": 1}, "out": tmp_path / "out", "device": "cpu", "keep": True}
    with pytest.warns(UserWarning, match="have changed since this run began"):
        fedplcc.simulate(data / "run.toml", **wanted, callbacks=[lambda observed: os.utime(file)])
    with pytest.warns(UserWarning, match="have changed since this run began"):
        fedplcc.simulate(data / "run.toml", **wanted)


def test_a_client_that_is_tested_on_what_another_trains_on_is_said(data: Path, tmp_path: Path) -> None:
    (one, *_), found = tiny_federation.CLIENTS, {name: arrays(data, name) for name in tiny_federation.CLIENTS}
    x, y, classes = (found[one][name] for name in ("x_train", "y_train", "classes"))
    clients = {
        "ann": fedplcc.Client(train=(x[::2], y[::2]), test=(x[1::2], y[1::2]), classes=classes.tolist()),
        "bob": fedplcc.Client(
            train=(x[1::2], y[1::2]), test=(x[::2], y[::2]), classes=classes.tolist(), evaluate_only=True
        ),
    }
    with pytest.warns(UserWarning, match=f"{len(x[::2])} test images of client bob are training images of ann") as said:
        fedplcc.simulate(
            data / "run.toml", clients=clients, settings={"run.rounds": 1}, out=tmp_path / "out", device="cpu"
        )
    assert not any("of client ann" in str(each.message) for each in said)


def test_wrong_arguments_are_refused_with_a_sentence(data: Path, tmp_path: Path) -> None:
    images = np.zeros((4, 8, 8, 3), np.float32)
    clients: Any
    for clients in ([fedplcc.Client(train=(images, [0]))], {}):
        with pytest.raises(InvalidConfig, match="clients= names at least one"):
            fedplcc.simulate(data / "run.toml", clients=clients, out=tmp_path / "f")
    for settings, sentence in (
        ({"data.mean": [123.0] * 3}, "divide by 255"),
        ({"run.rounds": {1}}, "a set: give texts"),
    ):
        with pytest.raises(InvalidConfig, match=sentence):
            fedplcc.simulate(data / "run.toml", settings=settings, out=tmp_path / "f")
    with pytest.raises(InvalidData, match="either data"):
        fedplcc.Client()
    with pytest.raises(InvalidConfig, match=r"give a fedplcc\.Client"):
        fedplcc.simulate(data / "run.toml", clients={"left": "folder:x"}, out=tmp_path / "a")  # type: ignore[dict-item]
    with pytest.raises(InvalidData, match="images are uint8"):
        fedplcc.simulate(
            data / "run.toml", clients={"left": fedplcc.Client(train=(images, np.zeros(4, int)))}, out=tmp_path / "b"
        )
    normalised = TensorDataset(torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InvalidData, match=r"train image 0: .*without normalisation"):
        fedplcc.simulate(data / "run.toml", clients={"left": fedplcc.Client(train=normalised)}, out=tmp_path / "c")
    with pytest.raises(InvalidConfig, match="did you mean 'mlflow'"):
        fedplcc.simulate(data / "run.toml", log="mlfow", out=tmp_path / "d")
    with pytest.raises(InvalidConfig, match="unknown key"):
        fedplcc.simulate(data / "run.toml", settings={"run.roundz": 1}, out=tmp_path / "e")
    assert not any((tmp_path / name).exists() for name in "abcde")


def test_another_thread_can_train(data: Path, reference: Path, tmp_path: Path) -> None:
    done: list[fedplcc.Result] = []
    thread = threading.Thread(
        target=lambda: done.append(fedplcc.simulate(data / "run.toml", out=tmp_path / "out", device="cpu"))
    )
    thread.start()
    thread.join(RUN_S)
    assert done
    assert hashed(tmp_path / "out") == hashed(reference)


SCRIPT = """
    import sys
    import numpy
    import fedplcc

    def client(file):
        with numpy.load(file) as found:
            train, test = ((found[f"x_{split}"], found[f"y_{split}"]) for split in ("train", "test"))
            return fedplcc.Client(train=train, test=test, classes=found["classes"].tolist())

    print("loaded")
    clients = {name: client(f"{sys.argv[1]}/{name}.npz") for name in ("left", "right")}
    result = fedplcc.simulate(sys.argv[1] + "/run.toml", clients=clients, out=sys.argv[2], device="cpu", jobs=2)
    print(result.status)
"""


def test_a_plain_script_without_a_main_guard_trains_in_worker_processes_and_prints_nothing_of_ours(
    data: Path, reference: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), str(data), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded\ncompleted\n", "")
    assert hashed(tmp_path / "out") == hashed(reference)


def test_ctrl_c_is_a_keyboard_interrupt_and_the_same_call_goes_on(data: Path, reference: Path, tmp_path: Path) -> None:
    def interrupt(result: fedplcc.RoundResult) -> None:
        if result.number == 1:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="the same call with out="):
        fedplcc.simulate(data / "run.toml", callbacks=[interrupt], out=tmp_path / "out", device="cpu")
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "out" / "run.json").exists()
    fedplcc.simulate(data / "run.toml", out=tmp_path / "out", device="cpu")
    assert hashed(tmp_path / "out") == hashed(reference)


def test_a_result_has_tables_frames_the_model_prototypes_and_figures(data: Path, reference: Path) -> None:
    result = fedplcc.Result(reference)
    assert [row.round for row in result.rounds] == [1, 2, 3]
    assert list(result.rounds.frame()["mean_accuracy"]) == [row.mean_accuracy for row in result.rounds]
    assert {row.domain for row in result.domains} == set(tiny_federation.CLIENTS)
    last = [row for row in result.classes if row.round == 3 and row.client == "left"]
    assert [row.class_name for row in last] == list(tiny_federation.CLASSES)
    assert sum(row.correct for row in last) / sum(row.total for row in last) == next(
        row.accuracy for row in result.domains if (row.round, row.domain) == (3, "left")
    )
    assert result.model()(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    assert len(result.prototypes()) == result.rounds[-1].global_prototypes
    assert result.plot_accuracy().axes
    assert len(result.plot_map(before="initial", per_class=3).axes) == 3
    assert "3 rounds, completed" in repr(result)
    assert "<table" in result.rounds._repr_html_()


def test_every_public_name_can_be_loaded_and_is_listed() -> None:
    for name in fedplcc.__all__:
        assert getattr(fedplcc, name) is not None
    assert set(fedplcc.__all__) <= set(dir(fedplcc))
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        fedplcc.simulat  # noqa: B018


def test_a_run_that_ended_early_says_so_when_it_is_read_again(data: Path, tmp_path: Path) -> None:
    settings = {"run.patience": 1, "run.rounds": 20, "data.validation_every": 2}
    result = fedplcc.simulate(data / "run.toml", settings=settings, out=tmp_path / "out", device="cpu")
    assert len(result.rounds) < 20
    assert "no better accuracy on validation images" in result.reason
    read = fedplcc.Result(tmp_path / "out")
    assert (read.status, read.reason) == (result.status, result.reason)


def test_settings_change_keys_as_the_command_does(data: Path, tmp_path: Path) -> None:
    settings = {"run.rounds": 1, "run.method": "fedavg", "training": {"batch_size": 4}}
    result = fedplcc.simulate(data / "run.toml", settings=settings, out=tmp_path / "out", device="cpu")
    assert (len(result.rounds), result.config.run.method, result.config.training.batch_size) == (1, "fedavg", 4)
