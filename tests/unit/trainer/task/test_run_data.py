"""A run goes on only with the data it began with, and tests on no image that was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import ClientProblem, ForgottenRun, Membership
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord, RunRecord, changes
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import KEPT_RECORDS
from fedplcc.trainer.task.run_data import PIXELS_KEY, Beginning, RunData

names = st.dictionaries(st.text(max_size=4), st.text("01", min_size=1, max_size=4), max_size=5)
records = st.builds(
    lambda train, validation, test: DataRecord(sides={TRAIN: train, VALIDATION: validation, TEST: test}),
    names,
    names,
    names,
)

MEMBER = Membership(heartbeat_interval_s=1, lease_s=1, max_chunk_bytes=1, max_blob_bytes=1)


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


def begins(*runs: str, **rule: str) -> Beginning:
    return Beginning(runs=runs, rule=rule)


def test_a_run_that_begins_with_a_model_tests_on_no_image_that_was_trained_on_for_it(tmp_path: Path) -> None:
    data(tmp_path).check("run-1", None, record("abx", "cx"), Beginning(rule={"run.seed": "0"}))
    data(tmp_path).check("run-2", None, record("abcd", "x"), begins("run-1"))
    for wrong in (record("a", "bc"), record("a", "c", "b"), record("q", "c")):
        for parents in (("run-1", "run-2"), ("run-2", "run-1")):
            with pytest.raises(
                InvalidData, match=r"[12] images for testing or validation were trained on in run run-[12]"
            ):
                data(tmp_path).check("run-3", None, wrong, begins(*parents))
    with pytest.raises(InvalidData, match=r"since then changed: run.seed \(0, now 1\);"):
        data(tmp_path).check("run-3", None, record("a", "b"), Beginning(runs=("run-1",), rule={"run.seed": "1"}))
    with pytest.raises(InvalidData, match="the files have changed sides since then"):
        data(tmp_path).check("run-3", None, record("a", "b"), Beginning(runs=("run-1",), rule={"run.seed": "0"}))
    data(tmp_path).check("run-3", None, record("abz", "x"), begins("run-1", "run-2"))
    data(tmp_path).check("anew", None, record("c", "ab"))


def test_an_heir_knows_what_its_ancestors_trained_on(tmp_path: Path) -> None:
    data(tmp_path).check("run-1", None, record("ab", "c"))
    data(tmp_path).check("run-2", None, record("d", "c"), begins("run-1"))
    with pytest.raises(InvalidData, match="trained on in run run-2"):
        data(tmp_path).check("run-3", None, record("e", "a"), begins("run-2"))
    with pytest.raises(InvalidData, match="trained on earlier in run run-2"):
        data(tmp_path).check("run-2", Place(1, 2), record("e", "a"))


def test_tests_on_copies_of_what_is_trained_on_are_told_once(tmp_path: Path) -> None:
    said: list[ClientProblem] = []
    copies = DataRecord(sides={**record("ab", "c").sides, TEST: {"copy": "0 a", "twin": "1 b", "c": "0 c"}})
    for run_id, seen in (("run-1", copies), ("run-1", copies), ("run-2", record("ab", "c"))):
        data(tmp_path).check(run_id, None, seen, on_problem=said.append)
    assert [problem.reason for problem in said] == ["COPIES_ON_TWO_SIDES"]
    assert said[0].detail.startswith("2 images for testing or validation have the pixels of images that are trained on")
    data(tmp_path).check("run-3", None, copies, Beginning(withholds=True), said.append)
    assert len(said) == 1, "under the claim site no word of it leaves"


def test_who_cannot_know_says_so_once(tmp_path: Path) -> None:
    said: list[ClientProblem] = []
    for beginning in (Beginning(runs=None), begins("elsewhere")):
        run_id = f"run of {beginning.runs}"
        data(tmp_path).check(run_id, None, record("a", "b"), beginning, said.append)
        data(tmp_path).check(run_id, None, record("a", "b"), beginning, said.append)
    assert [problem.reason for problem in said] == ["TRAINED_IMAGES_UNKNOWN"] * 2
    assert "nobody says which runs" in said[0].detail
    assert "no record of its images in elsewhere" in said[1].detail
    data(tmp_path).check("of no run here", None, record("a", "b"), Beginning(runs=()), said.append)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("before", "now", "is_said"),
    [
        ({}, {"run.seed": "0", PIXELS_KEY: "2"}, True),
        ({"run.seed": "1"}, {"run.seed": "0", PIXELS_KEY: "2"}, True),
        ({"run.seed": "0"}, {"run.seed": "0", PIXELS_KEY: "2"}, False),
        ({"run.seed": "1", PIXELS_KEY: "2"}, {"run.seed": "0", PIXELS_KEY: "2"}, False),
    ],
)
def test_images_whose_sides_and_digests_may_both_have_changed_are_said(
    before: dict[str, str], now: dict[str, str], is_said: bool, tmp_path: Path
) -> None:
    said: list[ClientProblem] = []
    data(tmp_path).check("run-1", None, record("ab", "c"), Beginning(rule=before))
    data(tmp_path).check("run-2", None, record("ab", "c"), begins("run-1", **now), said.append)
    assert ["read pictures with colour profiles otherwise" in problem.detail for problem in said] == [True] * is_said


def test_records_of_ended_runs_stay_up_to_a_number_and_without_the_forgotten(tmp_path: Path) -> None:
    states = ClientStates(tmp_path)
    for number in range(KEPT_RECORDS + 3):
        states.keep_data_record(f"run-{number}", RunRecord(places={}, latest=record("ab"[: number % 2])))
        states.settle(MEMBER, run_id="", identity=None)
    again = ClientStates(tmp_path)
    assert [name for name, _ in again.manifest.ended] == [f"run-{number}" for number in range(3, KEPT_RECORDS + 3)]
    assert again.data_record("run-2") is None
    assert again.data_record("run-3") is not None
    again.forget_runs([ForgottenRun(run_id="run-3", round=1)])
    assert again.data_record("run-3") is None


def test_what_a_run_leaves_beside_its_model_names_no_image() -> None:
    kept = RunRecord(places={"0": "x"}, latest=record("abx", "cx"), trained=frozenset("d"), rule={"run.seed": "0"})
    left = RunRecord.from_bytes(kept.without_names.to_bytes())
    assert left.barred == kept.barred == frozenset("abd")
    assert (dict(left.latest.sides), dict(left.places), left.rule) == ({}, {}, {"run.seed": "0"})
