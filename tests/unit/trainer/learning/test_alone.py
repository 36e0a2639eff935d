"""What joining is worth where a head is trained: the model of a client's images alone, the mix, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods.heads.own_share import SHARES, best_share
from fedplcc.trainer.cancellation import never
from fedplcc.trainer.learning.alone import MixedModel, mixed_model, train_alone
from fedplcc.trainer.learning.evaluation import logits_of
from fedplcc.trainer.models import state_arrays
from tests.unit.trainer.builders import a_config, a_model, some_data, train

HEAD: dict[str, dict[str, Any]] = {
    "model": {"name": "timm:resnet18", "weights": "some", "weights_sha256": 64 * "a"},
    "training": {"train": "head"},
    "data": {"validation_every": 5},
    "evaluation": {"joining": True},
}


def test_a_model_alone_is_that_of_a_federated_average_of_one_client() -> None:
    config, data = a_config("fedplcc", run={"rounds": 3}), some_data()
    alone, expected = a_model(config), a_model(config)
    train_alone(alone, data, config, "a", should_stop=never)
    plain = a_config(run={"rounds": 3})
    for number in (1, 2, 3):
        train(plain, expected, data, round=number)
    for name, array in state_arrays(expected).items():
        assert array.tobytes() == state_arrays(alone)[name].tobytes()


def test_a_model_alone_is_an_average_over_rounds_where_the_result_is_and_tells_how_far_it_is() -> None:
    averaged = a_config(run={"rounds": 3}, method={"global_average": "ema", "average_decay": 0.75})
    data, shares = some_data(), list[float]()
    found, plain = a_model(averaged), a_model(averaged)
    train_alone(found, data, averaged, "a", should_stop=never, on_share=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    expected: dict[str, np.ndarray] = {}
    for number in (1, 2, 3):
        train(a_config(run={"rounds": 3}), plain, data, round=number)
        newest = {name: array.astype(np.float64) for name, array in state_arrays(plain).items()}
        expected = {
            name: (0.75 * expected[name] + 0.25 * array if expected else array).astype(np.float32).astype(np.float64)
            for name, array in newest.items()
        }
    for name, array in state_arrays(found).items():
        np.testing.assert_array_equal(array, expected[name])


def black() -> Any:
    """An augmentation of another package: it leaves nothing of an image."""
    return lambda images_BSS3, generator: torch.zeros_like(images_BSS3)


def test_a_model_alone_sees_the_changes_of_images_that_are_code_of_other_packages() -> None:
    changed = a_config(training={"augment": [f"{__name__}:black"]})
    seen, plain = a_model(changed), a_model(changed)
    train_alone(seen, some_data(), changed, "a", should_stop=never)
    train_alone(plain, some_data(seed=1), changed, "a", should_stop=never)
    for name, array in state_arrays(seen).items():
        np.testing.assert_array_equal(array, state_arrays(plain)[name], err_msg="it saw the images")


def test_a_mix_predicts_by_the_mean_of_probabilities_and_is_either_model_at_the_ends() -> None:
    config, data = a_config(), some_data()
    whole, alone = a_model(config), a_model(a_config(run={"seed": 5}))
    train_alone(alone, data, config, "a", should_stop=never)
    p, q = (logits_of(model, data, config).softmax(-1) for model in (whole, alone))
    for share in (0.0, 0.4, 1.0):
        found = logits_of(MixedModel(whole, alone, share), data, config).exp()
        torch.testing.assert_close(found, (1 - share) * p + share * q)
    chosen = mixed_model(whole, alone, data, config, is_balanced=False, should_stop=never)
    hits = [((1 - s) * p + s * q).argmax(-1).eq(data.labels_N).sum().item() for s in SHARES]
    assert hits[SHARES.index(chosen.share)] == max(hits)


def test_of_equal_shares_the_nearest_to_a_half_is_taken_and_classes_weigh_alike_where_asked() -> None:
    labels_N = np.array([0, 0, 0, 1])
    rows = [np.eye(2)[np.array(each)] for each in ([0, 0, 0, 0], [1, 0, 0, 1])]
    assert best_share([rows[0]] * 11, labels_N, is_balanced=False) == 0.5
    mixes = [rows[0]] * 3 + [rows[1]] * 8
    assert best_share([rows[0]] * 3 + [np.eye(2)[[1, 1, 0, 1]]] * 8, labels_N, is_balanced=False) == 0.2
    assert best_share(mixes, labels_N, is_balanced=True) == 0.5


@pytest.mark.parametrize(
    ("method", "sections", "said"),
    [
        ("classsums", {}, "says by itself what joining is worth"),
        ("fedrep", {}, "clients have models of their own"),
        ("fedavg", {"run": {"patience": 1}}, "run.patience may end a run before it"),
        ("fedavg", {"data": {"validation_every": None}}, "set data.validation_every"),
        (
            "fedavg",
            {"run": {"initial_model": "sha256:" + 64 * "b"}},
            "begins with the model that seed and specification",
        ),
    ],
)
def test_what_joining_is_worth_is_refused_where_it_cannot_be_said(method: str, sections: Any, said: str) -> None:
    def merged(extra: Any) -> dict[str, Any]:
        document: dict[str, Any] = {name: dict(values) for name, values in HEAD.items()}
        for name, values in extra.items():
            document[name] = {**document.get(name, {}), **values}
        return document

    extra = {**sections, "run": {"rounds": 2, **sections.get("run", {})}}
    assert a_config("fedavg", **HEAD).evaluated_models == ("global", "local", "alone")
    with pytest.raises(InvalidConfig, match=said):
        a_config(method, **merged(extra))


def test_a_run_that_does_not_ask_has_the_hash_that_it_had() -> None:
    assert a_config(evaluation={"joining": False}).hash == a_config().hash
    assert "joining" not in a_config().canonical_json
