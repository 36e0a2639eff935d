import json

import pytest

from fedplcc.gateway.http import problem
from fedplcc.shared.codes import Code
from fedplcc.shared.errors import (
    BY_REASON,
    BlobTooLarge,
    ClientInOpenRun,
    FedplccError,
    Internal,
    InvalidTransition,
    RequestIdReused,
    RunDeleted,
    RunIsOpen,
    RunNotFound,
)

SCOPE = {"path": "/v1/runs/x", "state": {"request_id": "r-1"}}


def test_every_error_of_the_tree_is_a_problem_with_its_reason_and_status() -> None:
    others = {BlobTooLarge: 413, RunDeleted: 410, RunIsOpen: 409, ClientInOpenRun: 409, InvalidTransition: 409}
    for reason, kind in BY_REASON.items():
        response = problem.respond(kind("something happened", run_id="x"), SCOPE)
        document = json.loads(bytes(response.body))
        assert response.status_code == document["status"] == others.get(kind, kind.code.http_status), reason
        assert response.media_type == "application/problem+json"
        assert (document["code"], document["type"]) == (reason, f"/v1/problems/{reason}")
        assert (document["instance"], document["request_id"]) == ("/v1/runs/x", "r-1")


def test_a_problem_carries_the_facts_for_programs() -> None:
    found = problem.problem_of(RequestIdReused("the key was used", run_id="digits-1"))
    assert found.metadata == {"run_id": "digits-1"}
    assert found.detail == "the key was used"
    assert found.title == "Request id reused"


def test_a_bug_says_nothing_about_itself() -> None:
    found = problem.problem_of(Internal("KeyError: 'secret'", path="/home/somebody"))
    assert "secret" not in found.model_dump_json()
    assert "somebody" not in found.model_dump_json()


def test_an_error_outside_the_tree_of_reasons_is_as_silent_as_a_bug() -> None:
    class Unheard(FedplccError):
        """Raised by nobody."""

    assert "secret" not in problem.problem_of(Unheard("secret")).model_dump_json()


def test_members_without_a_value_are_left_out() -> None:
    document = json.loads(bytes(problem.ProblemResponse(problem.problem_of(RunNotFound("no such run"))).body))
    assert set(document) == {"type", "title", "status", "detail", "code"}


def test_only_what_may_pass_asks_to_try_again() -> None:
    for kind in BY_REASON.values():
        may_pass = kind.code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED) and kind is not BlobTooLarge
        assert ("retry-after" in problem.respond(kind("x"), SCOPE).headers) is may_pass, kind


@pytest.mark.parametrize("status", sorted(problem.HTTP_PROBLEMS))
def test_what_http_refuses_has_codes_of_its_own(status: int) -> None:
    response = problem.respond_http(status, None, SCOPE)
    document = json.loads(bytes(response.body))
    assert response.status_code == document["status"] == status
    assert document["code"] in problem.KINDS
    assert document["detail"]
