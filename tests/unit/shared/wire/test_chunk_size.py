"""Pieces of a transfer fit the link: large where it is quick, small where it is slow, and nobody says which it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.wire.chunk_size import LEAST_BYTES, ChunkSizes

MOST = (1 << 20) - 64
STANDSTILL_S = 60.0


def sizes(bytes_per_s: float, num_bytes: int, most: int = MOST) -> list[int]:
    """The pieces in which so many bytes move over a link."""
    sizes, rest, found = ChunkSizes(most), num_bytes, []
    while rest:
        piece = min(sizes.next_bytes, rest)
        sizes.record(piece, piece / bytes_per_s)
        found.append(piece)
        rest -= piece
    return found


def test_on_a_quick_link_pieces_are_as_large_as_they_may_be_after_the_first_megabyte() -> None:
    found = sizes(100e6, 20 << 20)
    assert found[:5] == [(1 << power) - 64 for power in (16, 17, 18, 19, 20)]
    assert set(found[5:-1]) == {MOST}


def test_at_50_kilobytes_a_second_a_piece_takes_half_a_second() -> None:
    found = sizes(50e3, 1 << 20)
    assert max(found) / 50e3 < 1.5
    assert max(found[3:]) / 50e3 <= 0.5


def test_a_link_that_changes_is_followed() -> None:
    sizes = ChunkSizes(MOST)
    for _ in range(10):
        sizes.record(sizes.next_bytes, 0.01)
    assert sizes.next_bytes == MOST
    for _ in range(10):
        sizes.record(sizes.next_bytes, 10.0)
    assert sizes.next_bytes == LEAST_BYTES - 64
    for _ in range(10):
        sizes.record(sizes.next_bytes, 0.01)
    assert sizes.next_bytes == MOST


@given(st.floats(1e3, 1e9), st.integers(1, 1 << 21))
def test_no_piece_is_over_its_limit_and_none_looks_like_a_standstill(bytes_per_s: float, most: int) -> None:
    found = sizes(bytes_per_s, min(2 << 20, 200 * most), most)
    assert max(found) <= most
    # The first piece (64 KiB) passes within a minute from 1.1 kB/s on; later ones fit the link.
    assert max(found[4:], default=0) / bytes_per_s < STANDSTILL_S


@pytest.mark.parametrize("most", [1, 63, 1024])
def test_a_limit_below_the_smallest_piece_holds(most: int) -> None:
    assert set(sizes(1e6, 10 * most, most)) == {most}
