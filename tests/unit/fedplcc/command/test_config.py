"""`fedplcc config init` and `fedplcc config check`: what they write and say follows the records themselves."""

from __future__ import annotations

import json
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from safetensors.numpy import save

from fedplcc.command.files.config_init import _for_images, _seen_by
from fedplcc.runs.configuration import demo_file
from fedplcc.runs.configuration_check import judge
from fedplcc.runs.configuration_text import range_of, run_text, template
from fedplcc.shared.config.key_descriptions import key_descriptions
from fedplcc.shared.config.run import ClientSection, TrainingSection, load_federation, parse_federation
from fedplcc.shared.config.tables.model import ModelSection, TimmOptions
from fedplcc.shared.config.tables.run_tables import DataSection, RunSection
from fedplcc.shared.methods import METHODS
from tests.support import commands

SECTIONS: dict[str, type[BaseModel]] = {
    "run": RunSection,
    "model": ModelSection,
    "data": DataSection,
    "training": TrainingSection,
}
called = partial(commands.called, "config")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shops.toml"


def images(folder: Path, *, classes: tuple[str, ...] = ("cat", "dog"), test: int = 4) -> Path:
    """A data set of a few grey images as an .npz file."""
    path = folder / "images.npz"
    labels = np.arange(8) % len(classes)
    pixels = np.arange(8 * 64, dtype=np.uint8).reshape(8, 8, 8, 1)
    np.savez(
        path, x_train=pixels, y_train=labels, x_test=pixels[:test], y_test=labels[:test], classes=np.array(classes)
    )
    return path


# What is written


@pytest.mark.parametrize("method", METHODS)
def test_what_init_writes_is_right_and_has_every_key(file: Path, method: str) -> None:
    code, out, error = called("init", file, "--full", "--method", method)
    assert (code, error) == (0, "")
    assert f"fedplcc config check {file}" in out
    text = file.read_text(encoding="utf-8")
    assert called("check", file)[0] == 0
    expected = load_federation(demo_file()).config
    if method == expected.run.method:
        assert load_federation(file).config == expected, "the demo, with every key written out"
    else:
        written = load_federation(file).config
        assert written.data == expected.data
        assert (written.training.clip_norm, written.training.augment) == (None, ()), "not what another method was given"
    for section, kind in {**SECTIONS, "method": METHODS[method].config}.items():
        part = text.split(f"\n[{section}]\n")[1].split("\n[")[0]
        for key in kind.model_fields:
            assert re.search(rf"^(# )?{key} = ", part, re.MULTILINE), f"{section}.{key}"
    clients = text.split("\n[clients.mnist]\n")[1]
    assert all(re.search(rf"^(# )?{key} = ", clients, re.MULTILINE) for key in ClientSection.model_fields)
    assert all(re.search(rf"^# {key} = ", text, re.MULTILINE) for key in TimmOptions.model_fields)


@pytest.mark.parametrize("method", METHODS)
def test_without_full_init_writes_the_same_configuration_in_the_lines_that_people_change(
    file: Path, tmp_path: Path, method: str
) -> None:
    whole = tmp_path / "full" / file.name
    whole.parent.mkdir()
    assert called("init", whole, "--full", "--method", method)[::2] == (0, "")
    assert called("init", file, "--method", method)[::2] == (0, "")
    assert load_federation(file) == load_federation(whole)
    lines = file.read_text(encoding="utf-8").partition("\n[clients.")[0].splitlines()
    assert 15 < len([line for line in lines if line and line[0] != "#"]) < 36
    assert {"rounds", "clients", "classes", "image_size", "learning_rate"} <= {
        line.partition(" = ")[0] for line in lines
    }


