"""Float64 arithmetic with the same bits on any machine: matrix products, sums, exponentials, shuffles and random numbers.

BLAS builds add the products of a matrix product in different orders, and processors differ in the last bit of exp and log.
Products here are of numbers on a grid that is coarse enough for exact sums, or of several such numbers one behind the other
(`full_product`, after Ozaki et al., "Error-free transformations of matrix multiplication by using fast routines of matrix
multiplication", Numerical Algorithms 59, 2012); all else is plain operations, which IEEE 754 fixes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

DoubleArray = npt.NDArray[np.float64]

GRID_BITS = 21
"""Bits of an operand: sums of 2^11 products of 42 bits fit into float64's 53."""
EXACT_SUMS = 2**11
"""Most products in a sum of operands with `GRID_BITS`; for each factor of four beyond, operands have one bit less."""
PIECES = 3
"""Numbers on grids that stand for one operand of a full product: 63 bits, where float64 has 53."""
UNIFORMS = 12
"""Uniform numbers in the sum that stands for a normal one: their variance is 1."""

_LOG_TERMS = 11
"""Odd powers of (m - 1) / (m + 1), at most 0.172 in magnitude, in a logarithm."""
_INVERSE_FACTORIALS = [1 / math.factorial(power) for power in range(2, 14)]
_PER_LN2 = 1.4426950408889634
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOWEST, _HIGHEST = -745.0, 709.0
_WORD_BITS = 24


def on_grid(values: DoubleArray, num_terms: int) -> DoubleArray:
    """Return finite values rounded so that sums of `num_terms` products of two such arrays are exact.

    A value is rounded to a multiple of 2^(e - bits), where 2^e is the power of two above the largest magnitude.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest:
        return np.zeros_like(values)
    shift = _bits(num_terms) - math.frexp(largest)[1]
    rounded: DoubleArray = np.ldexp(np.rint(np.ldexp(values, shift)), -shift)
    return rounded


def _bits(num_terms: int) -> int:
    bits = GRID_BITS
    while num_terms > EXACT_SUMS << 2 * (GRID_BITS - bits):
        bits -= 1
    return bits


def product(x_MK: DoubleArray, y_KN: DoubleArray) -> DoubleArray:
    """Return x y `[M, N]` of finite operands on the grid, whatever the order of its sums; relative error about 1e-6."""
    num_terms = x_MK.shape[1]
    return on_grid(x_MK, num_terms) @ on_grid(y_KN, num_terms)


def full_product(x_MK: DoubleArray, y_KN: DoubleArray) -> DoubleArray:
    """Return x y `[M, N]` of finite operands, whatever the order of its sums, with an error of about float64's own.

    The error is relative to the largest magnitudes of x and y. Six products of pieces are added in a fixed order, the
    smallest first.
    """
    x_pieces, y_pieces = (_pieces(operand, x_MK.shape[1]) for operand in (x_MK, y_KN))
    total = np.zeros((x_MK.shape[0], y_KN.shape[1]))
    for rank in reversed(range(PIECES)):
        for place in range(rank + 1):
            total += x_pieces[place] @ y_pieces[rank - place]
    return total


def _pieces(values: DoubleArray, num_terms: int) -> list[DoubleArray]:
    """Return arrays on ever finer grids whose sum is the values; what is left after the last one is dropped."""
    found, rest = [], values
    for _ in range(PIECES):
        # A number so large that its last bit is the grid: adding it rounds, taking it away leaves what was rounded.
        largest = math.frexp(max(float(rest.max(initial=0.0)), -float(rest.min(initial=0.0))))[1]
        rounder = math.ldexp(1.5, 52 + largest - _bits(num_terms))
        found.append((rest + rounder) - rounder)
        rest = rest - found[-1]
    return found


def log(values: DoubleArray) -> DoubleArray:
    """Return the natural logarithm of positive, finite values elementwise, within 2 ulp."""
    shares, powers = np.frexp(values)
    is_low = shares < math.sqrt(0.5)
    shares, powers = np.where(is_low, 2 * shares, shares), np.where(is_low, powers - 1, powers)
    ratio = (shares - 1) / (shares + 1)
    square = ratio * ratio
    series = np.full_like(ratio, 1 / (2 * _LOG_TERMS - 1))
    for power in reversed(range(1, 2 * _LOG_TERMS - 1, 2)):
        series = series * square + 1 / power
    found: DoubleArray = powers * _LN2_HIGH + (powers * _LN2_LOW + 2 * ratio * series)
    return found


def exp(values: DoubleArray) -> DoubleArray:
    """Return e^x elementwise, within 1 ulp, for x up to 709; 0 below -745, and e^709 above 709."""
    clipped = np.clip(values, _LOWEST, _HIGHEST)
    powers = np.rint(clipped * _PER_LN2)
    rest = (clipped - powers * _LN2_HIGH) - powers * _LN2_LOW
    series = np.full_like(rest, _INVERSE_FACTORIALS[-1])
    for coefficient in reversed(_INVERSE_FACTORIALS[:-1]):
        series = series * rest + coefficient
    scaled: DoubleArray = np.ldexp(1 + (rest + rest * rest * series), powers.astype(np.int32))
    return np.where(values < _LOWEST, 0.0, scaled)


def softmax(logits_NM: DoubleArray) -> DoubleArray:
    """Return e^o / sum e^o of each row; the classes are added in their order."""
    powers_NM = exp(logits_NM - logits_NM.max(1, keepdims=True))
    total_N = np.zeros(len(powers_NM))
    for power_N in powers_NM.T:
        total_N = total_N + power_N
    shares: DoubleArray = powers_NM / total_N[:, None]
    return shares


def uniform(shape: tuple[int, ...], *seed: int) -> DoubleArray:
    """Return numbers in [0, 1), multiples of 2^-24, from the generator's raw words; `seed` is whole numbers from 0 on."""
    words = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(math.prod(shape))
    drawn: DoubleArray = np.ldexp((words >> np.uint64(64 - _WORD_BITS)).astype(np.float64), -_WORD_BITS)
    return drawn.reshape(shape)


def near_normal(shape: tuple[int, ...], *seed: int) -> DoubleArray:
    """Return sums of twelve uniform numbers minus 6: mean 0, variance 1, at most 6 in magnitude; every sum is exact."""
    drawn: DoubleArray = uniform((UNIFORMS, *shape), *seed).sum(0) - UNIFORMS / 2
    return drawn


def shuffled(count: int, *seed: int) -> npt.NDArray[np.intp]:
    """Return 0 to `count` - 1 in an order that only the seed decides."""
    return np.argsort(np.random.PCG64(np.random.SeedSequence(seed)).random_raw(count), kind="stable")
