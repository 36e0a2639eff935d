"""CReFF's closed forms: gradients of a linear head, features that have such gradients, and a head trained on them.

docs/algorithms.md, rule 20.2. Everything is float64, and the products on a grid (exact_maths.py), so a server step has the
same bytes on any machine.

Shape legend: N rows, D feature size, M classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, on_grid, product, shuffled, softmax, uniform

Product = Callable[[DoubleArray, DoubleArray], DoubleArray]

EPSILON = 1e-6
"""Added to the product of two norms before a division."""
BATCH = 32
"""Rows of a step that re-trains the head."""


@dataclass(frozen=True, slots=True)
class Head:
    """A linear head, or a gradient with respect to one."""

    weight_MD: DoubleArray
    bias_M: DoubleArray

    @property
    def rows(self) -> DoubleArray:
        """Rows that are compared one by one, `[M + 1, max(D, M)]`: the weight's, then the bias, filled up with zeros."""
        num_classes, dim = self.weight_MD.shape
        rows = np.zeros((num_classes + 1, max(dim, num_classes)))
        rows[:num_classes, :dim] = self.weight_MD
        rows[num_classes, :num_classes] = self.bias_M
        return rows


def errors(features_ND: DoubleArray, class_id: int, head: Head, multiply: Product = product) -> tuple[DoubleArray, ...]:
    """Return the probabilities P `[N, M]`, and (P - onehot) / N for rows that are all of one class."""
    shares_NM = softmax(multiply(features_ND, head.weight_MD.T) + head.bias_M)
    errors_NM = shares_NM.copy()
    errors_NM[:, class_id] -= 1
    return shares_NM, errors_NM / len(features_ND)


def head_gradient(features_ND: DoubleArray, class_id: int, head: Head, multiply: Product = product) -> Head:
    """Return the gradient of the mean cross-entropy of rows of one class with respect to the head."""
    _, errors_NM = errors(features_ND, class_id, head, multiply)
    return _gradient(features_ND, errors_NM, multiply)


def matching(
    features_ND: DoubleArray, class_id: int, head: Head, wanted: Head, multiply: Product = product
) -> tuple[float, DoubleArray]:
    """Return the distance between the features' head gradient and the wanted one, and its gradient `[N, D]`.

    The distance is the sum of 1 - cos over the rows of the weight and the bias, with `EPSILON` in the denominators.
    """
    shares_NM, errors_NM = errors(features_ND, class_id, head, multiply)
    found, goal = _gradient(features_ND, errors_NM, multiply).rows, wanted.rows
    dots, lengths, goal_lengths = (
        _dots(found, goal, multiply),
        np.sqrt(_dots(found, found, multiply)),
        np.sqrt(_dots(goal, goal, multiply)),
    )
    divisors = lengths * goal_lengths + EPSILON
    loss = sum((1 - dots / divisors).tolist())
    # A row of zeros has no direction, and the second term's factor found / |found| stays within 1.
    directions = found / np.where(lengths > 0, lengths, 1)[:, None]
    slopes = -goal / divisors[:, None] + (dots / divisors * goal_lengths / divisors)[:, None] * directions
    num_classes, dim = head.weight_MD.shape
    slope_MD, slope_M = slopes[:num_classes, :dim], slopes[num_classes, :num_classes]
    change_NM = multiply(features_ND, slope_MD.T) + slope_M
    weighted_NM = shares_NM * change_NM
    inner_NM = (weighted_NM - shares_NM * _sums(weighted_NM)[:, None]) / len(features_ND)
    return loss, multiply(errors_NM, slope_MD) + multiply(inner_NM, head.weight_MD)


def matched(
    features: Mapping[int, DoubleArray], wanted: Mapping[int, Head], head: Head, *, steps: int, rate: float
) -> dict[int, DoubleArray]:
    """Return features by class after `steps` steps of gradient descent towards the wanted head gradients.

    Classes do not act on each other. One without a wanted gradient stays as it is.
    """
    after = dict(features)
    for class_id, goal in wanted.items():
        for _ in range(steps):
            after[class_id] = after[class_id] - rate * matching(after[class_id], class_id, head, goal)[1]
    return after


def new_head(num_classes: int, dim: int, *seed: int) -> Head:
    """Return a random head, uniform within 1 / sqrt(D) of zero."""
    drawn = (2 * uniform((num_classes, dim + 1), *seed) - 1) / math.sqrt(dim)
    return Head(drawn[:, :dim], drawn[:, dim])


def trained_head(
    features_ND: DoubleArray, labels_N: np.ndarray, head: Head, *seed: int, epochs: int, rate: float
) -> Head:
    """Return the head after `epochs` passes of SGD on cross-entropy, in batches of `BATCH` in an order made of the seed."""
    weight, bias = head.weight_MD.copy(), head.bias_M.copy()
    dim, num_classes = features_ND.shape[1], len(bias)
    rows, is_class_NM = on_grid(features_ND, dim), np.eye(num_classes)[labels_N]
    for epoch in range(epochs):
        order_N = shuffled(len(rows), *seed, epoch)
        for first in range(0, len(rows), BATCH):
            batch_B = order_N[first : first + BATCH]
            part_BD = rows[batch_B]
            logits_BM = part_BD @ on_grid(weight, dim).T + bias
            errors_BM = (softmax(logits_BM) - is_class_NM[batch_B]) / len(batch_B)
            # A batch has fewer rows than a feature vector may have elements; both operands allow for the longer sum.
            errors_BM = on_grid(errors_BM, max(dim, BATCH))
            weight -= rate * (errors_BM.T @ part_BD)
            bias -= rate * (np.ones(len(batch_B)) @ errors_BM)
    return Head(weight, bias)


def _gradient(features_ND: DoubleArray, errors_NM: DoubleArray, multiply: Product) -> Head:
    ones_1N = np.ones((1, len(features_ND)))
    return Head(multiply(errors_NM.T, features_ND), multiply(ones_1N, errors_NM)[0])


def _dots(x_RC: DoubleArray, y_RC: DoubleArray, multiply: Product) -> DoubleArray:
    """Return the products of rows with the same rows, `[R]`; each row has a grid of its own, so that none is lost."""
    return np.array([multiply(x_C[None, :], y_C[:, None])[0, 0] for x_C, y_C in zip(x_RC, y_RC, strict=True)])


def _sums(x_NM: DoubleArray) -> DoubleArray:
    """Return the sum of each row, `[N]`; the classes are added in their order."""
    total_N = np.zeros(len(x_NM))
    for column_N in x_NM.T:
        total_N = total_N + column_N
    return total_N
