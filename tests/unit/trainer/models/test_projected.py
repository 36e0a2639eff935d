"""Models of another feature size than the run's: a named projection, drawn by the seed, only where it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import build_model, head_names, load_arrays, state_arrays
from fedplcc.trainer.owner.consent import Consent

RESNET = ModelSection(name="resnet10")
WIDTH, DIM, NUM_CLASSES, IMAGE_SIZE = 512, 128, 3, 16


def a_model(section: ModelSection = RESNET, *, seed: int = 0, **options: Any) -> Any:
    return build_model(section, NUM_CLASSES, IMAGE_SIZE, seed, consent=Consent.to(section), **options)


class Net(nn.Module):
    """A model whose classifier is two layers, or one with another name within its head."""

    feature_dim = 8

    def __init__(self, num_classes: int, image_size: int, *, linear: bool = False) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, 8))
        last = nn.Linear(8, num_classes)
        self.classifier = last if linear else nn.Sequential(nn.ReLU(), last)

    def features(self, x: Any) -> Any:
        return self.base(x)


def test_another_feature_size_is_projected_behind_the_features_as_part_of_the_base() -> None:
    model = a_model(feature_dim=DIM)
    arrays = state_arrays(model)
    assert arrays["projection.weight"].shape == (DIM, WIDTH)
    assert arrays["projection.bias"].shape == (DIM,)
    assert arrays["classifier.weight"].shape == (NUM_CLASSES, DIM)
    assert head_names(model) == ("classifier.weight", "classifier.bias")
    assert {name.split(".")[0] for name in arrays} == {"body", "projection", "classifier"}
    x = torch.zeros(2, 3, IMAGE_SIZE, IMAGE_SIZE)
    model.eval()
    assert model.features(x).shape == (2, DIM)
    assert torch.equal(model(x), model.classifier(model.features(x)))
    assert torch.equal(model.features(x), model.projection(model.body.features(x)))


def test_the_body_is_the_model_that_a_run_of_its_kind_begins_with() -> None:
    alone, arrays = state_arrays(a_model()), state_arrays(a_model(feature_dim=DIM))
    base = {name: array for name, array in alone.items() if not name.startswith("classifier.")}
    assert {name.removeprefix("body.") for name in arrays if name.startswith("body.")} == set(base)
    assert all(np.array_equal(array, arrays[f"body.{name}"]) for name, array in base.items())


def test_equal_specification_and_seed_give_equal_bytes_and_another_seed_others() -> None:
    once, again, other = (state_arrays(a_model(seed=seed, feature_dim=DIM)) for seed in (0, 0, 1))
    assert all(np.array_equal(array, again[name]) for name, array in once.items())
    assert not np.array_equal(once["projection.weight"], other["projection.weight"])


def test_a_model_to_be_filled_has_the_same_layout_and_draws_nothing() -> None:
    arrays, state = state_arrays(a_model(feature_dim=DIM)), torch.get_rng_state()
    empty = a_model(with_weights=False, feature_dim=DIM)
    assert torch.equal(torch.get_rng_state(), state)
    load_arrays(empty, arrays)
    assert all(np.array_equal(array, arrays[name]) for name, array in state_arrays(empty).items())


def test_a_factorys_model_is_projected_if_its_classifier_is_linear() -> None:
    name = f"{__name__}:Net"
    fits = a_model(ModelSection(name=name, options={"linear": True}), feature_dim=DIM)
    assert set(state_arrays(fits)) >= {"body.base.1.weight", "projection.weight"}
    with pytest.raises(
        InvalidModel, match=r"has 8 features, those of the run have 128, and its classifier is no linear"
    ):
        a_model(ModelSection(name=name), feature_dim=DIM)
    assert "projection.weight" not in state_arrays(a_model(ModelSection(name=name), feature_dim=8))


def test_an_equal_feature_size_needs_no_projection() -> None:
    assert list(state_arrays(a_model(feature_dim=WIDTH))) == list(state_arrays(a_model()))
