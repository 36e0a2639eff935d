"""Names of files may hold anything; what is printed of them stays on its line."""

from __future__ import annotations

import pytest

from fedplcc.models.prediction import Prediction, PredictionTable
from fedplcc.terminal.printable import printable, table_cell


@pytest.mark.parametrize(
    "text", ["", "images/7.png", "größer 猫.png", "c:\\x", "👩\u200d🔬", "a\u00a0b", "שלום\u200f.png"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J\x00\x7f\x9b", "\\x1b[2J\\x00\\x7f\\x9b"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\udcff.png", "\\udcff.png"),
        ("a\u202egnp.exe\u202c", "a\\u202egnp.exe\\u202c"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
    ],
)
def test_what_breaks_a_line_or_cannot_be_encoded_is_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    printable(text).encode()


def test_an_image_keeps_its_line_of_the_table_whatever_its_name() -> None:
    prediction = Prediction(image="one\ntwo.png", top=(("a", 1.0),), prototype=None, probabilities=(1.0, 0.0))
    (line,) = PredictionTable(["a", "b"], has_prototypes=False).lines(prediction)
    assert line.endswith("  one\\ntwo.png")
    assert "\n" not in line
    assert prediction.as_json()["image"] == "one\ntwo.png", "a program gets the name itself"


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_computes_no_name(name: str) -> None:
    assert table_cell(name) == f"'{name}"


@pytest.mark.parametrize("value", ["+", "-", "a=b", "-0.25", "-1", "1e-3", "-inf", "", "'", -1.5, 3, None])
def test_other_values_of_a_table_stay_as_they_are(value: str | float | None) -> None:
    assert table_cell(value) is value
