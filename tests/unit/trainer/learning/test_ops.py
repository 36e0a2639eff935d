from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import logsumexp

from fedplcc.shared.methods.step import Prototypes
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.ops import TorchOps, to_device
from tests.support import present
from tests.unit.trainer.builders import CPU

OPS = TorchOps()
RNG = np.random.default_rng(0)


def leaf(values: npt.ArrayLike, **options: Any) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True, **options)


def doubles(*shape: int) -> torch.Tensor:
    return leaf(RNG.standard_normal(shape))


def constants(prototypes: PrototypeSet, num_classes: int) -> Prototypes:
    found = present(to_device(prototypes, num_classes, CPU))
    return found


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def test_cosine_is_the_product_over_the_norms() -> None:
    x, y = doubles(4, 6), doubles(5, 6)
    expected = (x @ y.T) / (x.norm(dim=1)[:, None] * y.norm(dim=1)[None, :])
    torch.testing.assert_close(OPS.cosine(x, y), expected)
    assert torch.autograd.gradcheck(OPS.cosine, (x, y))


def test_a_constant_that_changes_is_computed_anew() -> None:
    ops, x, constant = TorchOps(), torch.rand(4, 6), torch.rand(5, 6)
    before = ops.cosine(x, constant), ops.log(constant)
    constant[2] = torch.rand(6)
    after = ops.cosine(x, constant), ops.log(constant)
    for old, new, fresh in zip(before, after, (OPS.cosine(x, constant), constant.log()), strict=True):
        assert torch.equal(new, fresh)
        assert not torch.equal(new, old)


def test_a_loss_that_changes_what_it_got_of_a_constant_gets_the_same_next_time() -> None:
    ops, constant = TorchOps(), torch.rand(5)
    for _ in range(3):
        log_weights = ops.log(constant)
        assert torch.equal(log_weights, constant.log())
        log_weights -= 1


def test_what_was_computed_without_gradients_is_not_kept_for_a_step_with_them() -> None:
    ops, constant = TorchOps(), torch.rand(2, 4)
    with torch.inference_mode():
        ops.cosine(torch.ones(3, 4), constant)
    x = leaf(np.ones((3, 4), np.float32))
    ops.cosine(x, constant).sum().backward()
    assert gradient(x).isfinite().all()


def test_what_has_a_gradient_or_no_history_is_never_kept() -> None:
    ops, x = TorchOps(), doubles(3, 4)
    for _ in range(2):
        ops.log(x * x).sum().backward()
    with torch.inference_mode():
        constant = torch.rand(2, 4)
        first = ops.cosine(torch.ones(3, 4), constant)
        constant.neg_()
        assert torch.equal(ops.cosine(torch.ones(3, 4), constant), -first)


def test_a_zero_row_has_cosine_zero_and_no_nan_in_its_gradient() -> None:
    x = leaf(np.zeros((2, 3), np.float32))
    cosine = OPS.cosine(x, torch.ones(1, 3))
    cosine.sum().backward()
    assert cosine.tolist() == [[0], [0]]
    assert gradient(x).isfinite().all()


def test_row_norms_are_constants() -> None:
    x = doubles(3, 4)
    norms = OPS.row_norm(x)
    np.testing.assert_allclose(norms.numpy(), np.linalg.norm(x.detach().numpy(), axis=1))
    assert not norms.requires_grad


def test_the_gradient_is_zero_where_a_floor_acts() -> None:
    x = leaf([-1.0, 0.5])
    (OPS.clamp_min(x, 1e-4) ** 0.5).sum().backward()
    assert gradient(x)[0] == 0
    assert gradient(x)[1] == pytest.approx(0.5 * 0.5**-0.5)


def test_log_sum_exp_counts_the_entries_in_the_mask() -> None:
    x, where = doubles(6, 5), torch.tensor(RNG.random((6, 5)) < 0.6)
    where[:, 0] = True
    masked = np.where(where.numpy(), x.detach().numpy(), -np.inf)
    np.testing.assert_allclose(OPS.logsumexp(x, where).detach(), logsumexp(masked, axis=1))
    assert torch.autograd.gradcheck(lambda x: OPS.logsumexp(x, where), (x,))


def test_log_sum_exp_of_nothing_is_zero_with_zero_gradient() -> None:
    x = leaf([[1.0, 2.0], [300.0, -5.0]])
    value = OPS.logsumexp(x, torch.tensor([[True, True], [False, False]]))
    value.sum().backward()
    assert value[1] == 0
    assert gradient(x)[1].tolist() == [0, 0]
    assert gradient(x)[0].sum() == pytest.approx(1)


def test_log_sum_exp_without_a_mask_has_the_bits_of_a_full_mask() -> None:
    x = torch.tensor(RNG.standard_normal((50, 33)), dtype=torch.float32) * 20
    assert torch.equal(OPS.logsumexp(x), OPS.logsumexp(x, torch.ones_like(x, dtype=torch.bool)))


def test_log_sum_exp_does_not_overflow_in_half_precision() -> None:
    x = torch.tensor([[14.3, 14.3]], dtype=torch.bfloat16)
    value = OPS.logsumexp(x)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(x[0, 0].item() + np.log(2), abs=1e-5)


def test_the_largest_entries_are_chosen_within_the_mask_and_lower_columns_win_ties() -> None:
    x = torch.tensor([[3.0, 5.0, 5.0, 1.0], [3.0, 5.0, 5.0, 1.0], [1.0, 1.0, 1.0, 1.0], [9.0, 1.0, 2.0, 3.0]])
    where = torch.tensor([[True] * 4, [True, False, True, True], [True] * 4, [False, True, True, False]])
    chosen = OPS.largest(x, where, torch.tensor([1, 2, 3, 4], dtype=torch.float64))
    assert chosen.tolist() == [
        [False, True, False, False],
        [True, False, True, False],
        [True, True, True, False],
        [False, True, True, False],
    ]


def test_where_lets_no_nan_through_from_the_other_side() -> None:
    x = leaf([0.0, 4.0])
    chosen = OPS.where(torch.tensor([False, True]), x.sqrt(), 7.0)
    chosen.sum().backward()
    assert chosen.tolist() == [7, 2]
    assert gradient(x)[1] == 0.25


VECTOR = PrototypeSet.of([[1.0, 0.0], [0.6, 0.8], [0.28, 0.96]], [0, 0, 1], [0.75, 0.25, 1])


def test_prototypes_arrive_as_constants_with_class_sizes() -> None:
    prototypes = constants(VECTOR, 4)
    assert prototypes.class_sizes_M.tolist() == [2, 1, 0, 0]
    assert prototypes.class_sizes_M.dtype == torch.float64
    assert prototypes.vectors_GD.dtype == prototypes.weights_G.dtype == torch.float32
    assert prototypes.class_ids_G.tolist() == [0, 0, 1]
    assert not prototypes.vectors_GD.requires_grad


def test_what_is_computed_of_a_constant_is_computed_once() -> None:
    ops, constant = TorchOps(), torch.rand(5, 6)
    assert ops.log(constant) is ops.log(constant)
    other = constant.clone()
    assert ops.log(other) is not ops.log(constant), "another tensor, though it is equal"
