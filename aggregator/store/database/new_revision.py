"""Write the next migration, from the newest revision to the tables of schema.py.

python -m fedplcc.aggregator.store.database.new_revision "add a column"
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from sqlalchemy import create_engine

from fedplcc.aggregator.store.database import revisions


def write_revision(message: str, migrations: Path = revisions.MIGRATIONS) -> Path:
    """Compare the tables and write a file below `migrations/versions`; returns its path.

    Args:
        message: Summary of the migration, a few words on one line.
    """
    from alembic import command
    from alembic.script import ScriptDirectory

    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/empty.sqlite")
        with engine.connect() as connection:
            config = revisions.alembic_config(connection, migrations)
            config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")
            command.upgrade(config, "head")
            connection.commit()
            newest = ScriptDirectory.from_config(config).get_current_head() or "0000"
            written = command.revision(config, message, autogenerate=True, rev_id=f"{int(newest) + 1:04}")
        engine.dispose()
    assert written is not None
    assert not isinstance(written, list)
    return Path(written.path)


def main() -> None:
    """Write the migration and print the remaining steps."""
    parser = argparse.ArgumentParser(
        prog="python -m fedplcc.aggregator.store.database.new_revision", description=__doc__
    )
    parser.add_argument("message", help="what the migration does, in a few words")
    message = parser.parse_args().message.strip().rstrip(".")
    if not re.fullmatch(r"\w[^\"\\\n]*", message):
        parser.error("write a few words without quotes")
    path = write_revision(message)
    revision = path.name[1:5]
    print(f"{path} is written. Now read it; then set REVISION = {revision!r} in schema.py,")
    print(
        "run python -m fedplcc.aggregator.store.generate, and the tests: they upgrade data from every older revision."
    )


if __name__ == "__main__":
    main()