def test_every_meaning_and_range_stands_above_its_key(file: Path) -> None:
    called("init", file, "--full")
    text = file.read_text(encoding="utf-8")
    flat = " ".join(line.removeprefix("# ") for line in text.splitlines())
    kinds: list[type[BaseModel]] = [*SECTIONS.values(), ClientSection, METHODS["fedplcc"].config]
    for kind in kinds:
        said = key_descriptions(kind)
        assert said, kind
        for key, meaning in said.items():
            assert meaning in flat, f"{kind.__name__}.{key}"
        for key, field in kind.model_fields.items():
            assert range_of(field) in flat, f"{kind.__name__}.{key}"
    meaning = "Processor threads of local training; another number changes the last bits of results."
    assert f"{meaning} (1 to 256)\nthreads = 1" in text


EXCLUDED = {"min_clients": "clients = ", "local_epochs": "local_steps = "}
"""Keys of which only one may stand, and the line that goes for it."""
NEEDED = {
    "initial_classes": "# initial_model = ",
    "patience": "# validation_every = ",
    "weights": "# weights_sha256 = ",
    "weights_sha256": "# weights = ",
}
"""Keys that are about another one, and the line of that."""


def test_a_key_that_is_not_set_may_be_taken_out_of_its_comment(file: Path) -> None:
    called("init", file, "--full")
    lines = file.read_text(encoding="utf-8").splitlines()
    own = lines[: lines.index("# For timm:NAME, instead of options above:")]
    settable = [number for number, line in enumerate(own) if re.match(r"# \w+ = ", line)]
    assert settable
    for number in settable:
        key = lines[number].removeprefix("# ").partition(" = ")[0]
        changed = [line for line in lines if not (key in EXCLUDED and line.startswith(EXCLUDED[key]))]
        changed[changed.index(lines[number])] = lines[number].removeprefix("# ")
        if key in NEEDED:
            changed = [line.removeprefix("# ") if line.startswith(NEEDED[key]) else line for line in changed]
        verdict = judge(tomllib.loads("\n".join(changed)))
        assert verdict.problems == (), f"{key}: {verdict.problems}"


def test_clients_classes_and_data_may_be_named(file: Path, tmp_path: Path) -> None:
    assert called("init", file, "--clients", "north, south", "--classes", "healthy,ill")[0] == 0
    federation = load_federation(file)
    assert federation.config.run.name == "shops"
    assert federation.config.run.clients == ("north", "south")
    assert federation.config.data.classes == ("healthy", "ill")
    assert federation.clients["south"].data == "folder:data/south"
    spec = f"npz:{images(tmp_path)}"
    code, _, error = called("init", tmp_path / "more.toml", "--clients", "a.b", "--data", spec)
    assert (code, "--recipe small-images is taken: the smallest image that was looked at has" in error) == (0, True)
    federation = load_federation(tmp_path / "more.toml")
    assert federation.config.data.classes == ("cat", "dog"), "the data's own"
    assert federation.clients["a.b"].data == spec


