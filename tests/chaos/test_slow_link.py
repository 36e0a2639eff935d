"""A federation on slow links at its defaults; `python -m tests.chaos.slow_link` takes the time that 50 kB/s take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.slow_link import run


@pytest.mark.slow
def test_on_a_slow_link_that_both_share_nobody_is_lost_and_no_byte_sent_twice(tmp_path: Path) -> None:
    result = run(tmp_path, bytes_per_s=200e3, delay_s=0.15, model_bytes=120_000, is_shared=True)
    print(result)
    assert result.violations() == []
    assert result.seconds > 2 * 0.5, "the deadline was long over"
