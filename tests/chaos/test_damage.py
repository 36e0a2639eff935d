"""A sample of the damage that `python -m tests.chaos.damage` tries in full."""

from __future__ import annotations

from tests.chaos.damage import search

EVERY = 13


def test_no_damage_ends_in_a_traceback_or_in_other_bytes_without_a_word() -> None:
    said: list[str] = []
    assert search(EVERY, report=said.append) == 0, said
