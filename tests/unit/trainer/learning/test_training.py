import random
from collections.abc import Callable, Mapping
from typing import Any, Never

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn.functional import cross_entropy

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidConfig, InvalidModel
from fedplcc.shared.methods.fedavg import METHOD as FEDAVG
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.step import ClientStep, Term
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.learning.losses import balanced_weights, task_loss, total_loss
from fedplcc.trainer.models import load_arrays, state_arrays
from tests.unit.trainer.builders import a_config, a_model, digest, some_data, some_prototypes, train


def bytes_of(*args: Any, **kwargs: Any) -> str:
    return digest(train(*args, **kwargs)[0])


# -- The arithmetic ----------------------------------------------------------------------------------------------------


class Linear(nn.Module):
    """Logits are a matrix times the first channel's mean; small enough to train by hand."""

    feature_dim = 2

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(2, 3, bias=False)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :2].mean(dim=(2, 3))


def test_balanced_classes_have_equal_parts_of_the_loss_however_few_their_images_are() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [3])
    weights = balanced_weights(labels, 5)
    assert weights.tolist() == pytest.approx([10 / 18, 10 / 9, 0.0, 10 / 3, 0.0])
    assert weights[labels].mean().item() == pytest.approx(1.0)
    theirs = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=labels.numpy())
    assert weights[[0, 1, 3]].tolist() == pytest.approx(theirs.tolist())
    logits = torch.randn(10, 5, generator=torch.Generator().manual_seed(0))
    each = cross_entropy(logits, labels, reduction="none")
    of_classes = torch.stack([each[labels == label].mean() for label in (0, 1, 3)])
    assert task_loss(logits, labels, weights).item() == pytest.approx(of_classes.mean().item())
    assert torch.equal(task_loss(logits, labels), cross_entropy(logits, labels))


def test_class_weights_change_what_is_trained_on_uneven_classes_alone() -> None:
    def trained(data: DeviceImages, **training: str) -> str:
        return bytes_of(a_config(training={"batch_size": 4, **training}), data=data)

    uneven = some_data(10)
    assert len(set(np.bincount(uneven.labels_N.numpy()).tolist())) > 1
    assert trained(uneven, class_weights="balanced") != trained(uneven)
    assert trained(uneven, class_weights="none") == trained(uneven)
    assert trained(uneven, batches="balanced") not in (trained(uneven), trained(uneven, class_weights="balanced"))
    assert trained(uneven, batches="balanced") == trained(uneven, batches="balanced")
    assert trained(uneven, batches="shuffled") == trained(uneven)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"training": {"class_weights": "balanced"}}, "both would count them twice"),
        (
            {"run": {"method": "fedplcc"}, "method": {"proto_pass": "last_epoch"}},
            "makes prototypes of the images of the last",
        ),
    ],
)
def test_balanced_batches_are_refused_where_a_class_would_count_otherwise(sections: dict[str, Any], said: str) -> None:
    training = {"batches": "balanced", **sections.pop("training", {})}
    with pytest.raises(InvalidConfig, match=said):
        a_config(training=training, **sections)


