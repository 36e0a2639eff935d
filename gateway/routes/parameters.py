"""Parameters that several operations take."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header, Path, Query
from pydantic import Field

from fedplcc.shared import documents
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.convert.reading.page_tokens import MAX_TOKEN
from fedplcc.shared.types import BEST, LAST

RUN_PATH = "/v1/runs/{run_id}"
MAX_ROUND = 2**31 - 1

RunId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="The run's id.", examples=["digits-1f0c92ab"])
]
ClientId = Annotated[str, Path(pattern=NAME_PATTERN, description="The client's id.", examples=["ward-3"])]
AfterRound = Annotated[int, Query(ge=-1, le=MAX_ROUND, description="Only rounds after this one.")]
PageToken = Annotated[
    str,
    Query(max_length=MAX_TOKEN, description="`next_page_token` of the answer before; the other parameters stay."),
]
RoundNumber = Annotated[int, Field(ge=0, le=MAX_ROUND)]
RoundChoice = Annotated[
    RoundNumber | Literal["best"] | None,
    Query(
        alias="round",
        description="The round, or `best` for the one with the highest mean accuracy on validation images; the last "
        "committed round by default.",
    ),
]


def round_of(choice: RoundNumber | Literal["best"] | None) -> int:
    """Return the number by which the aggregator knows a choice of a round."""
    if choice is None:
        return LAST
    return BEST if choice == "best" else choice


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=documents.REQUEST_ID,
        description="A key chosen by the caller, random by default. Requests with the same key and configuration return the "
        "same run. A request with the same key and another configuration is refused.",
    ),
]
SteeringKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=documents.REQUEST_ID,
        description="A key chosen by the caller. Repeating a request with its key changes nothing, whatever came in "
        "between, and returns the run as it is now. Another request with the same key is refused.",
    ),
]


def request_id_of(idempotency_key: str | None) -> str:
    """Return the key of an Idempotency-Key header without the quotes of its standard; empty without a header."""
    return (idempotency_key or "").strip('"')
