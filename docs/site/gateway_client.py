"""Writes fedplcc/gateway_client/operations.py: a typed method for each operation of the API, for coroutines and plain code.

python -m docs.site.gateway_client [--check]
"""

from __future__ import annotations

import keyword
import re
import subprocess  # nosec B404 # runs this project's formatter on its own text
import sys
import textwrap
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "fedplcc" / "gateway_client" / "operations.py"
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
BINARY = ("application/octet-stream", "application/zip")
LINES = "application/x-ndjson"
WIDTH = 112


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a method.

    Attributes:
        name: Its name in Python.
        sent_as: Its name in the request.
        place: path, query, header or body.
        kind: Its type.
        is_required: Whether it has no default.
        text: What it means.
    """

    name: str
    sent_as: str
    place: str
    kind: str
    is_required: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of the client.

    Attributes:
        name: The operation's id.
        verb: HTTP method.
        path: Path with parameters in braces.
        summary: Its sentence.
        parameters: In the order of the request.
        returned: Type of what it returns.
        reader: Name of what reads the answer.
        sends_bytes: Whether the body is bytes.
        sends_object: Whether the body is one mapping.
    """

    name: str
    verb: str
    path: str
    summary: str
    parameters: tuple[Parameter, ...]
    returned: str
    reader: str
    sends_bytes: bool
    sends_object: bool


def methods_of(document: Mapping[str, Any]) -> Iterator[Method]:
    """Yield a method for each operation of an OpenAPI document, by name."""
    found = (
        _method(document, verb, path, operation)
        for path, item in document["paths"].items()
        for verb, operation in item.items()
    )
    yield from sorted(found, key=lambda method: method.name)


def _method(document: Mapping[str, Any], verb: str, path: str, operation: Mapping[str, Any]) -> Method:
    parameters = [_parameter(each) for each in operation.get("parameters", ()) if each["name"] != "Last-Event-ID"]
    body = operation.get("requestBody", {}).get("content", {})
    known = {each.name for each in parameters}
    schema = body.get("application/json", {}).get("schema", {})
    fields = [each for each in _fields(document, schema) if each.name not in known]
    returned, reader = _answer(operation["responses"])
    return Method(
        name=operation["operationId"],
        verb=verb.upper(),
        path=path,
        summary=operation["summary"],
        parameters=(*parameters, *fields),
        returned=returned,
        reader=reader,
        sends_bytes="application/octet-stream" in body,
        sends_object=bool(schema) and not fields and not known & {"now"},
    )


def _parameter(parameter: Mapping[str, Any]) -> Parameter:
    name = {"Idempotency-Key": "request_id", "Content-Length": "content_length", "round": "round_number"}.get(
        parameter["name"], re.sub(r"\W", "_", parameter["name"])
    )
    return Parameter(
        name=name + "_" if keyword.iskeyword(name) else name,
        sent_as=parameter["name"],
        place=parameter["in"],
        kind=_kind(parameter["schema"]),
        is_required=parameter.get("required", False),
        text=parameter.get("description", ""),
    )


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the fields of a small document that a request takes; a configuration is one mapping."""
    references = [each["$ref"] for each in (schema, *schema.get("anyOf", ())) if "$ref" in each]
    for reference in references:
        name = reference.rpartition("/")[2]
        if name == "RunConfiguration":
            return
        described = document["components"]["schemas"][name]
        for key, value in described.get("properties", {}).items():
            yield Parameter(
                name=key,
                sent_as=key,
                place="body",
                kind=_kind(value),
                is_required=key in described.get("required", ()),
                text=value.get("description", ""),
            )


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"] if each.get("type") != "null"))
    if "$ref" in schema:
        return "str"  # an enumeration; its values are in the document
    if schema.get("type") == "array":
        return f"Sequence[{_kind(schema.get('items', {}))}]"
    return SIMPLE.get(str(schema.get("type")), "Any")


def _answer(responses: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type of a success, and the name of what reads it."""
    answer = next(entry for status, entry in responses.items() if status.startswith("2"))
    content = answer.get("content", {})
    if "application/json" in content:
        schema = content["application/json"].get("schema", {})
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f"documents.{name}", f"documents.{name}"
        return "dict[str, Any]", "dict"
    if LINES in content:
        return "list[dict[str, Any]]", "list"
    if any(kind in content for kind in BINARY):
        return "bytes", "bytes"
    return ("str", "str") if content else ("None", "NoneType")


