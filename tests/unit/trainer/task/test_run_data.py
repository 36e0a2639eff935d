"""A run goes on only with the data it began with, and tests on no image that was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import ForgottenRun
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord, RunRecord, changes
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.run_data import RunData

names = st.dictionaries(st.text(max_size=4), st.text("01", min_size=1, max_size=4), max_size=5)
records = st.builds(
    lambda train, validation, test: DataRecord(sides={TRAIN: train, VALIDATION: validation, TEST: test}),
    names,
    names,
    names,
)


def record(train: str = "", test: str = "", validation: str = "") -> DataRecord:
    """Images by one letter each, which is name and digest."""
    sides = {TRAIN: train, VALIDATION: validation, TEST: test}
    return DataRecord.of({side: ([(x, x) for x in letters], [0] * len(letters)) for side, letters in sides.items()})


def data(folder: Path) -> RunData:
    return RunData("north", ClientStates(folder))


@given(latest=records, places=names, trained=st.frozensets(st.text(max_size=3)))
def test_a_record_reads_back_as_it_was(latest: DataRecord, places: dict[str, str], trained: frozenset[str]) -> None:
    kept = RunRecord(places=places, latest=latest, trained=trained)
    read = RunRecord.from_bytes(kept.to_bytes())
    assert read == kept
    assert read.latest.sha256 == latest.sha256


@given(before=records, now=records)
def test_records_are_equal_if_nothing_changed_and_only_then(before: DataRecord, now: DataRecord) -> None:
    found = changes(before, now)
    assert (before.sha256 == now.sha256) == (str(found) == "none") == (not found.first)


@pytest.mark.parametrize("damaged", [b"", b"x", RunRecord(places={}, latest=record()).to_bytes()[:-3]])
def test_a_damaged_record_is_told_apart(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="not as it was written"):
        RunRecord.from_bytes(damaged)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (record("abx", "c"), "1 arrived"),
        (record("a", "c"), "1 gone"),
        (record("ac", "b"), "2 arrived, 2 gone"),
        (record("a", "c", "b"), "1 arrived, 1 gone"),
        (
            DataRecord(sides={**record("a", "c").sides, TRAIN: {"a": "0 a", "b": "1 b"}}),
            "1 with other pixels or another class",
        ),
    ],
)
def test_other_data_after_a_restart_are_refused_with_what_changed(tmp_path: Path, now: DataRecord, said: str) -> None:
    data(tmp_path).check("run-1", None, record("ab", "c"))
    data(tmp_path).check("run-1", None, record("ab", "c"))
    with pytest.raises(InvalidData, match=rf"other data than run run-1 began with: {said};"):
        data(tmp_path).check("run-1", None, now)
    data(tmp_path).check("run-1", None, record("ab", "c"))
    data(tmp_path).check("run-2", None, now)


def test_a_stage_may_have_other_data_but_tests_on_no_image_that_was_trained_on(tmp_path: Path) -> None:
    data(tmp_path).check("run-1", Place(1, 1), record("ab", "cx"))
    data(tmp_path).check("run-1", Place(1, 2), record("abd", "cex"))
    for wrong in (record("a", "cb"), record("a", "c", "b")):
        with pytest.raises(
            InvalidData, match="1 images for testing or validation were trained on earlier in run run-1"
        ):
            data(tmp_path).check("run-1", Place(1, 3), wrong)
    data(tmp_path).check("run-1", Place(1, 3), record("xy", "c"))
    with pytest.raises(InvalidData, match="other data"):
        data(tmp_path).check("run-1", Place(1, 3), record("xyz", "c"))


def test_who_is_to_be_forgotten_keeps_no_record(tmp_path: Path) -> None:
    data(tmp_path).check("run-1", None, record("ab", "c"))
    states = ClientStates(tmp_path)
    states.forget_runs([ForgottenRun(run_id="run-1", round=3)])
    assert states.data_record("run-1") is None
    assert list(tmp_path.iterdir()) == []
    states.keep_data_record("run-1", RunRecord(places={}, latest=record("a")))
    assert states.data_record("run-1") is None
