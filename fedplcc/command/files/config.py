"""`fedplcc config ...`: write and check configuration files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.terminal.class_sentences import class_sentences, copies_sentences
from fedplcc.terminal.names import named_few

if TYPE_CHECKING:
    from fedplcc.shared.config.run import FederationFile

MOST_ROWS = 100
"""Most rows of a comparison that are printed."""
EXAMPLES = examples(
    "fedplcc config check run.toml",
    "fedplcc config check compare.toml --data",
    "fedplcc config check policy.toml --run run.toml",
)


@explains_errors
def check(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Configuration of a run, file of a comparison, or policy of a site's owner; run.toml if not given, with "
            "--run policy.toml.",
            dir_okay=False,
        ),
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Read the clients' data too, as a simulation would.")] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Of a policy: configuration of a run, to say whether the policy lets the site take part, and what forbids "
            "it; the exit code is then 1.",
            dir_okay=False,
        ),
    ] = None,
    as_json: bool,
) -> int:
    """Print a configuration with its defaults filled in, or all of its problems.

    Of a comparison's file the configurations that it names are checked too, with every row's changes. Of a policy it says
    in sentences what it allows. The first line says which kind of file it is taken for.
    """
    from fedplcc.command.files.policy import DEFAULT, check_policy
    from fedplcc.runs.configuration import chosen_file
    from fedplcc.shared.config.run import read_document

    if run is not None:
        if data:
            raise InvalidConfig("--run is of a policy, --data of a run or a comparison: give one of them")
        return check_policy(file or DEFAULT, run, as_json=as_json)
    file = chosen_file(file)
    document = read_document(file)
    if not document:
        raise InvalidConfig(
            f"{file} has no table: it is neither a run's configuration, nor a comparison's file, nor a policy"
        )
    kind = kind_of(document)
    if kind == "policy":
        if data:
            raise InvalidConfig(f"{file} is a policy, and has no --data")
        return check_policy(file, None, as_json=as_json)
    checked = _check_comparison if kind == "comparison" else _check_run
    problems = checked(file, document, reads_data=data, as_json=as_json)
    if problems:
        taken = {"comparison": "the file of a comparison", "run": "the configuration of a run"}[kind]
        say(f"{file}: taken for {taken}")
    for problem in problems:
        say(f"{file}: {problem}")
    return ExitCode.USAGE if problems else ExitCode.OK


def kind_of(document: Mapping[str, Any]) -> str:
    """Return "run", "comparison" or "policy": whose tables most of a document's are, slips of the pen too."""
    from fedplcc.comparison.file import Comparison
    from fedplcc.shared.config.run import RunConfig
    from fedplcc.trainer.owner.policy import Policy

    def fit(known: Collection[str]) -> tuple[int, int]:
        like = (difflib.get_close_matches(name, known, n=1, cutoff=0.75) for name in document)
        return sum(map(bool, like)), sum(name in known for name in document)

    of_a_run = fit([*RunConfig.model_fields, "clients", "partition"])
    of_a_comparison, of_a_policy = fit([*Comparison.model_fields]), fit([*Policy.model_fields])
    if of_a_policy[1] and of_a_policy >= of_a_run and of_a_policy > of_a_comparison:
        return "policy"  # no run has nothing but the table that both have
    return "comparison" if of_a_comparison > of_a_run else "run"


def _check_run(file: Path, document: dict[str, Any], *, reads_data: bool, as_json: bool) -> list[str]:
    """Check a run's configuration and print it; returns its problems."""
    from fedplcc.runs.configuration_check import judge
    from fedplcc.runs.initial_model import anchored, doubts
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    document = anchored(document, file.parent)
    verdict = judge(document)
    problems = list(verdict.problems)
    read: dict[str, dict[str, int]] = {}
    if reads_data and verdict.federation is not None:
        read, unusable = _read_data(verdict.federation)
        problems += unusable
    if as_json:
        print(canonical_json(_answer(verdict.federation, problems, read)))
    elif verdict.federation is not None:
        _show(console_for(json=False), file, verdict.federation, document, read)
        for doubt in doubts(verdict.federation):
            say(doubt)
    return problems


