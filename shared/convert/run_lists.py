"""Messages of lists of runs, and of what people note about a run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fedplcc.shared.bounds import MAX_NOTES, MAX_SEARCHED, MAX_TAGS, TAG_PATTERN
from fedplcc.shared.convert.reading.enums import ORDER, PHASE, SHOW, STATUS
from fedplcc.shared.convert.reading.fields import (
    bounded_text,
    limited,
    malformed,
    message_like,
    present,
    time_of,
    timestamp,
)
from fedplcc.shared.convert.reading.page_tokens import place_of, refused_token, token_of
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.reasons import Stated, sentence_of
from fedplcc.shared.run_lists import LabelChange, RunCursor, RunList, RunOrder, RunQuery, RunSummary
from fedplcc.shared.scoring.scores import ACCURACY, BALANCED

_TAG = re.compile(TAG_PATTERN)


def tags_of(field: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags, sorted and each once, if each is one and there are not too many."""
    for tag in limited(field, tags, MAX_TAGS):
        if not _TAG.fullmatch(tag):
            raise malformed(
                field,
                f"{tag[:50]!a} is not 1 to 40 letters, digits and '._:/=-' that begin with a letter or a digit",
            )
    return tuple(sorted(set(tags)))


def notes_of(text: str) -> str:
    """Return notes, if they are not too long and plain text."""
    if len(text) > MAX_NOTES:
        raise malformed("notes", f"they are longer than {MAX_NOTES} characters")
    if "\0" in text:
        raise malformed("notes", "they have the character U+0000")
    return text


def query_to_proto(query: RunQuery, *, page_token: str = "") -> pb2.ListRunsRequest:
    """Return the request for a page of summaries."""
    return pb2.ListRunsRequest(
        page_size=query.limit,
        page_token=page_token,
        wants_summaries=True,
        statuses=[STATUS.number(status) for status in query.statuses],
        method=query.method,
        name=query.name,
        tags=query.tags,
        since_time=None if query.since is None else timestamp(query.since),
        order=ORDER.number(query.order),
        show=SHOW.number(query.show),
        is_reversed=query.is_reversed,
    )


def query_from_proto(message: pb2.ListRunsRequest, *, limit: int) -> RunQuery:
    """Return the query of a request, with its cursor."""
    order = ORDER.member(message.order or pb2.RUN_ORDER_NEWEST, "order")
    token, kind = message.page_token, _kind_of(order, is_reversed=message.is_reversed)
    if len(message.name) > MAX_SEARCHED:
        raise malformed("name", f"it is longer than {MAX_SEARCHED} characters")
    if "\0" in message.name:
        raise malformed("name", "it has the character U+0000")
    return RunQuery(
        statuses=tuple(STATUS.member(number, "statuses") for number in limited("statuses", message.statuses)),
        method=bounded_text("method", message.method),
        name=message.name,
        tags=tags_of("tags", message.tags),
        since=time_of("since_time", message.since_time) if message.HasField("since_time") else None,
        order=order,
        show=SHOW.member(message.show or pb2.RUN_SHOW_CURRENT, "show"),
        is_reversed=message.is_reversed,
        after=_cursor_of(token, order, kind) if token else None,
        limit=limit,
    )


def page_token(run: RunSummary, query: RunQuery) -> str:
    """Return the token of the page after a run."""
    cursor = run.cursor(query)
    return token_of(_kind_of(query.order, is_reversed=query.is_reversed), cursor.value, cursor.run_id)


def _kind_of(order: RunOrder, *, is_reversed: bool) -> str:
    return f"{order.value} reversed" if is_reversed else order.value


def _cursor_of(token: str, order: RunOrder, kind: str) -> RunCursor:
    """Return the place that a token names. Raises MalformedRequest for a token of no earlier answer in this order."""
    place = place_of(kind, token)
    if len(place) != 2:
        raise refused_token()
    value, run_id = place
    is_text = order in (RunOrder.NAME, RunOrder.STATUS, RunOrder.METHOD)
    has_value = isinstance(value, str) if is_text else isinstance(value, float) and math.isfinite(value)
    if not has_value or not isinstance(run_id, str) or "\0" in f"{value}{run_id}":
        raise refused_token()
    return RunCursor(value, run_id)


def summary_to_proto(run: RunSummary) -> pb2.RunSummary:
    """Return the message of a run in a list."""
    return message_like(
        pb2.RunSummary,
        run,
        status=STATUS.number(run.status),
        phase=PHASE.number(run.phase),
        reason=sentence_of(run.reason),
        create_time=timestamp(run.created_at),
        update_time=timestamp(run.updated_at),
    )


def summary_from_proto(message: pb2.RunSummary) -> RunSummary:
    """Return the run of a list's message."""
    return RunSummary(
        run_id=present("run_id", message.run_id),
        name=message.name,
        status=STATUS.member(message.status, "status"),
        method=message.method,
        round=message.round,
        total_rounds=message.total_rounds,
        phase=PHASE.member(message.phase, "phase") if message.phase else None,
        num_clients=message.num_clients,
        is_pause_requested=message.is_pause_requested,
        reason=Stated(message.reason) if message.reason else None,
        created_at=time_of("create_time", message.create_time),
        updated_at=time_of("update_time", message.update_time),
        config_hash=message.config_hash,
        tags=tuple(message.tags),
        is_archived=message.is_archived,
        is_deleted=message.is_deleted,
        score=BALANCED if message.score == BALANCED else ACCURACY,
        mean_accuracy=message.mean_accuracy if message.HasField("mean_accuracy") else None,
        worst_accuracy=message.worst_accuracy if message.HasField("worst_accuracy") else None,
        worst_domain=message.worst_domain,
    )


def counts_to_proto(found: RunList) -> list[pb2.RunCount]:
    """Return the messages of a list's counts."""
    return [pb2.RunCount(status=STATUS.number(status), runs=number) for status, number in found.totals.items()]


def list_from_proto(message: pb2.ListRunsResponse) -> RunList:
    """Return the list of an answer with summaries."""
    return RunList(
        runs=[summary_from_proto(run) for run in message.summaries],
        totals={STATUS.member(count.status, "status"): count.runs for count in message.totals},
        total=message.total,
    )


def change_to_proto(run_id: str, change: LabelChange, request_id: str) -> pb2.UpdateRunRequest:
    """Return the request for a change of labels."""
    request = pb2.UpdateRunRequest(run_id=run_id, notes=change.notes, request_id=request_id)
    if change.tags is not None:
        request.tags.CopyFrom(pb2.RunTags(tags=change.tags))
    if change.is_archived is not None:
        request.is_archived = change.is_archived
    return request


def change_from_proto(message: pb2.UpdateRunRequest) -> LabelChange:
    """Return the change of labels that a request asks for."""
    return LabelChange(
        tags=tags_of("tags", message.tags.tags) if message.HasField("tags") else None,
        notes=notes_of(message.notes) if message.HasField("notes") else None,
        is_archived=message.is_archived if message.HasField("is_archived") else None,
    )
