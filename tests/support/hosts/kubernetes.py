"""What the Helm chart and the trainer's manifest ask of Kubernetes, as documents that tests look into."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.support.hosts.compose import DEPLOY
from tests.support.hosts.helm import Document, Refused, documents, rendered

GUIDE = DEPLOY / "kubernetes" / "README.md"
WORKLOADS = ("StatefulSet", "Deployment")


def peer(name: str) -> list[Document]:
    """A list of peers in which a test knows its caller again."""
    return [{"namespaceSelector": {"matchLabels": {"who": name}}}]


EVERYTHING: Document = {
    "metrics": {"enabled": True},
    "aggregator": {"databaseSecret": "database", "signOnSecret": "sign-on"},
    "gateway": {"messagesSecret": "messages"},
    "networkPolicy": {
        "trainers": peer("trainer"),
        "people": peer("person"),
        "prometheus": peer("Prometheus"),
        "database": peer("PostgreSQL"),
        "provider": peer("OpenID provider"),
        "receivers": peer("receiver"),
        "dns": peer("DNS"),
    },
}
"""Values that ask for everything that the chart can make."""


def with_value(values: Mapping[str, Any], path: str, value: Any) -> Document:
    """Values with one of them replaced; a path has dots."""
    changed = copy.deepcopy(dict(values))
    *folders, name = path.split(".")
    inner = changed
    for folder in folders:
        inner = inner.setdefault(folder, {})
    inner[name] = value
    return changed


def made(outcome: list[Document] | Refused) -> list[Document]:
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


@cache
def charts() -> tuple[list[Document], list[Document]]:
    """What the chart makes of no values, and of values that ask for everything."""
    plain, everything = rendered({}, EVERYTHING)
    return made(plain), made(everything)


def manifest() -> list[Document]:
    return documents((DEPLOY / "kubernetes" / "trainer.yaml").read_text())


def of_kind(found: list[Document], *kinds: str) -> list[Document]:
    return [each for each in found if each["kind"] in kinds]


def component(document: Document) -> str:
    return str(document["metadata"]["labels"]["app.kubernetes.io/component"])


def container(workload: Document) -> Document:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


def workloads() -> list[tuple[str, Document]]:
    return [(component(each), each) for found in (*charts(), manifest()) for each in of_kind(found, *WORKLOADS)]