def _check_comparison(file: Path, document: dict[str, Any], *, reads_data: bool, as_json: bool) -> list[str]:
    """Check a comparison's file and print its data sets and rows; returns its problems."""
    from fedplcc.comparison.check import check as check_file
    from fedplcc.comparison.file import assignments
    from fedplcc.comparison.sweep.choosing import criterion
    from fedplcc.comparison.sweep.section import flat
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    checked = check_file(document, file)
    comparison, problems = checked.comparison, list(checked.problems)
    sweep = None if comparison is None else comparison.sweep
    points = {row: sweep.num_points(row) for row in sweep.swept(comparison.rows)} if comparison and sweep else {}
    read: dict[str, dict[str, dict[str, int]]] = {}
    for dataset, cell in {cell.dataset: cell for cell in reversed(checked.cells)}.items() if reads_data else ():
        read[dataset], unusable = _read_data(cell.federation)
        problems += [f"datasets.{dataset}: {problem}" for problem in unusable]
    if as_json:
        answer: dict[str, Any] = {"kind": "comparison", "problems": problems}
        if comparison is not None:
            answer |= {"name": comparison.compare.name, "cells": len(checked.cells)}
            answer["datasets"] = {
                name: {"config": section.config, "seeds": comparison.seeds_of(name), "rows": comparison.rows_of(name)}
                | ({"clients": read[name]} if name in read else {})
                for name, section in comparison.datasets.items()
            }
            answer["rows"] = {name: row.model_dump(mode="json") for name, row in comparison.rows.items()}
        if sweep is not None:
            answer["sweep"] = {"points": points, "chosen_by": criterion(sweep)}
        print(canonical_json(answer))
    elif comparison is not None and checked.cells:
        console = console_for(json=False)
        dry_run = f"fedplcc compare --config {file} --dry-run"
        console.print(f"# {file} is a comparison: {len(checked.cells)} cells; {dry_run} says what it would train")
        for name, section in comparison.datasets.items():
            seeds = ", ".join(map(str, comparison.seeds_of(name)))
            console.print(f"# data set {name}: {section.config}, {len(comparison.rows_of(name))} rows, seeds {seeds}")
            for line in _lines_of_data(read.get(name, {})):
                console.print(f"#   {line}")
        if sweep is not None:
            of_rows = named_few(f"{count} point{'' if count == 1 else 's'} of {row}" for row, count in points.items())
            console.print(f"# sweep: {of_rows}; chosen by {criterion(sweep)}")
        for name, row in [*comparison.rows.items()][:MOST_ROWS]:
            changes = assignments(flat(row.set))
            for dataset, settings in row.set_for.items():
                changes += [f"{each} on {dataset}" for each in assignments(flat(settings))]
            console.print(", ".join([f"# row {name}: {row.method}", *changes]))
        if (more := len(comparison.rows) - MOST_ROWS) > 0:
            console.print(f"# and {more} more rows; --json has all")
    return problems


def _read_data(federation: FederationFile) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Read every client's data; returns the findings and the problems, and says what is worth a look."""
    from fedplcc.runs.readiness import idle_settings
    from fedplcc.terminal.progress import console_for, shown_steps
    from fedplcc.trainer.data.loading import load_dataset

    found: dict[str, dict[str, int]] = {}
    by_class: dict[str, dict[str, int]] = {}
    trained, tested = dict[str, set[str]](), dict[str, set[str]]()
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
                    fraction=client.fraction,
                    validation_per_class=client.validation_per_class,
                    seed=federation.config.run.seed,
                )
            except FedplccError as error:
                problems.append(f"clients.{name}: {error.detail}")
                continue
            by_class[name] = dict(zip(loaded.classes, loaded.class_counts, strict=True))
            if not client.evaluate_only:
                trained[name] = {digest for _, digest in loaded.train.marks}
            tested[name] = {digest for _, digest in loaded.test.marks}
            found[name] = {"train": len(loaded.train), "test": len(loaded.test), "unreadable": len(loaded.unreadable)}
            if not len(loaded.test):
                problems.append(
                    f"clients.{name}: data {client.data!r} has no test image, so its accuracy stays unknown"
                )
    said = (*class_sentences(by_class, federation.config.data.classes), *copies_sentences(trained, tested))
    for sentence in (*said, *idle_settings([federation])):
        say(sentence)
    return found, problems


def _answer(federation: FederationFile | None, problems: list[str], read: dict[str, dict[str, int]]) -> dict[str, Any]:
    from fedplcc.runs.foreseen_bytes import foreseen_bytes

    answer: dict[str, Any] = {"kind": "run", "problems": problems}
    if federation is not None:
        moved = foreseen_bytes(federation.config, _examples(federation, read))
        answer["round_bytes"] = None if moved is None else moved.as_json()
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
    from fedplcc.runs.foreseen_bytes import foreseen_bytes
    from fedplcc.terminal.round_bytes_lines import foreseen_line

    config = federation.config
    rounds, clients = config.run.rounds, len(config.run.clients or ()) or config.run.min_clients
    who = f"{clients} client{'' if clients == 1 else 's'}{'' if config.run.clients else ' or more'}"
    console.print(
        f"# {file} is a run's configuration: {config.run.method}, {rounds} round{'' if rounds == 1 else 's'}, {who}, "
        f"{len(config.data.classes)} classes"
    )
    moved = foreseen_bytes(config, _examples(federation, read))
    if moved is not None:
        console.print(f"# {foreseen_line(moved)}")
    console.print(f"# configuration {config.hash}\n")
    console.print(run_text(federation, document), end="")
    for line in _lines_of_data(read):
        console.print(f"# {line}")


def _examples(federation: FederationFile, read: Mapping[str, Mapping[str, int]]) -> list[int | None]:
    """Return the training images of each client of the file, 0 where its data were not read, None where it trains none."""
    return [
        None if client.evaluate_only else read.get(name, {}).get("train", 0)
        for name, client in federation.clients.items()
    ]


def _lines_of_data(read: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for name, counts in read.items():
        unreadable = f", {counts['unreadable']} files cannot be read" if counts["unreadable"] else ""
        yield f"{name}: {counts['train']:,} training images, {counts['test']:,} test images{unreadable}"
