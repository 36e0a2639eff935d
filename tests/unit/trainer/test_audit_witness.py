"""The heads of the audit that a trainer keeps: bounded, whole after a crash, and never in its way."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from fedplcc.shared.identity.audit_chain import MOST_HEADS, AuditHead, heads_from_text, heads_to_text
from fedplcc.trainer.audit_witness import AT_ONCE, EACH_S, HEADS_FILE, AuditWitness
from tests.support.clock import Clock


def head(number: int) -> AuditHead:
    return AuditHead(number, f"{number:064x}")


def kept(folder: Path) -> list[AuditHead]:
    return heads_from_text((folder / HEADS_FILE).read_text())


def test_heads_outlive_the_trainer(tmp_path: Path) -> None:
    AuditWitness(tmp_path).saw(head(1))
    witness = AuditWitness(tmp_path)
    for seen in (head(1), None, head(3), head(3)):
        witness.saw(seen)
    assert kept(tmp_path) == [head(1), head(3)]


def test_the_newest_heads_are_kept(tmp_path: Path) -> None:
    clock = Clock(time.time())
    witness = AuditWitness(tmp_path, clock)
    for number in range(MOST_HEADS + 10):
        witness.saw(head(number))
        clock.now += EACH_S
    assert kept(tmp_path) == [head(number) for number in range(10, MOST_HEADS + 10)]


def test_heads_that_come_in_a_flood_push_out_none_of_before(tmp_path: Path) -> None:
    before = [head(number) for number in range(200)]
    (tmp_path / HEADS_FILE).write_text(heads_to_text(before))
    clock = Clock(time.time() + 100 * EACH_S)
    for start in (1000, 2000):  # a restart earns no lines
        witness = AuditWitness(tmp_path, clock)
        for number in range(start, start + 500):
            witness.saw(head(number))
        os.utime(tmp_path / HEADS_FILE, (clock.now, clock.now))
    assert kept(tmp_path)[: len(before)] == before
    assert len(kept(tmp_path)) == len(before) + int(AT_ONCE)
    assert kept(tmp_path)[-1] == head(2499)


def test_an_audit_that_went_back_is_logged_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    witness = AuditWitness(tmp_path)
    witness.saw(head(5))
    witness.saw(head(4))
    assert kept(tmp_path) == [head(5), head(4)]
    assert [vars(record)["msg"]["event"] for record in caplog.records] == ["audit_went_back"]
    for number in range(200):
        witness.saw(head(4 + number % 2))
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == AT_ONCE, "an aggregator that goes back and forth fills no disk"


@pytest.mark.parametrize("damage", [b"1 xy\n", b"\xff\xfe"])
def test_a_damaged_file_begins_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / HEADS_FILE).write_bytes(damage)
    AuditWitness(tmp_path).saw(head(7))
    assert kept(tmp_path) == [head(7)]


def test_a_disk_that_refuses_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    witness = AuditWitness(tmp_path / "gone")
    witness.saw(head(1))
    assert [vars(record)["msg"]["event"] for record in caplog.records] == ["audit_head_not_kept"]


def test_an_older_aggregator_leaves_no_file(tmp_path: Path) -> None:
    AuditWitness(tmp_path).saw(None)
    assert not (tmp_path / HEADS_FILE).exists()
