import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.convert.reading.json_text import MAX_DEPTH, parse_json_object
from fedplcc.shared.errors import MalformedRequest
from tests.support.growth import require_linear

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
        (b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested deeper"),
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


def refusal(text: bytes) -> str:
    with pytest.raises(MalformedRequest) as refused:
        parse_json_object(text)
    return refused.value.detail


def object_of(keys: int) -> bytes:
    """An object whose last key is there twice."""
    names = [f"k{number:06}" for number in (*range(keys - 1), keys - 2)]
    return ("{" + ",".join(f'"{name}":0' for name in names) + "}").encode()


def test_the_search_for_a_repeated_key_takes_time_in_proportion_to_the_keys() -> None:
    assert "occurs twice" in refusal(object_of(100))
    require_linear(refusal, [object_of(keys) for keys in (8_000, 16_000, 32_000)])


@pytest.mark.parametrize(
    "unit",
    [b"0,", b"[],", b"{},", b'{"a":0},', b'"\\"",', b"1e5,", b"[[[[[[[[]]]]]]]],"],
    ids=["numbers", "lists", "objects", "pairs", "escapes", "floats", "nests"],
)
def test_any_list_is_read_or_refused_in_time_in_proportion_to_its_length(unit: bytes) -> None:
    def read(text: bytes) -> None:
        with contextlib.suppress(MalformedRequest):
            parse_json_object(text)

    require_linear(read, [b'{"a":[' + unit * (size // len(unit)) + b"0]}" for size in (1 << 18, 1 << 19, 1 << 20)])


@pytest.mark.parametrize("unit", [b'\\"', b"\\u00e9", b'"', b"1", b"[", b'{"a":'])
@pytest.mark.parametrize("beginning", [b'{"a":"', b'{"a":1.', b'{"a":'])
def test_any_text_without_an_end_is_refused_in_time_in_proportion_to_its_length(beginning: bytes, unit: bytes) -> None:
    require_linear(refusal, [beginning + unit * (size // len(unit)) for size in (1 << 18, 1 << 19, 1 << 20)])


def test_a_text_of_very_many_values_is_refused_before_it_is_read() -> None:
    assert "more than 100000 values" in refusal(b'{"a":[' + b"{}," * 100_000 + b"0]}")
    assert len(parse_json_object(b'{"a":[' + b"0," * 99_000 + b"0]}")["a"]) == 99_001
    commas = "," * 500_000
    assert parse_json_object(json.dumps({"a": commas}).encode()) == {"a": commas}
