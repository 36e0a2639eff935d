"""A small fleet, by the code of `python -m tests.chaos.fleet`."""

from __future__ import annotations

import pytest

from tests.chaos import fleet


@pytest.mark.full
def test_a_small_fleet_keeps_its_leases_and_sends_nothing_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet.main(["--clients", "6", "--rounds", "1"]) == 0
    assert "VIOLATED" not in capsys.readouterr().out


def test_what_was_lost_or_sent_again_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet, "measured", lambda *_: {"lost leases": 0, "sent again": 3})
    assert fleet.main([]) == 1
    assert "VIOLATED: sent again: 3" in capsys.readouterr().out
