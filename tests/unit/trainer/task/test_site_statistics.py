"""Statistics of the site in a client's tasks: what it reports and sends, and what stays as it is without them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import InvalidModel, ModelKindRefused
from fedplcc.shared.tensors import from_bytes, prototypes_to_bytes, to_bytes
from fedplcc.shared.types import (
    GLOBAL_CLUSTER,
    MODEL,
    BlobRef,
    EvaluationCounts,
    Payload,
    PrototypeSet,
    RunSpec,
    Task,
    TaskKind,
)
from fedplcc.trainer.data import load_dataset
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import evaluate
from fedplcc.trainer.models import load_arrays, state_arrays
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import (
    CPU,
    WITHOUT_NORMS,
    a_config,
    a_model,
    a_spec,
    config_of,
    eighteen_images,
    some_prototypes,
)
from tests.unit.trainer.memory_aggregator import MemoryAggregator

RESNET = {"name": "resnet10", "stem": "cifar3x3"}
DIM = 512
AT_SITE = {"evaluation": {"batch_norm": "site"}}
FROM_SITE = {"training": {"prototype_statistics": "site"}}
OWN = {"share_model": False}
KEPT_NORM = {"personal": "batch_norm"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return eighteen_images(tmp_path_factory.mktemp("data"), 200, 20)


def a_run(method: str, hyper: dict[str, Any] | None = None, **sections: Any) -> RunSpec:
    config = a_config(method, **{"method": hyper or {}, "model": RESNET, **sections})
    return a_spec(config)


def a_runner(data: str, folder: Path, model: ModelSection | None = None) -> TaskRunner:
    site = ClientSite.at("ann", "hospital", data, device="cpu", model=model, consent=Consent.to(WITHOUT_NORMS))
    return TaskRunner(site, ClientStates(folder))


def a_task(aggregator: MemoryAggregator, run: RunSpec, kind: TaskKind, number: int = 1) -> Task:
    config = config_of(run)
    sets: tuple[BlobRef, ...] = ()
    if config.algorithm.has_prototypes:
        known = some_prototypes(DIM) if number > 1 else PrototypeSet.empty()
        sets = (aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(known)),)
    model = to_bytes(state_arrays(a_model(config)))
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, model),), prototype_sets=sets)
    return Task(kind=kind, run=run, round=number, total_rounds=3, payload=payload)


def images_of(data: str, config: RunConfig, part: str) -> DeviceImages:
    whole = load_dataset(data, contract=config.data, samples_per_class=None, seed=0)
    return DeviceImages.put(getattr(whole, part), config.data, CPU)


def by_torch_alone(arrays: Mapping[str, np.ndarray], data: str, config: RunConfig) -> Any:
    """The model after one plain training-mode pass over all training images, with torch's cumulative means."""
    model = a_model(config)
    load_arrays(model, arrays)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
    images = images_of(data, config, "train").kept_N.permute(0, 3, 1, 2).float()
    model.train()
    with torch.no_grad():
        model((images / 255 - 0.5) / 0.5)
    model.eval()
    return model


def reported(aggregator: MemoryAggregator) -> dict[str, EvaluationCounts]:
    return {counts.model: counts for counts in aggregator.evaluations[-1][1].counts}


def sent(aggregator: MemoryAggregator) -> tuple[bytes, list[bytes]]:
    """The model of the last update, and its prototypes."""
    _, update = aggregator.updates[-1]
    model = update.payload.tensor_group(MODEL)
    sets = [aggregator.stored[blob.sha256][0] for blob in update.payload.prototype_sets]
    return (b"" if model is None else aggregator.stored[model.sha256][0]), sets


def performed(data: str, folder: Path, run: RunSpec, *tasks: tuple[TaskKind, int]) -> MemoryAggregator:
    aggregator, runner = MemoryAggregator(), a_runner(data, folder)
    for kind, number in tasks:
        runner.perform(a_task(aggregator, run, kind, number), aggregator)
    return aggregator


TRAIN_1, TRAIN_2, EVALUATE_1 = (TaskKind.TRAIN, 1), (TaskKind.TRAIN, 2), (TaskKind.EVALUATE, 1)