def text_of(document: Mapping[str, Any]) -> str:
    """Return the module's text, not formatted."""
    methods = list(methods_of(document))
    taken = Counter((each.name, each.text) for method in methods for each in method.parameters)
    repeated = {(name, text) for (name, text), count in taken.items() if count > 2 and text}
    return "\n".join(
        [
            '"""Operations of a gateway as typed methods. Generated by docs/site/gateway_client.py; do not edit."""',
            "",
            "from __future__ import annotations",
            "",
            "from collections.abc import Mapping, Sequence",
            "from types import NoneType",
            "from typing import Any, Literal",
            "",
            "from fedplcc.gateway_client.calls import AsyncCalls, Calls, Content, waited",
            "from fedplcc.shared import documents",
            "",
            "",
            "class AsyncOperations(AsyncCalls):",
            '    """One coroutine for each operation. What several of them take, unless they say otherwise:',
            "",
            "    Args:",
            *(_explained(name, text, 8) for name, text in sorted(repeated)),
            '    """',
            *(line for method in methods for line in _written(method, repeated)),
            "",
            "",
            "class Operations(Calls):",
            '    """One method for each operation."""',
            "",
            *(f"    {method.name} = waited(AsyncOperations.{method.name})" for method in methods),
            "",
        ]
    )


def _explained(name: str, text: str, indent: int) -> str:
    return textwrap.fill(
        f"{name}: {' '.join(text.split())}", WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4)
    )


def _written(method: Method, repeated: Container[tuple[str, str]]) -> Iterator[str]:
    taken = [each for each in method.parameters if each.name != "content_length"]
    positional = [each for each in taken if each.place == "path"]
    named = [each for each in taken if each.place != "path"]
    arguments = ["self", *(f"{each.name}: {each.kind}" for each in positional)]
    if method.sends_object:
        arguments.append("config: Mapping[str, Any]")
    if method.sends_bytes:
        arguments.append("content: Content")
    if named:
        arguments.append("*")
    for each in sorted(named, key=lambda parameter: not parameter.is_required):
        arguments.append(f"{each.name}: {each.kind}" + ("" if each.is_required else " | None = None"))
    yield ""
    yield f"    async def {method.name}({', '.join(arguments)}) -> {method.returned}:"
    yield f'        """{method.summary}'
    own = [each for each in taken if each.text and (each.name, each.text) not in repeated]
    if own or method.sends_object or method.sends_bytes:
        yield ""
        yield "        Args:"
        yield from (_explained(each.name, each.text, 12) for each in (*positional, *named) if each in own)
        if method.sends_object:
            yield "            config: The configuration, with the sections and keys of the TOML file."
        if method.sends_bytes:
            yield "            content: The body."
    yield '        """'
    path = re.sub(r"\{(\w+)\}", lambda name: f"{{self.quoted({name[1]})}}", method.path)
    parts = [repr(method.verb), f'f"{path}"' if "{" in path else f'"{path}"', method.reader]
    for place in ("query", "header", "body"):
        pairs = [f'"{each.sent_as}": {each.name}' for each in named if each.place == place]
        if pairs:
            parts.append(f"{place}={{{', '.join(pairs)}}}")
    if method.sends_object:
        parts.append("body=config")
    if method.sends_bytes:
        parts.append("content=content")
    yield f"        return await self.call({', '.join(parts)})"


def formatted(text: str) -> str:
    """Return the text as the project's formatter writes it."""
    for command in (["check", "--fix", "-q", "--select", "I"], ["format", "-q"]):
        line = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout  # nosec B603
    return text


def main() -> int:
    """Write the file, or with --check say whether it is up to date."""
    from fedplcc.gateway.app import create_app
    from fedplcc.shared.config.settings import GatewaySettings

    text = formatted(text_of(create_app(GatewaySettings(insecure=True)).openapi()))
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET} is not what the operations are: run python -m docs.site.gateway_client", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
