"""BatchNorm statistics of a site: against numpy, the same bits twice, and nothing else of the model changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.learning import site_statistics
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.site_statistics import (
    BATCH_SIZE,
    check_layers,
    take_site_statistics,
    with_site_statistics,
)
from tests.unit.trainer.builders import a_config, a_model, digest, some_data

Floats = npt.NDArray[np.float64]
EPS = 1e-5


class Normed(nn.Module):
    """Two BatchNorm layers, one of images and one of vectors, each behind something random; a third is never reached."""

    feature_dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.of_images = nn.BatchNorm2d(3)
        self.mixing = nn.Linear(3, 5)
        self.dropout = nn.Dropout(0.5)
        self.of_vectors = nn.BatchNorm1d(5)
        self.unused = nn.BatchNorm1d(2)
        self.classifier = nn.Linear(5, 3)

    def features(self, x_B3SS: Tensor) -> Tensor:
        z_B3SS: Tensor = self.dropout(self.of_images(x_B3SS)).relu()
        z_BD: Tensor = self.of_vectors(self.mixing(z_B3SS.mean((2, 3))))
        return z_BD


def a_normed(seed: int = 0) -> Normed:
    torch.manual_seed(seed)
    model = Normed()
    with torch.no_grad():
        for layer in (model.of_images, model.of_vectors, model.unused):
            for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
                assert tensor is not None
                tensor.copy_(torch.rand(len(tensor)) + 0.5)
            assert layer.num_batches_tracked is not None
            layer.num_batches_tracked.fill_(41)
    return model


def in_numpy(model: Normed, images: DeviceImages, batches: list[list[int]]) -> dict[str, Floats]:
    """Each layer's mean, and its variance within the batches and between their means, weighted by images, in float64."""
    state = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    pixels = (images.kept_N.double().numpy() / 255 - 0.5) / 0.5
    found: dict[str, list[Floats]] = {"of_images": [], "of_vectors": []}

    def normalised(layer: str, rows: Floats) -> Floats:
        found[layer].append(np.stack([rows.mean(0), rows.var(0, ddof=1)]))
        scaled = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + EPS)
        return np.asarray(scaled * state[f"{layer}.weight"] + state[f"{layer}.bias"])

    for batch in batches:
        rows = pixels[batch].reshape(-1, 3)
        normed = normalised("of_images", rows).reshape(len(batch), -1, 3)
        means = np.maximum(normed, 0).mean(1)
        normalised("of_vectors", means @ state["mixing.weight"].T + state["mixing.bias"])
    weights = np.array([len(batch) for batch in batches]) / sum(map(len, batches))
    pooled = {}
    for name, values in found.items():
        means, variances = np.stack(values, axis=1)
        mean = weights @ means
        pooled[name] = np.stack([mean, weights @ (variances + (means - mean) ** 2)])
    return pooled


