"""A pass over public images: rows of whole batches in order, the same bytes twice, and told of what stops it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.public import PublicSection
from fedplcc.shared.methods import METHODS
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.public_images import PublicImages, learn_from_public, public_outputs
from fedplcc.trainer.learning.training import RoundInputs
from tests.unit.trainer.builders import a_config, a_model, digest

CPU = torch.device("cpu")


@pytest.fixture
def config() -> RunConfig:
    return a_config("fcclplus", method={"public_batch": 4}, public={"data": "digits:optdigits", "num_images": 10})


def images(config: RunConfig, **section: int) -> PublicImages:
    wanted = PublicSection.model_validate({**config.public.model_dump(), **section})
    return PublicImages.load("digits:optdigits", wanted, config.data, CPU)


def inputs(config: RunConfig) -> RoundInputs:
    return RoundInputs(config=config, method=METHODS["fcclplus"], round=2, client_id="ann")


def targets(scale: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "logits": (scale * rng.normal(size=(8, 3))).astype(np.float32),
        "similarities": rng.normal(size=(8, 3)).astype(np.float32),
    }


def test_outputs_are_rows_of_whole_batches_under_the_model_in_evaluation_mode(config: RunConfig) -> None:
    model, public = a_model(config), images(config)
    found = public_outputs(model, public, config)
    assert {name: array.shape for name, array in found.items()} == {"logits": (8, 3), "similarities": (8, 3)}
    assert not model.training
    with torch.no_grad():
        x_BSS3, _ = public.images.batch(torch.arange(4, 8))
        expected = model.classifier(model.features(x_BSS3)).numpy()
    np.testing.assert_array_equal(found["logits"][4:], expected)
    assert digest(model) == digest(a_model(config))


def test_a_pass_towards_targets_gives_the_same_bytes_twice_and_both_terms(config: RunConfig) -> None:
    digests = []
    for _ in range(2):
        model = a_model(config)
        losses = learn_from_public(model, images(config), targets(), inputs(config))
        assert list(losses) == ["corr", "isd"]
        digests.append(digest(model))
    assert digests[0] == digests[1] != digest(a_model(config))


def test_equal_images_have_an_equal_digest_and_other_sizes_and_numbers_another(config: RunConfig) -> None:
    assert images(config).sha256 == images(config).sha256
    larger = config.data.model_copy(update={"image_size": 32})
    others = [images(config, num_images=9), PublicImages.load("digits:optdigits", config.public, larger, CPU)]
    assert len({images(config).sha256, *(each.sha256 for each in others)}) == 3
    assert all(len(each.sha256) == 32 for each in others)


def test_it_stops_when_it_is_told_to(config: RunConfig) -> None:
    with pytest.raises(Cancelled):
        learn_from_public(a_model(config), images(config), targets(), inputs(config), should_stop=lambda: True)
    with pytest.raises(Cancelled):
        public_outputs(a_model(config), images(config), config, should_stop=lambda: True)


def test_a_loss_that_is_not_finite_is_said_with_client_and_round(config: RunConfig) -> None:
    bad = {**targets(), "logits": np.full((8, 3), np.nan, np.float32)}
    with pytest.raises(TrainingDiverged, match="ann"):
        learn_from_public(a_model(config), images(config), bad, inputs(config))


def test_a_model_that_cannot_learn_is_refused(config: RunConfig) -> None:
    model: nn.Module = a_model(config).requires_grad_(False)
    with pytest.raises(Exception, match="no parameter that requires a gradient"):
        learn_from_public(model, images(config), targets(), inputs(config))
