"""Types of columns that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, String, TypeDecorator
from sqlalchemy import Text as LongText
from sqlalchemy.types import TypeEngine

from shared.errors import MalformedRequest

Number = Integer().with_variant(BigInteger(), "postgresql")
"""A whole number of up to 64 bits: a blob may be larger than 2 GiB. SQLite's INTEGER holds as much."""


class Text(TypeDecorator[str]):
    """Characters, in the order of their code points, as Python sorts them.

    PostgreSQL would sort by a language's rules, and refuse what is longer than declared where SQLite does not look: there it
    is VARCHAR COLLATE "C" of any length. U+0000 is refused on both, since PostgreSQL cannot keep it.
    """

    impl = String
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(String(collation="C"))
        return dialect.type_descriptor(LongText() if self.length is None else String(self.length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The value, if it can be kept.

        Raises:
            MalformedRequest: It cannot.
        """
        if value is not None and "\0" in value:
            raise MalformedRequest(f"{value[:40]!a} has the character U+0000, which no name or text may have")
        return value

    def __repr__(self) -> str:
        return f"Text({'' if self.length is None else self.length})"
