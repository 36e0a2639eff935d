"""Blobs that are being put away and taken away at once: never is one lost that a row names."""

from __future__ import annotations

import threading

import pytest

from fedplcc.aggregator.store.blobs.holds import Holds


def test_what_is_held_is_not_claimed() -> None:
    holds = Holds()
    with holds.collecting():
        with holds.holding():
            holds.take("a")
            assert holds.claim(["a", "b"]) == ["b"]
        assert holds.claim(["a"]) == [], "its row is younger than what the collection has read"
    with holds.collecting():
        assert holds.claim(["a"]) == ["a"], "the next collection has read the row, if there is one"


def test_what_was_held_when_a_collection_began_is_not_claimed_by_it() -> None:
    holds = Holds()
    with holds.holding():
        holds.take("a")
        with holds.collecting():
            assert holds.claim(["a"]) == []


def test_a_hold_within_a_hold_lasts_as_long_as_the_outer_one() -> None:
    holds = Holds()
    with holds.collecting(), holds.holding():
        with holds.holding():
            holds.take("a")
        assert holds.claim(["a"]) == []


def test_a_blob_that_is_read_stays_and_one_that_leaves_is_not_read() -> None:
    holds = Holds()
    with holds.collecting():
        with holds.reading("a") as is_kept:
            assert is_kept
            assert holds.claim(["a"]) == []
        assert holds.claim(["a"]) == ["a"]
        with holds.reading("a") as is_kept:
            assert not is_kept


def test_taking_waits_for_a_removal_and_for_nothing_else() -> None:
    holds, taken = Holds(), threading.Event()
    with holds.collecting():
        holds.claim(["a"])
        holds.take("b")

        def take() -> None:
            with holds.holding():
                holds.take("a")
                taken.set()

        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.05)
        holds.release(["a"])
        assert taken.wait(10)
        thread.join()


def test_only_a_collection_claims() -> None:
    with pytest.raises(AssertionError, match="only a collection"):
        Holds().claim(["a"])
