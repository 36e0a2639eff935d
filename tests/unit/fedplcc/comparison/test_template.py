"""`fedplcc config init --comparison`: what it writes has every key, is right, and trains as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedplcc.comparison.file import CompareSection, Comparison, DatasetSection, RowSection, read_comparison
from fedplcc.comparison.groups import GroupSection
from fedplcc.runs.configuration import demo_file
from fedplcc.shared.config.key_descriptions import key_descriptions
from fedplcc.shared.config.run import load_federation
from fedplcc.shared.config.sections import Section
from fedplcc.shared.methods import METHODS
from tests.support.commands import called
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import write_config
from tests.support.records.comparisons import cells_of

SECTIONS: dict[str, type[Section]] = {
    "compare": CompareSection,
    "datasets": DatasetSection,
    "rows": RowSection,
    "groups": GroupSection,
}


def test_what_init_writes_is_right_and_compares_on_the_digits(tmp_path: Path) -> None:
    path = tmp_path / "few.toml"
    code, out, error = called("config", "init", "--comparison", path)
    assert (code, error) == (0, "")
    assert f"fedplcc compare --config {path} --dry-run" in out
    run, demo = load_federation(tmp_path / "run.toml"), load_federation(demo_file())
    assert (run.clients, run.config.data, run.config.model) == (demo.clients, demo.config.data, demo.config.model)
    chosen = [
        (each.config.method, each.config.training.clip_norm, each.config.training.augment) for each in (run, demo)
    ]
    assert chosen[0] == (METHODS["fedplcc"].config(), None, ()), "no row has what was chosen for another"
    assert all(there != own for there, own in zip(*chosen, strict=True))
    assert called("config", "check", path)[0] == 0
    comparison = read_comparison(path)
    assert comparison.compare.name == "few"
    assert [*comparison.rows] == ["fedavg", "fedplcc", "clipped"]
    cells = cells_of(path, tmp_path / "out")
    assert [cell.seed for cell in cells] == [0, 0, 0, 1, 1, 1]
    assert {cell.federation.config.run.rounds for cell in cells} == {10}
    assert {cell.federation.config.training.clip_norm for cell in cells} == {None, 40.0}


def test_every_key_stands_below_its_meaning(tmp_path: Path) -> None:
    called("config", "init", "--comparison", tmp_path / "compare.toml")
    text = (tmp_path / "compare.toml").read_text(encoding="utf-8")
    flat = " ".join(line.removeprefix("# ") for line in text.splitlines())
    for section, kind in SECTIONS.items():
        part = re.split(rf"\n(?:# )?\[{section}[\].]", text)[1].split("\n\n")[0]
        assert all(re.search(rf"^(# )?{key} = ", part, re.MULTILINE) for key in kind.model_fields), section
        assert all(meaning in flat for meaning in key_descriptions(kind).values())
    assert all(re.search(rf"^(# )?\[{section}[\].]", text, re.MULTILINE) for section in Comparison.model_fields)


def test_a_key_that_is_not_set_may_be_taken_out_of_its_comment(tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    called("config", "init", "--comparison", path)
    lines = path.read_text(encoding="utf-8").splitlines()
    own = lines[: lines.index("# [groups.NAME]")]
    settable = [number for number, line in enumerate(own) if re.match(r"# \w+ = ", line)]
    assert settable
    for number in settable:
        changed = [*lines]
        changed[number] = lines[number].removeprefix("# ").replace('"shops"', '"digits"')
        path.write_text("\n".join(changed), encoding="utf-8")
        assert read_comparison(path), lines[number]


def test_configurations_and_methods_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_federation.write_data(tmp_path)
    write_config(tmp_path / "stripes.toml", tiny_federation.document(tmp_path, "fedproto"))
    assert called("config", "init", "--comparison", "own.toml", "--dataset", "stripes.toml", "--seeds", "3")[0] == 0
    found: dict[str, Any] = tomllib.loads(Path("own.toml").read_text())
    assert found["datasets"]["stripes"]["config"] == "stripes.toml"
    assert [row["method"] for row in found["rows"].values()] == ["fedavg", "fedproto", "fedplcc", "fedplcc"]
    assert found["compare"]["seeds"] == [0, 1, 2]
    assert not Path("run.toml").exists()
    words = ("--dataset", "stripes.toml", "--method", "moon", "--method", "fpl")
    assert called("config", "init", "--comparison", "two.toml", *words)[0] == 0
    assert [*read_comparison(Path("two.toml")).rows] == ["moon", "fpl"]


def test_rows_on_a_recipes_run_have_what_each_method_needs_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, chosen in (("few", "photos"), ("many", "photos-steps"), ("small", "small-images")):
        assert called("config", "init", f"{name}.toml", "--recipe", chosen)[0] == 0
    words = ("--dataset", "few.toml", "--dataset", "many.toml", "--dataset", "small.toml")
    assert called("config", "init", "--comparison", *words, "--seeds", "1")[0] == 0
    found = {
        (cell.dataset, cell.row): cell.federation.config for cell in cells_of(Path("compare.toml"), tmp_path / "out")
    }
    rounds = {cell: config.run.rounds for cell, config in found.items()}
    assert {rounds[name, "classsums"] for name in ("few", "many")} == {2}
    assert {rounds[name, row] for name in ("few", "many") for row in ("fedavg", "fedplcc")} == {40}
    for row in ("fedavg", "classsums"):
        assert found["few", row].model == found["many", row].model
    assert {found[name, "fedplcc"].method.balance for name in ("few", "many")} == {0.03}  # type: ignore[attr-defined]
    assert found["small", "fedavg"].method.global_average == found["small", "fedplcc"].method.global_average == "ema"


def test_a_comparison_of_own_data_trains_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_federation.write_data(tmp_path)
    write_config(tmp_path / "run.toml", tiny_federation.document(tmp_path, "fedavg", run={"rounds": 1}))
    assert called("config", "init", "--comparison", "--seeds", "1", "--method", "fedavg")[0] == 0
    code, out, error = called("compare", "--device", "cpu")
    assert (code, "1 of 1 cells are in the report" in out) == (0, True), error
    assert Path("fedplcc-comparisons/compare/report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare.toml", "--method", "fedav"), "rows.fedav.method: unknown method 'fedav'; did you mean 'fedavg'?"),
        (("compare.toml", "--dataset", "none.toml"), "none.toml"),
        (("compare.toml", "--dataset", "a/run.toml", "--dataset", "b/run.toml"), "two files are called run"),
        (("there.toml",), "there.toml is there already"),
        (("compare.toml", "--dataset", "flat.toml"), "run is a table of keys; write [run]"),
        (("no/compare.toml",), "cannot write"),
        (("--recipe", "photos"), "leave out the others"),
    ],
)
def test_what_init_cannot_do_is_one_sentence_and_nothing_is_written(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").touch()
    Path("flat.toml").write_text("run = 3\ntraining = 4\n")
    code, out, error = called("config", "init", "--comparison", *words)
    assert (code in (2, 4), out, error.count("\n")) == (True, "", 1), error
    assert said in error
    assert {path.name for path in tmp_path.iterdir()} == {"flat.toml", "there.toml"}


def test_a_comparison_that_is_not_there_says_how_to_write_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("compare") == (
        2,
        "",
        "fedplcc: there is no compare.toml here; name a file with --config, or write one with: fedplcc config init "
        "--comparison compare.toml\n",
    )
    assert called("compare", "--config", "a b.toml")[2] == (
        "fedplcc: there is no file a b.toml; write one with: fedplcc config init --comparison 'a b.toml'\n"
    )
