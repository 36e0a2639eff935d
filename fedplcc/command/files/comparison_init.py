"""`fedplcc config init --comparison`: a comparison to start from, which runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplcc.command.exit_codes import ExitCode
from fedplcc.command.training.compare import DEFAULT_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = 2
"""Number of seeds, unless it is told."""
BASELINE, USUAL = "fedavg", "fedplcc"
CLIPPED = "clipped"
"""Name of the row that shows a row's own settings."""
CLIP_NORM = 40.0
FIRST_ROUNDS = 10
"""Rounds of the digits in a first comparison, which is to end within minutes."""


def init_comparison(file: Path | None, datasets: Sequence[Path], methods: Sequence[str], *, seeds: int) -> int:
    """Write a comparison to start from: every key with its value and meaning. It can be trained as it is.

    Args:
        file: Where to write it; compare.toml if None.
        datasets: Configurations of runs with their clients, each a data set; the run.toml beside the file if empty, and
            without one digits of four domains, which are written there.
        methods: Methods of the rows; fedavg, the data sets' own and fedplcc with clipped gradients if empty.
        seeds: Number of seeds, from 0.

    Raises:
        InvalidConfig: The file is there already, or what it would say cannot be trained.
    """
    import tomllib

    from fedplcc.comparison.check import check
    from fedplcc.comparison.file import problems_of
    from fedplcc.comparison.template import template
    from fedplcc.runs.atomic_file import write_new
    from fedplcc.runs.configuration import DEFAULT_FILE as RUN_FILE
    from fedplcc.runs.configuration import demo_file, plain_demo
    from fedplcc.runs.configuration_text import template as run_template
    from fedplcc.shared.config.run import parse_federation
    from fedplcc.shared.errors import InvalidConfig

    file = file or DEFAULT_FILE
    if file.exists():
        raise InvalidConfig(f"{file} is there already; name another file, or remove it first")
    beside = file.parent / RUN_FILE
    makes_digits = not datasets and not beside.exists()
    configs = datasets or [beside]
    tables = _datasets(configs, file)
    if makes_digits:
        tables = {"digits": {**tables[beside.stem], "set": {"run.rounds": FIRST_ROUNDS}}}
    rows = _rows([demo_file()] if makes_digits else configs, methods)
    text = template(file.stem, tables, rows, seeds=range(seeds), baseline=[next(iter(rows))])
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

    from fedplcc.shared.errors import InvalidConfig

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
    from fedplcc.shared.config.run import read_document

    if methods:
        return {method: {"method": method} for method in methods}
    own = [read_document(config).get("run", {}) for config in configs]
    named = [run.get("method") for run in own if isinstance(run, dict)]
    names = [BASELINE, *(name for name in named if isinstance(name, str)), USUAL]
    clipped = {"method": USUAL, "label": f"{USUAL}, clip", "set": {"training.clip_norm": CLIP_NORM}}
    return {name: {"method": name} for name in dict.fromkeys(names)} | {CLIPPED: clipped}
