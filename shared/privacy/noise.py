"""Normal noise of a keyed cryptographic generator: the same key and facts give the same bytes, on any machine.

The generator is SHAKE-256 (FIPS 202) of the key and of what the noise is for; without the key its output cannot be told from
random words. Pairs of 52-bit numbers become normal ones by Marsaglia's polar method (SIAM Review 6, 1964), which needs a
logarithm, a root and a division, each with the same bits on any machine.

Limits: these are floating-point numbers, whose last bits are not those of a real normal distribution (Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012). A release is rounded to multiples of
C 2^-20 afterwards, far coarser than these bits; that is a counter-measure and no proof. Its time depends on how many pairs
are thrown away, and so on the noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, log

MOST_DEVIATIONS = 12
"""The tails end near it."""
_BITS = 52
_WORD = 8


def noise_words(key: bytes, facts: Sequence[bytes], num_words: int) -> np.ndarray:
    """Return the first words of the generator, uint64; each fact is told from the next by its length."""
    made = hashlib.shake_256(b" ".join((b"fedplcc", b"class sums 1")))
    for fact in (key, *facts):
        made.update(len(fact).to_bytes(8, "big") + fact)
    return np.frombuffer(made.digest(num_words * _WORD), "<u8")


def normal_noise(key: bytes, facts: Sequence[bytes], count: int) -> DoubleArray:
    """Return independent numbers of mean 0 and deviation 1, `[count]`.

    Args:
        key: The secret; 32 bytes.
        facts: What the noise is for; other facts give other noise.
    """
    num_pairs = count // 2 + 64
    while True:
        num_pairs += num_pairs // 2
        words = noise_words(key, facts, 2 * num_pairs)
        # Odd multiples of 2^-52 between -1 and 1: none is 0.
        numbers = (words >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0 ** (1 - _BITS) + (2.0**-_BITS - 1.0)
        u, v = numbers[0::2], numbers[1::2]
        square = u * u + v * v
        is_inside = square < 1
        if 2 * np.count_nonzero(is_inside) >= count:
            break
    u, v, square = u[is_inside], v[is_inside], square[is_inside]
    factor = np.sqrt(-2 * log(square) / square)
    drawn: DoubleArray = np.stack([u * factor, v * factor], 1).reshape(-1)[:count]
    return drawn
