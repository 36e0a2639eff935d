"""Models that no training made: many tensors, float32, of which every update is another one on every page."""

from __future__ import annotations

import numpy as np

from fedplcc.shared.tensors import Array, to_bytes

NUM_TENSORS = 40
"""About as many as a small ResNet has."""
STRIDE = 1024
"""An update differs from any other in every 4 KiB of its bytes: no page, block or chunk of two updates is the same."""


def model_bytes(num_parameters: int, seed: int = 0) -> bytes:
    """A model of normally distributed numbers."""
    rng = np.random.default_rng(seed)
    sizes = np.diff(np.linspace(0, num_parameters, NUM_TENSORS + 1).astype(int))
    model: dict[str, Array] = {
        f"layer{index:02}.weight": rng.standard_normal(size, np.float32) for index, size in enumerate(sizes)
    }
    return to_bytes(model)


class Updates:
    """One client's updates of a model: as large as it, each another one, and next to nothing to make."""

    def __init__(self, num_parameters: int, client: int) -> None:
        # The first of them comes with the header, which is the same for all models of a size.
        self._bytes = bytearray(model_bytes(num_parameters, seed=client + 1))
        begin = len(self._bytes) - 4 * num_parameters
        self._marks = np.frombuffer(self._bytes, np.float32, offset=begin)[::STRIDE]
        self._client, self._count = client, 0

    def another(self) -> bytes:
        """The next update."""
        self._count += 1
        self._marks[:] = self._client + self._count / 1024
        return bytes(self._bytes)
