"""What is told of a comparison: CSV, Markdown and an HTML page that say the same, whole or half filled."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import sys
import tomllib
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedplcc import compare_command
from fedplcc.cli import app
from fedplcc.comparison.curves import COLOURS
from fedplcc.comparison.document import Drawing, Heading, Paragraph, Report
from fedplcc.comparison.drawings import drawing_name
from fedplcc.comparison.markdown import markdown
from fedplcc.comparison.measured import MEASURED
from fedplcc.comparison.page import page
from fedplcc.comparison.published import published_tables
from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.report import report
from fedplcc.comparison.tidy import tables
from fedplcc.comparison.writing import write_findings
from fedplcc.exit_codes import ExitCode
from shared.errors import InvalidData
from tests.comparisons import COMPARISON, RUN, TOTAL, cells_of, findings_of, write_cell, write_comparison

GOLDEN = Path(__file__).parents[2] / "golden" / "comparison"
"""The computed tables of the tiny comparison."""
ROUNDS = [{"mnist": 0.2, "svhn": 0.1}, {"mnist": 0.8, "svhn": 0.4}, {"mnist": 0.7, "svhn": 0.3}]


def fill(
    path: Path, out: Path, *, rows: tuple[str, ...] = ("average", "prototypes", "all"), seconds: float = 2
) -> None:
    """Write all cells of these rows; another row and another seed are a little better."""
    for cell in cells_of(path, out):
        if cell.row in rows:
            above = 0.01 * cell.seed + 0.05 * ("average", "prototypes", "all").index(cell.row)
            accuracies = [{domain: value + above for domain, value in line.items()} for line in ROUNDS]
            local = [{domain: value / 2 for domain, value in line.items()} for line in ROUNDS]
            write_cell(cell, accuracies, local=local if cell.row == "prototypes" else (), seconds=seconds)


def lines_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class Page(HTMLParser):
    """What a browser would make of the page: its tables, and everything that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.captions: list[str] = []
        self.heads: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.loaded: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in ("meta", "img", "br", "path", "use", "rect"):
            self.open.append(tag)
        if tag in ("script", "link", "iframe", "object"):
            self.loaded.append(tag)
        for name in ("src", "srcset", "xlink:href", "href"):
            target = values.get(name)
            if target and tag != "a" and not target.startswith(("data:", "#")):
                self.loaded.append(target)
        if "id" in values:
            self.ids.append(values["id"] or "")
        if tag == "th":
            assert values.get("scope") in ("col", "row")
        if tag == "img":
            assert values.get("alt")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if "caption" in self.open:
            self.captions.append(data)
        if self.open and self.open[-1] == "th":
            self.heads.append(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a comparison all of whose cells are there."""
    folder = tmp_path_factory.mktemp("whole")
    path = write_comparison(folder)
    fill(path, folder / "out")
    return report(findings_of(path, cells_of(path, folder / "out")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_comparison(tmp_path)


def test_every_evaluation_stands_in_one_line_with_its_counts(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    findings = findings_of(path, cells_of(path, out))
    lines = lines_of(tables(findings.comparison, findings.results, findings.missing)["evaluations.csv"])
    assert len(lines) == 9 * 3 * 2 + 3 * 3 * 2  # cells x rounds x domains, and again with local models for one row
    assert len({tuple(line.values()) for line in lines}) == len(lines)
    for line in lines:
        assert int(line["total"]) == TOTAL
        assert float(line["accuracy"]) == pytest.approx(int(line["correct"]) / TOTAL)
    local = [line for line in lines if line["model"] == "local"]
    assert {line["row"] for line in local} == {"prototypes"}
    assert {line["method"] for line in lines} == {"fedavg", "fedplcc"}


def test_a_run_without_counts_keeps_its_accuracies(path: Path, tmp_path: Path) -> None:
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    (cell.folder / "evaluations.jsonl").unlink()
    findings = findings_of(path, [cell])
    lines = lines_of(tables(findings.comparison, findings.results, findings.missing)["evaluations.csv"])
    assert [(line["correct"], line["total"]) for line in lines] == [("", "")] * 6
    assert [float(line["accuracy"]) for line in lines] == [0.2, 0.1, 0.8, 0.4, 0.7, 0.3]


def test_what_is_kept_of_a_cell_may_be_as_little_as_its_metrics(path: Path, tmp_path: Path) -> None:
    """A repository of results keeps no models, and perhaps no seconds."""
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    for name in ("evaluations.jsonl", "timings.jsonl", "federation.json"):
        (cell.folder / name).unlink()
    found = read_cell(cell)
    assert isinstance(found, CellResult)
    assert len(found.rounds) == 3


def test_summaries_losses_and_cells_are_told_as_lines(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average", "prototypes"))
    findings = findings_of(path, cells_of(path, out), {"digits/all/seed-1": "it diverged, twice"})
    files = {
        name: lines_of(text) for name, text in tables(findings.comparison, findings.results, findings.missing).items()
    }
    best = [line for line in files["summary.csv"] if (line["row"], line["view"]) == ("average", "best")]
    assert [line["column"] for line in best] == ["mnist", "svhn", "mean", "worst"]
    assert float(best[0]["mean"]) == pytest.approx(0.81)
    assert float(best[0]["std"]) == pytest.approx(0.01)
    assert {line["seeds"] for line in best} == {"3"}
    assert {line["quantity"] for line in files["rounds.csv"]} == {
        "loss.ce",
        "prototypes.local",
        "prototypes.global",
        "num_examples",
    }
    assert {line["quantity"] for line in files["measured.csv"]} == {
        "bytes.sent",
        "bytes.received",
        "seconds.collecting",
        "seconds.total",
    }
    cells = {(line["row"], line["seed"]): line for line in files["cells.csv"]}
    assert len(cells) == 9
    assert cells["average", "0"]["state"] == "whole"
    assert cells["all", "1"]["reason"] == "it diverged, twice"
    assert cells["all", "0"]["settings"] == "method.phi=1.0"


def test_only_what_was_measured_differs_between_equal_cells(path: Path, tmp_path: Path) -> None:
    told = []
    for name, seconds in (("one", 2.0), ("two", 3.0)):
        fill(path, tmp_path / name, seconds=seconds)
        findings = findings_of(path, cells_of(path, tmp_path / name))
        parts = report(findings)
        told.append((tables(findings.comparison, findings.results, findings.missing), markdown(parts), page(parts)))
    (files, text, web), (other_files, other_text, other_web) = told
    assert [name for name in files if files[name] != other_files[name]] == ["measured.csv"]
    assert text.partition(f"## {MEASURED}")[0] == other_text.partition(f"## {MEASURED}")[0]
    assert web.rpartition(f">{MEASURED}</h2>")[0] == other_web.rpartition(f">{MEASURED}</h2>")[0] != ""
    assert text != other_text


def test_the_computed_values_of_a_tiny_comparison_are_the_same_bytes_as_ever(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average", "prototypes"))
    for _ in range(2):
        assert compare("--config", path, "--out", out, "--report-only")[0] == ExitCode.OK
        for golden in sorted(GOLDEN.glob("*.csv")):
            assert (out / golden.name).read_bytes() == golden.read_bytes(), golden.name
    assert {golden.name for golden in GOLDEN.iterdir()} == {
        *("evaluations.csv", "rounds.csv", "summary.csv", "differences.csv", "cells.csv"),
    }


def test_the_table_says_mean_and_deviation_by_domain_and_who_is_best(whole: Report) -> None:
    text = markdown(whole)
    table = text.partition("**Last round, global model, Digits**")[2].partition("**Best")[0]
    assert "|  | MNIST | SVHN | mean | worst | mean vs FedAvg | worst vs FedAvg | seeds |" in table
    assert "| FedAvg | 71.0 ± 1.0 | 31.0 ± 1.0 | 51.0 ± 1.0 | 31.0 ± 1.0 | - | - | 3 |" in table
    assert (
        "| FedPLCC | **76.0 ± 1.0** | **36.0 ± 1.0** | **56.0 ± 1.0** | **36.0 ± 1.0** | +5.0 ± 0.0 | +5.0 ± 0.0 | 3 |"
    ) in table
    best = text.partition("**Best round, global model, Digits**")[2]
    assert "| FedAvg | 81.0 ± 1.0 | 41.0 ± 1.0 | 61.0 ± 1.0 | 41.0 ± 1.0 | - | - | 2, 2, 2 |" in best
    readings = text.partition("### Digits: Open readings")[2]
    assert "| FedPLCC, phi = 1 | **81.0 ± 1.0** |" in readings.partition("**Best")[0]
    assert "| FedAvg |" in readings.partition("**Best")[0], "a row may stand in several tables"


def test_rows_are_ranked_with_their_differences_to_every_baseline_seed_by_seed(tmp_path: Path) -> None:
    text = COMPARISON.replace('baseline = "average"', 'baseline = ["average", "all"]')
    text = text.replace('group = "readings"', 'group = ["readings", "methods"]')
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    cells = cells_of(path, out)
    for cell in cells:
        level = {"average": 0.5, "prototypes": 0.5, "all": 0.25}[cell.row]
        above = {0: 0.1, 1: -0.02, 2: 0.3}[cell.seed] if cell.row == "prototypes" else 0.01 * cell.seed
        if (cell.row, cell.seed) != ("all", 2):
            write_cell(cell, [{"mnist": level + above, "svhn": level + above}] * 3)
    findings = findings_of(path, cells)
    methods = markdown(report(findings)).partition("### Digits: Open readings")[0]
    standing = methods.partition("**Rank by the mean of the last round, global model, Digits**")[2].partition("**")[0]
    assert standing.splitlines()[2] == (
        "|  | rank | seeds | mean | worst | mean vs FedAvg | worst vs FedAvg | higher mean than FedAvg | "
        "mean vs FedPLCC, phi = 1 | worst vs FedPLCC, phi = 1 | higher mean than FedPLCC, phi = 1 |"
    )
    assert "| FedAvg | 2 | 3 | 51.0 ± 1.0 | 51.0 ± 1.0 | - | - | - | +25.0 ± 0.0 | +25.0 ± 0.0 | 2 of 2 |" in standing
    table = methods.partition("**Last round, global model, Digits**")[2]
    assert "mean vs FedAvg | worst vs FedAvg | seeds |" in table.splitlines()[2], "the first baseline, in every table"
    deviation = np.std([10, -3, 28], ddof=1)
    assert (
        f"+11.7 ± {deviation:.1f} | +11.7 ± {deviation:.1f} | 2 of 3 | +28.5 ± 9.2 | +28.5 ± 9.2 | 2 of 2 |"
    ) in methods
    assert "| FedPLCC, phi = 1 | 3 | 2 | 25.5 ± 0.7 |" in methods
    lines = lines_of(tables(findings.comparison, findings.results, findings.missing)["differences.csv"])
    assert {(line["row"], line["baseline"]) for line in lines} == {
        (row, baseline)
        for row in ("average", "prototypes", "all")
        for baseline in ("average", "all")
        if row != baseline
    }
    (line,) = (
        line
        for line in lines
        if tuple(line[key] for key in ("row", "baseline", "view", "column"))
        == ("prototypes", "average", "last", "svhn")
    )
    assert float(line["mean"]) == pytest.approx(0.35 / 3)
    assert float(line["std"]) == pytest.approx(deviation / 100)
    assert (line["seeds"], line["higher"]) == ("3", "2")


def test_rows_of_different_numbers_of_seeds_are_told_apart(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    said = "The rows are of 1 to 3 seeds, so ranks and best values are provisional;"
    assert said not in markdown(report(findings_of(path, cells_of(path, out))))
    cells = [cell for cell in cells_of(path, out) if cell.row != "all" or cell.seed == 1]
    methods, _, readings = markdown(report(findings_of(path, cells))).partition("### Digits: Open readings")
    assert said not in methods
    assert said in readings


def test_a_row_has_the_same_colour_in_every_drawing(whole: Report) -> None:
    drawings = {part.name: part.svg for part in whole if isinstance(part, Drawing)}
    average, prototypes, everything = COLOURS[:3]  # of the file's rows, in order
    methods, readings = (drawings[f"curves-digits-{group}-mean.svg"] for group in ("methods", "readings"))
    assert [colour in methods for colour in (average, prototypes, everything)] == [True, True, False]
    assert [colour in readings for colour in (average, prototypes, everything)] == [True, False, True]


def test_local_models_have_tables_of_their_own_where_there_are_any(whole: Report) -> None:
    text = markdown(whole)
    local = text.partition("**Last round, local models, each on its own domain, Digits**")[2].partition("**Best")[0]
    assert "| FedPLCC | 35.0 ± 0.0 | 15.0 ± 0.0 | 25.0 ± 0.0 | 15.0 ± 0.0 | 3 |" in local
    assert "FedAvg" not in local
    assert "local models" not in text.partition("### Digits: Open readings")[2]


def test_a_method_without_a_global_model_stands_only_among_local_ones(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average", "all"))
    for cell in cells_of(path, out):
        if cell.row == "prototypes":
            write_cell(cell, ROUNDS, has_global=False)
    text = markdown(report(findings_of(path, cells_of(path, out)))).partition("### Digits: Open readings")[0]
    shared = text.partition("**Last round, global model, Digits**")[2].partition("**Best")[0]
    assert "FedAvg" in shared
    assert "FedPLCC" not in shared
    assert "No global model, so only in the tables of local models: FedPLCC." in text
    assert "**Rank by" not in text, "of a single row there is none"
    assert (
        "| FedPLCC | 70.0 ± 0.0 | 30.0 ± 0.0 | 50.0 ± 0.0 | 30.0 ± 0.0 | 3 |" in text.partition("local models, each")[2]
    )
    assert "FedPLCC (local models) 50.0" in text
    assert "FedPLCC, published" not in text


def test_published_numbers_stand_beside_ours_with_what_differs(whole: Report) -> None:
    text = markdown(whole)
    beside = text.partition("#### Beside the published numbers")[2].partition("![")[0]
    assert "- The images are made up.\n- There are two domains." in beside
    assert "| FedAvg, here (3 seeds) | 71.0 ± 1.0 | - | 31.0 ± 1.0 | - | - | 51.0 ± 1.0 |" in beside
    assert "| *FedAvg, published* | 90.10 | 85.05 | 41.66 | 35.20 | 49.96 | 60.39 |" in beside
    assert "| *FedAvg, difference* | -19.1 | - | -10.7 | - | - | -9.4 |" in beside
    assert "arxiv.org/abs/2409.18578, Table II" in beside
    assert text.count("Beside the published numbers") == 1, "once, where most of its rows stand"


def test_the_page_needs_nothing_else_and_says_every_row(whole: Report) -> None:
    web = page(whole)
    read = Page(web)
    assert read.loaded == []
    assert "@import" not in web
    assert "url(http" not in web
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    for label in ("FedAvg", "FedPLCC", "FedPLCC, phi = 1", "MNIST", "SVHN", "digits/all/seed-2"):
        assert label in read.heads, label
    tables_in_markdown = re.findall(r"^\*\*(.+)\*\*\n\n\|", markdown(whole), re.MULTILINE)
    assert read.captions == [caption.replace("\\", "") for caption in tables_in_markdown]
    assert web.count("<svg") == 4
    assert "prefers-color-scheme: dark" in web
    assert 'name="viewport"' in web


def test_names_cannot_break_out_of_their_cell(tmp_path: Path) -> None:
    text = COMPARISON.replace('label = "FedPLCC"', 'label = "<script>a|b*c_$x$"').replace(
        "The images are made up.", "<img src=x>"
    )
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    fill(path, out)
    parts = report(findings_of(path, cells_of(path, out)))
    read = Page(page(parts))
    assert read.loaded == []
    assert "<script>a|b*c_$x$" in read.heads
    assert "| \\<script\\>a\\|b\\*c\\_$x$ |" in markdown(parts)


def test_a_half_filled_comparison_says_what_is_missing_and_why(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cells = cells_of(path, out)
    fill(path, out, rows=("average",))
    half, other, failed = (cells[1], cells[2], cells[4])
    half.folder.mkdir(parents=True)
    (half.folder / "federation.json").write_text((cells[0].folder / "federation.json").read_text())
    write_cell(other, ROUNDS[:2])
    (other.folder / "run.json").unlink()
    text = markdown(report(findings_of(path, cells, {failed.name: "client mnist: no such file"})))
    assert "3 of 9 cells" in text
    assert "Not trained yet" not in text, "of no row it is the whole truth"
    assert "3 of 9 cells (data set, row, seed) are trained, 1 failed; those that are missing are listed" in text
    lines = re.findall(r"^\| (\S+) \| ([\d, ]+) \| ([^|]+) \|$", text.partition("**Missing cells**")[2], re.MULTILINE)
    missing = {(row, seeds): reason for row, seeds, reason in lines}
    assert (
        "holds a run of another configuration than the file has now (run.method);" in missing["digits/prototypes", "0"]
    )
    assert missing["digits/all", "0"] == "begun and not finished; the same command goes on with it"
    assert missing["digits/prototypes", "1"] == "failed: client mnist: no such file"
    assert missing["digits/all", "1, 2"] == "not trained yet"
    assert missing["digits/prototypes", "2"] == "not trained yet"
    assert len(missing) == 5


def test_a_mean_over_more_rounds_than_there_are_says_so(path: Path, tmp_path: Path) -> None:
    fill(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert "**Last round, global model, Digits**" in text
    assert f"**Mean of the last 5 rounds (of all, as there are only {len(ROUNDS)}), global model, Digits**" in text


def test_nothing_at_all_is_a_report_too(path: Path, tmp_path: Path) -> None:
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert "0 of 9 cells" in text
    assert "No cell of this data set is trained yet." in text


def test_a_row_that_failed_is_said_to_have_failed_and_why(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    cells = cells_of(path, out)
    failures = {f"digits/prototypes/seed-{seed}": "training of client 'mnist' diverged" for seed in (0, 1)}
    failures |= {"digits/prototypes/seed-2": "no <room>", "digits/average/seed-1": "of the time before"}
    parts = report(findings_of(path, cells, failures))
    methods, _, readings = markdown(parts).partition("### Digits: Open readings")
    assert "- FedPLCC, seeds 0, 1: failed: training of client 'mnist' diverged\n" in methods
    assert "- FedPLCC, seed 2: failed: no \\<room\\>" in methods
    assert "Not trained yet" not in methods
    assert "Not trained yet: FedPLCC, phi = 1." in readings
    assert "of the time before" not in methods, "it is there now"
    web = Page(page(parts))
    assert "FedPLCC, seeds 0, 1: failed: training of client 'mnist' diverged" in web.text
    assert "FedPLCC, seed 2: failed: no <room>" in web.text
    assert web.loaded == []


def test_a_row_of_which_one_seed_failed_stands_in_the_tables_and_says_so(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    cells = cells_of(path, out)
    (cells[4].folder / "run.json").unlink()
    (cells[4].folder / "federation.json").unlink()
    text = markdown(report(findings_of(path, cells, {cells[4].name: "it diverged"})))
    assert "- FedPLCC, seed 1: failed: it diverged" in text.partition("### Digits: Open readings")[0]
    assert re.search(r"^\| FedPLCC \| .* \| 2 \|$", text, re.MULTILINE)


def test_a_data_set_all_of_whose_rows_failed_says_why(path: Path, tmp_path: Path) -> None:
    cells = cells_of(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells, {cell.name: "no such file" for cell in cells})))
    assert "No cell of this data set is trained yet." in text
    assert "- FedAvg, seeds 0, 1, 2: failed: no such file" in text
    assert "0 of 9 cells (data set, row, seed) are trained, 9 failed;" in text


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
    found = read_cell(cell)
    assert isinstance(found, MissingCell)
    assert found.reason.startswith(f"{cell.folder}: {sentence}")
    assert not found.can_be_trained


def test_a_file_that_cannot_be_read_is_named(path: Path, tmp_path: Path) -> None:
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    (cell.folder / "metrics.jsonl").unlink()
    (cell.folder / "metrics.jsonl").mkdir()
    found = read_cell(cell)
    assert isinstance(found, MissingCell)
    assert f"{cell.folder}: cannot read metrics.jsonl (Is a directory); restore the file" in found.reason
    (cell.folder / "federation.json").unlink()
    (cell.folder / "federation.json").mkdir()
    found = read_cell(cell)
    assert isinstance(found, MissingCell)
    assert found.reason == f"{cell.folder}: cannot read federation.json (Is a directory); see that it can be read"


def test_a_cell_without_federation_json_is_known_by_its_hash(path: Path, tmp_path: Path) -> None:
    cell, other = cells_of(path, tmp_path / "out")[:2]
    write_cell(cell, ROUNDS)
    (cell.folder / "federation.json").unlink()
    other.folder.parent.mkdir(parents=True)
    cell.folder.rename(other.folder)
    found = read_cell(other)
    assert isinstance(found, MissingCell)
    assert (
        "holds a run of another configuration than the file has now (by the config_hash in run.json);" in found.reason
    )
    (other.folder / "run.json").write_text('{"total_rounds": 3}')
    found = read_cell(other)
    assert isinstance(found, MissingCell)
    assert "run.json does not say 'config_hash'" in found.reason


def test_the_files_of_a_cell_must_be_of_one_run(path: Path, tmp_path: Path) -> None:
    cell, other = cells_of(path, tmp_path / "out")[:2]
    write_cell(cell, ROUNDS)
    write_cell(other, ROUNDS)
    (cell.folder / "run.json").write_bytes((other.folder / "run.json").read_bytes())
    found = read_cell(cell)
    assert isinstance(found, MissingCell)
    assert "(by the config_hash in run.json)" in found.reason


def test_a_cell_of_fewer_rounds_than_the_file_asks_for_now_is_of_another_configuration(
    path: Path, tmp_path: Path
) -> None:
    fill(path, tmp_path / "out")
    longer = write_comparison(tmp_path, run=RUN.replace("rounds = 3", "rounds = 4"))
    for cell in cells_of(longer, tmp_path / "out"):
        found = read_cell(cell)
        assert isinstance(found, MissingCell)
        assert "holds a run of another configuration than the file has now (run.rounds);" in found.reason


def test_a_cell_that_ended_and_has_lost_rounds_since_is_not_called_unfinished(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    cell = cells_of(path, out)[0]
    metrics = cell.folder / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    code, told, said = compare("--config", path, "--out", out)
    assert code == ExitCode.FAILED
    assert "0 of 9 cells are to be trained" in told, "its folder says that it has ended, so nothing would go on"
    assert said == (
        f"fedplcc: digits/average/seed-0: {cell.folder}: there is a run.json but not a line for each round in "
        "metrics.jsonl; restore the file, or remove the folder to train the cell again\n"
    )
    (cell.folder / "state").mkdir()
    for content in (metrics.read_text(), "{"):
        metrics.write_text(content)
        found = read_cell(cell)
        assert isinstance(found, MissingCell)
        assert found.reason == "begun and not finished; the same command goes on with it"
        assert found.can_be_trained, "training writes its files anew"


def test_addresses_are_links_to_their_end_and_headings_have_an_id_each() -> None:
    text = "See https://example.org/a?b=1&c=2. Or (https://example.org/d), or <https://example.org/e>"
    parts: Report = [Heading(1, "A"), Heading(2, "a 2"), Heading(2, "a"), Heading(2, "a"), Paragraph(text)]
    web = page(parts)
    assert re.findall(r'<a href="(http[^"]+)"', web) == [
        "https://example.org/a?b=1&amp;c=2",
        "https://example.org/d",
        "https://example.org/e",
    ]
    ids = Page(web).ids
    assert len(set(ids)) == len(ids) == 4


def test_no_two_drawings_of_a_report_have_the_same_file() -> None:
    names = ["a", "a-", "a--", "a-a", "a--a", "a-a-", "aa", "a.", "mean", "a-mean"]
    every = [(dataset, group, column) for dataset in names for group in names for column in ("mean", "worst")]
    assert len({drawing_name(*each) for each in every}) == len(every)
    assert drawing_name("digit5", "methods", "mean") == "curves-digit5-methods-mean.svg"


def test_data_sets_and_groups_whose_names_run_together_keep_a_drawing_each(tmp_path: Path) -> None:
    text = COMPARISON.replace("[datasets.digits]", "[datasets.a]").replace('["methods", "readings"]', '["b-c", "c"]')
    text += '\n[datasets.a-b]\nconfig = "run.toml"\n'
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    fill(path, out)
    findings = findings_of(path, cells_of(path, out))
    drawings = [part for part in report(findings) if isinstance(part, Drawing)]
    assert len({drawing.name for drawing in drawings}) == len(drawings)
    written = set(write_findings(out, findings))
    assert {"curves-a-b--c-mean.svg", "curves-a--b-c-mean.svg"} <= written
    for drawing in drawings:
        assert (out / drawing.name).read_text() == drawing.svg


def test_the_command_of_a_report_can_be_copied_whatever_the_file_is_called(path: Path, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    write_comparison(tmp_path / "a folder")
    path = tmp_path / "a folder" / "compare.toml"
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert f"    fedplcc compare --config '{path}' --out FOLDER\n" in text


def test_pictures_of_a_cell_are_shown_where_they_lie(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    folder = out / "digits/average/seed-0/pictures"
    folder.mkdir()
    (folder / "feature-map.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    facts = {"caption": "Features of the test images.", "alt_text": "Ten clouds of points."}
    (folder / "feature-map-facts.json").write_text(json.dumps(facts))
    (folder / "sizes.png").write_bytes(b"\x89PNG")
    (folder / "notes.txt").write_text("not a picture")
    parts = report(findings_of(path, cells_of(path, out)))
    assert "![FedAvg, seed 0: Ten clouds of points.](digits/average/seed-0/pictures/feature-map.svg)" in markdown(parts)
    assert "*FedAvg, seed 0: Features of the test images.*" in markdown(parts)
    web = page(parts)
    assert 'alt="FedAvg, seed 0: Ten clouds of points." src="data:image/svg+xml;base64,' in web
    assert 'alt="FedAvg, seed 0: sizes" src="data:image/png;base64,iVBORw==' in web
    assert "notes" not in web


def test_pictures_of_every_seed_that_has_any_are_shown(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    for seed in (1, 2):
        (out / f"digits/average/seed-{seed}/pictures").mkdir()
        (out / f"digits/average/seed-{seed}/pictures/map.png").write_bytes(b"\x89PNG")
    shown = re.findall(r"!\[FedAvg, (seed \d): map\]", markdown(report(findings_of(path, cells_of(path, out)))))
    assert shown == ["seed 1", "seed 2"]


@pytest.mark.parametrize(
    ("choice", "drawn"),
    [
        ((), ["average/seed-0", "prototypes/seed-0", "all/seed-0"]),
        (("--only", "all"), ["all/seed-0"]),
        (("--only", "digits/average", "--seeds", "2,1"), ["average/seed-1"]),
        (("--seeds", "2"), ["average/seed-2", "prototypes/seed-2", "all/seed-2"]),
    ],
)
def test_pictures_are_drawn_of_the_rows_and_seeds_that_are_chosen(
    choice: tuple[str, ...], drawn: list[str], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    fill(path, out)
    for cell in cells_of(path, out):
        (cell.folder / "model.safetensors").touch()
    folders: list[Path] = []
    monkeypatch.setattr("fedplcc.pictures.cell.pictures_for_cell", lambda run, *_, **__: folders.append(run))
    code, _, said = compare("--config", path, "--out", out, "--report-only", "--pictures", *choice)
    assert (code, said) == (ExitCode.OK, "")
    assert folders == [out / "digits" / name for name in drawn]


def test_why_a_cell_has_no_pictures_is_one_sentence(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidData("client mnist: no such file (name its data with --data mnist=DATA)")

    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    monkeypatch.setattr("fedplcc.pictures.cell.pictures_for_cell", refuse)
    code, _, said = compare("--config", path, "--out", out, "--report-only", "--pictures")
    folder = out / "digits/average/seed-0"
    assert code == ExitCode.OK
    assert said == (
        f"fedplcc: digits/average/seed-0 has no pictures: its model.safetensors was not kept in {folder}; draw where it was "
        "trained\n"
    )
    (folder / "model.safetensors").touch()
    assert compare("--config", path, "--out", out, "--report-only", "--pictures")[2] == (
        "fedplcc: digits/average/seed-0 has no pictures: client mnist: no such file (name its data with --data mnist=DATA); "
        f"fedplcc model map {folder} takes these options\n"
    )


def test_without_matplotlib_there_are_no_curves_and_a_word_about_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    fill(path, out)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = markdown(report(findings_of(path, cells_of(path, out))))
    assert "matplotlib is not installed" in text
    assert "![" not in text


def test_every_published_table_is_whole_and_samples_are_as_printed() -> None:
    every = published_tables()
    assert every["fedplcc/digit5"].of("FedPLCC") == {
        "mnist": 94.92,
        "usps": 91.98,
        "svhn": 66.33,
        "synth": 69.65,
        "mnistm": 77.58,
        "mean": 80.092,
    }
    samples = {
        ("fedplcc/office10", "FPL", "dslr"): 70.00,
        ("fedplcc/domainnet10", "FedProto", "quickdraw"): 46.30,
        ("fedplcc/digit5-ablation", "all prototype weights 1", "mean"): 76.628,
        ("fpl/digits", "FPL", "mean"): 83.12,
        ("fpl/office10", "FedOPT", "webcam"): 63.33,
        ("fedccl/digit5-balanced", "FedPCL", "local usps"): 81.00,
        ("fedccl/office10-imbalanced", "FedCCL", "local dslr"): 93.54,
        ("fedccl/domainnet10-imbalanced", "FedCCL", "local quickdraw"): 25.20,
        ("fedccl/cifar10", "FedProto", "local mean"): 60.72,
        ("fedccl/office10-balanced-ablation", "both", "local mean"): 94.71,
        ("fedmlp/cifar100-sharding", "FedMLP", "mean"): 61.02,
        ("fedmlp/cifar100-sharding", "FedNTD", "mean"): 37.03,
        ("fedmlp/cifar10-sharding-2", "CReFF", "local mean"): 29.77,
        ("fedmlp/cifar10-dirichlet-0.1", "FedMLP", "local mean"): 79.26,
        ("fedmlp/cifar10-dirichlet-0.1", "FedNTD", "local mean"): 72.25,
        ("fedmlp/femnist-dirichlet", "FedProto", "mean"): 33.50,
        ("fedmlp/mnist-sharding", "FedRep", "mean"): 98.71,
        ("fedmlp/cifar10-sharding-4-ablation", "L_P and L_SP", "local minority"): 78.11,
    }
    for (key, method, column), value in samples.items():
        found = every[key].of(method)
        assert found is not None
        assert found[column] == value, key
    assert every["fedplcc/digit5"].of("FedAvg2") is None
    assert all(table.source.count("http") or "CVPR" in table.source for table in every.values())
    assert all(table.differs for table in every.values()), "no set-up is ours to the letter"


def test_fedmlps_tables_agree_with_what_its_text_says_of_them() -> None:
    """Three sentences of the paper name differences; and the whole ablation is the main table's row of the same set-up."""
    every = published_tables()

    def above(key: str, column: str, other: str) -> float:
        ours, theirs = every[key].of("FedMLP"), every[key].of(other)
        assert ours is not None
        assert theirs is not None
        return round(ours[column] - theirs[column], 2)

    assert above("fedmlp/cifar100-sharding", "mean", "FedNTD") == 23.99
    assert above("fedmlp/cifar10-dirichlet-0.1", "local mean", "FedNTD") == 7.01
    whole = every["fedmlp/cifar10-sharding-4-ablation"].of("L_P and L_SP and L_IT")
    row = every["fedmlp/cifar10-sharding-4"].of("FedMLP")
    assert whole is not None
    assert row is not None
    assert {column: whole[column] for column in row} == row
    mains = [table for key, table in every.items() if key.startswith("fedmlp/") and not key.endswith("ablation")]
    assert len(mains) == 10
    assert {len(table.accuracy) for table in mains} == {7}


def test_tables_of_clients_own_models_stand_beside_ours(tmp_path: Path) -> None:
    text = COMPARISON.replace('"fedplcc/digit5"', '["fedccl/digit5-balanced", "fedmlp/mnist-sharding"]')
    text = text.replace('published = "FedPLCC"', 'published = ["FedCCL", "FedMLP"]')
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    fill(path, out)
    beside = markdown(report(findings_of(path, cells_of(path, out)))).partition("#### Beside the published numbers")[2]
    assert beside.count("- There private models are judged on the balanced test set of all classes;") == 1
    assert beside.index("- There are two domains.") < beside.index("- The paper judges the clients' own models")
    balanced, _, sharding = beside.partition("**FedMLP, MNIST, sharding: ours (mean of the last 10 rounds)")
    assert "| FedPLCC, here (3 seeds) | 28.3 ± 0.0 | 13.3 ± 0.0 | - | - | - | 20.8 ± 0.0 |" in balanced
    assert "| *FedPLCC, difference* | -47.6 | -16.1 | - | - | - | -37.7 |" in balanced
    assert "FedAvg, here" not in balanced, "its clients keep no model"
    assert "|  | private models | global model |" in sharding
    assert "| FedPLCC, here (3 seeds) | 20.8 ± 0.0 | 47.7 ± 1.0 |" in sharding
    assert "| FedAvg, here (3 seeds) | - | 42.7 ± 1.0 |" in sharding
    assert "| *FedAvg, published* | 98.36 | 98.35 |" in sharding
    assert "|  | MNIST | SVHN | mean |" in markdown(report(findings_of(path, cells_of(path, out))))


def test_printed_averages_are_the_means_of_their_rows_but_for_nine() -> None:
    """Section 10.4 of the algorithm reference counts those that are not; their tables say so."""
    wrong = []
    for key, table in published_tables().items():
        for method in table.accuracy:
            values = table.of(method)
            assert values is not None
            (mean, *more) = [column for column in values if column.endswith("mean")]
            printed = values.pop(mean)
            if values and not more and abs(sum(values.values()) / len(values) - printed) > 0.011:
                wrong.append((key, method))
    assert len(wrong) == 9
    noted = [
        key
        for key, table in published_tables().items()
        if any("not the mean of their row" in note for note in table.notes)
    ]
    assert {key for key, _ in wrong} <= set(noted)


def test_the_numbers_are_written_as_lists_that_a_person_can_check() -> None:
    text = (resources.files("fedplcc.comparison") / "published.toml").read_text()
    assert set(tomllib.loads(text)) == set(published_tables())


def compare(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_writes_the_report_of_what_is_there(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    code, told, _ = compare("--config", path, "--out", out, "--report-only", "--json")
    assert code == ExitCode.OK
    summary = json.loads(told.splitlines()[-1])
    assert summary["cells"] == {"whole": 3, "missing": 6}
    assert summary["results"]["digits"]["average"]["last"]["mean"]["mean"] == pytest.approx(0.51)
    assert summary["results"]["digits"]["all"] == {"seeds": [], "last": {}, "best": {}, "last5": {}, "last10": {}}
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
        ),
        *(f"curves-digits-{group}-{column}.svg" for group in ("methods", "readings") for column in ("mean", "worst")),
    }


def test_cells_of_another_configuration_are_named_and_nothing_is_trained(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    write_comparison(tmp_path, run=RUN.replace('classes = ["0", "1"]', 'classes = ["0", "2"]'))
    code, told, said = compare("--config", path, "--out", out)
    assert code == ExitCode.FAILED
    assert "0 of 9 cells are to be trained" in told
    lines = said.splitlines()
    assert len(lines) == 9
    assert lines[0] == (
        f"fedplcc: digits/average/seed-0: {out}/digits/average/seed-0 holds a run of another configuration than the file "
        "has now (data.classes); remove that folder to train the cell again, or choose another with --out"
    )


def test_whole_cells_are_not_trained_again(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    before = (out / "digits/all/seed-0/run.json").stat().st_mtime_ns
    code, told, said = compare("--config", path, "--out", out, "--only", "all")
    assert (code, said) == (ExitCode.OK, "")
    assert "0 of 3 cells are to be trained" in told
    assert "9 of 9 cells are in the report" in told
    assert (out / "digits/all/seed-0/run.json").stat().st_mtime_ns == before


def test_a_report_is_there_before_pictures_are_drawn(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        assert (out / "report.html").exists()
        raise KeyboardInterrupt

    out = tmp_path / "out"
    fill(path, out)
    monkeypatch.setattr(compare_command, "_draw", interrupted)
    code, _, _ = compare("--config", path, "--out", out, "--pictures")
    assert code == ExitCode.INTERRUPTED


def test_a_report_of_a_folder_that_is_not_there_is_refused(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "reslts"
    code, _, said = compare("--config", path, "--out", out, "--report-only")
    assert code == ExitCode.USAGE
    assert said == f"fedplcc: there is no folder {out} to report on; name it with --out, or leave out --report-only\n"
    assert not out.exists()


def test_runs_that_the_file_has_no_row_or_seed_for_are_named(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    told = compare("--config", path, "--out", out, "--report-only")[1]
    assert "not in the report" not in told
    write_cell(cells_of(path, out, seeds=[7])[-1], ROUNDS)
    (out / "digits/average").rename(out / "digits/mean")
    told = compare("--config", path, "--out", out, "--report-only")[1]
    assert (
        f"not in the report, because {path} has no such data set, row or seed now: digits/all/seed-7, digits/mean/seed-0, "
        "digits/mean/seed-1, digits/mean/seed-2 (seeds are added with --seeds)\n"
    ) in told.replace("\n", " ").replace("--seeds) ", "--seeds)\n")
    assert "digits/all/seed-7" not in compare("--config", path, "--out", out, "--report-only", "--seeds", "7")[1]


def test_failures_that_another_command_has_kept_meanwhile_stay(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(cells: Any, *_: Any, **__: Any) -> dict[str, str]:
        kept = {"digits/prototypes/seed-0": "of the other command", "digits/all/seed-0": "of the time before"}
        (out / "failures.json").write_text(json.dumps(kept))
        return {"digits/all/seed-1": "it diverged"}

    out = tmp_path / "out"
    monkeypatch.setattr("fedplcc.comparison.running.train", train)
    monkeypatch.setattr("fedplcc.comparison.data_check.what_cannot_be_opened", lambda cells: {})
    code, _, said = compare("--config", path, "--out", out, "--only", "all")
    assert code == ExitCode.FAILED
    assert "fedplcc: digits/all/seed-1: it diverged\n" in said
    assert json.loads((out / "failures.json").read_text()) == {
        "digits/all/seed-1": "it diverged",
        "digits/prototypes/seed-0": "of the other command",
    }


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_damaged_list_of_failures_costs_no_report(content: str, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    (out / "failures.json").write_text(content)
    assert compare("--config", path, "--out", out, "--report-only")[0] == ExitCode.OK


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


def test_packages_for_pictures_are_missed_before_anything_is_trained(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_command, "find_spec", lambda package: None if package == "sklearn" else object())
    code, _, said = compare("--config", path, "--out", tmp_path / "out", "--pictures")
    assert code == ExitCode.USAGE
    assert said.startswith("fedplcc: this command needs sklearn, which is not installed: pip install 'fedplcc")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seeds", ["a", "0,,1", "-1", ""])
def test_seeds_that_are_none_are_one_sentence(seeds: str, path: Path, tmp_path: Path) -> None:
    code, _, said = compare("--config", path, "--out", tmp_path / "out", "--seeds", seeds)
    assert code == ExitCode.USAGE
    assert (
        said
        == f"fedplcc: --seeds {seeds}: write whole numbers from 0, with commas between them, such as --seeds 0,1,2\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_wrong_file_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON.replace("method.phi", "method.phy"))
    code, _, said = compare("--config", path, "--out", tmp_path / "out")
    assert code == ExitCode.USAGE
    assert said == ("fedplcc: row all on data set digits: unknown key 'method.phy'; did you mean 'method.phi'?\n")
    assert not (tmp_path / "out").exists()
