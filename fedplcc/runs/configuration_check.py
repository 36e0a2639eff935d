"""All problems of a configuration file at once; `fedplcc.shared.config.problems` checks the run's sections.

Pure but for reading the initial model's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.runs.backbone_digests import with_digests
from fedplcc.runs.configuration import local_clients, require_validation
from fedplcc.runs.initial_model import with_model_file
from fedplcc.shared.config.problems import ConfigProblem, section_problems, table_problems
from fedplcc.shared.config.run import ClientSection, FederationFile, key_places, parse_federation
from fedplcc.shared.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Verdict:
    """A configuration, or its problems in one sentence each."""

    federation: FederationFile | None
    problems: tuple[str, ...] = ()


def judge(document: Mapping[str, Any]) -> Verdict:
    """Check the tables of a configuration file, and the model file that it may name."""
    document = with_digests(document)
    problems = tuple(dict.fromkeys(problem.detail for problem in _problems(document)))
    if problems:
        return Verdict(None, problems)
    try:
        federation = with_model_file(parse_federation(document))
        if federation.clients:
            local_clients(federation)
            require_validation(federation)
    except InvalidConfig as error:
        return Verdict(None, (error.detail,))
    return Verdict(federation)


def _problems(document: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    run = document.get("run", {})
    tables = document.get("clients", {})
    if isinstance(run, Mapping) and not {"clients", "min_clients"} & run.keys() and (tables or "partition" in document):
        # The tables make the roster, which is counted below: here there are enough clients for a cohort.
        cohort = run.get("cohort_size")
        enough = cohort if isinstance(cohort, int) and cohort > 0 else 1
        document = {**document, "run": {**run, "min_clients": enough}}
    yield from section_problems(document, also_known=("clients", "partition"))
    if isinstance(tables, Mapping):
        for client, table in tables.items():
            yield from table_problems(f"clients.{client}", table, ClientSection, key_places())
