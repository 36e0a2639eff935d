"""Verbs that steer a run: one table, and messages of the same names and fields."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fedplcc.aggregator.servicer.audit_calls import into_audit
from fedplcc.shared import steering
from fedplcc.shared.convert.steering import steering_to_proto, verb_from_proto
from fedplcc.shared.errors import InvalidTransition, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.wire.call_logs import Call

EXAMPLES: tuple[steering.Verb, ...] = (
    steering.PauseRun(now=True),
    steering.ResumeRun(),
    steering.StopRun("why"),
    steering.ExtendRun(7),
    steering.QuarantineClient("ann", "why"),
    steering.ReleaseClient("ann"),
    steering.AdmitClient("ann"),
    steering.RetireClient("ann", forgets=True),
    steering.AdvanceStage(),
)


def test_every_verb_has_a_message_of_its_name_and_fields() -> None:
    assert [type(verb) for verb in EXAMPLES] == list(steering.VERBS.values())
    oneof = run_pb2.SteerRunRequest.DESCRIPTOR.oneofs_by_name["verb"]
    assert [field.name for field in oneof.fields] == list(steering.VERBS)
    for field in oneof.fields:
        message, kind = field.message_type, steering.VERBS[field.name]
        assert message is not None
        assert message.name == kind.__name__
        assert {each.name for each in message.fields} == {each.name for each in fields(kind)}


@pytest.mark.parametrize("verb", EXAMPLES, ids=steering.VERBS)
def test_a_verb_comes_through_the_wire_as_it_was(verb: steering.Verb) -> None:
    request = run_pb2.SteerRunRequest.FromString(steering_to_proto("r1", verb, "once").SerializeToString())
    assert (request.run_id, request.request_id, verb_from_proto(request)) == ("r1", "once", verb)


def test_a_request_without_a_verb_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="say what is to be done"):
        verb_from_proto(run_pb2.SteerRunRequest(run_id="r1"))


def test_a_call_that_steers_names_its_verb_and_client_and_a_refusal_is_audited_by_the_verb() -> None:
    call = Call("/fedplcc.v1.RunService/SteerRun")
    call.decoded(steering_to_proto("r1", steering.RetireClient("ann"), "once"))
    assert {name: call.facts[name] for name in ("run_id", "verb", "client_id", "idempotency_key")} == {
        **{"run_id": "r1", "verb": "retire", "client_id": "ann"},
        "idempotency_key": "once",
    }
    noted: list[tuple[str, str]] = []

    class Audit:
        def refused(self, caller: object, method: str, target: str, reason: str, request_id: str) -> None:
            noted.append((method, target))

    into_audit(Audit())(current_principal.get(), call, InvalidTransition("no", run_id="r1"))  # type: ignore[arg-type]
    assert noted == [("RetireClient", "r1/ann")]