def test_two_steps_are_sgd_with_momentum_and_weight_decay_on_the_mean_cross_entropy() -> None:
    config = a_config(
        training={"local_steps": 2, "batch_size": 12, "learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.1}
    )
    data, model = some_data(12, config), Linear()
    weight = model.classifier.weight.detach().numpy().astype(np.float64)
    x, labels = data.batch(torch.arange(12))
    z, one_hot = model.features(x).numpy().astype(np.float64), np.eye(3)[labels.numpy()]
    velocity, losses = np.zeros_like(weight), []
    for _ in range(2):
        exponentials = np.exp(z @ weight.T)
        shares = exponentials / exponentials.sum(axis=1, keepdims=True)
        losses.append(-np.log((shares * one_hot).sum(axis=1)).mean())
        gradient = (shares - one_hot).T @ z / 12 + 0.1 * weight
        velocity = 0.9 * velocity + gradient
        weight = weight - 0.5 * velocity
    _, result = train(config, model, data)
    np.testing.assert_allclose(model.classifier.weight.detach().numpy(), weight, rtol=1e-5, atol=1e-7)
    assert result.losses == {"ce": pytest.approx(np.mean(losses), rel=1e-6)}
    assert result.num_steps == 2


def test_the_total_is_the_sum_of_terms_times_coefficients() -> None:
    terms = {"a": Term(torch.tensor(2.0)), "b": Term(torch.tensor(-3.0), 1000.0), "c": Term(torch.tensor(5.0), 0.5)}
    assert total_loss(terms).item() == 2 - 3000 + 2.5


def test_a_term_with_coefficient_zero_is_not_there_and_a_product_with_one_is_not_formed() -> None:
    cross_entropy = torch.tensor(2.0)
    assert total_loss({"ce": Term(cross_entropy), "off": Term(torch.tensor(torch.nan), 0.0)}) is cross_entropy


def test_fedplcc_without_its_terms_has_the_bytes_of_fedavg() -> None:
    expected = bytes_of(a_config("fedavg"))
    neutral = a_config("fedplcc", method={"lambda1": 0, "lambda2": 0})
    assert bytes_of(neutral, prototypes=some_prototypes()) == expected
    assert bytes_of(a_config("fedplcc"), prototypes=PrototypeSet.empty()) == expected  # round 1
    assert bytes_of(a_config("fedplcc"), prototypes=some_prototypes()) != expected


def test_frozen_parameters_stay_and_are_not_shown_to_the_method() -> None:
    seen: dict[str, set[str]] = {}

    def loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
        seen.update(params=set(step.params), start=set(step.start))
        return FEDAVG.client_loss(step, config)

    config, model = a_config(), a_model()
    model.extractor[0].weight.requires_grad_(False)
    before = state_arrays(model)
    train(config, model, method=Method(**{**fields(FEDAVG), "client_loss": loss}))
    after = state_arrays(model)
    assert "extractor.0.weight" not in seen["params"] | seen["start"]
    assert np.array_equal(after["extractor.0.weight"], before["extractor.0.weight"])
    assert not np.array_equal(after["extractor.0.bias"], before["extractor.0.bias"])


def fields(method: Method) -> dict[str, Any]:
    return {name: getattr(method, name) for name in Method.__dataclass_fields__}


def a_method(loss: Callable[[ClientStep, Any], Mapping[str, Term]]) -> Method:
    return Method(**{**fields(FEDAVG), "client_loss": loss})


def test_the_starting_weights_stay_those_of_the_global_model() -> None:
    drifts = []

    def loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
        drift = sum(float((w.detach() - step.start[name]).abs().sum()) for name, w in step.params.items())
        drifts.append((drift, step.round, step.total_rounds))
        return FEDAVG.client_loss(step, config)

    train(a_config(run={"rounds": 9}), method=a_method(loss), round=4)
    assert drifts[0] == (0.0, 4, 9)
    assert 0 < drifts[1][0] < drifts[2][0]


class HalfPrecision(nn.Module):
    """A model that runs in bfloat16, as somebody's autocast would."""

    feature_dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.extractor = nn.Linear(3 * 16 * 16, 4)
        self.classifier = nn.Linear(4, 3)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.extractor(x.flatten(1))
        return features


def test_losses_are_computed_in_float32_under_a_callers_autocast() -> None:
    seen = []

    def loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
        cosine = step.ops.cosine(step.features_BD, torch.ones(1, 4))
        seen.append({step.features_BD.dtype, step.logits_BM.dtype, step.task_loss.dtype, cosine.dtype})
        return FEDAVG.client_loss(step, config)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        train(a_config(), HalfPrecision(), method=a_method(loss))
    assert seen == [{torch.float32}] * 3


# -- How long ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "num_images", "steps"),
    [
        ({"local_steps": 5}, 12, 5),
        ({"local_steps": None, "local_epochs": 2}, 12, 6),
        ({"local_steps": None, "local_epochs": 2}, 13, 6),
        ({"local_steps": None, "local_epochs": 2}, 14, 8),
    ],
)
def test_a_round_takes_its_steps_and_tells_each(training: dict[str, int | None], num_images: int, steps: int) -> None:
    config = a_config(training=training)
    told: list[tuple[int, int]] = []
    _, result = train(config, data=some_data(num_images, config), on_progress=lambda *done: told.append(done))
    assert result.num_steps == steps
    assert told == [(i, steps) for i in range(steps + 1)]


