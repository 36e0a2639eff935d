"""Progress of a client: which of its reports count."""

from __future__ import annotations

import math

import pytest

from fedplcc.aggregator.presence.progress import MAX_SETBACKS, Progress
from fedplcc.shared.types import ClientActivity, TaskKind

TRAIN, EVALUATE = ("run", 1, TaskKind.TRAIN, 0), ("run", 1, TaskKind.EVALUATE, 0)
IDLE, DOWNLOADING = ClientActivity.IDLE, ClientActivity.DOWNLOADING
TRAINING, UPLOADING = ClientActivity.TRAINING, ClientActivity.UPLOADING


def test_a_heartbeat_counts_if_it_says_something_new() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    for now, activity, fraction, at in [
        (1.0, DOWNLOADING, 0.0, 1.0),
        (2.0, DOWNLOADING, 0.0, 1.0),
        (3.0, TRAINING, 0.0, 3.0),
        (4.0, TRAINING, 0.25, 4.0),
        (5.0, TRAINING, 0.25, 4.0),
        (6.0, TRAINING, 0.2507, 4.0),
        (6.5, TRAINING, 0.2514, 6.5),
        (7.0, UPLOADING, 0.0, 7.0),
        (8.0, UPLOADING, 0.0, 7.0),
    ]:
        progress.record_report(activity, fraction, now)
        assert progress.at == at


@pytest.mark.parametrize("step", [1e-9, -1e-9])
def test_steps_that_mean_nothing_hold_no_round_for_ever(step: float) -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    progress.record_report(TRAINING, 0.5, 1.0)
    for beat in range(1, 10_000):
        progress.record_report(TRAINING, 0.5 + beat * step, 1.0 + beat)
    assert progress.at == 1.0


def test_small_steps_of_slow_work_add_up() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    progress.record_report(TRAINING, 0.0, 0.0)
    counted = []
    for beat in range(1, 10_001):
        progress.record_report(TRAINING, beat / 10_000, float(beat))
        counted.append(beat - progress.at)
    assert max(counted) <= 11


def test_bytes_count_without_any_heartbeat() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    for now, end, at in ((1.0, 10, 1.0), (2.0, 20, 2.0), (3.0, 9_999, 3.0), (4.0, 10_000, 4.0)):
        progress.record_bytes("model", end, 10_000, now)
        assert progress.at == at


def test_bytes_that_mean_nothing_hold_no_round_for_ever() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    for now in range(1, 10_000):  # the same download again and again
        progress.record_bytes("model", 500, 1_000_000, float(now))
        progress.record_bytes("model", 1_000_000, 1_000_000, float(now))
    assert progress.at <= 2 * MAX_SETBACKS + 2
    before = progress.at
    for end in range(1, 10_000):  # an upload, a byte a time
        progress.record_bytes("sums", end, 1 << 40, before + end)
    assert progress.at == before


def test_a_trainer_that_is_restarted_in_its_task_gets_on_from_the_beginning() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    progress.record_report(TRAINING, 0.9, 1.0)
    progress.record_report(IDLE, 0.0, 2.0)
    progress.record_bytes("model", 10, 10, 3.0)
    assert progress.at == 3.0
    progress.record_report(TRAINING, 0.1, 4.0)
    assert progress.at == 4.0


def test_a_trainer_that_crashes_at_the_same_point_again_and_again_gets_nowhere() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 0.0)
    now = 0.0
    seen = []
    for _ in range(3 * MAX_SETBACKS):
        for activity, fraction in ((IDLE, 0.0), (DOWNLOADING, 0.0), (TRAINING, 0.1), (TRAINING, 0.5)):
            now += 1.0
            progress.record_report(activity, fraction, now)
            progress.record_task(TRAIN, now)
            if activity is DOWNLOADING:
                progress.record_bytes("model", 10, 10, now)
            seen.append(progress.at == now)
    loops = [any(seen[first : first + 4]) for first in range(0, len(seen), 4)]
    assert loops == [True] * (MAX_SETBACKS + 1) + [False] * (2 * MAX_SETBACKS - 1)
    progress.record_report(TRAINING, 0.51, now + 1)
    assert progress.at == now + 1, "it has come further than ever before"
    progress.record_report(IDLE, 0.0, now + 2)
    progress.record_bytes("update", 10, 10, now + 3)
    assert progress.at == now + 3, "what it sends was not here before"
    progress.record_task(EVALUATE, now + 4)
    progress.record_report(DOWNLOADING, 0.0, now + 5)
    assert progress.at == now + 5, "another task is a new beginning"


def test_a_client_that_was_given_nothing_has_not_come_anywhere() -> None:
    assert Progress().at == -math.inf


def test_a_task_is_new_once() -> None:
    progress = Progress()
    progress.record_task(TRAIN, 1.0)
    progress.record_task(TRAIN, 2.0)
    assert progress.at == 1.0
    progress.record_task(EVALUATE, 3.0)
    assert progress.at == 3.0
