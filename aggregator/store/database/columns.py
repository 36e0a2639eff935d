"""Column types with equal meaning on SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, String, TypeDecorator
from sqlalchemy import Text as LongText
from sqlalchemy.types import TypeEngine

from fedplcc.shared.errors import MalformedRequest

Number = Integer().with_variant(BigInteger(), "postgresql")
"""Integer of 64 bits, since a blob may be larger than 2 GiB; SQLite's INTEGER has as many."""


class Text(TypeDecorator[str]):
    """Text sorted by code points, as Python sorts it.

    On PostgreSQL it is VARCHAR COLLATE "C" of any length: otherwise PostgreSQL would sort by a language's rules, and enforce
    a length that SQLite ignores. U+0000 is refused on both, since PostgreSQL cannot store it.
    """

    impl = String
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the database's type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(String(collation="C"))
        return dialect.type_descriptor(LongText() if self.length is None else String(self.length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the value unchanged.

        Raises:
            MalformedRequest: It contains U+0000.
        """
        if value is not None and "\0" in value:
            raise MalformedRequest(f"{value[:40]!a} has the character U+0000, which no name or text may have")
        return value

    def __repr__(self) -> str:
        return f"Text({'' if self.length is None else self.length})"
