"""States of a cell's folder: whole, begun, damaged or of another configuration, each in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.report.writing import csv_tables
from fedplcc.runs.run_folder import claimed_folder
from tests.support import of_kind
from tests.support.records.comparisons import (
    ROUNDS,
    RUN,
    cells_of,
    compare,
    fill,
    findings_of,
    lines_of,
    write_cell,
    write_comparison,
)


def test_a_run_without_counts_keeps_its_accuracies(path: Path, tmp_path: Path) -> None:
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    (cell.folder / "evaluations.jsonl").unlink()
    findings = findings_of(path, [cell])
    lines = lines_of(csv_tables(findings)["evaluations.csv"])
    assert [(line["correct"], line["total"]) for line in lines] == [("", "")] * 6
    assert [float(line["accuracy"]) for line in lines] == [0.2, 0.1, 0.8, 0.4, 0.7, 0.3]


def test_what_is_kept_of_a_cell_may_be_as_little_as_its_metrics(path: Path, tmp_path: Path) -> None:
    """A repository of results keeps no models, and perhaps no seconds."""
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    for name in ("evaluations.jsonl", "timings.jsonl", "federation.json"):
        (cell.folder / name).unlink()
    found = of_kind(CellResult, read_cell(cell))
    assert len(found.rounds) == 3


BROKEN: dict[str, tuple[str, str | bytes, str]] = {
    "no_json": ("run.json", "{", "run.json is damaged (it is no JSON object); restore the file, or remove the folder"),
    "manifest_list": ("run.json", "[]", "run.json is damaged (it is no JSON object)"),
    "manifest_without": ("run.json", "{}", "run.json does not say 'total_rounds'"),
    "half_a_line": (
        "metrics.jsonl",
        '{"round": 1}\n{"round": 2}\n{"rou',
        "metrics.jsonl is damaged (line 3 is no JSON",
    ),
    "a_number": ("metrics.jsonl", "1\n2\n3\n", "metrics.jsonl is damaged (line 1 is no JSON object); restore"),
    "a_round_without": ("metrics.jsonl", '{"round": 1}\n' * 3, "metrics.jsonl does not say 'accuracy'"),
    "accuracy": ("metrics.jsonl", '{"round": 1, "accuracy": 0.5}\n' * 3, "metrics.jsonl is damaged ("),
    "bytes": ("metrics.jsonl", b"\xff\n\n\n", "metrics.jsonl is damaged ("),
    "timings": (
        "timings.jsonl",
        "{\n",
        "timings.jsonl is damaged (line 1 is no JSON object); restore or remove the file;",
    ),
    "reports": (
        "evaluations.jsonl",
        '{"round": 1}\n',
        "evaluations.jsonl does not say 'counts'; restore or remove the",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_cell_whose_files_are_broken_is_missing_and_says_which_and_what_to_do(
    what: str, path: Path, tmp_path: Path
) -> None:
    name, content, sentence = BROKEN[what]
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    assert isinstance(read_cell(cell), CellResult)
    (cell.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = of_kind(MissingCell, read_cell(cell))
    assert found.reason.startswith(f"{cell.folder}: {sentence}")
    assert not found.can_be_trained


def test_a_cell_without_federation_json_is_known_by_its_hash(path: Path, tmp_path: Path) -> None:
    cell, other = cells_of(path, tmp_path / "out")[:2]
    write_cell(cell, ROUNDS)
    (cell.folder / "federation.json").unlink()
    other.folder.parent.mkdir(parents=True)
    cell.folder.rename(other.folder)
    found = of_kind(MissingCell, read_cell(other))
    assert (
        "holds a run of another configuration than the file has now (by the config_hash in run.json);" in found.reason
    )
    (other.folder / "run.json").write_text('{"total_rounds": 3}')
    found = of_kind(MissingCell, read_cell(other))
    assert "run.json does not say 'config_hash'" in found.reason


def test_the_files_of_a_cell_must_be_of_one_run(path: Path, tmp_path: Path) -> None:
    cell, other = cells_of(path, tmp_path / "out")[:2]
    write_cell(cell, ROUNDS)
    write_cell(other, ROUNDS)
    (cell.folder / "run.json").write_bytes((other.folder / "run.json").read_bytes())
    found = of_kind(MissingCell, read_cell(cell))
    assert "(by the config_hash in run.json)" in found.reason


def test_a_cell_of_fewer_rounds_than_the_file_asks_for_now_is_of_another_configuration(
    path: Path, tmp_path: Path
) -> None:
    fill(path, tmp_path / "out")
    longer = write_comparison(tmp_path, run=RUN.replace("rounds = 3", "rounds = 4"))
    for cell in cells_of(longer, tmp_path / "out"):
        found = of_kind(MissingCell, read_cell(cell))
        assert "holds a run of another configuration than the file has now (run.rounds);" in found.reason


def test_a_cell_that_ended_and_has_lost_rounds_since_is_not_called_unfinished(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    cell = cells_of(path, out)[0]
    metrics = cell.folder / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    code, printed, said = compare("--config", path, "--out", out)
    assert code == ExitCode.FAILED
    assert "0 of 9 cells are to be trained" in printed, "its folder says that it has ended, so nothing would go on"
    assert said == (
        f"fedplcc: digits/average/seed-0: {cell.folder}: there is a run.json but not a line for each round in "
        "metrics.jsonl; restore the file, or remove the folder to train the cell again\n"
    )
    (cell.folder / "state").mkdir()
    for content in (metrics.read_text(), "{"):
        metrics.write_text(content)
        found = of_kind(MissingCell, read_cell(cell))
        assert found.reason == "begun and not finished; the same command goes on with it"
        assert found.can_be_trained, "training writes its files anew"


def test_a_cell_of_another_configuration_of_which_nothing_is_trained_can_be_trained(path: Path, tmp_path: Path) -> None:
    cell, other = cells_of(path, tmp_path / "out")[:2]
    with claimed_folder(cell.folder, other.federation) as folder:
        folder.prepare()
    found = of_kind(MissingCell, read_cell(cell))
    assert (found.reason, found.can_be_trained) == ("not trained yet", True)
    (folder.aggregator_state / "model").write_bytes(b"")
    found = of_kind(MissingCell, read_cell(cell))
    assert not found.can_be_trained


def test_a_file_that_cannot_be_read_is_named(path: Path, tmp_path: Path) -> None:
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    (cell.folder / "metrics.jsonl").unlink()
    (cell.folder / "metrics.jsonl").mkdir()
    found = of_kind(MissingCell, read_cell(cell))
    assert f"{cell.folder}: cannot read metrics.jsonl (Is a directory); restore the file" in found.reason
    (cell.folder / "federation.json").unlink()
    (cell.folder / "federation.json").mkdir()
    found = of_kind(MissingCell, read_cell(cell))
    assert found.reason == f"{cell.folder}: cannot read federation.json (Is a directory); see that it can be read"
