"""Answers of a gateway: documents of shared/documents, and errors of shared/errors.py from problem documents."""

from __future__ import annotations

import json
from types import NoneType
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from fedplcc.shared.codes import Code
from fedplcc.shared.documents import Problem
from fedplcc.shared.documents.document import Document
from fedplcc.shared.errors import FedplccError, Internal, Unavailable, from_reason

Answer = TypeVar("Answer", bound=Document)

_CODES = {code.http_status: code for code in reversed(Code)}


def successful(answer: httpx.Response) -> httpx.Response:
    """Return the answer if it is a success.

    Raises:
        FedplccError: It is a refusal.
    """
    if answer.is_success:
        return answer
    raise error_of(answer.text, answer)


def error_of(text: str, answer: httpx.Response) -> FedplccError:
    """Return the error in a problem document."""
    try:
        problem = Problem.model_validate_json(text)
    except ValidationError:
        return _no_gateway(answer)
    return from_reason(
        problem.code,
        problem.detail or problem.title,
        problem.metadata or {},
        _CODES.get(problem.status, Code.INTERNAL),
    )


def _no_gateway(answer: httpx.Response) -> FedplccError:
    if answer.status_code in (502, 503, 504):
        return Unavailable(f"the gateway behind {answer.request.url} is away (HTTP status {answer.status_code})")
    return Internal(f"what answers at {answer.request.url} is no fedplcc gateway (HTTP status {answer.status_code})")


def read(kind: Any, answer: httpx.Response) -> Any:
    """Return the body of an answer as a document, text, bytes, a JSON object, or a list of a JSON object a line.

    Raises:
        Internal: It is none; a gateway of another version answered, or something else.
    """
    try:
        if kind is NoneType:
            return None
        if kind is bytes:
            return answer.content
        if kind is str:
            return answer.content.decode()
        if kind is list:
            return [json.loads(line) for line in answer.content.splitlines()]
        if kind is dict:
            return dict(answer.json())
        assert issubclass(kind, Document)
        return kind.model_validate_json(answer.content)
    except ValueError as error:
        raise _no_gateway(answer) from error


def parsed(kind: type[Answer], text: str) -> Answer:
    """Return the document in an event.

    Raises:
        Internal: It is none.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise Internal(f"the gateway sent an event that is not understood: {error.error_count()} problems") from error
