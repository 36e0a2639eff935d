"""The audit of a federation of real processes: by REST, by the command, by doctor, and against a site's witness."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation, eventually

DOCUMENT = {
    "run": {"method": "fedavg", "rounds": 1, "clients": ["ann"]},
    "model": {"name": "site_model:Net"},
    "data": {"classes": [str(digit) for digit in range(10)], "image_size": 16},
}


def fedplcc(*arguments: object) -> tuple[int, str]:
    """Run the command; returns its exit code and what it prints."""
    done = typed(*map(str, arguments), cwd=Path.cwd())
    return done.returncode, done.stdout + done.stderr


def change(state: Path, *statements: str) -> None:
    """Change the database as somebody with the disk can."""
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def last_of(witness: Path) -> int:
    """The number of the newest head that a site keeps."""
    return int(witness.read_text().splitlines()[-1].split()[0])


def audit(federation: Federation, **query: int) -> dict[str, Any]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    page: dict[str, Any] = federation.ask(f"/v1/audit?{asked}")
    return page


def with_the_refusal(federation: Federation) -> list[dict[str, Any]] | None:
    """The audit, once the trainer's refusal is in it."""
    entries: list[dict[str, Any]] = audit(federation)["entries"]
    return entries if entries[-1]["method"] == "Heartbeat" else None


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Path, Path, list[dict[str, Any]]]]:
    """State directory of an aggregator that has ended, a site's witness, and the audit by REST."""
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        federation.start_gateway()
        trainer = federation.start_trainer("ann", "digits:optdigits", "--allow-code", "site_model:Other")
        federation.ask("/v1/runs", DOCUMENT, **{"Idempotency-Key": "k1", "X-Request-Id": "r1"})
        entries: list[dict[str, Any]] = eventually(lambda: with_the_refusal(federation), "the refusal is audited", 60)
        second = audit(federation, after=1, page_size=1)
        assert second["entries"] == entries[1:2]
        third = audit(federation, page_size=1, page_token=second["next_page_token"])
        assert third["entries"] == entries[2:3]
        assert audit(federation, after=len(entries)) == {"entries": [], "next_page_token": None}
        trainer.end()
        trainer.start()  # it joins again, and sees the audit with the refusal
        witness = federation.folder / "trainer-ann" / "audit-heads"
        eventually(lambda: last_of(witness) >= len(entries) or None, "the site keeps the head", 60)
        trainer.end()
        federation.processes["aggregator"].end()
        assert '"audit_head"' in federation.processes["aggregator"].log()
        yield federation.folder / "aggregator", witness, entries


@pytest.mark.timeout(240)
def test_an_audit_is_shown_verified_and_its_damage_named(stopped: tuple[Path, Path, list[dict[str, Any]]]) -> None:
    state, witness, entries = stopped
    known = {(entry["method"], entry["outcome"], entry["reason"]) for entry in entries}
    assert known >= {
        ("Join", "done", None),
        ("CreateRun", "done", None),
        ("Heartbeat", "refused", "CODE_NOT_ALLOWED"),
    }
    assert {(entry["method"], entry["caller"].partition(":")[0]) for entry in entries} == {
        ("CreateInvitation", "aggregator"),  # the gateway's
        ("CreateInvitation", "owner"),
        ("Enrol", "nobody"),
        ("CreateKey", "owner"),
        ("CreateRun", "key"),
        ("Join", "client"),
        ("Heartbeat", "client"),
    }
    created = next(entry for entry in entries if entry["method"] == "CreateRun")
    assert created["request_id"] == "k1"

    code, text = fedplcc("state", "audit", state)
    assert code == 0
    assert all(entry["method"] in text for entry in entries)
    code, text = fedplcc("state", "audit", state, "--verify", "--witness", witness)
    assert (code, "whole by their hashes" in text) == (0, True), text
    assert "entries, each with its hash" in fedplcc("doctor", state)[1]

    last = last_of(witness)
    change(state, f"DELETE FROM audit WHERE number >= {last}")
    assert fedplcc("state", "audit", state, "--verify")[0] == 0
    code, text = fedplcc("state", "audit", state, "--witness", witness)
    assert (code, f"entry {last} of the audit is cut off" in text) == (1, True), text

    change(state, "UPDATE audit SET caller = 'nobody' WHERE number = 1")
    code, text = fedplcc("state", "audit", state, "--verify")
    assert (code, "entry 1 of the audit is changed" in text) == (1, True), text
