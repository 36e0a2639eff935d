"""The check of an aggregator's PostgreSQL database; it only reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fedplcc.doctor.findings import Finding, Subject, ok, problem, warning
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.process.disk import read_regular

BELONGING = "database.json"
"""In a state directory whose database is on a server."""


def server(subject: Subject) -> Iterator[Finding]:
    """The server's answer, or the place of a state directory's database."""
    if subject.database_url is None:
        yield from _belonging(subject)
        return
    if not (subject.probes.is_installed("sqlalchemy") and subject.probes.is_installed("psycopg")):
        yield problem("database", "PostgreSQL needs psycopg: pip install 'fedplcc[postgres]'")
        return
    from fedplcc.aggregator.store.database.postgres_reading import look_at
    from fedplcc.aggregator.store.database.schema import REVISION

    try:
        found = look_at(subject.database_url)
    except FedplccError as error:
        yield problem("database", f"{error.detail}: check --database-url, the server and its pg_hba.conf")
        return
    text = f"{found.name}: PostgreSQL {found.version}"
    if found.encoding != "UTF8":
        yield problem("database", f"{text} keeps text as {found.encoding}: make a database with ENCODING 'UTF8'")
    elif not found.revision and not found.may_make_tables:
        yield problem("database", f"{text}, where this user may make no tables: make it the owner of the database")
    elif found.revision > REVISION:
        yield problem("database", f"{text}, revision {found.revision}: use the newer version of fedplcc that wrote it")
    else:
        tables = f"revision {found.revision}" if found.revision else "no tables yet"
        yield ok(
            "database", f"{text}, {tables}, {f'used by {found.holder}' if found.holder else 'no aggregator uses it'}"
        )
    if not found.is_durable:
        yield warning("database", "fsync is off on the server: a crash of it may lose or damage runs; turn it on")


def _belonging(subject: Subject) -> Iterator[Finding]:
    for folder in (subject.state, subject.state / "aggregator"):
        try:
            name = json.loads(read_regular(folder / BELONGING))["database"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        yield ok("database", f"that of {folder} is {name}, which --database-url or FEDPLCC_DATABASE_URL has looked at")
        return
