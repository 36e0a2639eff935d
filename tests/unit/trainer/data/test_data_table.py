"""docs/data.md says what happens with each mode, depth, layout and form of labels."""

from __future__ import annotations

from tests.support.records import data_table


def test_the_table_of_the_document_is_what_happens() -> None:
    assert data_table.in_document() == data_table.table(), "python -m tests.support.records.data_table writes it anew"
