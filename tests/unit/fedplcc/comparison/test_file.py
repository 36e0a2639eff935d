"""The file of a comparison, and the cells that it means: everything that is wrong is said before anything is trained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedplcc.comparison.file import assignments, read_comparison
from fedplcc.comparison.plan import command_of, plan
from fedplcc.comparison.sweep.section import flat
from fedplcc.runs.configuration import Overrides, federation_json, read_federation
from fedplcc.shared.errors import InvalidConfig
from tests.support import ROOT
from tests.support.records.comparisons import COMPARISON, RUN, cells_of, write_comparison


def refusal(folder: Path, comparison: str, run: str = RUN) -> str:
    """The sentence that refuses it."""
    path = write_comparison(folder, comparison, run)
    with pytest.raises(InvalidConfig) as raised:
        cells_of(path, folder / "out")
    return str(raised.value.detail)


def test_every_cell_has_a_folder_of_its_own_and_whole_tables_come_first(tmp_path: Path) -> None:
    cells = cells_of(write_comparison(tmp_path), tmp_path / "out")
    assert [cell.name for cell in cells] == [
        f"digits/{row}/seed-{seed}" for seed in (0, 1, 2) for row in ("average", "prototypes", "all")
    ]
    assert all(cell.folder == tmp_path / "out" / cell.name for cell in cells)
    assert {cell.federation.config.run.seed for cell in cells} == {0, 1, 2}


def test_a_cell_is_what_simulate_trains_with_the_same_options(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    overrides = Overrides(method="fedplcc", seed=2, assignments=["method.phi=1.0"])
    simulated = read_federation(tmp_path / "run.toml", overrides)
    cell = next(cell for cell in cells_of(path, tmp_path) if cell.name == "digits/all/seed-2")
    assert federation_json(cell.federation) == federation_json(simulated)
    command = command_of(read_comparison(path), path, "digits", "all")
    assert command == (
        f"fedplcc simulate --config {tmp_path}/run.toml --method fedplcc --set method.phi=1.0 --seed SEED --out FOLDER"
    )


def test_settings_may_be_written_as_dotted_keys_or_as_tables_and_the_nearest_wins(tmp_path: Path) -> None:
    text = COMPARISON + (
        "\n[rows.all.set_for.digits]\nmethod.phi = 0.5\n"
        '[datasets.digits.set]\n"training.batch_size" = 4\ntraining.momentum = 0.5\n'
    )
    comparison = read_comparison(write_comparison(tmp_path, text))
    settings = comparison.settings_of("digits", "all")
    assert settings == {"training.batch_size": 4, "training.momentum": 0.5, "method.phi": 0.5}
    cell = cells_of(tmp_path / "compare.toml", tmp_path)[2]
    assert (cell.federation.config.training.batch_size, cell.federation.config.training.momentum) == (4, 0.5)
    assert cell.federation.config.method.model_dump()["phi"] == 0.5


def test_a_choice_of_rows_and_seeds_leaves_the_other_cells_in_the_plan(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    chosen = [cell.name for cell in cells_of(path, tmp_path, only=["all"], seeds=[1, 7]) if cell.is_chosen]
    assert chosen == ["digits/all/seed-1", "digits/all/seed-7"]
    assert len(cells_of(path, tmp_path, only=["digits/all"], seeds=[7])) == 12
    with pytest.raises(InvalidConfig, match=r"^--only: unknown row 'al'; did you mean 'all'\?$"):
        cells_of(path, tmp_path, only=["al"])
    with pytest.raises(InvalidConfig, match=r"did you mean 'digits/all'\?"):
        cells_of(path, tmp_path, only=["digit/all"])


def test_data_sets_and_rows_may_have_seeds_and_data_sets_of_their_own(tmp_path: Path) -> None:
    text = COMPARISON + (
        '\n[datasets.more]\nconfig = "run.toml"\nseeds = [5, 4]\n'
        '[rows.only-more]\nmethod = "fedavg"\ndatasets = ["more"]\n'
    )
    names = [cell.name for cell in cells_of(write_comparison(tmp_path, text), tmp_path)]
    assert [name for name in names if "only-more" in name] == ["more/only-more/seed-4", "more/only-more/seed-5"]
    assert [name for name in names if name.startswith("more/average")] == ["more/average/seed-4", "more/average/seed-5"]


def test_a_group_stands_on_the_data_sets_that_it_names(tmp_path: Path) -> None:
    text = COMPARISON.replace('title = "Open readings"\n', 'title = "Open readings"\ndatasets = "digits"\n')
    text = text.replace("[rows.all]\n", '[rows.all]\ndatasets = "digits"\n')
    comparison = read_comparison(write_comparison(tmp_path, text + '\n[datasets.more]\nconfig = "run.toml"\n'))
    assert comparison.groups_of("digits")["readings"] == ["average", "all"]
    assert comparison.groups_of("more") == {"methods": ["average", "prototypes"]}
    assert comparison.rows_of("more") == ["average", "prototypes"]


def test_a_row_that_would_be_trained_and_shown_nowhere_is_refused(tmp_path: Path) -> None:
    text = COMPARISON.replace('title = "Open readings"\n', 'title = "Open readings"\ndatasets = "digits"\n')
    said = refusal(tmp_path, text + '\n[datasets.more]\nconfig = "run.toml"\n')
    assert said == (
        "rows.all: no group of it stands on data set 'more'; name its own data sets with rows.all.datasets, or give it a "
        "group that stands there"
    )


MISTAKES = {
    "section": ("[compar]\n", "unknown section 'compar'; did you mean 'compare'?"),
    "key": ('[datasets.x]\nconfig = "run.toml"\nlable = "X"\n', "did you mean 'datasets.x.label'?"),
    "method": ('[rows.x]\nmethod = "fedplc"\n', "rows.x.method: unknown method 'fedplc'; did you mean 'fedplcc'?"),
    "name": ('[rows."a b"]\nmethod = "fedavg"\n', "rows.a b: a name is up to 64 letters"),
    "dataset": (
        '[rows.x]\nmethod = "fedavg"\ndatasets = ["digit"]\n',
        "rows.x.datasets: unknown data set 'digit'; did you mean 'digits'?",
    ),
    "group_case": (
        '[rows.x]\nmethod = "fedavg"\ngroup = "Readings"\n',
        "groups.Readings: groups.readings differs from it in upper and lower case alone; rename one of them",
    ),
    "seed_set": (
        '[rows.x]\nmethod = "fedavg"\nset."run.seed" = 1\n',
        "rows.x.set: leave out 'run.seed': seeds are listed in compare.seeds",
    ),
    "no_section": ('[rows.x]\nmethod = "fedavg"\nset.phi = 1\n', "rows.x.set: 'phi' is no key of a configuration"),
    "date": (
        '[rows.x]\nmethod = "fedavg"\nset."run.name2" = 2020-01-01\n',
        "rows.x.set: run.name2 = 2020-01-01: a value is text, a number, true, false or a list of them",
    ),
    "value": ('[rows.x]\nmethod = "fedplcc"\nset."method.phi" = 2.0\n', "row x on data set digits: method.phi = 2.0"),
    "label": (
        '[rows.x]\nmethod = "fedavg"\nlabel = "FedPLCC"\n',
        "rows.x.label: row 'prototypes' has that name in the report already; give each its own",
    ),
    "file": ('[datasets.x]\nconfig = "none.toml"\n', "datasets.x: cannot read"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_named_with_what_was_meant(what: str, tmp_path: Path) -> None:
    text, sentence = MISTAKES[what]
    assert sentence in refusal(tmp_path, COMPARISON + "\n" + text)


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    text = COMPARISON.replace("seeds = [0, 1, 2]", "seeds = [-1]").replace('"average"\n', '"averag"\n')
    said = refusal(tmp_path, text + '\n[rows.x]\nmethod = "moo"\nlabl = "X"\n')
    for part in ("compare.seeds", "did you mean 'average'?", "did you mean 'moon'?", "did you mean 'rows.x.label'?"):
        assert part in said


def test_a_data_sets_file_needs_no_method_because_rows_have_one(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, run=RUN.replace('method = "fedplcc"\n', ""))
    assert {cell.federation.config.run.method for cell in cells_of(path, tmp_path)} == {"fedavg", "fedplcc"}
    said = refusal(tmp_path, COMPARISON, RUN.replace('method = "fedplcc"\nrounds = 3', "rounds = 0"))
    assert said.startswith("run.toml: run.rounds = 0: ")
    assert "method" not in said


def test_a_data_set_without_clients_is_refused(tmp_path: Path) -> None:
    said = refusal(
        tmp_path, COMPARISON, RUN.partition("[clients")[0].replace("rounds = 3", "rounds = 3\nmin_clients = 1")
    )
    assert "add a table [clients.NAME] for each" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no table [datasets.NAME]; a comparison needs at least one"),
        ("rows = 3", "rows holds one table for each name; write [rows.NAME]"),
        ("compare = 3", "compare is a table of keys; write [compare]"),
        ("[rows]\nx = 3\n", "rows.x is a table of keys; write [rows.x]"),
        ("[datasets.x]\nconfig = 3\n", "datasets.x.config = 3: write a text"),
        ("[compare]\nseeds = []\n", "compare.seeds needs at least 1 entry, not 0"),
    ],
)
def test_the_wrong_shape_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=re.escape(sentence)):
        read_comparison(path)


def test_the_configuration_of_a_run_in_its_place_is_refused_with_what_to_write(tmp_path: Path) -> None:
    write_comparison(tmp_path)
    with pytest.raises(InvalidConfig, match=r'is the configuration of one run; .* config = "run\.toml" in it'):
        read_comparison(tmp_path / "run.toml")


def test_the_example_in_the_guide_is_understood(tmp_path: Path) -> None:
    guide = (ROOT / "fedplcc/README.md").read_text(encoding="utf-8").partition("## Comparisons")[2]
    example = guide.partition("```toml\n")[2].partition("```")[0]
    names = [cell.name for cell in cells_of(write_comparison(tmp_path, example), tmp_path)]
    assert len(names) == 9
    assert names[2] == "shops/all-prototypes/seed-0"
    with_what_is_commented_out = example.replace("# datasets = ", "datasets = ").replace(" if not all", "")
    assert cells_of(write_comparison(tmp_path, with_what_is_commented_out), tmp_path)


def test_the_plan_of_a_comparison_never_depends_on_what_is_chosen(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    everything = cells_of(path, tmp_path)
    some = plan(read_comparison(path), path, tmp_path, only=["average"], seeds=[0])
    assert [(cell.name, cell.federation) for cell in some] == [(cell.name, cell.federation) for cell in everything]


def test_values_travel_as_toml_writes_them() -> None:
    settings = {"a": {"b": True, "c": 1e-05}, "d.e": ["crop", "é"], "f": {"g": 'say "no"'}}
    assert assignments(flat(settings)) == ["a.b=true", "a.c=1e-05", 'd.e=["crop", "é"]', 'f.g="say \\"no\\""']


def test_a_name_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    text = COMPARISON.replace('group = "readings"', 'group = ["readings", "readings"]')
    text = text.replace('baseline = "average"', 'baseline = ["average", "all", "average"]')
    comparison = read_comparison(write_comparison(tmp_path, text))
    assert comparison.groups_of("digits")["readings"] == ["average", "all"]
    assert comparison.compare.baseline == ("average", "all")
