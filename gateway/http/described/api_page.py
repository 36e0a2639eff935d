"""The page of the API: its OpenAPI document as one page of plain HTML, without a script. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Document = Mapping[str, Any]
REF = "#/components/schemas/"
MAX_TYPES = 8
"""Most possible types of a value that are named."""


def api_page(document: Document, files: str) -> str:
    """Return the page.

    Args:
        files: Path of the console's files, with a slash at its end.
    """
    info = document["info"]
    tags = [(tag["name"], tag["description"]) for tag in document.get("tags", ())]
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>API of the {escape(info["title"])}</title>'
        f'<link rel="icon" type="image/svg+xml" href="{escape(files)}icon.svg">'
        f'<link rel="stylesheet" href="{escape(files)}styles/console.css">'
        f'<link rel="stylesheet" href="{escape(files)}styles/api.css">'
        f'</head><body class="api"><header><p><a href="./">Console</a></p><h1>API</h1>'
        f"<p>{escape(info.get('summary', ''))} Version {escape(info['version'])}. For programs: "
        f'<a href="openapi.json">openapi.json</a>.</p>',
        *(f"<p>{_marked(paragraph)}</p>" for paragraph in info.get("description", "").split("\n")),
        "</header><main>",
        _contents(document, tags),
        *(_section(document, name, text) for name, text in tags),
        "<section><h2 id='schemas'>Documents</h2>",
        *(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
        "</section></main></body></html>",
    ]
    return "".join(parts)


def _contents(document: Document, tags: Sequence[tuple[str, str]]) -> str:
    groups = (
        f"<dt>{escape(tag)}</dt><dd><ul>"
        + "".join(
            f'<li><a href="#{escape(operation["operationId"])}">{escape(operation["summary"])}</a></li>'
            for _, _, operation in _operations(document, tag)
        )
        + "</ul></dd>"
        for tag, _ in tags
    )
    return f'<nav aria-label="Operations"><dl>{"".join(groups)}</dl></nav>'


def _operations(document: Document, tag: str) -> Iterator[tuple[str, str, Document]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if tag in operation.get("tags", ()):
                yield method.upper(), path, operation


def _section(document: Document, tag: str, text: str) -> str:
    found = "".join(_operation(*each) for each in _operations(document, tag))
    return f"<section><h2>{escape(tag)}</h2><p>{escape(text)}</p>{found}</section>" if found else ""


def _operation(method: str, path: str, operation: Document) -> str:
    name = escape(operation["operationId"])
    return "".join(
        (
            f'<article><h3 id="{name}"><a href="#{name}">{escape(operation["summary"])}</a></h3>',
            f'<p class="line"><strong>{method}</strong> <code>{escape(path)}</code></p>',
            *(f"<p>{_marked(text)}</p>" for text in operation.get("description", "").split("\n") if text),
            _key(operation),
            _parameters(operation.get("parameters", ())),
            _body(operation.get("requestBody")),
            _answers(operation["responses"]),
            f'<p>For instance:</p><pre tabindex="0"><code>{escape(_curl(method, path, operation))}</code></pre>',
            _instance(operation["responses"]),
            "</article>",
        )
    )


def _key(operation: Document) -> str:
    """Return the sentence about the key that an operation needs; nothing where it needs none."""
    if "security" not in operation:
        return ""
    scopes = operation["security"][0]["key"]
    return f"<p>Needs a key{f' with the scope <code>{escape(scopes[0])}</code>' if scopes else ''}.</p>"


def _parameters(parameters: Sequence[Document]) -> str:
    if not parameters:
        return ""
    rows = (
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td><td>{_type(each['schema'])}</td>"
        f"<td>{_marked(each.get('description', ''))}</td></tr>"
        for each in parameters
    )
    return _table(("Parameter", "In", "Type", "Meaning"), rows)


def _body(body: Document | None) -> str:
    if body is None:
        return ""
    kinds = " or ".join(f"{escape(kind)}: {_type(entry.get('schema', {}))}" for kind, entry in body["content"].items())
    return f"<p>Body, {kinds}</p>"


def _answers(responses: Document) -> str:
    rows = []
    for status, answer in responses.items():
        kinds = ", ".join(
            f"{escape(kind)} {_type(entry.get('schema', {}))}" for kind, entry in answer.get("content", {}).items()
        )
        rows.append(f"<tr><td>{escape(status)}</td><td>{kinds}</td><td>{_marked(answer['description'])}</td></tr>")
    return _table(("Answer", "Content", "Meaning"), rows)


def _instance(responses: Document) -> str:
    """Return the example of the operation's success; nothing where it has no text."""
    content: Document = next(
        (answer.get("content", {}) for status, answer in responses.items() if status.startswith("2")), {}
    )
    example = next((entry["example"] for entry in content.values() if "example" in entry), None)
    if example is None:
        return ""
    text = example if isinstance(example, str) else json.dumps(example, indent=1)
    return f'<p>An answer:</p><pre tabindex="0"><code>{escape(text)}</code></pre>'


def _schema(name: str, schema: Document) -> str:
    heading = f'<article><h3 id="schema-{escape(name)}"><a href="#schema-{escape(name)}">{escape(name)}</a></h3>'
    text = f"<p>{_marked(schema['description'])}</p>" if "description" in schema else ""
    needed = schema.get("required", ())
    rows = [
        f"<tr><td><code>{escape(key)}</code></td><td>{_type(value)}{'' if key in needed else ', may be missing'}</td>"
        f"<td>{_marked(value.get('description', ''))}</td></tr>"
        for key, value in schema.get("properties", {}).items()
    ]
    return (
        heading
        + text
        + (_table(("Field", "Type", "Meaning"), rows) if rows else f"<p>{_type(schema)}</p>")
        + "</article>"
    )


def _table(heads: Sequence[str], rows: Iterator[str] | Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    # No region: a hundred landmarks lead nowhere. It takes the focus, so that the keyboard scrolls it on a phone.
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(", ".join(heads))}">{table}</div>'


def _type(schema: Document) -> str:
    """Return a type in words, with links to the documents that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(REF))
        return f'<a href="#schema-{name}">{name}</a>'
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_type(each) for each in schema[key][:MAX_TYPES])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    kind = escape(str(schema.get("type", "anything")))
    bounds = [
        f"{word} {escape(str(schema[key]))}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "at most this long:"))
        if key in schema
    ]
    return ", ".join([kind, *bounds])


def _curl(method: str, path: str, operation: Document) -> str:
    """Return a command that calls the operation; the gateway is `$GATEWAY`, the key `$KEY`."""
    for each in operation.get("parameters", ()):
        examples = each.get("examples") or each["schema"].get("examples") or [each["name"].upper()]
        path = path.replace("{" + each["name"] + "}", str(examples[0]))
    lines = [f'curl {"" if method == "GET" else f"-X {method} "}"$GATEWAY{path}"']
    if operation.get("security"):
        lines.append('-H "Authorization: Bearer $KEY"')
    content = (operation.get("requestBody") or {}).get("content") or {}
    for kind, entry in list(content.items())[:1]:
        data = f"'{json.dumps(entry['example'])}'" if "example" in entry else "@FILE"
        lines += [f"-H 'Content-Type: {kind}'", f"-d {data}"]
    return " \\\n  ".join(lines)


def _marked(text: str) -> str:
    """Return a text with the parts between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