def test_nothing_is_overwritten(file: Path) -> None:
    file.write_text("mine")
    code, out, error = called("init", file)
    assert (code, out) == (2, "")
    assert error == f"fedplcc: {file} is there already; name another file, or remove it first\n"
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--method", "fedplc"), 2, "did you mean 'fedplcc'?"),
        (("--clients", "a,b"), 2, "name the classes with --classes"),
        (("--clients", "a,a", "--classes", "x,y"), 2, "names a client twice"),
        (("--clients", "a", "--classes", "x"), 2, "data.classes"),
        (("--data", "folder:/nowhere-at-all"), 2, "/nowhere-at-all"),
    ],
)
def test_what_init_cannot_do_is_one_sentence(file: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, out, error = called("init", file, *arguments)
    assert (found, out) == (code, "")
    assert said in error
    assert error.count("\n") == 1
    assert not file.exists()


# What is checked

WRONG = """
[run]
methud = "fedplcc"
method = "fedplcc"
rounds = "many"
[method]
tau = 0
lambda3 = 1
[data]
classes = ["a", "a"]
[training]
batch_size = 1
[clints.ann]
[clients.ann]
dta = "digits:mnist"
"""


def test_every_problem_is_said_in_one_go(file: Path) -> None:
    file.write_text(WRONG)
    code, out, error = called("check", file)
    assert (code, out) == (2, "")
    said = error.splitlines()
    assert all(line.startswith(f"fedplcc: {file}: ") for line in said)
    for key in (
        "clints",
        "run.methud",
        "run.rounds",
        "method.tau",
        "method.lambda3",
        "data.classes",
        "training.batch_size",
    ):
        assert sum(key in line for line in said) == 1, key
    assert "did you mean 'clients'?" in error
    assert "clients.ann.data is missing" in error
    document = json.loads(called("check", file, "--json")[1])
    assert said[0] == f"fedplcc: {file}: taken for the configuration of a run"
    assert document == {"kind": "run", "problems": [line.removeprefix(f"fedplcc: {file}: ") for line in said[1:]]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run", "is not TOML"),
        ('run = 3\n[data]\nclasses = ["x", "y"]', "run is a table of keys; write [run]"),
        (
            '[run]\nmethod = "fedavg"\nclients = ["a", "b"]\n[data]\nclasses = ["x", "y"]\n[clients.a]\ndata = "x:y"',
            "[clients.b]",
        ),
        ('[run]\nmethod = "fedavg"\n[data]\nclasses = ["x", "y"]', "exactly one of 'clients'"),
        ('[run]\nmethod = "fedavg"\n[data]\nclasses = ["x", "y"]\n[partition]\nkind = "dirichle"', "did you mean"),
    ],
)
def test_a_problem_between_sections_is_said_too(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    code, out, error = called("check", file)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == (1 if "TOML" in said else 2), "the problem, and which kind of file it is"


def test_the_model_that_a_run_begins_with_is_looked_at_beside_the_file(file: Path) -> None:
    run = 'method = "fedavg"\nmin_clients = 1\ninitial_model = "file:start.safetensors"'
    file.write_text(f'[run]\n{run}\n[data]\nclasses = ["x", "y"]\n')
    code, _, error = called("check", file)
    assert code == 2
    assert f"cannot read {file.with_name('start.safetensors')}" in error
    file.with_name("start.safetensors").write_bytes(save({"weight": np.zeros((2, 2), np.float32)}))
    code, out, _ = called("check", file)
    assert code == 0
    assert 'initial_model = "sha256:' in out


def test_what_is_shown_is_a_configuration_of_the_same_run() -> None:
    code, out, _ = called("check", demo_file())
    assert code == 0
    federation = load_federation(demo_file())
    assert out.splitlines()[0].endswith("demo.toml is a run's configuration: fedplcc, 30 rounds, 4 clients, 10 classes")
    assert f"# configuration {federation.config.hash}" in out
    assert "tau = 0.07  # default" in out
    assert "lambda2 = 100.0\n" in out
    assert "local_steps = 15\n" in out, "what the file says itself is not marked"
    assert parse_federation(tomllib.loads(out)) == federation


def test_json_gives_the_canonical_configuration_and_its_hash() -> None:
    document = json.loads(called("check", demo_file(), "--json")[1])
    config = load_federation(demo_file()).config
    assert document["config"] == json.loads(config.canonical_json)
    assert document["config_hash"] == config.hash
    assert document["problems"] == []
    assert document["clients"]["synth"]["data"] == "digits:synth"


def test_the_clients_data_are_read_when_asked_for(file: Path, tmp_path: Path) -> None:
    spec = f"npz:{images(tmp_path)}"
    text = (
        '[run]\nmethod = "fedavg"\n[data]\nclasses = ["cat", "dog"]\nimage_size = 8\ntest_every = 3\n'
        f'[clients.ann]\ndata = "{spec}"\n'
    )
    file.write_text(text)
    code, out, error = called("check", file, "--data")
    few = "fedplcc: client ann has fewer than 10 training images of 'cat' (4), 'dog' (4)\n"
    idle = "fedplcc: the data name their own test images: data.test_every does nothing\n"
    assert (code, error) == (0, f"ann: reading its data\n{few}{idle}")
    assert "# ann: 8 training images, 4 test images" in out
    rng, pictures = np.random.default_rng(0), {}
    pictures["x_train"], pictures["y_train"] = rng.integers(0, 256, (4, 8, 8, 3), np.uint8), np.arange(4) % 2
    for name, test in (("ann", rng.integers(0, 256, (2, 8, 8, 3), np.uint8)), ("bob", pictures["x_train"][:2])):
        train = pictures["x_train"] // (1 if name == "ann" else 2)
        np.savez(
            tmp_path / f"{name}.npz",
            x_train=train,
            y_train=pictures["y_train"],
            x_test=test,
            y_test=[0, 1],
            classes=["cat", "dog"],
        )
    two = text.replace(spec, f"npz:{tmp_path}/ann.npz") + f'[clients.bob]\ndata = "npz:{tmp_path}/bob.npz"\n'
    file.write_text(two)
    assert "2 test images of client bob are training images of ann" in called("check", file, "--data")[2].replace(
        "\n", " "
    )
    file.write_text(text + '[clients.bob]\ndata = "npz:missing.npz"\n[clients.eve]\ndata = "nothing:x"\n')
    code, out, error = called("check", file, "--data", "--json")
    assert code == 2
    document: dict[str, Any] = json.loads(out)
    assert document["clients"]["ann"]["train"] == 8
    assert [problem.partition(":")[0] for problem in document["problems"]] == ["clients.bob", "clients.eve"]
    file.write_text(
        text.replace("[clients.ann]", "").replace(f'data = "{spec}"', "").replace('fedavg"', 'fedavg"\nmin_clients = 1')
    )
    assert "no [clients.NAME] tables" in called("check", file, "--data")[2]


# Parts


@pytest.mark.parametrize(
    ("sides", "method", "recipe", "said"),
    [
        ([64, 512], None, "photos", "clients looked at has 64 pixels at its smaller side, at site-0;"),
        ([64, 512], "classsums", "photos", "clients looked at has 64 pixels"),
        ([64, 512], "fedplcc", "photos-steps", "clients looked at has 64 pixels"),
        ([63, 512], None, "small-images", "clients looked at has 63 pixels"),
        ([512, None], None, "small-images", "not every client's images were looked at, not those of site-1;"),
        ([], None, "small-images", "not every client's images were looked at"),
        ([28], "fedplcc", None, "--recipe small-images has those that validation images chose"),
        ([28], "fedavg", None, ""),
    ],
)
def test_images_get_the_recipe_for_them_and_a_named_method_what_was_published(
    sides: list[int | None], method: str | None, recipe: str | None, said: str
) -> None:
    taken, notes = _for_images(_seen_by({f"site-{number}": side for number, side in enumerate(sides)}), method)
    assert taken == recipe
    assert said in "".join(notes)


def test_it_is_written_without_docstrings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with PYTHONOPTIMIZE=2, which leaves them out."""
    monkeypatch.setattr("inspect.getdoc", lambda thing: None)
    assert "[training]" in template(load_federation(demo_file()))


def test_a_folder_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    code, _, error = called("init", tmp_path / "missing" / "run.toml")
    assert code == 4
    assert "cannot write" in error


def test_a_file_without_a_table_is_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("# nothing yet\n")
    code, _, error = called("check", tmp_path / "policy.toml")
    assert code == 2
    assert (
        "policy.toml has no table: it is neither a run's configuration, nor a comparison's file, nor a policy" in error
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no thing.toml"
    code, _, error = called("check", missing)
    assert code == 2
    assert error == (
        f"fedplcc: cannot read {missing}: there is no such file; write one with: fedplcc config init '{missing}'\n"
    )


def test_the_texts_can_be_written_for_a_run_without_a_roster() -> None:
    document = {"run": {"method": "fedavg", "min_clients": 2}, "data": {"classes": ["a", "b"]}}
    federation = parse_federation(document)
    assert "min_clients = 2\n" in run_text(federation, document)
    assert parse_federation(tomllib.loads(template(federation))).config == federation.config
