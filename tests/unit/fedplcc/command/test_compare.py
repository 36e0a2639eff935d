"""`fedplcc compare`: what it trains, draws and writes, and the sentences of what it refuses."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.training import CellsShown
from tests.support.records.comparisons import (
    COMPARISON,
    ROUNDS,
    RUN,
    cells_of,
    compare,
    fill,
    write_cell,
    write_comparison,
)


def test_the_command_writes_the_report_of_what_is_there(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    code, printed, _ = compare("--config", path, "--out", out, "--report-only", "--json")
    assert code == ExitCode.OK
    summary = json.loads(printed.splitlines()[-1])
    assert summary["cells"] == {"whole": 3, "missing": 6}
    assert summary["results"]["digits"]["average"]["last"]["mean"]["mean"] == pytest.approx(0.51)
    assert summary["results"]["digits"]["all"] == {
        "seeds": [],
        "last": {},
        "best": {},
        "last5": {},
        "last10": {},
        "passes10": {},
    }
    written = {entry.name for entry in out.iterdir()}
    assert written == {
        "digits",
        *(
            "report.md",
            "report.html",
            "evaluations.csv",
            "rounds.csv",
            "summary.csv",
            "cells.csv",
            "measured.csv",
            "differences.csv",
            "uncertainty.csv",
            "classes.csv",
        ),
        *(f"map-digits-{group}-{what}.svg" for group in ("methods", "readings") for what in ("classes", "domains")),
        *(f"curves-digits-{group}-{column}.svg" for group in ("methods", "readings") for column in ("mean", "worst")),
    }


def test_cells_of_another_configuration_are_named_and_nothing_is_trained(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    write_comparison(tmp_path, run=RUN.replace('classes = ["0", "1"]', 'classes = ["0", "2"]'))
    code, printed, said = compare("--config", path, "--out", out)
    assert code == ExitCode.FAILED
    assert "0 of 9 cells are to be trained" in printed
    lines = said.splitlines()
    assert len(lines) == 9
    assert lines[0] == (
        f"fedplcc: digits/average/seed-0: {out}/digits/average/seed-0 holds a run of another configuration than the file "
        "has now (data.classes); remove that folder to train the cell again, or choose another with --out"
    )


def test_cells_whose_data_cannot_be_opened_fail_without_a_folder(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, said = compare("--config", path, "--out", out, "--only", "all")
    assert code == ExitCode.FAILED
    assert "0 of 3 cells are to be trained" in printed
    assert said.count("digits cannot be trained: client mnist: ") == 1
    assert not (out / "digits").exists()
    failures = json.loads((out / "failures.json").read_text())
    assert failures.keys() == {f"digits/all/seed-{seed}" for seed in (0, 1, 2)}
    assert all(why.startswith("client mnist: ") for why in failures.values())


def test_whole_cells_are_not_trained_again(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    before = (out / "digits/all/seed-0/run.json").stat().st_mtime_ns
    code, printed, said = compare("--config", path, "--out", out, "--only", "all")
    assert (code, said) == (ExitCode.OK, "")
    assert "0 of 3 cells are to be trained" in printed
    assert "9 of 9 cells are in the report" in printed
    assert (out / "digits/all/seed-0/run.json").stat().st_mtime_ns == before


def test_runs_that_the_file_has_no_row_or_seed_for_are_named(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    printed = compare("--config", path, "--out", out, "--report-only")[1]
    assert "not in the report" not in printed
    write_cell(cells_of(path, out, seeds=[7])[-1], ROUNDS)
    (out / "digits/average").rename(out / "digits/mean")
    printed = compare("--config", path, "--out", out, "--report-only")[1]
    assert (
        f"not in the report, because {path} has no such data set, row or seed now: digits/all/seed-7, digits/mean/seed-0, "
        "digits/mean/seed-1, digits/mean/seed-2 (seeds are added with --seeds)\n"
    ) in printed.replace("\n", " ").replace("--seeds) ", "--seeds)\n")
    assert "digits/all/seed-7" not in compare("--config", path, "--out", out, "--report-only", "--seeds", "7")[1]


def test_failures_of_other_cells_and_of_those_whose_turn_did_not_come_stay(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(cells: Sequence[Cell], shown: CellsShown, **_: Any) -> dict[str, str]:
        kept = {"digits/prototypes/seed-0": "of the other command"}
        kept |= {f"digits/all/seed-{seed}": "of the time before" for seed in (0, 1, 2)}
        (out / "failures.json").write_text(json.dumps(kept))
        for cell in cells[:2]:
            shown.begins(cell)
            shown.ends(cell, None)
        return {"digits/all/seed-1": "it diverged"}

    out = tmp_path / "out"
    monkeypatch.setattr("fedplcc.comparison.training.train", train)
    monkeypatch.setattr("fedplcc.comparison.training.problems_of_cells", lambda cells: {})
    code, _, said = compare("--config", path, "--out", out, "--only", "all")
    assert code == ExitCode.FAILED
    assert "fedplcc: digits/all/seed-1: it diverged\n" in said
    assert json.loads((out / "failures.json").read_text()) == {
        "digits/all/seed-1": "it diverged",
        "digits/all/seed-2": "of the time before",
        "digits/prototypes/seed-0": "of the other command",
    }


def test_a_full_disk_is_one_sentence_and_leaves_the_old_report_whole(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> Path:
        if target.name == "report.md":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(source, target)

    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    assert compare("--config", path, "--out", out, "--report-only")[0] == ExitCode.OK
    before = (out / "report.md").read_bytes()
    fill(path, out)
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", full)
    code, _, said = compare("--config", path, "--out", out, "--report-only")
    assert code == ExitCode.STORAGE
    assert said == (f"fedplcc: cannot write {out}/report.md: No space left on device; choose another with --out\n")
    assert (out / "report.md").read_bytes() == before
    assert not [entry for entry in out.iterdir() if entry.name.endswith(".tmp")]


def test_a_report_of_a_folder_that_is_not_there_is_refused(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "reslts"
    code, _, said = compare("--config", path, "--out", out, "--report-only")
    assert code == ExitCode.USAGE
    assert said == f"fedplcc: there is no folder {out} to report on; name it with --out, or leave out --report-only\n"
    assert not out.exists()


@pytest.mark.parametrize(("device", "sentence"), [("cuda:999", "is not there: torch"), ("gpu", "unknown device 'gpu'")])
def test_a_device_that_is_not_there_is_refused_once(device: str, sentence: str, path: Path, tmp_path: Path) -> None:
    code, _, said = compare("--config", path, "--out", tmp_path / "out", "--device", device)
    assert code == ExitCode.USAGE
    assert said.count(sentence) == 1


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_damaged_list_of_failures_costs_no_report(content: str, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    (out / "failures.json").write_text(content)
    assert compare("--config", path, "--out", out, "--report-only")[0] == ExitCode.OK


@pytest.mark.parametrize("seeds", ["a", "0,,1", "-1", ""])
def test_seeds_that_are_none_are_one_sentence(seeds: str, path: Path, tmp_path: Path) -> None:
    code, _, said = compare("--config", path, "--out", tmp_path / "out", "--seeds", seeds)
    assert code == ExitCode.USAGE
    assert (
        said
        == f"fedplcc: --seeds {seeds}: write whole numbers from 0, with commas between them, such as --seeds 0,1,2\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_wrong_file_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON.replace("method.phi", "method.phy"))
    code, _, said = compare("--config", path, "--out", tmp_path / "out")
    assert code == ExitCode.USAGE
    assert said == ("fedplcc: row all on data set digits: unknown key 'method.phy'; did you mean 'method.phi'?\n")
    assert not (tmp_path / "out").exists()
