"""Verbs to and from SteerRunRequest: a verb's message has its name and its fields."""

from __future__ import annotations

from dataclasses import asdict, fields

from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.steering import VERBS, WORDS, Verb


def steering_to_proto(run_id: str, verb: Verb, request_id: str) -> run_pb2.SteerRunRequest:
    """Return the request of a verb."""
    message = getattr(run_pb2, type(verb).__name__)(**asdict(verb))
    return run_pb2.SteerRunRequest(run_id=run_id, request_id=request_id, **{WORDS[type(verb)]: message})


def verb_from_proto(request: run_pb2.SteerRunRequest) -> Verb:
    """Return the verb of a request.

    Raises:
        MalformedRequest: It has none.
    """
    word = request.WhichOneof("verb")
    if word is None:
        raise MalformedRequest("verb: say what is to be done with the run", field="verb")
    kind, message = VERBS[word], getattr(request, word)
    return kind(**{field.name: getattr(message, field.name) for field in fields(kind)})
