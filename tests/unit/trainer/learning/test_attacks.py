"""Attacks on images: by hand, within their box, without a trace in the model, and in training and evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.tables.adversarial import AdversarialSettings
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import collect_features, evaluate
from fedplcc.trainer.learning.training import LocalTraining
from tests.unit.trainer.builders import CPU, a_config, a_model, digest, some_data, some_prototypes, train

LARGE = AdversarialSettings(epsilon=0.3, step_size=0.075, steps=7)


class Linear(nn.Module):
    """Two classes by the sum of an image's values: class 1 where it is large. Its gradient has one size at every value."""

    feature_dim = 1

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).sum(-1, keepdim=True)

    def classifier(self, z: torch.Tensor) -> torch.Tensor:
        return torch.cat([-z, z], dim=-1) / 1000


def images_of(values: list[int], labels: list[int], **contract: Any) -> DeviceImages:
    """Images of one value each."""
    pixels = np.stack([np.full((16, 16, 3), value, np.uint8) for value in values])
    return DeviceImages.put(ImageSet(pixels, np.array(labels, np.int64)), a_config(data=contract).data, CPU)


def pixels_of(x_B3SS: torch.Tensor, data: DeviceImages) -> torch.Tensor:
    """Values in [0, 1]."""
    return x_B3SS * data.std_3[:, None, None] + data.mean_3[:, None, None]


def whole(data: DeviceImages) -> tuple[torch.Tensor, torch.Tensor]:
    return data.batch(torch.arange(len(data)))


class TestImages:
    @pytest.mark.parametrize("contract", [{}, {"mean": [0.1, 0.5, 0.9], "std": [0.2, 0.5, 1.0]}])
    def test_one_step_is_epsilon_against_the_class_and_ends_at_black_and_white(self, contract: dict[str, Any]) -> None:
        data = images_of([0, 51, 204, 255], [0, 1, 0, 1], **contract)
        x, labels = whole(data)
        changed = pixels_of(ImageAttack.named("fgsm", 0.3, data).changed(Linear(), x, labels), data)
        expected = torch.tensor([0.3, 0.0, 1.0, 0.7])[:, None, None, None].expand(4, 3, 16, 16)
        torch.testing.assert_close(changed, expected, rtol=0, atol=1e-6)

    def test_several_steps_stay_within_epsilon_of_the_image(self) -> None:
        data = images_of([102, 102], [0, 1])
        x, labels = whole(data)
        for steps, moved in ((1, 0.075), (3, 0.225), (7, 0.3)):
            attack = ImageAttack.of(AdversarialSettings(epsilon=0.3, step_size=0.075, steps=steps), data)
            changed = pixels_of(attack.changed(Linear(), x, labels), data)
            assert changed[:, 0, 0, 0].tolist() == pytest.approx([0.4 + moved, 0.4 - moved], abs=1e-6)
        pgd = ImageAttack.named("pgd20", 0.08, data)
        assert pgd.steps == 20
        assert float(pgd.step_311[0, 0, 0]) == pytest.approx(0.02), "0.01 of values in [0, 1], in units of 0.5"

    @pytest.mark.parametrize("model_name", ["cnn4", "resnet10"])
    def test_the_loss_grows_within_the_box_and_nothing_else_changes(self, model_name: str) -> None:
        config = a_config(model={"name": model_name})
        model, data = a_model(config), some_data(8, config)
        x, labels = whole(data)
        model.train()
        before, original, state = digest(model), x.clone(), torch.random.get_rng_state()
        attack = ImageAttack.of(LARGE, data)
        changed, again = (attack.changed(model, x, labels) for _ in range(2))
        assert torch.equal(changed, again)
        assert torch.equal(x, original)
        assert not changed.requires_grad
        assert model.training
        assert digest(model) == before, "running statistics too"
        assert all(parameter.grad is None for parameter in model.parameters())
        assert torch.equal(torch.random.get_rng_state(), state)
        moved = (pixels_of(changed, data) - pixels_of(x, data)).abs().max()
        assert 0.2 < float(moved) <= 0.3 + 1e-6
        assert float(pixels_of(changed, data).min()) + 1e-6 >= 0
        assert float(pixels_of(changed, data).max()) <= 1 + 1e-6
        model.eval()
        losses = [float(nn.functional.cross_entropy(model(images), labels).detach()) for images in (x, changed)]
        assert losses[1] > losses[0]


def trained(method: str = "fedavg", **training: Any) -> tuple[str, LocalTraining, Any]:
    config = a_config(method, training=training)
    known: dict[str, Any] = {"prototypes": some_prototypes()} if config.algorithm.has_prototypes else {}
    model, result = train(config, round=2, **known)
    return digest(model), result, model


class TestTraining:
    def test_it_gives_the_same_bytes_twice_and_others_than_without(self) -> None:
        attacked, result, _ = trained(adversarial=LARGE.model_dump())
        assert attacked == trained(adversarial=LARGE.model_dump())[0] != trained()[0]
        assert result.losses["ce"] > trained()[1].losses["ce"]

    @pytest.mark.parametrize("method", ["fedprox", "fedntd", "fedplcc", "fedccl", "fpl"])
    def test_a_method_has_its_own_terms_on_attacked_images(self, method: str) -> None:
        clean, attacked = (trained(method, **more)[1].losses for more in ({}, {"adversarial": LARGE.model_dump()}))
        assert list(clean) == list(attacked)
        assert all(np.isfinite(list(attacked.values())))
        assert clean["ce"] < attacked["ce"]
        assert len({*clean.items()} - {*attacked.items()}) > 1, "terms of its own too"


class TestEvaluation:
    def test_attacked_images_are_counted_as_a_set_of_their_own(self) -> None:
        config = a_config(training={"evaluation_batch_size": 5})
        data = images_of([102, 153, 102, 153], [0, 1, 0, 1])
        model = Linear()
        clean = evaluate(model, data, config)
        attacks = {name: ImageAttack.named(name, 0.3, data) for name in ("fgsm", "pgd20")}
        for name, attack in attacks.items():
            counts = evaluate(model, data, config, set_name=f"test/{name}", attack=attack)
            assert counts.set_name == f"test/{name}"
            assert (counts.total, sum(counts.correct)) == (clean.total, 0)
        assert sum(clean.correct) == len(data)
        small = ImageAttack.named("fgsm", 0.05, data)
        assert evaluate(model, data, config, attack=small).correct == clean.correct

    def test_batches_change_no_count_and_the_model_stays_as_it_is(self) -> None:
        config = a_config(model={"name": "resnet10"}, training={"evaluation_batch_size": 4})
        model, data = a_model(config), some_data(10, config)
        before = digest(model)
        attack = ImageAttack.named("fgsm", 0.1, data)
        first, second = (evaluate(model, data, config, attack=attack) for _ in range(2))
        assert first == second
        assert digest(model) == before
        assert not model.training

    def test_the_pass_for_prototypes_is_of_images_as_they_are(self) -> None:
        plain, attacked = a_config("fedplcc"), a_config("fedplcc", training={"adversarial": {}})
        model, data = a_model(plain), some_data(config=plain)
        left, right = (collect_features(model, data, config)[0] for config in (plain, attacked))
        assert left.tobytes() == right.tobytes()
