"""Readers of single fields: each returns the value, or refuses it by the name of its field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from fedplcc.shared.bounds import DISPLAY_NAME_RULE, MODEL_KIND, MODEL_KIND_RULE, NAME_PATTERN, is_display_name
from fedplcc.shared.errors import MalformedRequest

MAX_TEXT = 1024
"""Most characters of a text that a peer chooses (names, sentences, versions)."""
MAX_ENTRIES = 64
"""Default bound on the entries of a map or list that a peer chooses."""
MAX_CLASSES = 10_000
"""Most classes of a client's data, and most integers of a list."""

_YEARS_1_TO_9999_S = (-62_135_596_800, 253_402_300_799)
"""First and last second of a Timestamp by its definition."""
_NAME = re.compile(NAME_PATTERN)

Item = TypeVar("Item")
Kind = TypeVar("Kind", bound=Message)


def message_like(kind: type[Kind], record: object, /, **given: Any) -> Kind:
    """Return the message that has a record's values under equal names, and those that are given in their place."""
    names = kind.DESCRIPTOR.fields_by_name.keys() - given.keys()
    return kind(**{name: getattr(record, name) for name in names}, **given)


def malformed(field: str, problem: str) -> MalformedRequest:
    """Return the refusal of a field."""
    return MalformedRequest(f"{field}: {problem}", field=field)


def at_least(least: int, field: str, value: int) -> int:
    """Return a number that is not below a minimum."""
    if value < least:
        raise malformed(field, f"{value} is less than {least}")
    return value


def at_most(most: int, field: str, value: int) -> int:
    """Return a number that is not above a maximum."""
    if value > most:
        raise malformed(field, f"{value} is more than {most}")
    return value


def fraction(field: str, value: float) -> float:
    """Return a number from 0 to 1."""
    if not 0 <= value <= 1:
        raise malformed(field, "it is not a number from 0 to 1")
    return value


def present(field: str, text: str) -> str:
    """Return a non-empty text of at most `MAX_TEXT` characters."""
    if not text:
        raise malformed(field, "it is missing")
    return bounded_text(field, text)


def bounded_text(field: str, text: str) -> str:
    """Return a text of at most `MAX_TEXT` characters."""
    if len(text) > MAX_TEXT:
        raise malformed(field, f"it is longer than {MAX_TEXT} characters")
    return text


def plain_name(field: str, text: str) -> str:
    """Return a name of the form that configurations allow."""
    if not _NAME.fullmatch(text):
        raise malformed(field, "it is not 1 to 64 letters, digits, '.', '_' or '-' that begin with a letter or a digit")
    return text


def shown_name(field: str, text: str) -> str:
    """Return a name for people; it may be empty."""
    if not is_display_name(text):
        raise malformed(field, DISPLAY_NAME_RULE)
    return text


def model_kind(field: str, text: str) -> str:
    """Return a client's own kind of model; it may be empty."""
    if text and not MODEL_KIND.fullmatch(text):
        raise malformed(field, MODEL_KIND_RULE)
    return text


def limited(field: str, entries: Any, most: int = MAX_ENTRIES) -> Any:
    """Return a list or map with a bounded number of entries."""
    if len(entries) > most:
        raise malformed(field, f"it has more than {most} entries")
    return entries


def bounded_map(field: str, entries: Mapping[str, Item]) -> dict[str, Item]:
    """Return a map with a bounded number of entries and bounded names."""
    return {bounded_text(field, name): value for name, value in limited(field, entries, 2 * MAX_ENTRIES).items()}


def bounded_texts(field: str, entries: Mapping[str, str]) -> dict[str, str]:
    """Return a map with a bounded number of bounded texts and bounded names."""
    return {name: bounded_text(field, text) for name, text in bounded_map(field, entries).items()}


def json_object(field: str, text: str) -> dict[str, Any]:
    """Return the object of a JSON text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(field, "it is not JSON") from error
    if not isinstance(value, dict):
        raise malformed(field, "it is not a JSON object")
    return value


def timestamp(seconds: float) -> Timestamp:
    """Return the message of a time in seconds since 1970."""
    stamp = Timestamp()
    stamp.FromMicroseconds(round(seconds * 1e6))
    return stamp


def time_of(field: str, stamp: Timestamp) -> float:
    """Return a time in seconds since 1970."""
    first, last = _YEARS_1_TO_9999_S
    if not (first <= stamp.seconds <= last and 0 <= stamp.nanos < 10**9):
        raise malformed(field, "it is no time in the years 1 to 9999")
    return min(stamp.ToMicroseconds() / 1e6, float(last))  # the last parts of a second round up to the year 10000


def duration(seconds: float) -> Duration:
    """Return the message of a duration in seconds."""
    span = Duration()
    span.FromNanoseconds(round(seconds * 1e9))
    return span


def seconds_of(span: Duration) -> float:
    """Return a duration in seconds."""
    return span.ToNanoseconds() / 1e9
