"""Real processes killed by SIGKILL end in the undisturbed bytes: a sample of `python -m tests.chaos.sweep`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import durable_steps, sweep
from tests.chaos.armed_federation import Order
from tests.chaos.scenarios import Scenario
from tests.chaos.sweep import Result, report
from tests.chaos.turns import Passings, Turn, plan, plan_aggregation, sample

NOTHING = Scenario(name="nothing", perform=lambda _operator, _folder: {})


@pytest.mark.timeout(600)
def test_processes_killed_at_a_sample_of_failpoints_end_in_the_undisturbed_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An aggregator in the middle of an upload and of a transition, and a trainer that has kept its update."""
    points = ["upload.rename.before", "transition.round_evaluating.after", "trainer.state.manifest.rename.after"]
    assert sweep.main(["--quick", "--points", *points, "--workers", "1"]) == 0, capsys.readouterr().out
    assert "3 crash points, 3 turns, 3 kills: 3 ended in the undisturbed bytes, 0 did not" in capsys.readouterr().out


@pytest.mark.timeout(600)
def test_an_aggregator_killed_within_a_fold_with_slots_ends_in_the_undisturbed_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sample of `python -m tests.chaos.sweep --aggregation`."""
    assert sweep.main(["--aggregation", "--sample", "4", "--workers", "1"]) == 0, capsys.readouterr().out
    assert "4 turns, 8 kills: 4 ended in the undisturbed bytes, 0 did not" in capsys.readouterr().out


@pytest.mark.timeout(600)
def test_both_sides_killed_in_a_run_with_public_images_end_in_the_undisturbed_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """FCCL+: a trainer that has kept its update, and an aggregator that has made the public means."""
    points = ["trainer.state.manifest.rename.after", "transition.round_evaluating.after"]
    named = ["--quick", "--scenario", "train with public images", "--points", *points]
    assert sweep.main([*named, "--workers", "1"]) == 0, capsys.readouterr().out
    assert "2 crash points, 2 turns, 2 kills: 2 ended in the undisturbed bytes, 0 did not" in capsys.readouterr().out


def test_every_passing_within_the_second_aggregation_has_its_turn() -> None:
    aggregating = ["transition.round_aggregating.after", "blob.put.fsync.before", "blob.put.fsync.before"]
    evaluating = ["store.commit.before", "transition.round_evaluating.after", "store.commit.before"]
    beside = ["aggregator.rpc.Heartbeat.before"]
    passed = [*aggregating, *evaluating, *aggregating[:1], *aggregating[1:], *beside, *evaluating]
    turns = plan_aggregation(passed, NOTHING)
    assert [turn.orders[0].count for turn in turns] == [2] * 4
    assert [(turn.point, turn.orders[1].count) for turn in turns] == [
        ("blob.put.fsync.before", 1),
        ("blob.put.fsync.before", 2),
        ("store.commit.before", 1),
        ("transition.round_evaluating.after", 1),
    ]


def test_nothing_changes_the_disk_without_a_failpoint() -> None:
    assert durable_steps.unwatched() == []
    assert durable_steps.unneeded_exceptions() == []


def test_a_change_of_the_disk_beside_the_named_steps_is_found(tmp_path: Path) -> None:
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "trainer").mkdir()
    source = """
import os, shutil, tempfile
from dataclasses import replace
from fedplcc.shared.process import disk

def harmless(path, text, run, mode):
    path.open("rb"), open(path), path.read_bytes(), os.open(path, os.O_RDONLY), text.replace("a", "b")
    replace(run, phase=1), shutil.disk_usage(path), disk.rename(path, path, "step"), run.find_open("w")

def harmful(path):
    os.replace(path, path)
    os.fsync(1)
    path.unlink()
    path.write_bytes(b"")
    path.replace(path)
    path.open("ab")
    open(path, mode="w")
    os.open(path, os.O_WRONLY | os.O_CREAT)
    shutil.rmtree(path)
    tempfile.mkstemp()
"""
    (tmp_path / "trainer" / "new.py").write_text(source)
    found = durable_steps.unwatched(tmp_path)
    assert all(line.startswith("trainer/new.py:") and "(harmful)" in line for line in found)
    assert len(found) == 10


def test_the_steps_of_the_source_are_known_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "trainer").mkdir()
    source = """
