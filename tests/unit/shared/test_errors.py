"""One tree of failures: every class has its reason and status, and is rebuilt from them on the other side of a wire."""

from __future__ import annotations

import re
from http import HTTPStatus

import pytest
from google.rpc import code_pb2

from fedplcc.shared import errors
from fedplcc.shared.codes import Code
from fedplcc.shared.errors import BY_REASON, FedplccError, Internal, from_reason


def descendants(root: type[FedplccError]) -> list[type[FedplccError]]:
    """The classes of the module, whatever other tests derive from them."""
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [root, *(found for child in children for found in descendants(child))]


KINDS = [kind for kind in descendants(FedplccError) if kind is not FedplccError]


def test_every_error_has_a_reason_that_says_its_name() -> None:
    for kind in KINDS:
        words = re.findall(r"[A-Z][a-z]*", kind.__name__)
        assert kind.reason == "_".join(word.upper() for word in words)
        assert kind.__doc__, kind


def test_every_error_keeps_the_status_of_what_it_is_a_case_of() -> None:
    for kind in KINDS:
        assert {parent.code for parent in kind.__mro__ if parent in KINDS} == {kind.code}, kind


def test_no_two_errors_share_a_reason() -> None:
    assert len({kind.reason for kind in KINDS}) == len(KINDS)
    assert {kind.reason: kind for kind in KINDS} == dict(BY_REASON)


def test_codes_are_those_of_google_rpc_and_each_has_its_http_status() -> None:
    for code in Code:
        assert code_pb2.Code.Value(code.name) == code
        HTTPStatus(code.http_status)
    assert (Code.INVALID_ARGUMENT.http_status, Code.NOT_FOUND.http_status) == (400, 404)
    assert (Code.RESOURCE_EXHAUSTED.http_status, Code.UNAVAILABLE.http_status) == (429, 503)


def test_an_error_is_its_sentence_with_facts_as_text() -> None:
    error = errors.RoundClosed("round 3 is over", run_id="r", round=3)
    assert (str(error), error.detail) == ("round 3 is over", "round 3 is over")
    assert error.metadata == {"run_id": "r", "round": "3"}


def test_an_error_is_rebuilt_from_what_travels() -> None:
    for kind in KINDS:
        rebuilt = from_reason(kind.reason, "a sentence", {"key": "value"}, kind.code)
        assert type(rebuilt) is kind
        assert (rebuilt.detail, rebuilt.metadata) == ("a sentence", {"key": "value"})


def test_a_reason_that_this_version_does_not_know_keeps_its_status() -> None:
    for code in set(Code) - {Code.ABORTED}:
        assert from_reason("OF_A_LATER_VERSION", "a sentence", {}, code).code == code
    assert type(from_reason("OF_A_LATER_VERSION", "", {}, Code.ABORTED)) is Internal, "nothing here raises it"


@pytest.mark.parametrize("code", [0, 1, 2, 99, -1])
def test_a_status_that_says_nothing_is_internal(code: int) -> None:
    assert type(from_reason("", "a sentence", {}, code)) is Internal


@pytest.mark.parametrize("key", ["detail", "self", "kind", "code"])
def test_no_name_of_a_peers_fact_can_break_the_rebuilding(key: str) -> None:
    rebuilt = from_reason("ROUND_CLOSED", "a sentence", {key: "value"}, Code.FAILED_PRECONDITION)
    assert (rebuilt.detail, rebuilt.metadata) == ("a sentence", {key: "value"})
