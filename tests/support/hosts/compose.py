"""The Compose files of deploy/, read as Compose reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from fedplcc.shared.config.settings import AggregatorSettings, GatewaySettings, Settings, TrainerSettings
from tests.support import ROOT

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<operator>:-)(?P<rest>[^}]*))?\}")

KINDS: dict[str, type[Settings]] = {
    "aggregator": AggregatorSettings,
    "gateway": GatewaySettings,
    "trainer": TrainerSettings,
}
DOCKERFILES = {"fedplcc-aggregator": "Dockerfile.aggregator", "fedplcc-trainer": "Dockerfile.trainer"}
COMPOSE_FILES = ("compose.yaml", "compose.trainer.yaml")


def interpolated(text: str, given: Mapping[str, str]) -> str:
    """As Compose fills in `${NAME}` and `${NAME:-default}`; `$$` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name, operator, rest = found["name"], found["operator"], found["rest"]
        if given.get(name):
            return given[name]
        assert operator == ":-", name
        return str(rest)

    return VARIABLE.sub(value, text.replace("$$", "$"))


@cache
def compose(name: str) -> dict[str, Any]:
    """A file, with no variable set."""
    document: dict[str, Any] = _filled_in(yaml.safe_load((DEPLOY / name).read_text()))
    return document


def _filled_in(value: Any) -> Any:
    """A document with its texts interpolated after it was parsed: what is left empty is an empty text, and no null."""
    if isinstance(value, dict):
        return {key: _filled_in(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled_in(each) for each in value]
    return interpolated(value, {}) if isinstance(value, str) else value
