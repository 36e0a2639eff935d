"""The Helm chart of deploy/, rendered by Helm's own engine: a batch of values by one process.

python -m tests.support.hosts.helm    from a JSON list of values a JSON list of their files by name, or of refusals

The engine is a library of Go. It is loaded by a process of its own, so that no test shares a process with Go's threads.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.support.hosts.compose import DEPLOY

CHART = DEPLOY / "kubernetes" / "chart"
RELEASE = "fed"
LIMIT_S = 120

Document = dict[str, Any]


class Refused(Exception):
    """The chart takes no such values; what Helm says."""


def need_helm() -> None:
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("Helm's engine is not installed: pip install helm-python-sdk, on x86-64")


def rendered(*batch: Mapping[str, Any]) -> list[list[Document] | Refused]:
    """The documents that the chart makes of each of the values, or why it makes none."""
    need_helm()
    command = [sys.executable, "-m", "tests.support.hosts.helm"]
    done = subprocess.run(
        command, input=json.dumps(batch), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [
        Refused(said) if isinstance(said, str) else [each for text in said.values() for each in documents(text)]
        for said in json.loads(done.stdout)
    ]


def documents(text: str) -> list[Document]:
    """The documents of a file, as a parser of YAML 1.1 reads them, which that of Kubernetes is."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each is not None]


def _main() -> None:
    import helm_python

    answers: list[dict[str, str] | str] = []
    with helm_python.Chart.load(CHART) as chart:
        for values in json.load(sys.stdin):
            try:
                answers.append(chart.render(values, name=RELEASE, namespace="fl"))
            except helm_python.HelmError as error:
                answers.append(str(error))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    _main()
