"""The options of trackers, which `simulate`, `compare` and `run watch` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="KIND[:WHERE]",
        help="Keep curves with a tracker: tensorboard[:FOLDER], mlflow[:URL or FOLDER], wandb[:FOLDER] (always offline) or "
        "jsonl[:FILE]; may be given more than once. Each round is kept once, also after a restart.",
    ),
]


def check_trackers(texts: Sequence[str]) -> None:
    """Check trackers before a night of training, not after it.

    Raises:
        InvalidConfig: There is no such kind.
        ModuleNotFoundError: A tracker's library is not installed.
    """
    from fedplcc.tracking.destinations import make_trackers

    make_trackers(texts)
