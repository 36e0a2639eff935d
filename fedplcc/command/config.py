"""`fedplcc config ...`: write and check configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedplcc.command import completion
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say

if TYPE_CHECKING:
    from shared.config.run import FederationFile

app = typer.Typer(help="Write and check configuration files.", epilog=HELP, no_args_is_help=True)

DEFAULT_METHOD = "fedplcc"
CLIENT = "{client}"
"""Placeholder for a client's name in a data specification."""


@app.command(
    epilog=examples(
        "fedplcc config init",
        "fedplcc config init shops.toml --clients ann,bob --classes cat,dog",
        "fedplcc config init --clients north,south --data folder:images/{client}",
    )
)
@explains_errors
def init(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Where to write it; run.toml if not given. Nothing is overwritten.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="Method of the run.", autocompletion=completion.methods)] = DEFAULT_METHOD,
    clients: Annotated[
        str | None,
        typer.Option(
            help="Names of the clients with commas between; four domains of digits if not given.", metavar="A,B,..."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Names of the classes with commas between; those of the data if not given.", metavar="X,Y,..."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"Data specification of each client, with {CLIENT} for its name; folder:data/{CLIENT} if not given.",
            metavar="SPEC",
        ),
    ] = None,
) -> int:
    """Write a configuration to start from: every key with its value, range and meaning.

    Without options it trains on digits of four domains that need no download, so it can be simulated as it is.
    """
    from fedplcc.runs.configuration import DEFAULT_FILE
    from fedplcc.runs.configuration_text import template
    from shared.config.run import parse_federation
    from shared.errors import InvalidConfig, StoreUnavailable

    file = file or DEFAULT_FILE
    document = _document(method, _names(clients), _names(classes), data, file)
    text = template(parse_federation(document))
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise InvalidConfig(f"{file} is there already; name another file, or remove it first") from None
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}; name a file elsewhere") from error
    print(f"{file} is written; see what it says with: fedplcc config check {file}")
    return ExitCode.OK


@app.command(
    epilog=examples(
        "fedplcc config check run.toml",
        "fedplcc config check run.toml --data",
        "fedplcc config check run.toml --json",
    )
)
@explains_errors
def check(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Configuration file; run.toml if not given.", dir_okay=False, show_default=False
        ),
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Read the clients' data too, as a simulation would.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object: the canonical configuration, its hash, or the problems."),
    ] = False,
) -> int:
    """Print a configuration with its defaults filled in, or all of its problems."""
    from fedplcc.runs.configuration import chosen_file
    from fedplcc.runs.configuration_check import judge
    from fedplcc.runs.initial_model import anchored
    from fedplcc.terminal.progress import console_for
    from shared.config.run import canonical_json, read_document

    file = chosen_file(file)
    document = anchored(read_document(file), file.parent)
    verdict = judge(document)
    problems = list(verdict.problems)
    read: dict[str, dict[str, int]] = {}
    if data and verdict.federation is not None:
        read, unusable = _read_data(verdict.federation)
        problems += unusable
    if as_json:
        print(canonical_json(_answer(verdict.federation, problems, read)))
    elif verdict.federation is not None:
        _show(console_for(json=False), file, verdict.federation, document, read)
    for problem in problems:
        say(f"{file}: {problem}")
    return ExitCode.USAGE if problems else ExitCode.OK


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _document(method: str, clients: list[str], classes: list[str], data: str | None, file: Path) -> dict[str, Any]:
    """Tables of a configuration for these clients, or the demo's tables without any."""
    from fedplcc.runs.configuration import demo_file
    from shared.config.run import read_document
    from shared.errors import InvalidConfig

    if not clients and not classes and data is None:
        document = read_document(demo_file())
        document["run"]["method"] = method
        return document
    clients = clients or ["client"]
    specs = {name: (data or f"folder:data/{CLIENT}").replace(CLIENT, name) for name in clients}
    if not classes and data is None:
        raise InvalidConfig(
            "name the classes with --classes cat,dog, or the data that have them with --data folder:images"
        )
    if not classes:
        from trainer.data.loading import describe

        classes = sorted({name for spec in specs.values() for name in describe(spec)})
    return {
        "run": {"name": file.stem, "method": method, "clients": clients},
        "data": {"classes": classes},
        "clients": {name: {"data": spec} for name, spec in specs.items()},
    }


def _read_data(federation: FederationFile) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Read every client's data; returns the findings and the problems."""
    from fedplcc.terminal.progress import console_for, shown_steps
    from shared.errors import FedplccError
    from trainer.data.loading import load_dataset

    found: dict[str, dict[str, int]] = {}
    problems = []
    if not federation.clients:
        problems.append("there are no [clients.NAME] tables, so there is no data to read; leave out --data")
    with shown_steps(console_for(json=True), len(federation.clients)) as step:
        for name, client in federation.clients.items():
            step(f"{name}: reading its data")
            try:
                loaded = load_dataset(
                    client.data,
                    contract=federation.config.data,
                    samples_per_class=client.samples_per_class,
                    seed=federation.config.run.seed,
                )
            except FedplccError as error:
                problems.append(f"clients.{name}: {error.detail}")
                continue
            found[name] = {"train": len(loaded.train), "test": len(loaded.test), "unreadable": len(loaded.unreadable)}
            if not len(loaded.test):
                problems.append(
                    f"clients.{name}: data {client.data!r} has no test image, so its accuracy stays unknown"
                )
    return found, problems


def _answer(federation: FederationFile | None, problems: list[str], read: dict[str, dict[str, int]]) -> dict[str, Any]:
    import json

    answer: dict[str, Any] = {"problems": problems}
    if federation is not None:
        answer |= {"config": json.loads(federation.config.canonical_json), "config_hash": federation.config.hash}
        answer["clients"] = {
            name: {**client.model_dump(mode="json"), **read.get(name, {})}
            for name, client in federation.clients.items()
        }
    return answer


def _show(
    console: Any, file: Path, federation: FederationFile, document: dict[str, Any], read: dict[str, dict[str, int]]
) -> None:
    from fedplcc.runs.configuration_text import run_text

    config = federation.config
    rounds, clients = config.run.rounds, len(config.run.clients or ()) or config.run.min_clients
    who = f"{clients} client{'' if clients == 1 else 's'}{'' if config.run.clients else ' or more'}"
    console.print(
        f"# {file}: {config.run.method}, {rounds} round{'' if rounds == 1 else 's'}, {who}, "
        f"{len(config.data.classes)} classes"
    )
    console.print(f"# configuration {config.hash}\n")
    console.print(run_text(federation, document), end="")
    for name, counts in read.items():
        unreadable = f", {counts['unreadable']} files cannot be read" if counts["unreadable"] else ""
        console.print(f"# {name}: {counts['train']:,} training images, {counts['test']:,} test images{unreadable}")
