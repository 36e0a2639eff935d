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


def test_no_two_errors_share_a_reason() -> None:
    assert len({kind.reason for kind in KINDS}) == len(KINDS)
    assert {kind.reason: kind for kind in KINDS} == dict(BY_REASON)


def test_codes_are_those_of_google_rpc_and_each_has_its_http_status() -> None:
    for code in Code:
        assert code_pb2.Code.Value(code.name) == code
        HTTPStatus(code.http_status)
    assert (Code.INVALID_ARGUMENT.http_status, Code.NOT_FOUND.http_status) == (400, 404)
    assert (Code.RESOURCE_EXHAUSTED.http_status, Code.UNAVAILABLE.http_status) == (429, 503)


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