@pytest.mark.parametrize(
    ("num_images", "batch_size", "sizes"),
    [(10, BATCH_SIZE, [10]), (10, 4, [4, 3, 3]), (9, 4, [3, 3, 3]), (5, 4, [3, 2]), (4, 4, [4])],
    ids=["one batch", "three batches", "three of one size", "one image too many", "just one batch"],
)
def test_statistics_are_those_within_and_between_even_batches(
    num_images: int, batch_size: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_statistics, "BATCH_SIZE", batch_size)
    batches = [numbers.tolist() for numbers in site_statistics._mini_batches(num_images)]
    assert [len(batch) for batch in batches] == sizes
    assert sorted(number for batch in batches for number in batch) == list(range(num_images)), "each image once"
    model, images = a_normed(), some_data(num_images)
    expected = in_numpy(model, images, batches)
    take_site_statistics(model, images, a_config())
    for name, layer in (("of_images", model.of_images), ("of_vectors", model.of_vectors)):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        np.testing.assert_allclose(layer.running_mean.numpy(), expected[name][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.running_var.numpy(), expected[name][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("num_images", "shares"),
    [(1024, [1.0]), (1025, [513 / 1025, 1.0]), (2048, [0.5, 1.0]), (2049, [683 / 2049, 1366 / 2049, 1.0])],
)
def test_up_to_1024_images_are_one_batch_and_no_batch_is_of_one_image(num_images: int, shares: list[float]) -> None:
    seen: list[float] = []
    config = a_config(data={"image_size": 8})
    take_site_statistics(a_normed(), some_data(num_images, config), config, on_share=seen.append)
    assert seen == shares


def test_a_layer_that_is_called_twice_has_the_plain_mean_of_both_calls() -> None:
    class Twice(Normed):
        def features(self, x_B3SS: Tensor) -> Tensor:
            z_BD: Tensor = self.of_vectors(self.of_vectors(self.mixing(x_B3SS.mean((2, 3)))))
            return z_BD

    torch.manual_seed(0)
    model, images = Twice(), some_data(8)
    x_B3SS, _ = images.batch(torch.arange(8))
    with torch.no_grad():
        z_BD = model.mixing(x_B3SS.mean((2, 3)))
        first = z_BD.mean(0)
    take_site_statistics(model, images, a_config())
    np.testing.assert_allclose(model.of_vectors.running_mean.numpy(), (first / 2).numpy(), rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]


def test_two_passes_give_the_same_bits_whatever_was_there_before() -> None:
    images, found = some_data(7), []
    for seed in (1, 2):
        model = a_normed()
        torch.manual_seed(seed)
        with torch.no_grad():
            for layer in (model.of_images, model.of_vectors):
                assert layer.running_mean is not None
                layer.running_mean.uniform_()
        state = torch.random.get_rng_state()
        take_site_statistics(model, images, a_config())
        assert torch.equal(state, torch.random.get_rng_state()), "nothing is drawn"
        take_site_statistics(model, images, a_config())
        found.append(digest(model))
    assert found[0] == found[1]


def test_all_else_of_a_model_stays() -> None:
    model = a_normed()
    before = copy.deepcopy(model.state_dict())
    model.train()
    take_site_statistics(model, some_data(7), a_config())
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {f"{layer}.running_{which}" for layer in ("of_images", "of_vectors") for which in ("mean", "var")}
    assert not any(part.training for part in model.modules())
    assert {part.momentum for part in model.modules() if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)} == {0.1}


def _stop() -> bool:
    return True


@pytest.mark.parametrize("should_stop", [lambda: False, _stop], ids=["undisturbed", "stopped"])
def test_after_the_block_a_model_has_its_own_statistics_to_the_bit(should_stop: Callable[[], bool]) -> None:
    model = a_normed()
    before = digest(model)
    try:
        with with_site_statistics(model, some_data(7), a_config(), should_stop=should_stop):
            assert digest(model) != before
            raise ValueError
    except (Cancelled, ValueError):
        pass
    assert digest(model) == before


def test_a_stopped_pass_leaves_a_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_statistics, "BATCH_SIZE", 4)
    model, asked = a_normed(), iter([False, True])
    before = digest(model)
    with pytest.raises(Cancelled):
        take_site_statistics(model, some_data(10), a_config(), should_stop=lambda: next(asked))
    assert digest(model) == before
    assert model.of_images.momentum == 0.1


def _without_statistics() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.GroupNorm(1, 3))


@pytest.mark.parametrize("make", [a_model, _without_statistics], ids=["cnn4", "no running statistics"])
def test_a_model_without_such_layers_is_refused_by_key_and_name(make: Callable[[], Any]) -> None:
    key = 'evaluation.batch_norm = "site"'
    with pytest.raises(InvalidModel) as caught:
        check_layers(make(), "cnn4", key)
    assert caught.value.detail == (
        f"{key} takes BatchNorm statistics of a site's own images, and model 'cnn4' has no BatchNorm layer with running "
        "statistics; leave the key out, or choose another model"
    )
    check_layers(make(), "cnn4", None)
    check_layers(a_model(a_config(model={"name": "resnet10"})), "resnet10", key)


def test_a_site_with_a_single_image_has_statistics() -> None:
    model = a_normed()
    take_site_statistics(model, some_data(1), a_config())
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())
