import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning import evaluation
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import collect_features, evaluate, predicted_classes
from fedplcc.trainer.models import build_model
from tests.unit.trainer.builders import CPU, a_config, a_model, digest, some_data, some_images


def test_features_of_all_images_come_in_order_whatever_the_batch() -> None:
    config = a_config(training={"evaluation_batch_size": 5})
    model, data = a_model(config), some_data(12, config)
    features, labels = collect_features(model, data, config)
    x, expected_labels = data.batch(torch.arange(12))
    assert features.dtype == np.float32
    assert features.shape == (12, 128)
    np.testing.assert_allclose(features, model.features(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert labels.tolist() == expected_labels.tolist()
    assert labels.dtype == np.int64


class Naming(nn.Module):
    """Names class i for an image whose first pixel is i, and returns NaN where it is above 100."""

    feature_dim = 1

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, 0, :1]

    def classifier(self, z: torch.Tensor) -> torch.Tensor:
        class_ids = (z * 255).round().long()[:, 0]
        logits = nn.functional.one_hot(class_ids.clamp(max=2), 3).float()
        return logits.masked_fill((class_ids > 100)[:, None], torch.nan)


PLAIN = a_config(data={"mean": [0, 0, 0], "std": [1, 1, 1]}, training={"evaluation_batch_size": 4})


def named(first_pixels: list[int], labels: list[int]) -> DeviceImages:
    images = some_images(len(labels)).images_NSS3
    images[:, 0, 0, 0] = first_pixels
    return DeviceImages.put(ImageSet(images, np.array(labels, dtype=np.int64)), PLAIN.data, CPU)


def test_evaluation_counts_the_right_and_all_images_of_each_class() -> None:
    counts = evaluate(Naming(), named([0, 0, 1, 2, 2, 0, 0], [0, 0, 0, 2, 2, 2, 0]), PLAIN, set_name="test")
    assert counts.correct == (3, 0, 2)
    assert counts.total == (4, 0, 3)
    assert (counts.set_name, counts.model) == ("test", "global")
    assert all(type(count) is int for count in counts.correct + counts.total)


def test_an_image_without_finite_logits_is_not_named_right_whatever_its_label() -> None:
    counts = evaluate(Naming(), named([200, 200, 200, 1], [0, 1, 2, 1]), PLAIN)
    assert counts.correct == (0, 1, 0)
    assert counts.total == (1, 2, 1)


def test_a_confusion_matrix_is_counted_where_the_run_asks_for_it() -> None:
    data = named([0, 0, 1, 2, 2, 0, 200], [0, 0, 0, 2, 1, 2, 2])
    asks = PLAIN.model_copy(update={"evaluation": PLAIN.evaluation.model_copy(update={"confusion": True})})
    counts = evaluate(Naming(), data, asks)
    assert counts.confusion == (2, 1, 0, 0, 0, 1, 1, 0, 1), "an image without a predicted class is in no column"
    assert counts.confusion[::4] == counts.correct
    assert all(type(count) is int for count in counts.confusion)
    assert evaluate(Naming(), named([], []), asks).confusion == (0,) * 9
    assert evaluate(Naming(), data, PLAIN).confusion == ()


def test_scores_are_made_of_as_many_images_at_once_as_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "SCORED_ELEMENTS", 8)
    sizes: list[int] = []

    def backwards(features_PD: torch.Tensor, logits_PM: torch.Tensor) -> torch.Tensor:
        sizes.append(len(logits_PM))
        return logits_PM.flip(-1)

    counts = evaluate(Naming(), named([0, 0, 1, 2, 2, 0, 0], [2, 0, 1, 0, 2, 2, 0]), PLAIN, score=backwards)
    assert (counts.correct, counts.total) == ((1, 1, 2), (3, 1, 3))
    assert sizes == [2, 2, 2, 1], "eight elements are two images of one feature and three classes"
    monkeypatch.setattr(evaluation, "SCORED_ELEMENTS", 1)
    assert evaluate(Naming(), named([0], [2]), PLAIN, score=backwards).correct == (0, 0, 1)


@pytest.mark.parametrize("work", [collect_features, evaluate])
def test_a_stop_ends_the_pass_before_the_next_batch(work: Callable[..., Any]) -> None:
    config = a_config(training={"evaluation_batch_size": 4})
    model, data = a_model(config), some_data(12, config)
    answers = iter([False, False, True])
    with pytest.raises(Cancelled):
        work(model, data, config, should_stop=lambda: next(answers))
    assert next(answers, None) is None


def test_a_pass_runs_with_the_configured_threads_in_the_thread_that_calls_it() -> None:
    config = a_config(training={"threads": 2})
    model, data, seen = a_model(config), some_data(4, config), []

    def should_stop() -> bool:
        seen.append(torch.get_num_threads())
        return False

    def work() -> None:
        torch.set_num_threads(1)
        collect_features(model, data, config, should_stop=should_stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(1)
    assert seen == [2]


def test_features_are_the_same_bytes_twice_and_leave_the_model_alone() -> None:
    config = a_config(model={"name": "resnet10"})
    model, data = build_model(config.model, 3, 16, 0), some_data(9, config)
    before = digest(model)
    first, second = (collect_features(model, data, config)[0].tobytes() for _ in range(2))
    assert first == second
    assert digest(model) == before


def test_several_ways_to_predict_take_one_pass_over_the_images() -> None:
    data, calls = named([0, 1, 2, 200], [0, 0, 0, 0]), list[int]()

    class Counting(Naming):
        def features(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            return super().features(x)

    backwards = [None, lambda features_BD, logits_BM: -logits_BM]
    first, second = predicted_classes(Counting(), data, PLAIN, scores=backwards)
    assert calls == [4]
    assert first.tolist() == [0, 1, 2, -1]
    assert second.tolist() == [1, 0, 0, -1]
    assert predicted_classes(Naming(), named([], []), PLAIN, scores=backwards).shape == (2, 0)


def test_an_empty_evaluation_set_counts_nothing() -> None:
    counts = evaluate(Naming(), named([], []), PLAIN, model_name="local")
    assert counts.correct == counts.total == (0, 0, 0)
    assert counts.model == "local"


@pytest.mark.parametrize("work", [collect_features, evaluate])
def test_a_pass_says_after_every_batch_how_far_it_is(work: Callable[..., Any]) -> None:
    config = a_config(training={"evaluation_batch_size": 4})
    shares: list[float] = []
    work(a_model(config), some_data(10, config), config, on_share=shares.append)
    assert shares == [0.4, 0.8, 1.0]
