"""Artifacts of a run: whole files, the right bytes, a summary."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.runs import artifacts, plots
from fedplcc.runs.artifacts import (
    FILES,
    RunRecord,
    blob_file,
    claim_folder,
    describe,
    joining_texts,
    read_record,
    summary,
    write_record,
)
from fedplcc.runs.atomic_file import atomic_file, make_folder, write_text
from fedplcc.shared.errors import InvalidConfig, PayloadCorrupt, StoreUnavailable
from fedplcc.shared.tensors import blob_ref
from tests.unit.fedplcc.records import MODEL, PROTOTYPES, a_line, a_local_line, a_record, an_unevaluated_line


def write_all(folder: Path, record: RunRecord) -> None:
    for name, blob, data in (
        (artifacts.MODEL, record.model, MODEL),
        (artifacts.PROTOTYPES, record.prototypes, PROTOTYPES),
    ):
        with blob_file(folder / name, blob) as file:
            file.write(data)
    write_record(folder, record)


def test_a_run_leaves_exactly_its_files(tmp_path: Path) -> None:
    record = a_record()
    write_all(tmp_path, record)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(f"{line}\n" for line in record.metrics_lines)
    assert json.loads((tmp_path / "run.json").read_text()) == record.manifest
    assert (tmp_path / "model.safetensors").read_bytes() == MODEL


def test_what_clients_reported_is_kept_where_it_is_known(tmp_path: Path) -> None:
    record = replace(a_record(), evaluations_lines=['{"round":1}', '{"round":2}'])
    write_all(tmp_path, record)
    assert (tmp_path / "evaluations.jsonl").read_text() == '{"round":1}\n{"round":2}\n'
    assert read_record(tmp_path) == record
    assert "evaluations.jsonl" in describe(record, tmp_path)[-1]


@pytest.mark.parametrize("status", ["completed", "stopped"])
def test_why_a_run_ended_before_its_last_round_is_told_and_read_back(status: str, tmp_path: Path) -> None:
    record = a_record(a_line(1, north=0.5), status=status, reason="no better round")
    record = replace(record, manifest={**record.manifest, "status": status, "reason": "no better round"})
    write_all(tmp_path, record)
    assert read_record(tmp_path) == record
    assert describe(record, tmp_path)[0] == f"run digits-1: 1 of 2 rounds, {status} (no better round)"
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InvalidConfig, match="does not hold a whole run"):
        read_record(tmp_path)


@pytest.mark.parametrize("name", [name for name in FILES if name != "accuracy.png"])
def test_a_folder_that_misses_a_file_is_no_completed_run(tmp_path: Path, name: str) -> None:
    write_all(tmp_path, a_record())
    (tmp_path / name).unlink()
    with pytest.raises(InvalidConfig, match="--out"):
        read_record(tmp_path)


def test_bytes_of_another_hash_get_no_name(tmp_path: Path) -> None:
    with pytest.raises(PayloadCorrupt, match="SHA-256"), blob_file(tmp_path / "m", blob_ref("model", MODEL)) as file:
        file.write(MODEL[:-1])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "old")

    def fail_half_way() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    write_all(tmp_path, a_record())
    claim_folder(tmp_path, "digits-1")
    with pytest.raises(InvalidConfig, match="holds the run digits-1"):
        claim_folder(tmp_path, "digits-2")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InvalidConfig, match="no run's"):
        claim_folder(tmp_path, "digits-1")


def test_the_summary_is_the_last_round_and_where_the_rest_is(tmp_path: Path) -> None:
    assert summary(a_record(), tmp_path) == {
        "run_id": "digits-1",
        "status": "completed",
        "rounds": 2,
        "directory": str(tmp_path),
        **a_line(2, north=0.5, south=0.75),
    }


def test_the_summary_of_a_run_that_committed_no_round_has_every_key(tmp_path: Path) -> None:
    record = a_record(status="stopped")
    nothing = RunRecord(
        manifest=record.manifest,
        status="stopped",
        reason="",
        metrics_lines=[],
        timings_lines=[],
        model=record.model,
        prototypes=record.prototypes,
    )
    assert summary(nothing, tmp_path).keys() == summary(record, tmp_path).keys()
    write_record(tmp_path, nothing)
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_a_person_is_told_how_far_a_score_may_move_with_other_test_images(tmp_path: Path) -> None:
    record = a_record(a_line(1, north=0.75, south=0.5))
    values = {"mean": {"low": 0.5, "high": 0.7}, "worst": {"low": 0.4, "high": 0.6}}
    for number, said in (
        (1, "accuracy: mean 62.5% [50.0, 70.0], worst 50.0% [40.0, 60.0] (south)"),
        (2, "accuracy: mean 62.5%, worst 50.0% (south)"),
    ):
        manifest = {**record.manifest, "score": {"round": number, "values": values}}
        assert describe(replace(record, manifest=manifest), tmp_path)[1] == said


def test_a_person_is_told_of_local_models_and_where_no_other_was_trained(tmp_path: Path) -> None:
    told = describe(a_record(a_local_line(1, north=0.75, south=0.5)), tmp_path)
    assert told[1] == "accuracy: mean 25.0%, worst 25.0% (north)"
    assert told[2] == "accuracy of the clients' own models: mean 62.5%, worst 50.0% (south)"
    told = describe(a_record(a_local_line(1, is_alone=True, north=0.75, south=0.5)), tmp_path)
    assert told[1] == "accuracy of the clients' own models: mean 62.5%, worst 50.0% (south)"
    assert told[2] == (
        "model.safetensors is what the run began with, or has a part of that: clients share no whole models in it"
    )


def test_without_matplotlib_everything_but_the_picture_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: object, **kwargs: object) -> bytes:
        raise ImportError("No module named 'matplotlib'")

    write_all(tmp_path, a_record())
    monkeypatch.setattr(artifacts, "accuracy_curves", missing)
    write_all(tmp_path, a_record())
    assert {path.name for path in tmp_path.iterdir()} == set(FILES) - {"accuracy.png"}
    assert "matplotlib is not installed" in describe(a_record(), tmp_path)[-1]


# The picture


def png_size(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_a_domain_without_a_report_leaves_a_gap_and_not_a_zero() -> None:
    lines = [a_line(1, north=0.5, south=None), a_line(2, north=0.5, south=0.25)]
    gap = plots.accuracy_curves(lines, title="")
    zero = plots.accuracy_curves([a_line(1, north=0.5, south=0.0), lines[1]], title="")
    assert png_size(gap) == png_size(zero)
    assert gap != zero


def test_writing_the_same_run_again_changes_no_byte(tmp_path: Path) -> None:
    write_all(tmp_path, a_record())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_all(tmp_path, a_record())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_said_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"cannot write .*--out"):
        make_folder(tmp_path / "file" / "below")


def test_of_a_run_whose_last_round_was_not_evaluated_a_person_is_told_the_last_accuracy_and_its_round(
    tmp_path: Path,
) -> None:
    told = describe(a_record(a_line(1, north=0.75, south=0.5), an_unevaluated_line(2)), tmp_path)
    assert told[1] == "accuracy in round 1: mean 62.5%, worst 50.0% (south)"
    assert len(describe(a_record(an_unevaluated_line(1)), tmp_path)) == len(told) - 1
    record = a_record(a_line(1, north=0.75), an_unevaluated_line(2))
    assert summary(record, tmp_path)["accuracy"] is None


def test_a_person_is_told_which_domains_a_mean_lacks(tmp_path: Path) -> None:
    told = describe(a_record(a_line(1, north=0.75, south=0.5), a_line(2, north=0.75)), tmp_path)
    assert told[1:3] == [
        "accuracy: mean 75.0%, worst 75.0% (north)",
        "no report of south in round 2: mean and worst are of the other domains",
    ]
    assert "no report" not in "".join(
        describe(a_record(a_line(1, north=0.75), a_line(2, north=0.75, south=0.5)), tmp_path)
    )


def test_what_joining_is_worth_is_told_where_clients_said_it() -> None:
    line = {"joining": {"south": -0.002, "north": 0.034}}
    said = "joining: north +3.4, south -0.2 (points of a client's own model over its images alone)"
    assert joining_texts(line) == [said]
    assert joining_texts({"joining": None}) == []


def test_a_curve_leads_over_rounds_that_were_not_evaluated() -> None:
    ends = [a_line(1, north=0.5), a_line(3, north=0.75)]
    assert plots.accuracy_curves([ends[0], an_unevaluated_line(2), ends[1]], title="") == plots.accuracy_curves(
        ends, title=""
    )
    assert png_size(plots.accuracy_curves([an_unevaluated_line(1)], title=""))


def test_no_rounds_and_many_domains_can_be_drawn_too() -> None:
    assert png_size(plots.accuracy_curves([], title=""))
    many = {f"domain-{number:02d}": number / 40 for number in range(40)}
    assert png_size(plots.accuracy_curves([a_line(1, **many)], title=""))