@pytest.mark.parametrize("num_images", [1, 5])
def test_batch_normalisation_survives_one_sample_alone_or_left_over(num_images: int) -> None:
    config = a_config(model={"name": "resnet10"}, training={"local_steps": None, "local_epochs": 2})
    model, result = train(config, data=some_data(num_images, config))
    assert result.num_steps == 2
    assert all(np.isfinite(array).all() for array in state_arrays(model).values())


def test_a_stop_ends_training_before_the_next_batch() -> None:
    told: list[tuple[int, int]] = []
    with pytest.raises(Cancelled):
        train(should_stop=lambda: len(told) == 3, on_progress=lambda *done: told.append(done))
    assert told == [(0, 3), (1, 3), (2, 3)]


# -- The same bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cnn4", "resnet10"])
@pytest.mark.parametrize("augment", [[], ["crop", "flip"]])
def test_the_same_inputs_give_the_same_bytes_whatever_happened_before(name: str, augment: list[str]) -> None:
    config = a_config("fedplcc", model={"name": name}, training={"augment": augment})
    prototypes = some_prototypes(dim=a_model(config).feature_dim)
    first = bytes_of(config, prototypes=prototypes)
    torch.manual_seed(1)
    torch.rand(1000)
    np.random.rand(3)
    bytes_of(config, prototypes=prototypes, client_id="b")
    assert bytes_of(config, prototypes=prototypes) == first


@pytest.mark.parametrize("augment", [[], ["flip"]])
def test_another_seed_round_or_client_gives_other_bytes(augment: list[str]) -> None:
    config = a_config(training={"augment": augment})
    start = state_arrays(a_model(config))
    results = set()
    for seed, round_number, client_id in [(0, 1, "a"), (1, 1, "a"), (0, 2, "a"), (0, 1, "b")]:
        varied = a_config(run={"seed": seed}, training={"augment": augment})
        model = a_model(varied)
        load_arrays(model, start)
        results.add(bytes_of(varied, model, round=round_number, client_id=client_id))
    assert len(results) == 4


class Dropping(Linear):
    def features(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().features(x), 0.5, self.training)


def dropping() -> nn.Module:
    model = Dropping()
    load_arrays(model, {"classifier.weight": np.ones((3, 2), np.float32)})
    return model


def test_dropout_is_seeded_by_the_task_and_global_random_states_are_restored() -> None:
    config = a_config(training={"batch_size": 12})
    model = dropping()
    torch.manual_seed(5)
    random.seed(5)
    states = torch.get_rng_state(), random.getstate()
    first, _ = train(config, model)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    torch.manual_seed(6)
    assert bytes_of(config, dropping()) == digest(first)
    assert bytes_of(config, dropping(), round=2) != digest(first)


# -- What can go wrong -------------------------------------------------------------------------------------------------


def test_a_global_model_that_is_not_finite_is_named_as_such() -> None:
    model = a_model()
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    with pytest.raises(
        TrainingDiverged, match=r"client 'a' in round 7 .* the global model holds values that are not finite"
    ):
        train(model=model, round=7)


