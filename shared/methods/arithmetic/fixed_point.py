"""Sums of numbers from many clients that are the same bytes in any order: whole multiples of 2^-32.

A number is rounded once, where it is made, to a multiple of the quantum; from there on sums are of whole numbers. So a
client's share can be added and taken away again without a trace. Class sums and second moments of features of unit length
lose about 1e-10 of a sample by it.

Numbers travel as int64; those whose 24 leading bits are enough as float32, which hold multiples of the quantum too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray

Whole = npt.NDArray[np.int64]

FRACTION_BITS = 32
"""The quantum is 2^-32."""
LARGEST = 2**30
"""Magnitude that a number of one client stays below."""
_LOW_BITS = 31
_LIMIT = 2**62


def rounded(values: DoubleArray) -> Whole:
    """Return finite values in quanta; one of `LARGEST` or beyond becomes that, which `is_too_large` finds."""
    quanta: Whole = np.rint(np.ldexp(np.clip(values, -LARGEST, LARGEST), FRACTION_BITS)).astype(np.int64)
    return quanta


def narrow(values: DoubleArray) -> npt.NDArray[np.float32]:
    """Return finite values as float32 multiples of the quantum, within 2^-24 of each."""
    return np.ldexp(rounded(values).astype(np.float64), -FRACTION_BITS).astype(np.float32)


def is_too_large(sent: npt.NDArray[Any]) -> bool:
    """Whether some number that a client sent, in quanta or as float32, is not below `LARGEST` in magnitude."""
    limit = _LIMIT if sent.dtype == np.int64 else LARGEST
    return bool(((sent >= limit) | (sent <= -limit)).any())


def widened(sent: npt.NDArray[Any]) -> DoubleArray:
    """Return what was sent in quanta, or as float32, in float64."""
    wide = sent.astype(np.float64)
    return np.ldexp(wide, -FRACTION_BITS) if sent.dtype == np.int64 else wide


@dataclass(slots=True, eq=False)
class Total:
    """A sum of any number of arrays below 2^32: exact, in two words for each number."""

    high: Whole
    low: Whole

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> Total:
        """Return the sum of none."""
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def add(self, sent: npt.NDArray[Any], sign: int = 1) -> None:
        """Add an array that a client sent, or take it away with the sign -1."""
        quanta = sent if sent.dtype == np.int64 else rounded(sent.astype(np.float64))
        self.high += sign * (quanta >> _LOW_BITS)
        self.low += sign * (quanta & (2**_LOW_BITS - 1))

    @property
    def value(self) -> DoubleArray:
        """The sum, rounded once."""
        high, low = self.high + (self.low >> _LOW_BITS), self.low & (2**_LOW_BITS - 1)
        value: DoubleArray = np.ldexp(np.ldexp(high.astype(np.float64), _LOW_BITS) + low, -FRACTION_BITS)
        return value
