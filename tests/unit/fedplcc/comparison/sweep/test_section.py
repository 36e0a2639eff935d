"""Sweeps in a comparison's file: grids whose points are rows, names of points, and everything that is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.comparison.file import Comparison, parse_comparison, read_comparison
from fedplcc.comparison.plan import plan
from fedplcc.comparison.sweep.choosing import trials_of
from fedplcc.comparison.sweep.section import MAX_NAME, name_of, words_of
from fedplcc.shared.errors import InvalidConfig
from tests.support import ROOT
from tests.support.records.comparisons import COMPARISON, cells_of, write_comparison

NO_BASELINE = COMPARISON.replace('baseline = "average"\n', "")
GRID = """
[sweep]
rows = ["prototypes"]
grid = { "training.learning_rate" = [0.01, 0.1], "training.local_steps" = [5, 10] }
grid_for.prototypes.method.phi = [0.5]
"""
STUDY = """
[sweep]
trials = 4
ranges."training.learning_rate" = { low = 0.001, high = 0.3, log = true }
ranges."training.local_steps" = { low = 1, high = 9 }
[sweep.ranges_for.prototypes.method]
phi = [0.5, 1.0]
"""


def read(folder: Path, text: str) -> Comparison:
    return read_comparison(write_comparison(folder, text))


def test_each_point_of_a_grid_is_a_row_with_its_settings(tmp_path: Path) -> None:
    comparison = read(tmp_path, COMPARISON + GRID)
    assert [*comparison.rows] == [
        "average",
        *(
            f"prototypes_learning_rate-{rate}_local_steps-{steps}_phi-0.5"
            for rate, steps in ((0.01, 5), (0.01, 10), (0.1, 5), (0.1, 10))
        ),
        "all",
    ]
    row = "prototypes_learning_rate-0.1_local_steps-5_phi-0.5"
    assert comparison.label_of_row(row) == "FedPLCC, learning_rate 0.1, local_steps 5, phi 0.5"
    assert comparison.settings_of("digits", row) == {
        "training.learning_rate": 0.1,
        "training.local_steps": 5,
        "method.phi": 0.5,
    }
    assert comparison.groups_of("digits")["methods"] == [name for name in comparison.rows if name != "all"]
    (cell,) = [
        cell for cell in cells_of(tmp_path / "compare.toml", tmp_path / "out", only=[row], seeds=[1]) if cell.is_chosen
    ]
    assert cell.federation.config.training.learning_rate == 0.1
    assert cell.folder == tmp_path / "out" / "digits" / row / "seed-1"


def test_a_point_goes_before_what_its_row_sets(tmp_path: Path) -> None:
    text = NO_BASELINE + 'set_for.digits = { "method.phi" = 0.25, "method.lambda1" = 3.0 }\n'
    text = (
        text.replace('[groups.readings]\ntitle = "Open readings"\n', "")
        + '[sweep]\nrows = "all"\ngrid = { "method.phi" = [0.75] }\n'
    )
    comparison = read(tmp_path, text)
    assert comparison.settings_of("digits", "all_phi-0.75") == {"method.phi": 0.75, "method.lambda1": 3.0}


def test_without_rows_every_row_is_swept_or_those_with_a_grid_of_their_own(tmp_path: Path) -> None:
    every = read(tmp_path, NO_BASELINE + '[sweep]\ngrid = { "training.local_steps" = [1, 2] }\n')
    assert len(every.rows) == 6
    own = read(tmp_path, COMPARISON + '[sweep]\ngrid_for.all = { "training.local_steps" = [1, 2] }\n')
    assert [*own.rows] == ["average", "prototypes", "all_local_steps-1", "all_local_steps-2"]


@pytest.mark.parametrize(
    ("sweep", "sentence"),
    [
        ("grids = {}", "unknown key 'sweep.grids'; did you mean 'sweep.grid'?"),
        ("grid = {}", "sweep.grid: there is nothing to try"),
        ('grid = { "training.local_steps" = [] }', "needs at least 1 entry"),
        ('grid = { "training.local_steps" = [1, 1] }', "sweep.grid: 'training.local_steps' has a value twice"),
        ('grid = { "run.seed" = [1, 2] }', "sweep.grid: leave out 'run.seed': seeds are listed in compare.seeds"),
        ('grid = { local_steps = [1, 2] }', "sweep.grid: 'local_steps' is no key of a configuration"),
        ('rows = "al"\ngrid = { "training.local_steps" = [1] }', "sweep.rows: unknown row 'al'; did you mean 'all'?"),
        ('ranges = { "training.local_steps" = [1, 2] }', "sweep.ranges: say with sweep.trials how many points"),
        ('trials = 3\ngrid = { "training.local_steps" = [1] }', "sweep.trials: a study takes ranges, not a grid"),
        ("trials = 3", "sweep.ranges: there is nothing to try"),
        ('trials = 3\nranges = { "training.local_steps" = { low = 3, high = 1 } }', "has low = 3, which is not below"),
        ('trials = 3\nranges = { "method.phi" = { low = 0.0, high = 1.0, log = true } }', "low = 0; with log = true"),
        ('trials = 3\nranges = { "training.local_steps" = { low = 1, high = 9, step = 0.5 } }', "has step = 0.5; a step is"),
        ('trials = 3\nranges = { "data.validation_every" = [4, 5] }', "leave out 'data.validation_every': the images that"),
        ('trials = 3\nranges = { "evaluation.every" = [1, 30] }', "leave out 'evaluation.every': the rounds that"),
        ('choose = "validation"\ngrid = { "partition.validation_per_class" = [4] }', "leave out 'partition.validation_per"),
        ('choose = "test"\ngrid = { "training.local_steps" = [1] }', "sweep.choose = \"test\": "),
        (f'rows = "all"\ngrid = {{ "training.local_steps" = {[*range(1, 1002)]} }}', "row 'all' has 1,001 points"),
    ],
)  # fmt: skip
def test_a_wrong_sweep_is_refused_with_a_sentence(sweep: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as refused:
        read(tmp_path, NO_BASELINE + f"[sweep]\n{sweep}\n")
    assert sentence in refused.value.detail


def test_a_baseline_that_becomes_several_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"compare\.baseline: row 'average' becomes one row for each point of sweep\.grid"
    ):
        read(tmp_path, COMPARISON + '[sweep]\ngrid = { "training.local_steps" = [1, 2] }\n')


def test_a_data_set_must_not_have_the_folder_of_the_trials(tmp_path: Path) -> None:
    text = (NO_BASELINE + STUDY).replace("[datasets.digits]", "[datasets.trials]")
    with pytest.raises(InvalidConfig, match=r"datasets\.trials: trials have their folder there"):
        read(tmp_path, text)


def test_trials_are_rows_of_a_comparison_with_the_sweeps_seeds(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON + STUDY.replace("trials = 4", "trials = 4\nseeds = [7, 8]"))
    comparison = read_comparison(path)
    trials = trials_of(comparison, {("digits", "prototypes"): [{"method.phi": 1.0}, {"method.phi": 0.5}]})
    cells = plan(trials, path, tmp_path / "out" / "trials")
    assert [cell.name for cell in cells] == [
        f"digits/prototypes_phi-{phi}/seed-{seed}" for seed in (7, 8) for phi in (1.0, 0.5)
    ]
    assert cells[0].federation.config.run.method == "fedplcc"


def test_the_sweeps_in_the_guide_are_understood() -> None:
    guide = (ROOT / "fedplcc/README.md").read_text(encoding="utf-8").partition("## Comparisons")[2]
    comparison, grid, study, *_ = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert len(parse_comparison(tomllib.loads(comparison + grid)).rows) == 6
    sweep = parse_comparison(tomllib.loads(comparison + study)).sweep
    assert sweep is not None
    assert sweep.trials == 20
    assert [*sweep.space("fedplcc")] == ["training.learning_rate", "training.local_steps", "method.phi"]


values = st.one_of(
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=20),
    st.lists(st.integers(0, 9), max_size=3),
)
keys = st.sampled_from(["training.learning_rate", "data.learning_rate", "training.optimizer", "method.phi"])


@given(st.lists(st.dictionaries(keys, values, min_size=1), min_size=2, max_size=4))
def test_different_points_have_different_names_that_a_folder_may_have(points: list[dict[str, Any]]) -> None:
    names = [name_of("row", point) for point in points]
    assert all(len(name) <= MAX_NAME for name in names)
    assert all(set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") for name in names)
    different = {
        repr(sorted((key, type(value).__name__, repr(value)) for key, value in point.items())) for point in points
    }
    same_keys = len({tuple(point) for point in points}) == 1
    if same_keys and not any(isinstance(value, str) for point in points for value in point.values()):
        assert len({name.lower() for name in names}) == len(different)


def test_a_text_is_never_taken_for_a_number() -> None:
    assert name_of("row", {"x.y": "1"}) != name_of("row", {"x.y": 1})
    assert name_of("row", {"x.y": "true"}) != name_of("row", {"x.y": True})


def test_a_wrong_value_of_a_grid_is_refused_with_its_row_before_anything_is_trained(tmp_path: Path) -> None:
    path = write_comparison(
        tmp_path, COMPARISON + '[sweep]\nrows = "all"\ngrid = { "training.local_steps" = [1, -1] }\n'
    )
    with pytest.raises(InvalidConfig, match=r"row all_local_steps--1 on data set digits: .*training\.local_steps = -1"):
        cells_of(path, tmp_path / "out")


def test_names_say_the_values_where_they_can() -> None:
    assert name_of("fedavg", {"training.learning_rate": 1e-05}) == "fedavg_learning_rate-1e-05"
    assert name_of("fedavg", {"training.optimizer": "sgd", "x.nesterov": True}) == "fedavg_optimizer-sgd_nesterov-true"
    assert name_of("fedavg", {"training.optimizer": "SGD"}) != name_of("fedavg", {"training.optimizer": "sgd"})
    assert name_of("fedavg", {"model.options": [1, 2]}).startswith("fedavg_options--1--2-_")
    assert words_of({"training.learning_rate": 0.1, "training.optimizer": "sgd"}) == "learning_rate 0.1, optimizer sgd"
