"""How much a database of SQLite holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def database_bytes(folder: Path) -> int:
    """Bytes of the database's pages in use, once its log is written back."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)
