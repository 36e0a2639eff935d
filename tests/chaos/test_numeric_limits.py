"""A sample of the numbers that `python -m tests.chaos.numeric_limits` sends, and that it misses no field."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from tests.chaos.numeric_limits import Bench, Limit, Report, bend, configuration_limits, limits_of, pairs_of, search
from tests.support.hosts.memory_folder import memory_folder


@pytest.fixture(scope="module")
def report() -> Report:
    """The outcome of a sample."""
    found = Report()
    with memory_folder() as folder:
        bench = Bench(Path(folder), found)
        try:
            search(bench, ["fedplcc"], pairs=6, every=6, configuration=False)
        finally:
            bench.close()
    print(found.text())
    return found


def test_no_number_stops_a_run_or_changes_what_was_refused(report: Report) -> None:
    assert not report.violations


def test_the_sample_is_taken_and_refused_by_name(report: Report) -> None:
    assert report.tried["fedplcc, alone"] > 20
    assert report.answers["OK"] > 0
    assert any(name.startswith("MALFORMED_UPDATE") for name in report.answers)


def test_every_kind_of_number_is_found_by_descriptor() -> None:
    found = {(limit.rpc.split("/")[1], limit.path) for limit in limits_of("RoundService")}
    assert {
        ("Join", ("num_examples",)),
        ("Join", ("class_counts", "num_examples")),
        ("SyncRound", ("poll", "hold", "seconds")),
        ("Heartbeat", ("progress",)),
        ("Heartbeat", ("readings",)),
        ("UploadModel", ("header", "blob", "size_bytes")),
        ("UploadModel", ("chunk", "offset_bytes")),
        ("CommitUpdate", ("losses",)),
        ("CommitUpdate", ("class_counts",)),
        ("CommitUpdate", ("payload", "int_lists", "values")),
        ("ReportEvaluation", ("counts", "correct")),
        ("ReportEvaluation", ("timings",)),
    } <= found


def test_a_number_is_put_into_fields_lists_maps_and_parts() -> None:
    commit = pb2.CommitUpdateRequest(losses={"ce": 1.0}, class_counts=[1, 2])
    assert bend(commit, ("losses",), 1e300)
    assert bend(commit, ("class_counts",), -1)
    assert bend(commit, ("payload", "int_lists", "values"), 7)
    assert dict(commit.losses) == {"ce": 1e300}
    assert list(commit.class_counts) == [-1, 2]
    assert [list(entry.values) for entry in commit.payload.int_lists.values()] == [[7]]
    chunk = pb2.UploadModelRequest(chunk=pb2.Chunk(data=b"x"))
    assert not bend(chunk, ("header", "round"), 7), "a chunk has no header"
    assert bend(chunk, ("chunk", "offset_bytes"), 7)
    assert chunk.chunk.offset_bytes == 7


def test_pairs_name_two_fields() -> None:
    limits = [Limit("A", ("x",), 1), Limit("A", ("x",), 2), Limit("A", ("y",), 1)]
    assert {frozenset(map(str, pair)) for pair in pairs_of(limits, 10, 0)} == {
        frozenset({"A x = 1", "A y = 1"}),
        frozenset({"A x = 2", "A y = 1"}),
    }


def test_keys_of_a_run_are_found_by_their_records() -> None:
    keys = {(section, key) for section, key, _ in configuration_limits("fedplcc")}
    assert {("run", "rounds"), ("admission", "max_update_norm"), ("quorum", "deadline_s")} <= keys
    assert any(section == "method" for section, _ in keys)
