"""`fedplcc config init --comparison`: a comparison to start from, which runs as it is."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplcc.command.training.compare import DEFAULT_FILE
from fedplcc.shared.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SEEDS = 2
"""Number of seeds, unless it is told."""
BASELINE, USUAL = "fedavg", "fedplcc"
CLIPPED = "clipped"
"""Name of the row that shows a row's own settings."""
CLIP_NORM = 40.0
OF_A_HEAD = ("run.rounds", "model.options.hidden_dim", "model.options.feature_norm")
"""Keys in which heads of sums and heads that are trained differ."""
FIRST_ROUNDS = 10
"""Rounds of the digits in a first comparison, which is to end within minutes."""


def init_comparison(file: Path | None, datasets: Sequence[Path], methods: Sequence[str], *, seeds: int) -> None:
    """Write a comparison to start from: every key with its value and meaning. It can be trained as it is.

    Args:
        file: Where to write it; compare.toml if None.
        datasets: Configurations of runs with their clients, each a data set; the run.toml beside the file if empty, and
            without one digits of four domains, which are written there.
        methods: Methods of the rows; fedavg, the data sets' own and fedplcc with clipped gradients if empty.
        seeds: Number of seeds, from 0.

    Raises:
        InvalidConfig: The file is there already, a configuration cannot be read, or what it would say cannot be trained.
    """
    from fedplcc.comparison.check import check
    from fedplcc.comparison.file import problems_of
    from fedplcc.comparison.template import template
    from fedplcc.runs.atomic_file import write_new
    from fedplcc.runs.configuration import DEFAULT_FILE as RUN_FILE
    from fedplcc.runs.configuration import plain_demo
    from fedplcc.runs.configuration_text import template as run_template
    from fedplcc.shared.config.run import parse_federation, read_document

    file = file or DEFAULT_FILE
    if file.exists():
        raise InvalidConfig(f"{file} is there already; name another file, or remove it first")
    beside = file.parent / RUN_FILE
    makes_digits = not datasets and not beside.exists()
    configs = datasets or [beside]
    tables = _datasets(configs, file)
    if makes_digits:
        tables = {"digits": {**tables[beside.stem], "set": {"run.rounds": FIRST_ROUNDS}}}
    documents = {"digits": plain_demo()} if makes_digits else {each.stem: read_document(each) for each in configs}
    rows = _rows({name: _tables_of(document) for name, document in documents.items()}, methods)
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


def _datasets(configs: Sequence[Path], file: Path) -> dict[str, dict[str, Any]]:
    """The tables of the data sets by name: the stems of their files, which are found from the comparison's."""
    tables: dict[str, dict[str, Any]] = {}
    for config in configs:
        if config.stem in tables:
            raise InvalidConfig(f"--dataset: two files are called {config.stem}; a data set has the name of its file")
        tables[config.stem] = {"config": os.path.relpath(config, file.parent)}
    return tables


def _rows(
    documents: Mapping[str, Mapping[str, Mapping[str, Any]]], methods: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The tables of the rows by name, for the configurations of the data sets by name."""
    own = [document.get("run", {}).get("method") for document in documents.values()]
    rows = {}
    for method in dict.fromkeys(methods or [BASELINE, *(name for name in own if isinstance(name, str)), USUAL]):
        changes = {name: changed for name, document in documents.items() if (changed := _changes(document, method))}
        rows[method] = {"method": method, **({"set_for": changes} if changes else {})}
    if not methods and any("clip_norm" not in document.get("training", {}) for document in documents.values()):
        label = f"{USUAL}, clip"
        rows[CLIPPED] = {**rows[USUAL], "label": label, "set": {"training.clip_norm": CLIP_NORM}}
    return rows


def _tables_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tables of a configuration that was not checked yet; what is none is told with the other mistakes."""
    return {name: table for name, table in document.items() if isinstance(table, dict)}


def _changes(document: Mapping[str, Mapping[str, Any]], method: str) -> dict[str, Any]:
    """What another method than a configuration's own needs of it, by SECTION.KEY, so that the two can be compared.

    It keeps the hyper-parameters that every method has. On features of a trained net it takes the rounds and the head of the
    recipe for photographs that it belongs to: one method sums features, in two rounds, the others train.
    """
    from fedplcc.comparison.sweep.section import flat
    from fedplcc.shared.config.recipes import PHOTOS, of_photographs, shared_settings, with_recipe

    own = str(document.get("run", {}).get("method"))
    if own == method:
        return {}
    changes = {f"method.{key}": value for key, value in shared_settings(document, method).items()}
    if document.get("training", {}).get("train") == "head":
        said = flat(with_recipe({"run": {"method": method}}, PHOTOS))
        changes |= {key: value for key, value in said.items() if key.startswith("method.")}
        if of_photographs(method) != of_photographs(own):
            changes |= {key: said[key] for key in OF_A_HEAD}
    return changes
