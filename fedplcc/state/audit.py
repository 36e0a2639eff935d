"""An aggregator's audit in its state directory, and the heads of it that sites kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedplcc.aggregator.store.base import Store
from fedplcc.shared.errors import InvalidConfig, MalformedRequest
from fedplcc.shared.identity.audit_chain import DONE, AuditEntry, AuditHead, Damage, DamageKind, heads_from_text
from fedplcc.shared.types import Run

PAGE = 1000
MAKING = frozenset({"Enrol", "RenewCertificate", "FinishRecovery", "CreateKey", "RedeemConsoleCode"})
"""Calls that make a certificate, a key or a session."""
MOST_ROWS = 1_000_000
"""Most certificates, and most keys, that are held against the audit."""
MAX_WITNESS_BYTES = 64 << 10
"""Largest witness file; one with the most heads has less than half of it."""

_MEANINGS = {
    DamageKind.CHANGED: "changed, or the one before it was",
    DamageKind.REMOVED: "removed",
    DamageKind.INSERTED: "out of its place: inserted or moved",
    DamageKind.CUT: "cut off: a site saw it, and the audit ends before it",
    DamageKind.REWRITTEN: "written anew, or one before it was: a site saw another hash",
}


def entries_of(store: Store) -> Iterator[AuditEntry]:
    """All entries, in order."""
    page = store.list_audit(limit=PAGE)
    while page:
        yield from page
        page = store.list_audit(after=page[-1].number, limit=PAGE)


def unrecorded(store: Store) -> list[str]:
    """Return a sentence for each holder, key and run whose making no entry tells, in order of their names.

    A certificate, a key, a session or a run and its entry are one transaction, so these rows witness an audit that was
    emptied or cut: one that has lost their entries, and whose remaining hashes hold. A run may be older than any audit:
    those that were created after its first entry count. An end that tells of nothing else needs the witness of a site.
    """
    begun_at, told, told_runs = math.inf, Counter[str](), set[str]()
    for entry in entries_of(store):
        begun_at = min(begun_at, entry.time)
        if entry.outcome == DONE:
            told.update([entry.target] if entry.method in MAKING else ())
            told_runs.update([entry.target] if entry.method == "CreateRun" else ())
    certificates = store.list_certificates(ending_after=0.0, limit=MOST_ROWS)
    made = Counter(f"{certificate.role}:{certificate.name}" for certificate in certificates)
    made.update(key.key_id for key in store.list_keys(ending_after=0.0, limit=MOST_ROWS))
    holders = [
        f"the audit lacks entries about {target}: {count} certificates or keys were made, {told[target]} entries say so"
        for target, count in sorted(made.items())
        if told[target] < count
    ]
    runs = sorted(run.run_id for run in _runs_of(store) if run.created_at > begun_at and run.run_id not in told_runs)
    return [*holders, *(f"the audit lacks the entry about the run {run_id}, which was created" for run_id in runs)]


def _runs_of(store: Store) -> Iterator[Run]:
    page = store.list_runs(limit=PAGE)
    while page:
        yield from page
        page = store.list_runs(limit=PAGE, before=page[-1].run_id)


def witnessed(file: Path) -> list[AuditHead]:
    """Return the heads in a copy of a trainer's file.

    Raises:
        InvalidConfig: It cannot be read, or is no such file.
    """
    try:
        with file.open("rb") as source:
            data = source.read(MAX_WITNESS_BYTES + 1)
        if len(data) > MAX_WITNESS_BYTES:
            raise InvalidConfig(f"{file} is no copy of a trainer's audit-heads: it has over {MAX_WITNESS_BYTES} bytes")
        return heads_from_text(data.decode("ascii"))
    except OSError as error:
        raise InvalidConfig(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{file} is no copy of a trainer's audit-heads: it is no text") from error
    except MalformedRequest as error:
        raise InvalidConfig(f"{file} is no copy of a trainer's audit-heads: {error.detail}") from error


def sentence_of_damage(damage: Damage) -> str:
    """Return the sentence of a damage, for people."""
    if damage.last != damage.number:
        return f"entries {damage.number} to {damage.last} of the audit are {_MEANINGS[damage.kind]}"
    return f"entry {damage.number} of the audit is {_MEANINGS[damage.kind]}"
