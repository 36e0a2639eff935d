"""Keep reasons as records, not as sentences, and the counts of a round's global prototypes.

The counts of earlier rounds stay unknown: no migration reads a blob. The aggregator counts those of an open round at its
start.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

runs = sa.table(
    "runs",
    sa.column("run_id", sa.String),
    sa.column("status", sa.String),
    sa.column("reason", sa.Text),
    sa.column("reason_record", sa.JSON(none_as_null=True)),
)
rounds = sa.table(
    "rounds", sa.column("run_id", sa.String), sa.column("number", sa.Integer), sa.column("dropped", sa.JSON)
)

NO_QUORUM = re.compile(
    r"round (?P<number>\d+) has no quorum, (?P<lack>.+?)"
    r"(?:; missing: (?P<missing>.+?)(?: and (?P<more>\d+) more)?)?(?:; quarantined: (?P<quarantined>[\w., -]+))?",
    re.DOTALL,
)
TOO_FEW = re.compile(r"(\d+) of the (\d+) clients that it needs")
NO_CLIENT_OF = "no client of domain "
MISSING = re.compile(
    r"(?P<name>[\w.-]+)(?: \((?P<reason>lost|silent|problem|quarantined): (?P<detail>.*?)\))?(?:, |$)"
    r"(?=[\w.-]+(?: \((?:lost|silent|problem|quarantined): |, |$)|$)",
    re.DOTALL,
)
CRASHED = "internal error; the aggregator's log says more"


def upgrade() -> None:
    """Add the columns, and turn the sentences of open runs and of rounds into records."""
    op.add_column("runs", sa.Column("reason_record", sa.JSON, nullable=True))
    op.add_column("rounds", sa.Column("prototype_counts", sa.JSON, nullable=True))
    connection = op.get_bind()
    for row in connection.execute(sa.select(runs).where(runs.c.reason != "")).all():
        record = reason_record(row.status, row.reason)
        if record is not None:
            changed = sa.update(runs).where(runs.c.run_id == row.run_id)
            connection.execute(changed.values(reason="", reason_record=record))
    for row in connection.execute(sa.select(rounds).where(rounds.c.dropped.is_not(None))).all():
        if row.dropped:
            of_round = (rounds.c.run_id == row.run_id) & (rounds.c.number == row.number)
            dropped = {client_id: dropped_record(text) for client_id, text in row.dropped.items()}
            connection.execute(sa.update(rounds).where(of_round).values(dropped=dropped))


def dropped_record(text: str) -> dict[str, str]:
    """The record of a dropped client; a text without a reason is kept whole as the detail of a problem."""
    reason, colon, detail = text.partition(": ")
    if colon and reason in ("lost", "silent", "problem", "quarantined"):
        return {"reason": reason, "detail": detail}
    return {"reason": "problem", "detail": text}


def reason_record(status: str, sentence: str) -> dict[str, Any] | None:
    """The record of a sentence by which an open run says why it waits; None for any other, which stays a sentence."""
    if status == "pending" and sentence == "waiting for clients to join":
        return {"kind": "waits_for_clients"}
    if status == "running" and sentence == "no client is left: every one of the roster is quarantined":
        return {"kind": "nobody_left"}
    crashed = re.fullmatch(rf"round (\d+) cannot be aggregated: {re.escape(CRASHED)}", sentence)
    if status in ("running", "paused", "stopping") and crashed:
        return {"kind": "aggregation_failed", "round_number": int(crashed[1]), "detail": CRASHED}
    found = NO_QUORUM.fullmatch(sentence)
    return None if status != "running" or found is None else no_quorum_record(found)


def no_quorum_record(found: re.Match[str]) -> dict[str, Any] | None:
    """The record of a sentence about a missing quorum; None if a part of it cannot be read."""
    number, missing = int(found["number"]), missing_clients(found["missing"] or "")
    lack = lack_record(number, found["lack"])
    if lack is None or missing is None:
        return None
    return {
        "kind": "no_quorum",
        "round_number": number,
        "lack": lack,
        "missing": missing,
        "num_missing": len(missing) + int(found["more"] or 0),
        "quarantined": found["quarantined"].split(", ") if found["quarantined"] else [],
    }


def lack_record(number: int, text: str) -> dict[str, Any] | None:
    """The clients and domains that a sentence says are lacking."""
    if number == 0:
        return {"clients": {"num_present": 0, "num_needed": 1}, "domains": []}
    clients, domains = None, []
    for part in text.split(" and "):
        few = TOO_FEW.fullmatch(part)
        if few:
            clients = {"num_present": int(few[1]), "num_needed": int(few[2])}
        elif part.startswith(NO_CLIENT_OF):
            domains.append(part.removeprefix(NO_CLIENT_OF))
        else:
            return None
    return {"clients": clients, "domains": domains}


def missing_clients(text: str) -> dict[str, Any] | None:
    """The missing clients that a sentence names."""
    missing: dict[str, Any] = {}
    end = 0
    while end < len(text):
        found = MISSING.match(text, end)
        if found is None or found.end() == end:
            return None
        known = found["reason"] is not None
        missing[found["name"]] = {"reason": found["reason"], "detail": found["detail"]} if known else None
        end = found.end()
    return missing
