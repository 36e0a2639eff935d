"""A sample of the games of tests/chaos/exactly_once.py: `make chaos` plays many more."""

from __future__ import annotations

import pytest

from tests.chaos.exactly_once import play, play_straggler, table

GAMES, STEPS = 10, 50
SEEN = {
    "ACCEPTED",
    "DUPLICATE",
    "UPDATE_CONFLICT",
    "STALE_ROUND",
    "RUN_ENDED",
    "NOT_A_MEMBER",
    "CLIENT_ID_TAKEN",
    "REQUEST_ID_REUSED",
    "INVALID_TRANSITION",
    "killed between calls",
    "killed within a call",
    "runs completed",
    "runs stopped",
}
"""What these games come to many times; a game that never gets there proves nothing of it."""


@pytest.mark.timeout(400)
def test_every_update_counts_once_or_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = play(GAMES, steps=STEPS, is_random=False)
    with capsys.disabled():
        print(f"\n{table(found)}")
    assert not (unseen := SEEN - found.keys()), unseen
    assert found["steps"] > GAMES * 10


def test_who_is_too_late_or_too_early_for_a_round_is_told_which() -> None:
    found = play_straggler()
    assert [found[reason] for reason in ("LATE_UPDATE", "EARLY_REPORT", "LATE_REPORT")] == [1, 1, 1]
    assert found["dropped from a round"] == 2
    assert found["runs completed"] == 1
