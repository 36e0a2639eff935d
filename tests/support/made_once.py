"""Things that tests make again and again, made once in a process: compiled SQL statements, the tree of the command."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from typer import testing

from fedplcc.aggregator.store.database.engines import sqlite
from fedplcc.aggregator.store.database.schema import metadata


def make_once() -> None:
    """Keep for the life of this process what each store's engine and each command in a test would make anew."""
    _share_compiled_statements(sqlite)
    _share_creating_statements(metadata)
    _share_command_trees(testing)


def _share_compiled_statements(module: Any) -> None:
    """Let all SQLite engines have the dialect of the first, and its memory of compiled statements."""
    creates, first = module.create_engine, list[Any]()

    def create_engine(*arguments: Any, **keywords: Any) -> Any:
        engine = creates(*arguments, **keywords)
        first[:] = first or [engine]
        engine.dialect, engine._compiled_cache = first[0].dialect, first[0]._compiled_cache
        return engine

    module.create_engine = create_engine


def _share_creating_statements(tables: Any) -> None:
    """Create the tables of every new SQLite file with statements that were compiled once."""
    creates = tables.create_all

    @cache
    def statements() -> list[str]:
        indexes = [index for table in tables.sorted_tables for index in table.indexes]
        found: list[ExecutableDDLElement] = [*map(CreateTable, tables.sorted_tables), *map(CreateIndex, indexes)]
        return [str(each.compile(dialect=dialect())) for each in found]

    def create_all(connection: Any) -> None:
        if connection.dialect.name != "sqlite":
            creates(connection)
            return
        for statement in statements():
            connection.connection.driver_connection.execute(statement)

    tables.create_all = create_all


def _share_command_trees(module: Any) -> None:
    """Let all that CliRunner invokes have one tree of commands, groups and options for each app."""
    module._get_command = cache(module._get_command)
