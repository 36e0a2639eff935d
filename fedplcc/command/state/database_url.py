"""The option that names an aggregator's PostgreSQL database."""

from __future__ import annotations

from typing import Annotated

import typer

DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="Of its PostgreSQL database, if it has one.", metavar="URL", envvar="FEDPLCC_DATABASE_URL"),
]