@pytest.mark.parametrize(("method", "hyper"), [("fedavg", {}), ("fedproto", {})])
def test_the_global_model_is_reported_on_as_it_is_and_with_the_statistics_of_the_site(
    data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    """FedProto names classes by prototypes only with models of its clients' own, and so does it here."""
    run, plain = a_run(method, hyper, **AT_SITE), a_run(method, hyper)
    counts = reported(performed(data, tmp_path / "site", run, EVALUATE_1))
    assert list(counts) == ["global", "local"]
    assert counts["global"] == reported(performed(data, tmp_path / "plain", plain, EVALUATE_1))["global"]
    config = config_of(run)
    model = by_torch_alone(state_arrays(a_model(config)), data, config)
    assert counts["local"] == evaluate(model, images_of(data, config, "test"), config, model_name="local")
    assert counts["local"].correct != counts["global"].correct


@pytest.mark.parametrize(
    ("method", "hyper"), [("fedccl", {}), ("fedrep", {"head_epochs": 1}), ("fedrep", KEPT_NORM), ("fedproto", OWN)]
)
def test_a_model_of_the_clients_own_is_reported_on_with_the_statistics_of_its_site(
    data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    run = a_run(method, hyper, **AT_SITE)
    aggregator = performed(data, tmp_path, run, TRAIN_1, EVALUATE_1)
    config, state = config_of(run), ClientStates(tmp_path).state("run-1")
    own = config.algorithm.own_model(state_arrays(a_model(config)), state, config.method)
    assert own is not None
    model = by_torch_alone(own, data, config)
    expected = evaluate(model, images_of(data, config, "test"), config, model_name="local")
    assert reported(aggregator)["local"] == expected, "without prototypes FedProto names classes by logits"


def test_a_client_without_a_model_of_its_own_reports_on_the_global_one_alone(data: str, tmp_path: Path) -> None:
    assert list(reported(performed(data, tmp_path, a_run("fedccl", **AT_SITE), EVALUATE_1))) == ["global"]


@pytest.mark.parametrize(("method", "hyper"), [("fedplcc", {"lambda1": 1.0, "lambda2": 1.0}), ("fedrep", KEPT_NORM)])
def test_reports_with_statistics_of_the_site_change_no_byte_of_training(
    data: str, tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    tasks = (TRAIN_1, EVALUATE_1, TRAIN_2)
    with_site = performed(data, tmp_path / "site", a_run(method, hyper, **AT_SITE), *tasks)
    without = performed(data, tmp_path / "plain", a_run(method, hyper), *tasks)
    assert [update.payload for _, update in with_site.updates] == [update.payload for _, update in without.updates]


def test_prototypes_with_statistics_of_the_site_leave_the_model_that_is_sent_as_it_is(
    data: str, tmp_path: Path
) -> None:
    hyper = {"lambda1": 1.0, "lambda2": 1.0}
    run = a_run("fedplcc", hyper, **FROM_SITE)
    plain = a_run("fedplcc", hyper)
    for number in (1, 2):
        task = (TaskKind.TRAIN, number)
        model, prototypes = sent(performed(data, tmp_path / f"site-{number}", run, task))
        as_it_was, others = sent(performed(data, tmp_path / f"plain-{number}", plain, task))
        assert model == as_it_was
        assert prototypes != others
        assert sent(performed(data, tmp_path / f"again-{number}", run, task)) == (model, prototypes)


def test_prototypes_are_the_features_under_the_statistics_of_the_site(data: str, tmp_path: Path) -> None:
    """FedProto's are the mean features of each class."""
    run = a_run("fedproto", **FROM_SITE)
    model, (prototypes,) = sent(performed(data, tmp_path, run, TRAIN_1))
    config = config_of(run)
    images = images_of(data, config, "train")
    with torch.no_grad():
        ((x_N3SS, labels_N),) = images.in_order(len(images))
        features_ND = by_torch_alone(from_bytes(model), data, config).features(x_N3SS).numpy()
    expected = np.stack([features_ND[labels_N.numpy() == label].mean(0) for label in range(3)])
    np.testing.assert_allclose(from_bytes(prototypes)["vectors"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sections", [AT_SITE, FROM_SITE], ids=["evaluation", "prototypes"])
def test_a_model_without_batch_norm_is_refused_before_the_first_round(
    data: str, tmp_path: Path, sections: dict[str, Any]
) -> None:
    run = a_run("fedplcc", model={"name": WITHOUT_NORMS.name}, **sections)
    with pytest.raises(InvalidModel) as caught:
        a_runner(data, tmp_path).perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), MemoryAggregator())
    assert caught.value.detail.startswith(f"{config_of(run).site_statistics_key} takes BatchNorm statistics")
    assert f"model {WITHOUT_NORMS.name!r} has no BatchNorm layer with running statistics" in caught.value.detail


def test_a_clients_own_kind_without_batch_norm_is_refused_before_it_trains(data: str, tmp_path: Path) -> None:
    aggregator, run = MemoryAggregator(), a_run("fedproto", OWN, **AT_SITE)
    with pytest.raises(InvalidModel, match=f"model '{WITHOUT_NORMS.name}' has no BatchNorm layer"):
        a_runner(data, tmp_path, WITHOUT_NORMS).perform(a_task(aggregator, run, TaskKind.TRAIN), aggregator)
    with pytest.raises(ModelKindRefused, match=r"model 'cnn5' has no BatchNorm layer, and evaluation\.batch_norm"):
        a_runner(data, tmp_path, ModelSection(name="cnn5")).perform(a_task(aggregator, run, TaskKind.TRAIN), aggregator)
    assert aggregator.updates == []
