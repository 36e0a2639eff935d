"""`fedplcc compare init`: a comparison to start from, which runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedplcc.command import completion
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = examples(
    "fedplcc compare init",
    "fedplcc compare init shops.toml --dataset run.toml --seeds 3",
    "fedplcc compare init few.toml --method fedavg --method moon --method fpl",
)
DEFAULT_FILE = Path("compare.toml")
BASELINE, USUAL = "fedavg", "fedplcc"
CLIPPED = "clipped"
"""Name of the row that shows a row's own settings."""
CLIP_NORM = 40.0
FIRST_ROUNDS = 10
"""Rounds of the digits in a first comparison, which is to end within minutes."""


@explains_errors
def init(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Where to write it; compare.toml if not given. Nothing is overwritten.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        list[Path] | None,
        typer.Option(
            "--dataset",
            metavar="CONFIG",
            help="Configuration of a run with its clients: a data set of the comparison; repeatable. The run.toml beside "
            "FILE if not given; without one, digits of four domains are written there.",
            dir_okay=False,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="Method of a row; repeatable. fedavg, the data sets' own and fedplcc with clipped gradients if not given.",
            autocompletion=completion.methods,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.", min=1, max=1000)] = 2,
) -> int:
    """Write a comparison to start from: every key with its value and meaning. It can be trained as it is."""
    import tomllib

    from fedplcc.comparison.check import check
    from fedplcc.comparison.file import problems_of
    from fedplcc.comparison.template import template
    from fedplcc.runs.atomic_file import write_new
    from fedplcc.runs.configuration import DEFAULT_FILE as RUN_FILE
    from fedplcc.runs.configuration import demo_file, plain_demo
    from fedplcc.runs.configuration_text import template as run_template
    from shared.config.run import parse_federation
    from shared.errors import InvalidConfig

    file = file or DEFAULT_FILE
    if file.exists():
        raise InvalidConfig(f"{file} is there already; name another file, or remove it first")
    beside = file.parent / RUN_FILE
    makes_digits = not dataset and not beside.exists()
    configs = dataset or [beside]
    datasets = _datasets(configs, file)
    if makes_digits:
        datasets = {"digits": {**datasets[beside.stem], "set": {"run.rounds": FIRST_ROUNDS}}}
    rows = _rows([demo_file()] if makes_digits else configs, method or [])
    text = template(file.stem, datasets, rows, seeds=range(seeds), baseline=[next(iter(rows))])
    document = tomllib.loads(text)
    if problems := problems_of(document):
        raise InvalidConfig("; ".join(problems))
    if makes_digits:
        write_new(beside, run_template(parse_federation(plain_demo())))
    if unfit := check(document, file).problems:
        raise InvalidConfig("; ".join(unfit))
    write_new(file, text)
    if makes_digits:
        print(f"{beside} is written too: digits of four domains, which need no download")
    print(f"{file} is written; see what it trains with: fedplcc compare --config {file} --dry-run")
    return ExitCode.OK


def _datasets(configs: Sequence[Path], file: Path) -> dict[str, dict[str, Any]]:
    """The tables of the data sets by name: the stems of their files, which are found from the comparison's.

    Raises:
        InvalidConfig: Two have the same name.
    """
    import os

    from shared.errors import InvalidConfig

    tables: dict[str, dict[str, Any]] = {}
    for config in configs:
        if config.stem in tables:
            raise InvalidConfig(f"--dataset: two files are called {config.stem}; a data set has the name of its file")
        tables[config.stem] = {"config": os.path.relpath(config, file.parent)}
    return tables


def _rows(configs: Sequence[Path], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The tables of the rows by name.

    Raises:
        InvalidConfig: A configuration cannot be read.
    """
    from shared.config.run import read_document

    if methods:
        return {method: {"method": method} for method in methods}
    own = [read_document(config).get("run", {}) for config in configs]
    named = [run.get("method") for run in own if isinstance(run, dict)]
    names = [BASELINE, *(name for name in named if isinstance(name, str)), USUAL]
    clipped = {"method": USUAL, "label": f"{USUAL}, clip", "set": {"training.clip_norm": CLIP_NORM}}
    return {name: {"method": name} for name in dict.fromkeys(names)} | {CLIPPED: clipped}
