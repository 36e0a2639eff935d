"""SQL statements that are compiled once in a process: each store has an engine of its own, which compiles them all anew."""

from __future__ import annotations

from typing import Any

from fedplcc.aggregator.store.database.engines import sqlite


def share_compiled_statements() -> None:
    """Let the SQLite engines of this process have one dialect and one memory of compiled statements, those of the first."""
    module: Any = sqlite
    creates, first = module.create_engine, list[Any]()

    def create_engine(*arguments: Any, **keywords: Any) -> Any:
        engine = creates(*arguments, **keywords)
        first[:] = first or [engine]
        engine.dialect, engine._compiled_cache = first[0].dialect, first[0]._compiled_cache
        return engine

    module.create_engine = create_engine
