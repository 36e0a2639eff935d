"""Heat maps: every value is there and legible, on light and dark pages; the report has one by domain and one by class."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedplcc.comparison.report.document import Drawing, markdown, page
from fedplcc.comparison.report.heat_map import INK, PAPER, Panel, _colour, _text_on, heat_map, luminance
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.report.writing import csv_tables, write_findings
from tests.support.records.comparisons import (
    ROUNDS,
    cells_of,
    fill,
    findings_of,
    lines_of,
    write_cell,
    write_comparison,
)

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = {"#000": (0, 0, 0), "#fff": (255, 255, 255)}


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@given(st.floats(0, 1))
def test_a_value_is_legible_on_its_colour(value: float) -> None:
    colour = _colour(value)
    assert contrast(colour, TEXTS[_text_on(colour)]) >= 4.5


def test_every_value_and_label_is_in_the_picture_and_nothing_else() -> None:
    panels = [Panel("A & <b>", [[0.0, 0.254], [None, 1.0]]), Panel("C", [[0.5, 0.5], [0.5, 0.5]])]
    root = ET.fromstring(heat_map(panels, lines=["cat", "dog"], columns=["north", "south"]))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and re.fullmatch(r"\d+|-", text)] == ["0", "25", "-", "100", *["50"] * 4]
    assert texts.count("A & <b>") == texts.count("C") == texts.count("cat") == texts.count("dog") == 1
    assert texts.count("north") == 2
    rects = [element for element in root.iter(f"{SVG}rect") if element.get("height") == "19"]
    assert len(rects) == 7
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in rects:
        assert float(rect.get("x", -1)) + 29 <= width
        assert float(rect.get("y", -1)) + 19 <= height


def test_the_report_has_a_picture_by_domain_and_one_by_class(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out)
    findings = findings_of(path, cells_of(path, out))
    parts = {part.name: part for part in report(findings) if isinstance(part, Drawing)}
    by_domain, by_class = parts["map-digits-methods-domains.svg"], parts["map-digits-methods-classes.svg"]
    assert by_domain.alternative == (
        "Heat map of the accuracy of 2 rows by domain, with mean and worst; the lowest worst domain is that of FedAvg, 31 "
        "percent. The table of the last round has the numbers."
    )
    assert "one for each of 2 rows. The lowest is 31 percent, FedAvg: class 0 of svhn." in by_class.alternative
    assert ">FedPLCC</text>" in by_class.svg
    assert ">71</text>" in by_domain.svg
    web = page(report(findings))
    assert web.count('<figure class="wide"><div role="img" tabindex="0" aria-label="Heat map') == 4
    pictures = re.findall(r'<figure class="wide">.*?</figure>', web, re.DOTALL)
    assert all(INK not in picture and PAPER not in picture for picture in pictures), "in the page's colours"
    assert "(map-digits-readings-classes.svg)" in markdown(report(findings))
    (out / "map-digits-former-classes.svg").write_text("of a group that is gone")
    write_findings(out, findings)
    assert not (out / "map-digits-former-classes.svg").exists()


def test_the_classes_are_those_of_the_last_evaluated_round_in_full_in_a_table(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cell = cells_of(path, out)[0]
    write_cell(cell, ROUNDS)
    reports = cell.folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    lines[-1]["counts"][0] |= {"correct": [400, 0], "total": [500, 0]}
    reports.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    findings = findings_of(path, [cell])
    found = lines_of(csv_tables(findings)["classes.csv"])
    assert [(line["round"], line["domain"], line["class"], line["correct"], line["total"]) for line in found] == [
        ("3", "mnist", "0", "350", "500"),
        ("3", "mnist", "1", "350", "500"),
        ("3", "svhn", "0", "400", "500"),
        ("3", "svhn", "1", "0", "0"),
    ]
    (svg,) = (
        part.svg for part in report(findings) if isinstance(part, Drawing) and part.name.endswith("methods-classes.svg")
    )
    assert re.findall(r">(\d+|-)</text>", svg) == ["70", "80", "70", "-", "0", "1"]


def test_without_reports_there_is_no_picture_of_classes(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cell = cells_of(path, out)[0]
    write_cell(cell, ROUNDS)
    (cell.folder / "evaluations.jsonl").unlink()
    names = [part.name for part in report(findings_of(path, [cell])) if isinstance(part, Drawing)]
    assert [name for name in names if name.startswith("map")] == [
        "map-digits-methods-domains.svg",
        "map-digits-readings-domains.svg",
    ]
