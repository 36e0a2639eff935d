"""Errors say a form in words, not as a pattern: all records that people write are searched for a form without words."""

from collections.abc import Iterator

from pydantic import BaseModel, Field

from fedplcc.gateway.messages import receivers
from fedplcc.shared.config import run
from fedplcc.shared.config.sections import Section, explain
from fedplcc.shared.config.settings import Settings, processes

MODULES = (run, processes, receivers)
"""What loads every record of a file and of a service's settings."""


class Planted(BaseModel):
    planted: str = Field("a", pattern="^[abc]+$")


def patterns(kind: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Find each key with a pattern, of a class and those below it."""
    schema = kind.model_json_schema()
    for table in (schema, *schema.get("$defs", {}).values()):
        for key, value in table.get("properties", {}).items():
            for form in (value, *value.get("anyOf", ()), value.get("items", {})):
                if "pattern" in form:
                    yield key, form["pattern"]
    for child in kind.__subclasses__():
        yield from patterns(child)


def said(pattern: str) -> str:
    problem = {"type": "string_pattern_mismatch", "loc": ("key",), "input": "", "msg": pattern}
    return explain({**problem, "ctx": {"pattern": pattern}})


def test_every_form_has_words() -> None:
    found = {**dict(patterns(Section)), **dict(patterns(Settings))}
    assert {"device", "train", "weights_sha256", "user"} <= set(found)
    assert {key for key, pattern in found.items() if pattern in said(pattern)} == set()


def test_the_search_finds_a_form_without_words() -> None:
    assert [key for key, pattern in patterns(Planted) if pattern in said(pattern)] == ["planted"]