def test_a_loss_that_is_not_finite_names_client_round_step_and_term() -> None:
    calls = []

    def loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
        calls.append(step)
        value = step.task_loss * (torch.inf if len(calls) == 2 else 1)
        return {"ce": Term(step.task_loss), "pull": Term(value)}

    with pytest.raises(TrainingDiverged, match="'b' in round 4 diverged: the loss 'pull' of step 2 is inf") as caught:
        train(method=a_method(loss), client_id="b", round=4)
    assert caught.value.metadata == {"client_id": "b", "round": "4"}
    assert "lower training.learning_rate or set training.clip_norm" in caught.value.detail


def test_a_loss_that_is_not_finite_before_any_step_is_not_blamed_on_the_learning_rate_of_a_site() -> None:
    model = a_model()
    with torch.no_grad():
        model.classifier.weight.fill_(3e38)  # finite, and no loss is
    with pytest.raises(
        TrainingDiverged, match="no step was made, so neither this site nor its learning rate"
    ) as caught:
        train(model=model, round=7)
    assert "lower training.learning_rate" not in caught.value.detail


@pytest.mark.parametrize(("bad_step", "where"), [(1, "step 1 "), (2, "step 2 "), (3, "step 3, the last,")])
def test_a_gradient_that_is_not_finite_names_its_step(bad_step: int, where: str) -> None:
    assert_gradient_error(a_config(), bad_step, f"the gradient of {where}")


def test_a_clipped_gradient_that_is_not_finite_names_its_step_at_once() -> None:
    assert_gradient_error(a_config(training={"clip_norm": 1.0}), 2, "the gradient of step 2 is nan")


def assert_gradient_error(config: RunConfig, bad_step: int, sentence: str) -> None:
    calls = []

    def loss(step: ClientStep, config: Any) -> Mapping[str, Term]:
        calls.append(step)
        # The root of zero is zero, and its slope is infinite.
        root = (step.params["classifier.weight"] * 0).sum().sqrt()
        return {"ce": Term(step.task_loss + root if len(calls) == bad_step else step.task_loss)}

    with pytest.raises(TrainingDiverged, match=sentence):
        train(config, method=a_method(loss))


def test_clipping_bounds_a_step_and_is_counted() -> None:
    config = a_config(
        training={"local_steps": 1, "clip_norm": 1e-3, "learning_rate": 1.0, "momentum": 0, "weight_decay": 0}
    )
    start = state_arrays(a_model(config))
    model, result = train(config)
    moved = np.sqrt(sum(((array - start[name]) ** 2).sum() for name, array in state_arrays(model).items()))
    assert moved == pytest.approx(1e-3, rel=1e-3)
    assert result.num_clipped_steps == 1


@pytest.mark.parametrize("work", [train, lambda model: collect_features(model, some_data(), a_config())])
def test_an_operation_without_a_deterministic_form_is_named_with_the_model(work: Callable[..., object]) -> None:
    class Scattering(Linear):
        def features(self, x: torch.Tensor) -> torch.Tensor:
            torch.zeros(4).put_(torch.tensor([1]), torch.tensor([2.0]))
            return super().features(x)

    with pytest.raises(InvalidModel, match=r"model 'cnn4' computes with put_, which .* use the device cpu, or another"):
        work(model=Scattering())


def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = a_model()
    model.requires_grad_(False)
    with pytest.raises(InvalidModel, match="no parameter that requires a gradient"):
        train(model=model)


def test_a_hugely_negative_total_is_no_reason_to_stop() -> None:
    config = a_config("fedplcc", method={"lambda2": 1e6}, training={"learning_rate": 1e-9})
    _, result = train(config, prototypes=some_prototypes())
    assert result.losses["corr"] * 1e6 < -1e4


def test_a_stop_before_the_first_batch_leaves_the_weights_alone() -> None:
    model = a_model()
    before = digest(model)
    with pytest.raises(Cancelled):
        train(model=model, should_stop=lambda: True)
    assert digest(model) == before


def test_another_runtime_error_of_a_model_is_left_alone() -> None:
    class Broken(Linear):
        def features(self, x: torch.Tensor) -> Never:
            raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        train(model=Broken())
