import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.json_body import MAX_DEPTH, parse_json_object
from shared.errors import MalformedRequest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_object_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert parse_json_object(json.dumps(document).encode()) == document


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_are_refused(text: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        assert isinstance(parse_json_object(text), dict)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"run"', "not a JSON object"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is too large a number"),
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' occurs twice"),
        (b'{"a": "\\ud800"}', "not Unicode text"),
        (b'{"a": "\xff"}', "not Unicode text"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
    ],
)
def test_what_readers_would_understand_differently_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(MalformedRequest, match=words):
        parse_json_object(text)


def test_the_limit_on_depth_is_exact() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert parse_json_object(nested(MAX_DEPTH))
    with pytest.raises(MalformedRequest, match=f"deeper than {MAX_DEPTH} levels"):
        parse_json_object(nested(MAX_DEPTH + 1))
