"""Outward surfaces of fedplcc as text: what other programs rely on, without the sentences for people.

`python -m tests.support.records.surfaces` writes them to tests/golden/surfaces; a contract test compares. A refactoring
leaves these files alone; a change of an interface shows in them, line by line. The protos and the tables of the store
are files of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main

from docs.site.metrics import families, registries
from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import FedplccError
from tests.chaos.durable_steps import steps
from tests.support import ROOT
from tests.support.records.rest_document import rest_document

FOLDER = ROOT / "tests" / "golden" / "surfaces"
_PROSE = frozenset({"description", "summary", "title", "example", "examples"})
_PARTS_OF_EXAMPLES = frozenset({"properties", "$defs", "schemas", "definitions"})
"""Keys below which a name such as `title` is a field's, not the document's own prose."""


def openapi() -> str:
    """The REST interface: the OpenAPI document without its prose and its version."""
    document = rest_document()
    del document["info"]["version"]
    return _json(_without_prose(document))


def run_configuration() -> str:
    """Every key of a run's configuration with its type, default and bounds, without its prose."""
    return _json(_without_prose(RunConfig.model_json_schema()))


def metrics() -> str:
    """Every metric of the three processes with its type and labels, a line each."""
    lines = (
        f"{process} {family.name} {family.type} {' '.join(labels)}".rstrip()
        for process, registry in registries().items()
        for family, labels in families(registry)
        if not family.name.startswith("process_")
    )
    return _lines(lines)


def commands() -> str:
    """Every command with its arguments and options, a line each; the services' options are their settings."""
    return _lines(_command_lines(typer.main.get_command(app), ["fedplcc"]))


def exit_codes() -> str:
    """Exit codes of the command, a line each."""
    return _lines(f"{code.value} {code.name}" for code in ExitCode)


def errors() -> str:
    """Every error with its reason, gRPC code and HTTP status, a line each."""
    return _lines(f"{kind.reason} {kind.code.name} {kind.code.http_status}" for kind in _descendants(FedplccError))


def failpoints() -> str:
    """Crash points of durable steps, a line each."""
    return _lines(steps())


SURFACES: Mapping[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "run-configuration.json": run_configuration,
    "metrics.txt": metrics,
    "commands.txt": commands,
    "exit-codes.txt": exit_codes,
    "errors.txt": errors,
    "failpoints.txt": failpoints,
}
"""Every surface by its file below tests/golden/surfaces."""


def _json(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in sorted(set(lines)))


def _without_prose(document: Any, *, is_named: bool = False) -> Any:
    if isinstance(document, dict):
        return {
            key: _without_prose(value, is_named=key in _PARTS_OF_EXAMPLES)
            for key, value in document.items()
            if is_named or key not in _PROSE
        }
    if isinstance(document, list):
        return [_without_prose(entry) for entry in document]
    return document


def _descendants(kind: type[FedplccError]) -> Iterator[type[FedplccError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)


def _command_lines(command: Any, path: list[str]) -> Iterator[str]:
    context = command.make_context(path[-1], [], resilient_parsing=True)
    for parameter in command.params:
        names = "/".join([*parameter.opts, *parameter.secondary_opts])
        number = " ..." if parameter.nargs == -1 or getattr(parameter, "multiple", False) else ""
        kind = "flag" if getattr(parameter, "is_flag", False) else f"value{number}"
        yield f"{' '.join(path)} {names} {kind}" + (" required" if parameter.required else "")
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _command_lines(command.resolve_command(context, [name])[1], [*path, name])


def written_in_a_fresh_process(folder: Path) -> None:
    """Write the surfaces to a folder from a process of its own: other tests may have registered classes of their own."""
    subprocess.run(
        [sys.executable, "-m", "tests.support.records.surfaces", str(folder)], cwd=ROOT, check=True, timeout=120
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for name, surface in SURFACES.items():
        (target / name).write_text(surface())
