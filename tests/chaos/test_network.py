"""A sample of the sweep over cut links; `python -m tests.chaos.network` does all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.chaos.network import CHUNK_BYTES, Report, Transfer, sweep


def test_a_link_that_is_cut_again_and_again_costs_a_chunk_each_time_and_no_byte_of_the_result(tmp_path: Path) -> None:
    report = sweep(tmp_path, (4, 11))
    print(report.table())
    assert report.violations() == []
    assert sum(transfer.cuts for transfer in report.transfers) >= 12


def test_the_sweep_finds_what_it_is_there_for() -> None:
    good = Transfer("up", "model", 3, 100_000, 100_000 + 3 * CHUNK_BYTES, 3)
    report = Report([good], {("up", "model"): 50}, {"up": 600, "down": 600}, is_same=True)
    assert report.violations() == []
    report.is_same = False
    report.transfers = [replace(good, link_bytes=400_000)]
    report.framing["down", "model"] = 50
    other_bytes, too_much, never_cut = report.violations()
    assert "undisturbed" in other_bytes
    assert "needed 300000 bytes more than its payload" in too_much
    assert never_cut == "no model was cut on the way down"
