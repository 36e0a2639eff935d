"""Mini-batches of local training: the samples of each.

Every pass over the client's set is a fresh seeded permutation, divided into batches in order. The last batch of a pass may
be smaller: 300 samples at batch size 32 are exactly 10 steps. A last batch of one sample is joined to the batch before it,
because batch normalisation has no variance over one value. A client with a single sample has it twice in every batch.

Balanced batches have the same sizes. Classes come in turn, and the samples of each in passes of their own.

Shape legend: N samples, B batch, K classes with samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, islice

import torch
from torch import Tensor

from fedplcc.shared.config.run import TrainingSection
from fedplcc.trainer.reproducibility.randomness import derive_seed


def num_steps(training: TrainingSection, num_examples: int) -> int:
    """Return the number of mini-batches in a round: `local_steps`, or those of `local_epochs` passes."""
    if training.local_steps is not None:
        return training.local_steps
    assert training.local_epochs is not None
    return training.local_epochs * batches_per_pass(num_examples, training.batch_size)


def batches_per_pass(num_examples: int, batch_size: int) -> int:
    """Return the number of mini-batches in one pass over at least one sample."""
    full, rest = divmod(num_examples, batch_size)
    return max(1, full + (rest > 1))


def batches(num_examples: int, batch_size: int, *, seed: int, client_id: str, round: int) -> Iterator[Tensor]:
    """Yield the sample numbers of each mini-batch, int64 `[B]` in host memory, without end.

    Args:
        num_examples: At least 1.
        batch_size: At least 2; a batch may hold one more.
    """
    for number in count():
        generator = torch.Generator().manual_seed(derive_seed("batches", seed, client_id, round, number))
        yield from divided(torch.randperm(num_examples, generator=generator), batch_size)


def balanced_batches(labels_N: Tensor, batch_size: int, *, seed: int, client_id: str, round: int) -> Iterator[Tensor]:
    """Yield the sample numbers of each mini-batch as `batches` does, with each class as often as another but for one sample.

    Args:
        labels_N: Class of each of at least one sample; int64, in host memory.
        batch_size: See `batches`, as those that follow.
    """
    present_K = labels_N.unique()
    turns = torch.Generator().manual_seed(derive_seed("balanced batches", seed, client_id, round))
    classes_K = present_K[torch.randperm(len(present_K), generator=turns)].tolist()
    each = [_passes((labels_N == label).nonzero()[:, 0], (seed, client_id, round, label)) for label in classes_K]
    in_turn = (next(samples) for samples in cycle(each))
    while True:
        yield from divided(torch.tensor(list(islice(in_turn, len(labels_N)))), batch_size)


def _passes(numbers_N: Tensor, names: tuple[int | str, ...]) -> Iterator[int]:
    """Yield the numbers of a class's samples, a fresh seeded permutation after another."""
    for number in count():
        generator = torch.Generator().manual_seed(derive_seed("balanced batches", *names, number))
        yield from numbers_N[torch.randperm(len(numbers_N), generator=generator)].tolist()


def divided(order_N: Tensor, batch_size: int) -> Iterator[Tensor]:
    """Yield the sample numbers of each mini-batch of one pass over at least one sample, in the order that is given."""
    if len(order_N) == 1:
        order_N = order_N.repeat(2)
    cuts = [batch_size * i for i in range(1, batches_per_pass(len(order_N), batch_size))]
    yield from order_N.tensor_split(cuts)
