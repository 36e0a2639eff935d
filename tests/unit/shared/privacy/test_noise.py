"""The generator: a function of key and facts, and normal."""

from __future__ import annotations

import numpy as np
from scipy import stats

from fedplcc.shared.privacy.noise import noise_words, normal_noise

KEY = bytes(range(32))


def test_the_noise_is_normal_and_its_numbers_are_independent() -> None:
    drawn = normal_noise(KEY, [b"test"], 400_001)
    assert drawn.shape == (400_001,)
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    for lag in (1, 2, 3):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 5 / 400_001**0.5
    assert 4.0 < np.abs(drawn).max() < 6.5


def test_key_and_facts_decide_it_and_a_longer_draw_begins_alike() -> None:
    first = normal_noise(KEY, [b"a", b"bc"], 100)
    assert normal_noise(KEY, [b"a", b"bc"], 100).tobytes() == first.tobytes()
    assert normal_noise(KEY, [b"a", b"bc"], 5_000)[:100].tobytes() == first.tobytes()
    for key, facts in ((KEY, [b"ab", b"c"]), (KEY, [b"abc"]), (KEY, [b"a", b"bc", b""]), (KEY[::-1], [b"a", b"bc"])):
        assert not np.isin(normal_noise(key, facts, 100), first).any()


def test_the_bytes_are_those_of_any_machine() -> None:
    assert noise_words(KEY, [b"fact"], 1).tobytes().hex() == WORDS
    assert normal_noise(KEY, [b"fact"], 3).tobytes().hex() == NUMBERS


WORDS = "11d38f829d153657"
NUMBERS = "53aec3a9f288f53f025a289f83d5c63fc77a8ea8e03de1bf"
