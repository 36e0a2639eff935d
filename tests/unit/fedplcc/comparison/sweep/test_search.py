"""Choices on validation images: what chooses, what cannot, and studies that go on where they were killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.plan import Cell, plan
from fedplcc.comparison.reading import CellResult, read_cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.running import write_report
from fedplcc.comparison.sweep.search import CHOSEN, Found, search
from fedplcc.shared.errors import InvalidConfig, InvalidData
from tests.support.records.comparisons import (
    COMPARISON,
    ROUNDS,
    VALIDATED,
    compare,
    lines_of,
    write_cell,
    write_comparison,
)

GRID = """
[sweep]
choose = "validation"
rows = ["average", "all"]
grid = { "training.local_steps" = [5, 10, 20] }
"""
STUDY = """
[sweep]
trials = 6
rows = "average"
ranges."training.learning_rate" = { low = 0.001, high = 0.3, log = true }
ranges."training.local_steps" = { low = 1, high = 9 }
"""
Trainer = Callable[[Sequence[Cell], Path], bool]
Accuracy = Callable[[Cell], float]


class Recorder:
    """Writes down cells, rather than training them; their accuracy on validation images follows from the configuration."""

    def __init__(self, accuracy: Accuracy, *, tested: float = 0.5, until: int | None = None) -> None:
        self._accuracy, self._tested, self._until = accuracy, tested, until
        self.trained: list[str] = []

    def __call__(self, cells: Sequence[Cell], folder: Path) -> bool:
        for cell in cells:
            if isinstance(read_cell(cell), CellResult):
                continue
            if self._until is not None and len(self.trained) >= self._until:
                return True  # killed, or Ctrl-C
            value = self._accuracy(cell)
            rounds = [dict.fromkeys(line, self._tested) for line in ROUNDS]
            if value >= 0:
                write_cell(cell, rounds, validation=[{"mnist": value, "svhn": value / 2}] * 3)
            self.trained.append(cell.name)
        return False


def by_steps(cell: Cell) -> float:
    """10 steps are best."""
    return 1.0 - abs((cell.federation.config.training.local_steps or 0) - 10) / 100


def searched(path: Path, out: Path, train: Trainer | None, only: Sequence[str] = ()) -> Found:
    return search(read_comparison(path), path, out, only=only, train=train)


def test_the_best_point_by_validation_is_written_down_before_any_cell_has_it(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    recorder = Recorder(by_steps)
    found = searched(path, out, recorder)
    assert len(recorder.trained) == 6
    assert all(name.endswith("seed-0") for name in recorder.trained), "the first seed, if none is given"
    chosen = json.loads((out / CHOSEN).read_text())
    assert {key: choice["chosen"]["point"] for key, choice in chosen.items()} == {
        "digits/average": {"training.local_steps": 10},
        "digits/all": {"training.local_steps": 10},
    }
    assert chosen["digits/all"]["chosen"]["accuracy"] == pytest.approx(0.75), "the mean over domains"
    cells = {cell.name: cell for cell in plan(found.comparison, path, out)}
    assert {cell.federation.config.training.local_steps for cell in cells.values() if cell.row != "prototypes"} == {10}
    assert '"phi":1.0' in cells["digits/all/seed-2"].federation.config.canonical_json, "and what the row sets"
    assert isinstance(read_cell(cells["digits/all/seed-0"]), CellResult), "the trial is the cell of its seed"
    assert not cells["digits/all/seed-1"].folder.exists()


@pytest.mark.parametrize("tested", [0.0, 1.0])
def test_test_images_have_no_part_in_the_choice(tested: float, tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"

    class Misleading(Recorder):
        def __call__(self, cells: Sequence[Cell], folder: Path) -> bool:
            for cell in cells:
                self._tested = tested if cell.federation.config.training.local_steps == 20 else 1 - tested
                super().__call__([cell], folder)
            return False

    found = searched(path, out, Misleading(by_steps))
    assert found.choices["digits", "average"].chosen.point == {"training.local_steps": 10}
    assert str(out / "trials") not in (out / CHOSEN).read_text()


def test_the_report_says_what_was_chosen_from_what_and_no_test_accuracy_of_a_trial(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    found = searched(path, out, Recorder(by_steps, tested=0.123))
    cells = plan(found.comparison, path, out)
    for cell in cells:
        if not cell.folder.exists():
            write_cell(cell, ROUNDS, validation=ROUNDS)
    findings, names = write_report(found, path, cells, out)
    text = markdown(report(findings))
    part = text.partition("### Digits: Chosen on validation images")[2].partition("###")[0]
    assert (
        "**Chosen values, Digits: mean over domains on validation images, mean of the last 10 rounds, seed 0**" in part
    )
    assert "| FedAvg | training.local\\_steps=10 | 75.0 | 71.2 | 3 |" in part
    assert "12.3" not in part
    assert {"trials.csv", "uncertainty.csv"} <= {*names}
    lines = lines_of((out / "trials.csv").read_text())
    assert [(line["row"], line["settings"], line["is_chosen"]) for line in lines[:3]] == [
        ("average", "training.local_steps=5", "0"),
        ("average", "training.local_steps=10", "1"),
        ("average", "training.local_steps=20", "0"),
    ]
    assert not any("0.123" in value for line in lines for value in line.values())


def test_a_study_goes_on_after_each_kill_without_a_finished_trial_again(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON + STUDY, VALIDATED)
    undisturbed = Recorder(by_steps)
    whole = searched(path, tmp_path / "whole", undisturbed)
    trained: list[str] = []
    for kills in range(6):
        recorder = Recorder(by_steps, until=1)
        found = searched(path, tmp_path / "killed", recorder)
        assert found.was_interrupted == (kills < 5)
        assert (tmp_path / "killed" / CHOSEN).exists() == (kills == 5), "no choice before the last trial"
        trained += recorder.trained
    assert trained == undisturbed.trained
    assert found.choices == whole.choices
    assert (tmp_path / "killed" / CHOSEN).read_bytes() == (tmp_path / "whole" / CHOSEN).read_bytes()


def test_a_choice_stays_though_a_study_of_more_trials_goes_on_from_it(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + STUDY, VALIDATED), tmp_path / "out"
    first = searched(path, out, Recorder(by_steps))
    again = Recorder(by_steps)
    assert searched(path, out, again).choices == first.choices
    assert again.trained == []
    path.write_text((COMPARISON + STUDY).replace("trials = 6", "trials = 8"))
    more = Recorder(by_steps)
    longer = searched(path, out, more)
    assert len(more.trained) == 2
    assert [trial.point for trial in longer.choices["digits", "average"].trials[:6]] == [
        trial.point for trial in first.choices["digits", "average"].trials
    ]
    path.write_text((COMPARISON + STUDY).replace("high = 9", "high = 8"))
    assert searched(path, out, None).choices == {}, "other ranges: what was chosen from the former ones does not count"


@pytest.mark.parametrize("batch", [1, 4])
def test_proposals_follow_from_seed_and_outcomes_and_batches_alone(batch: int, tmp_path: Path) -> None:
    text = COMPARISON + STUDY.replace("trials = 6", f"trials = 14\nbatch = {batch}\nseed = 5")
    path = write_comparison(tmp_path, text, VALIDATED)
    proposed = []
    for name in ("one", "two"):
        recorder = Recorder(by_steps)
        searched(path, tmp_path / name, recorder)
        proposed.append(recorder.trained)
    assert proposed[0] == proposed[1]
    assert len(proposed[0]) == 14
    path.write_text(text.replace("seed = 5", "seed = 6"))
    other = Recorder(by_steps)
    searched(path, tmp_path / "three", other)
    assert not {*other.trained} & {*proposed[0]}
    unlike = Recorder(lambda cell: cell.federation.config.training.learning_rate)
    path.write_text(text)
    searched(path, tmp_path / "four", unlike)
    at_random = 10 if batch == 1 else 12  # the sampler begins with ten trials by chance; batches of 4 end at 12
    assert unlike.trained[:at_random] == proposed[0][:at_random]
    assert unlike.trained[at_random:] != proposed[0][at_random:], "later ones learn from the outcomes"


def test_a_trial_that_fails_is_named_and_another_one_is_chosen(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    failing = Recorder(lambda cell: -1 if cell.federation.config.training.local_steps == 10 else by_steps(cell))
    choice = searched(path, out, failing).choices["digits", "average"]
    assert choice.chosen.point == {"training.local_steps": 5}
    assert [trial.reason for trial in choice.trials] == [None, "not trained yet", None]
    nothing = searched(path, tmp_path / "none", Recorder(lambda cell: -1))
    assert nothing.choices == {}
    assert nothing.unchosen["digits", "all"] == "none of its trials has an accuracy: not trained yet"


def test_the_worst_domain_and_other_rounds_may_choose(tmp_path: Path) -> None:
    text = COMPARISON + GRID.replace(
        'choose = "validation"', 'choose = "validation"\nobjective = "worst"\nview = "best"'
    )
    path = write_comparison(tmp_path, text, VALIDATED)
    choice = searched(path, tmp_path / "out", Recorder(by_steps)).choices["digits", "all"]
    assert choice.criterion == "worst domain on validation images, best round"
    assert choice.chosen.accuracy == pytest.approx(0.5)


def test_only_chosen_rows_are_searched_and_the_others_keep_their_values(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    recorder = Recorder(by_steps)
    found = searched(path, out, recorder, only=["digits/all"])
    assert {name.partition("_")[0] for name in recorder.trained} == {"digits/all"}
    assert [*found.unchosen] == [("digits", "average")]
    assert found.wanted(["digits/all"]) == {}
    assert searched(path, out, recorder, only=["average"]).choices.keys() == {("digits", "average"), ("digits", "all")}


def test_without_validation_images_nothing_is_chosen(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID), tmp_path / "out"
    code, _, said = compare("--config", path, "--out", out)
    assert code == ExitCode.USAGE
    assert (
        "sweep: data set 'digits' has no validation images at client mnist, and values are never chosen on test images; set "
        "data.validation_every in its file, or validation_per_class for each client"
    ) in said
    assert not (out / "trials").exists()


def test_a_study_without_optuna_is_refused_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    path = write_comparison(tmp_path, COMPARISON + STUDY, VALIDATED)
    with pytest.raises(InvalidConfig, match=r"a study needs Optuna; install it with pip install 'fedplcc\[sweep\]'"):
        searched(path, tmp_path / "out", Recorder(by_steps))
    grid = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED)
    assert searched(grid, tmp_path / "grid", Recorder(by_steps)).choices, "a grid does without it"


@pytest.mark.parametrize("content", ["{", "[]", '{"digits/all": {"basis": "BASIS"}}'])
def test_a_damaged_choice_is_named(content: str, tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    searched(path, out, Recorder(by_steps))
    basis = json.loads((out / CHOSEN).read_text())["digits/all"]["basis"]
    (out / CHOSEN).write_text(content.replace("BASIS", basis))
    with pytest.raises(InvalidData, match=r"chosen\.json"):
        searched(path, out, None)


def test_the_report_alone_says_what_is_not_chosen_yet(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, COMPARISON + GRID, VALIDATED), tmp_path / "out"
    out.mkdir()
    code, _, said = compare("--config", path, "--out", out, "--report-only")
    assert (code, said) == (ExitCode.OK, "")
    assert "- FedAvg: its values are not chosen yet" in (out / "report.md").read_text()
    settings: Mapping[str, Any] = (
        json.loads((out / "failures.json").read_text()) if (out / "failures.json").exists() else {}
    )
    assert settings == {}
