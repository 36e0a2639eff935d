"""Certificates that live for seconds; `python -m tests.chaos.short_certificates` takes those of a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.short_certificates import run
from tests.support.federation.processes import TOLD

pytestmark = pytest.mark.full


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_renewals_in_the_middle_of_transfers_send_no_byte_again_and_members_find_an_aggregator_that_was_away(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    result = run(tmp_path, valid_s=18.0)
    record_property(TOLD, f"renewals: {result.renewals}; bytes sent again: {result.sent_bytes - result.due_bytes}")
    assert result.violations() == []
