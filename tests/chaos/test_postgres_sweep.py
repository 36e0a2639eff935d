"""Real processes killed by SIGKILL, with the store on PostgreSQL: a few turns of `python -m tests.chaos.postgres_sweep`."""

from __future__ import annotations

import pytest

from tests.chaos import postgres_sweep
from tests.support.hosts.postgres import HOW_TO_INSTALL, binaries


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.skipif(binaries() is None, reason=HOW_TO_INSTALL)
def test_an_aggregator_on_postgresql_that_is_killed_ends_in_the_undisturbed_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once as a new database and its state directory are bound to each other, once after a commit."""
    points = ["belonging.rename.before", "store.commit.after"]
    given = ["--quick", "--scenario", "members and keys", "--points", *points]
    assert postgres_sweep.main(given) == 0, capsys.readouterr().out
    assert "2 crash points, 2 turns, 2 kills: 2 ended in the undisturbed bytes, 0 did not" in capsys.readouterr().out


def test_where_postgresql_is_not_installed_the_sweep_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_sweep, "binaries", lambda: None)
    assert postgres_sweep.main([]) == 0
    assert capsys.readouterr().out == f"SKIPPED: {HOW_TO_INSTALL}\n"
