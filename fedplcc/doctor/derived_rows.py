"""Rows that no digest covers, held against those that they follow from."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, select

from fedplcc.aggregator.store.database import schema


def contradicting_rows(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each table with rows that contradict another table, or lack what it says.

    Runs by tag follow from their labels. Who committed a blob names a client that has joined, and a blob that is kept.
    """
    labels, tags = schema.run_labels, schema.run_tags
    said = {
        (run_id, tag) for run_id, each in connection.execute(select(labels.c.run_id, labels.c.tags)) for tag in each
    }
    found = {(run_id, tag) for run_id, tag in connection.execute(select(tags.c.run_id, tags.c.tag))}
    if found != said:
        run_ids = sorted({run_id for run_id, _tag in found ^ said})
        yield f"rows of run_tags are not what run_labels says of {', '.join(run_ids[:5])}"
    committed, clients, blobs = schema.client_blobs, schema.clients, schema.blobs
    strangers = select(committed.c.client_id).where(committed.c.client_id.not_in(select(clients.c.client_id))).limit(1)
    if connection.execute(strangers).first() is not None:
        yield "rows of client_blobs name clients that never joined"
    unknown = select(committed.c.sha256).where(committed.c.sha256.not_in(select(blobs.c.sha256))).limit(1)
    if connection.execute(unknown).first() is not None:
        yield "rows of client_blobs name blobs that are not kept"
