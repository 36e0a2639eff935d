"""Configurations of runs, parsed from their records: once for each text while a run with it is open."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.tables.stream import Place, has_stages
from fedplcc.shared.types import Run, RunSpec

CACHED = 64
"""Most configurations that are kept though nobody else holds them; the ledger holds those of open runs."""

_held: WeakValueDictionary[str, RunConfig] = WeakValueDictionary()


def config_of(run: Run | RunSpec) -> RunConfig:
    """The run's configuration.

    Raises:
        InvalidConfig: Another version wrote it, and this version cannot read it.
    """
    return _config(run.config_json)


def place_of(run: Run) -> Place | None:
    """The pass and the stage of a run's latest round; None without stages. Others need no configuration for that."""
    if not has_stages(document_of(run)):
        return None
    return config_of(run).stream.place(run.round_number, run.stage_began)


def document_of(run: Run) -> Mapping[str, Any]:
    """The run's configuration as the stored JSON object, also if another version wrote it."""
    return _document(run.config_json)


@functools.lru_cache(maxsize=CACHED)
def _config(config_json: str) -> RunConfig:
    config = _held.get(config_json)
    if config is None:
        config = _held[config_json] = parse_run_config(_document(config_json))
    return config


@functools.lru_cache(maxsize=CACHED)
def _document(config_json: str) -> Mapping[str, Any]:
    return MappingProxyType(json.loads(config_json))