from fedplcc.shared.process import disk

def keep(path):
    disk.replace_file(path, b"", "kept", mode=0o600)
    with disk.durable_step("kept", "append"):
        pass
    named(path, "passed.on")

def named(path, step):
    disk.link(path, path, step)
"""
    (tmp_path / "trainer" / "new.py").write_text(source)
    kept = {f"kept.{ending}" for ending in ("write", "fsync", "rename", "fsync_folder", "append")}
    assert durable_steps.steps(tmp_path).keys() == {*kept, "passed.on.link"}
    assert {"blob.put.fsync", "blob.link", "upload.append", "trainer.token.rename"} <= durable_steps.steps().keys()


def test_a_step_or_an_rpc_that_was_never_passed_is_not_covered() -> None:
    known = durable_steps.steps()
    steps = {f"{step}.before" for step in known}
    missing = sweep.uncovered(steps - {"blob.link.before"} | {"aggregator.rpc.Join.before"})
    assert any(
        line.startswith("durable step never passed: blob.link (aggregator/store/blobs/blob_store.py:")
        for line in missing
    )
    assert "RPC never passed: trainer.rpc.Join" in missing
    assert "RPC never passed: aggregator.rpc.Join" not in missing
    assert set(sweep.NEVER_PASSED) <= known.keys(), "an exception excuses nothing any more"


def test_every_failpoint_has_a_turn_where_it_is_passed_first() -> None:
    passings = Passings(
        in_scenario={
            ("nothing", "aggregator"): Counter({f"point-{number}": 1 + 4 * (number % 2) for number in range(20)}),
            ("nothing", "trainer"): Counter({"task": 1}),
        },
        at_start={"aggregator": Counter({"point-1": 9, "recovered": 1}), "trainer": Counter()},
        at_first_start={"trainer": Counter({"token": 1, "task": 1})},
    )
    turns = plan(passings, [NOTHING])
    assert {turn.point for turn in turns} == passings.all()
    by_point = {turn.point: turn for turn in turns}
    assert (by_point["recovered"].which, len(by_point["recovered"].orders)) == ("start", 2)
    assert (by_point["token"].which, by_point["token"].victim) == ("first start", "trainer")
    assert {turn.which for turn in turns if turn.point.startswith("point-")} == {"first", "middle", "last"}
    assert {order.count for turn in turns for order in turn.orders if turn.which == "last"} == {5}
    assert sample(turns, 5) == sample(turns, 5)
    assert len(set(sample(turns, 5))) == 5


def test_calls_of_members_and_commits_have_their_turns_where_a_federation_is_founded() -> None:
    founding = Scenario(name="founding", perform=NOTHING.perform, is_new=True)
    passed = Counter({"aggregator.rpc.GetTime.before": 1, "store.commit.after": 3})
    passings = Passings(in_scenario={(name, "aggregator"): passed for name in ("nothing", "founding")})
    for name in ("nothing", "founding"):
        passings.in_scenario[name, "trainer"] = Counter()
    turns = plan(passings, [NOTHING, founding])
    found = [(turn.scenario.name, turn.point, turn.orders[-1].count) for turn in turns if turn.scenario.is_new]
    assert found == [
        ("founding", "aggregator.rpc.GetTime.before", 1),
        *(("founding", "store.commit.after", number) for number in (1, 2, 3)),
    ]
    assert "aggregator.rpc.GetTime.before" not in {turn.point for turn in turns if not turn.scenario.is_new}


def test_another_ending_a_point_never_passed_or_a_missing_one_fails_the_sweep(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turn = Turn(victim="trainer", orders=(Order("a"),), scenario=NOTHING, which="first")
    assert report([Result(turn)], [], seconds=1.0) == 0
    assert report([Result(turn), Result(turn, trouble="another ending")], [], seconds=1.0) == 1
    assert report([Result(turn)], ["RPC never passed: x"], seconds=1.0) == 1
    assert report([Result(turn, is_skipped=True)], [], seconds=1.0) == 1, "nothing was killed at all"
    assert "NOT COVERED: RPC never passed: x" in capsys.readouterr().out
