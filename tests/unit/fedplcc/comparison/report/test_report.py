"""The report of a comparison: Markdown and an HTML page with the same content, whole or half filled."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fedplcc.comparison.report.document import Report, markdown, page
from fedplcc.comparison.report.drawings import drawing_name
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.report.tables import MEASURED
from fedplcc.comparison.report.writing import csv_tables, write_findings
from tests.support.records.comparisons import (
    COMPARISON,
    ROUNDS,
    cells_of,
    fill,
    findings_of,
    lines_of,
    write_cell,
    write_comparison,
)


class Page(HTMLParser):
    """A browser's view of the page: its tables, and everything that it would load."""

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


def test_only_what_was_measured_differs_between_equal_cells(path: Path, tmp_path: Path) -> None:
    written = []
    for name, seconds in (("one", 2.0), ("two", 3.0)):
        fill(path, tmp_path / name, seconds=seconds)
        findings = findings_of(path, cells_of(path, tmp_path / name))
        parts = report(findings)
        written.append((csv_tables(findings), markdown(parts), page(parts)))
    (files, text, web), (other_files, other_text, other_web) = written
    assert [name for name in files if files[name] != other_files[name]] == ["measured.csv"]
    assert text.partition(f"## {MEASURED}")[0] == other_text.partition(f"## {MEASURED}")[0]
    assert web.rpartition(f">{MEASURED}</h2>")[0] == other_web.rpartition(f">{MEASURED}</h2>")[0] != ""
    assert text != other_text


def test_the_table_says_mean_and_deviation_by_domain_and_who_is_best(whole: Report) -> None:
    text = markdown(whole)
    table = text.partition("**Last round, global model, Digits**")[2].partition("**Best")[0]
    assert "|  | mnist | svhn | mean | worst | mean vs FedAvg | worst vs FedAvg | seeds |" in table
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
    lines = lines_of(csv_tables(findings)["differences.csv"])
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


def test_rows_of_different_numbers_of_seeds_are_named_as_provisional(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    said = "The rows are of 1 to 3 seeds, so ranks and best values are provisional;"
    assert said not in markdown(report(findings_of(path, cells_of(path, out))))
    cells = [cell for cell in cells_of(path, out) if cell.row != "all" or cell.seed == 1]
    methods, _, readings = markdown(report(findings_of(path, cells))).partition("### Digits: Open readings")
    assert said not in methods
    assert said in readings


def test_local_models_are_compared_with_the_baselines_own(path: Path, tmp_path: Path) -> None:
    cells = cells_of(path, tmp_path / "out")
    for cell in cells:
        gain = 0.1 + 0.1 * cell.seed if cell.row == "prototypes" else 0.0
        write_cell(cell, ROUNDS, local=[{"mnist": 0.5 + gain, "svhn": 0.3 + gain / 2}] * 3)
    text = markdown(report(findings_of(path, cells)))
    local = text.partition("**Last round, local models, each on its own domain, Digits**")[2].partition("**Best")[0]
    assert "| mean vs FedAvg | worst vs FedAvg |" in local
    line = next(line for line in local.splitlines() if line.startswith("| FedPLCC |"))
    assert "| +15.0 ± 7.5 | +10.0 ± 5.0 | 3 |" in line


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


def test_the_page_needs_nothing_else_and_says_every_row(whole: Report) -> None:
    web = page(whole)
    read = Page(web)
    assert read.loaded == []
    assert "@import" not in web
    assert "url(http" not in web
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    for label in ("FedAvg", "FedPLCC", "FedPLCC, phi = 1", "mnist", "svhn", "digits/all/seed-2"):
        assert label in read.heads, label
    tables_in_markdown = re.findall(r"^\*\*(.+)\*\*\n\n\|", markdown(whole), re.MULTILINE)
    assert read.captions == [caption.replace("\\", "") for caption in tables_in_markdown]
    assert web.count("<svg") == 8
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
    (half.folder / "metrics.jsonl").write_text("")
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


def test_runs_of_different_lengths_are_named_where_rounds_are_compared(tmp_path: Path) -> None:
    short = COMPARISON.replace("[rows.all]", 'set = { "run.rounds" = 2 }\n\n[rows.all]')
    path, out = write_comparison(tmp_path, short), tmp_path / "out"
    for cell in cells_of(path, out):
        write_cell(cell, ROUNDS[: cell.federation.config.run.rounds])
    methods, _, readings = markdown(report(findings_of(path, cells_of(path, out)))).partition(
        "### Digits: Open readings"
    )
    said = "The runs have 2 to 3 rounds, so the last round is not the same one in each."
    title = "**Mean of the last 5 rounds (of all where a run has fewer; runs have 2 to 3), global model, Digits**"
    assert said in methods
    assert title in methods
    assert said not in readings
    assert title not in readings


def test_a_row_that_failed_is_said_to_have_failed_and_why(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average",))
    cells = cells_of(path, out)
    failures = {f"digits/prototypes/seed-{seed}": "training of client 'mnist' diverged" for seed in (0, 1)}
    failures |= {"digits/prototypes/seed-2": "no <room>", "digits/average/seed-1": "of the time before"}
    parts = report(findings_of(path, cells, failures))
    methods, _, readings = markdown(parts).partition("### Digits: Open readings")
    assert "Not in these tables:\n\n- FedPLCC, seeds 0, 1: failed: training of client 'mnist' diverged\n" in methods
    assert "- FedPLCC, seed 2: failed: no \\<room\\>" in methods
    assert "Not trained yet" not in methods
    assert "Not trained yet: FedPLCC, phi = 1." in readings
    assert "of the time before" not in methods, "it is there now"
    web = Page(page(parts))
    assert "FedPLCC, seeds 0, 1: failed: training of client 'mnist' diverged" in web.text
    assert "FedPLCC, seed 2: failed: no <room>" in web.text
    assert web.loaded == []


def test_no_two_drawings_of_a_report_have_the_same_file() -> None:
    names = ["a", "a-", "a--", "a-a", "a--a", "a-a-", "aa", "a.", "mean", "a-mean"]
    every = [(dataset, group, column) for dataset in names for group in names for column in ("mean", "worst")]
    assert len({drawing_name(*each) for each in every}) == len(every)
    assert drawing_name("digit5", "methods", "mean") == "curves-digit5-methods-mean.svg"


def test_a_mean_over_more_rounds_than_there_are_says_so(path: Path, tmp_path: Path) -> None:
    fill(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert "**Last round, global model, Digits**" in text
    assert f"**Mean of the last 5 rounds (of all, as there are only {len(ROUNDS)}), global model, Digits**" in text


def test_local_models_with_statistics_of_their_sites_are_named(path: Path, tmp_path: Path) -> None:
    fill(path, tmp_path / "out")
    said = "Local models with the BatchNorm mean and variance of their site's training images"
    assert said not in markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    at_site = COMPARISON.replace("[rows.all]", 'set = { "evaluation.batch_norm" = "site" }\n\n[rows.all]')
    path = write_comparison(tmp_path, at_site)
    for cell in cells_of(path, tmp_path / "site"):
        write_cell(cell, ROUNDS, local=ROUNDS)
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "site"))))
    methods, _, readings = text.partition("### Digits: Open readings")
    assert f'{said} (evaluation.batch\\_norm = "site")' in methods
    assert "global model with these: FedPLCC. Local models as trained: FedAvg.\n" in methods
    assert said not in readings


