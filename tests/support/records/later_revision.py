"""A revision of the database that no version has yet, for tests of migrations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedplcc.aggregator.store.database import revisions, schema


def copy_migrations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations to which a test may add revision 9000; the store takes it for the present one."""
    copy = folder / "migrations"
    shutil.copytree(revisions.MIGRATIONS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(revisions, "MIGRATIONS", copy)
    monkeypatch.setattr(revisions, "REVISION", "9000")
    return copy


def write_revision(migrations: Path, body: str) -> None:
    """Write revision 9000 with this body of `upgrade`."""
    text = (
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision, down_revision = '9000', {schema.REVISION!r}\n\n\ndef upgrade():\n{body}"
    )
    (migrations / "versions" / "r9000_next.py").write_text(text)
