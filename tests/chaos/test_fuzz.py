"""A sample of the mutants that `python -m tests.chaos.fuzz` sends, by the same code; and that it would find a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.computation import update_checks
from fedplcc.shared.types import RunStatus, Update
from tests.chaos.fuzz import (
    POISONERS,
    Report,
    local_federation,
    local_scene,
    main,
    minimal,
    poison_locally,
    poison_process,
    refusal_of,
    scene_of,
)
from tests.chaos.fuzz_attempt import Scene, arrays_of
from tests.chaos.fuzz_doors import LocalDoor
from tests.chaos.fuzz_judge import faults
from tests.chaos.fuzz_mutators import MUTATORS, is_inline, mutant, names_of
from tests.support.hosts.memory_folder import memory_folder

SEED = 20_240
ALWAYS_GOOD = {"prototypes with extreme vectors"}
"""Mutators that reach for the edge of what is good, and not over it."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A round to make mutants for; nothing is sent there."""
    with local_scene() as (_door, found):
        yield found


def test_no_mutant_is_accepted_in_process_and_the_run_ends_as_undisturbed() -> None:
    report = Report(SEED)
    poison_locally(SEED, 400, report)
    print(report.text())
    assert not report.violations
    assert report.num_sent == 400
    assert set(report.sent) <= set(MUTATORS)


def test_no_mutant_is_accepted_by_a_process_and_both_runs_end_as_without_the_poisoners(tmp_path: Path) -> None:
    report = Report(SEED)
    with memory_folder() as folder:
        poison_process(SEED, 500, report, Path(folder))
    print(report.text())
    assert not report.violations
    assert report.num_sent == 500


def test_what_an_honest_client_sends_is_good_in_both_opinions() -> None:
    with local_scene() as (door, scene):
        honest = mutant(scene, SEED, 0, ())
        assert faults(honest, scene) == []
        assert refusal_of(honest, scene) == ""
        outcome = door.send(honest)
    assert (outcome.answers, outcome.is_accepted, outcome.bugs) == (("OK", "OK", "OK"), True, ())


@pytest.mark.parametrize("name", sorted(MUTATORS))
def test_every_mutator_spoils_an_update_and_does_it_again_alike(name: str, scene: Scene) -> None:
    attempts = [mutant(scene, SEED, index, [name]) for index in range(30)]
    again = [mutant(scene, SEED, index, [name]) for index in range(3)]
    honest = [mutant(scene, SEED, index, ()) for index in range(30)]
    bad = [attempt for attempt in attempts if faults(attempt, scene)]
    assert again == attempts[:3]
    assert sum(attempt != unspoilt for attempt, unspoilt in zip(attempts, honest, strict=True)) > 15
    assert bool(bad) is (name not in ALWAYS_GOOD)


@pytest.mark.parametrize("index", range(6))
def test_numbers_at_the_edge_that_are_good_do_a_run_no_harm(index: int) -> None:
    with memory_folder() as folder, local_federation(Path(folder)) as federation:
        run = federation.create("fedplcc", run={"rounds": 2})
        scene = scene_of(federation, POISONERS[0])
        extreme = mutant(scene, SEED, index, ["model with extreme values", "prototypes with extreme vectors"])
        assert faults(extreme, scene) == []
        outcome = LocalDoor(federation).send(extreme)
        assert outcome.is_accepted
        run = federation.run_to_end(run.run_id)
        assert run.status is RunStatus.COMPLETED
        assert run.model is not None
        assert run.prototypes is not None
        for blob in (run.model, run.prototypes):
            arrays = arrays_of((Path(folder) / "blobs" / blob.sha256[:2] / blob.sha256).read_bytes())
            assert all(np.isfinite(array).all() for array in arrays.values())


def test_a_check_that_is_missing_is_found_and_the_mutant_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_checks, "check_prototypes", lambda *_arguments, **_keywords: None)
    report = Report(SEED)
    poison_locally(SEED, 4 * len(POISONERS) * len(MUTATORS), report)
    found = [text for text in report.violations if text.startswith("mutant ")]
    assert found
    assert all("accepted; wrong with it: prototypes" in text or "do not stand" in text for text in found), found


def test_a_mutant_is_reported_with_no_more_mutators_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_checks, "check_prototypes", lambda *_arguments, **_keywords: None)
    names = ("prototypes that are not finite", "prototypes with extreme vectors")
    assert minimal(SEED, 1, names) == ("prototypes that are not finite",)


def test_a_crash_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    check_counts = update_checks.check_counts

    def crash(update: Update, *rest: Any, **named: Any) -> None:
        if update.num_examples < 0:
            raise ZeroDivisionError("a bug")
        check_counts(update, *rest, **named)

    monkeypatch.setattr(update_checks, "check_counts", crash)
    report = Report(SEED)
    poison_locally(SEED, 2 * len(MUTATORS), report)
    assert any("answered ZeroDivisionError('a bug')" in text for text in report.violations)


@pytest.mark.parametrize(("inline", "uploaded"), [(False, "OK, OK, "), (True, "")])
def test_one_mutant_can_be_sent_again(capsys: pytest.CaptureFixture[str], inline: bool, uploaded: str) -> None:
    of_kind = (index for index in range(1000) if is_inline(index) is inline)
    index = next(index for index in of_kind if names_of(SEED, index) == ("no prototypes",))
    assert main(["--mutant", f"{SEED}:{index}"]) == 0
    assert capsys.readouterr().out == (
        f"mutant {SEED}:{index} (no prototypes)\n"
        "wrong with it: prototypes: do not stand for the samples\n"
        f"answers: {uploaded}MALFORMED_UPDATE sum\n"
    )


def test_a_mutant_has_nothing_else_wrong_with_it_than_its_mutator_did(scene: Scene) -> None:
    attempt = mutant(scene, SEED, 5, ["count of excluded samples"])
    assert all(fault == "num_excluded" or "samples" in fault for fault in faults(attempt, scene))