def test_a_data_set_all_of_whose_rows_failed_says_why(path: Path, tmp_path: Path) -> None:
    cells = cells_of(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells, {cell.name: "no such file" for cell in cells})))
    assert "No cell of this data set is trained yet.\n\n- FedAvg, seeds 0, 1, 2: failed: no such file\n" in text
    assert "these tables" not in text, "there are none"
    assert "0 of 9 cells (data set, row, seed) are trained, 9 failed;" in text


def test_a_row_of_which_one_seed_failed_stands_in_the_tables_and_says_so(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    cells = cells_of(path, out)
    (cells[4].folder / "run.json").unlink()
    (cells[4].folder / "federation.json").unlink()
    text = markdown(report(findings_of(path, cells, {cells[4].name: "it diverged"})))
    assert "- FedPLCC, seed 1: failed: it diverged" in text.partition("### Digits: Open readings")[0]
    assert re.search(r"^\| FedPLCC \| .* \| 2 \|$", text, re.MULTILINE)


def test_the_command_of_a_report_can_be_copied_whatever_the_file_is_called(path: Path, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    write_comparison(tmp_path / "a folder")
    path = tmp_path / "a folder" / "compare.toml"
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert f"    fedplcc compare --config '{path}' --out FOLDER\n" in text


def test_without_matplotlib_there_are_no_curves_and_a_word_about_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    fill(path, out)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = markdown(report(findings_of(path, cells_of(path, out))))
    assert "matplotlib is not installed" in text
    assert "](curves-" not in text
    assert "](map-digits-methods-domains.svg)" in text, "heat maps need no matplotlib"


def test_drawings_of_a_group_that_was_renamed_do_not_stay(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out)
    write_findings(out, findings_of(path, cells_of(path, out)))
    (out / "curves-of-mine.svg").write_text("mine")
    path.write_text(COMPARISON.replace("[groups.readings]", "[groups.open]").replace('"readings"', '"open"'))
    written = write_findings(out, findings_of(path, cells_of(path, out)))
    drawn = {name for name in written if name.endswith(".svg")}
    assert "curves-digits-open-mean.svg" in drawn
    assert {entry.name for entry in out.glob("*.svg")} == drawn | {"curves-of-mine.svg"}
