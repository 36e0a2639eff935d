"""Local training on several devices: processes of this host, which meet by gloo."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import FailedPrecondition, Internal
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.devices.processes import group_of
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs, TrainingObserver, local_train
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.models.cnn import CNN
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.local_update import GIVEN, train_part
from fedplcc.trainer.task.site import ClientSite
from tests.support import ROOT
from tests.support.hosts.descendants import LOOPBACK, descendants, listening
from tests.unit.trainer.builders import CPU, a_config, some_data

LONG_S = 120.0
"""Longest wait for what happens at once on a machine that has nothing else to do."""


class Observed(CNN):
    """A model whose batch normalisation watches the features, and changes none."""

    def __init__(self, num_classes: int, image_size: int) -> None:
        super().__init__(num_classes, image_size, maps=(8, 8))
        self.norm = torch.nn.BatchNorm1d(self.feature_dim)

    def features(self, x_BCSS: torch.Tensor) -> torch.Tensor:
        z_BD = super().features(x_BCSS)
        self.norm(z_BD.detach())  # its parameters are in no loss
        return z_BD


class Broken(CNN):
    """A model that cannot be trained."""

    def features(self, x_BCSS: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise KeyError("a name in the data")
        return super().features(x_BCSS)


def broken(num_classes: int, image_size: int) -> Broken:
    return Broken(num_classes, image_size, maps=(8, 8))


def observed(num_classes: int, image_size: int) -> Observed:
    return Observed(num_classes, image_size)


def ranks() -> list[int]:
    """Processes of the further devices of this process, which may have others."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it has ended
            if b"fedplcc.trainer.devices.rank" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def trained(
    num_devices: int, config: RunConfig, observer: TrainingObserver, see: Callable[[Any], None] = lambda model: None
) -> tuple[Any, LocalTraining]:
    """Train a first model on so many devices."""
    device, consent = ",".join(["cpu"] * num_devices), Consent.to_run(config)
    site = ClientSite.at("a", "a", "npz:unread", device=device, consent=consent)
    data, model = some_data(12, config), site.new_model(config, with_weights=True)
    see(model)
    inputs = RoundInputs(config=config, method=config.algorithm, round=1, client_id="a", keeps_seen=True)
    if num_devices == 1:
        return model, local_train(model, data, inputs, observer)
    given = {name: getattr(inputs, name) for name in GIVEN}
    work = partial(train_part, site, state_arrays(model), data.without_images(CPU), given)
    with group_of([site.device, *site.further_devices], work, 1, observer.should_stop) as group:
        return model, local_train(model, data, inputs, observer, group)


@pytest.mark.slow
def test_three_devices_train_what_one_does_but_for_rounding_with_the_statistics_of_the_first() -> None:
    # Batches of 5, 5 and 2 images: parts of 3 and 2, and one that the first device has alone.
    training = {"local_steps": 6, "batch_size": 5, "momentum": 0.9, "weight_decay": 0.1, "clip_norm": 1.0}
    config = a_config(model={"name": f"{__name__}:observed"}, training=training)
    features: list[torch.Tensor] = []
    steps: list[tuple[int, int]] = []

    def see(model: Any) -> None:
        model.norm.register_forward_pre_hook(lambda layer, inputs: features.append(inputs[0].clone()))

    one, alone = trained(1, config, TrainingObserver())
    three, shared = trained(3, config, TrainingObserver(on_progress=lambda *done: steps.append(done)), see)
    assert steps == [(step, 6) for step in range(7)]
    assert [len(each) for each in features] == [3, 3, 2, 3, 3, 2]
    for name, array in state_arrays(one).items():
        if "running" not in name:
            np.testing.assert_allclose(state_arrays(three)[name], array, atol=1e-6)
    mean = torch.zeros(128)
    for each in features:
        mean = 0.9 * mean + 0.1 * each.mean(0)
    torch.testing.assert_close(three.norm.running_mean, mean)
    assert torch.equal(three.norm.weight, torch.ones(128))  # no weight decay: it had no gradient
    assert shared.losses == pytest.approx(alone.losses, abs=1e-6)
    assert shared.num_clipped_steps == alone.num_clipped_steps
    assert alone.seen is not None
    assert shared.seen is not None
    np.testing.assert_allclose(shared.seen[0], alone.seen[0], atol=1e-6)
    assert np.array_equal(shared.seen[1], alone.seen[1])
    assert not ranks()


@pytest.mark.slow
def test_a_killed_process_is_named_and_takes_the_others_with_it() -> None:
    def kill(step: int, steps: int) -> None:
        if step == 1:
            (child,) = ranks()
            assert listening({child})
            assert listening({child, os.getpid()}) <= LOOPBACK
            os.kill(child, signal.SIGKILL)

    with pytest.raises(Internal, match="a process that trains on cpu ended with SIGKILL"):
        trained(2, a_config(), TrainingObserver(on_progress=kill))
    assert not ranks()


@pytest.mark.slow
@pytest.mark.full
def test_a_stop_ends_the_training_also_while_a_device_hangs() -> None:
    stopped: list[int] = []

    def hang(num_images: int) -> None:
        stopped.extend(ranks())
        os.kill(stopped[-1], signal.SIGSTOP)

    with pytest.raises(Cancelled):
        trained(2, a_config(), TrainingObserver(on_batch=hang, should_stop=lambda: bool(stopped)))
    assert len(stopped) == 1
    assert not ranks()


@pytest.mark.slow
@pytest.mark.full
def test_a_models_own_error_stays_its_error() -> None:
    with pytest.raises(KeyError, match="a name in the data"):
        trained(2, a_config(model={"name": f"{__name__}:broken"}), TrainingObserver())
    assert not ranks()


def test_what_cannot_be_sent_to_another_process_is_refused_before_one_starts() -> None:
    with (
        pytest.raises(FailedPrecondition, match="cannot train on several devices"),
        group_of([CPU, CPU], lambda group: None, 1, lambda: False),
    ):
        pass


def test_each_further_device_has_draws_of_its_own() -> None:
    config = a_config()
    first = RoundInputs(config=config, method=config.algorithm, round=1, client_id="a")
    assert len({replace(first, rank=rank).seed("training") for rank in range(8)}) == 8


TRAINER = f"""
import sys
from tests.unit.trainer.builders import a_config
from fedplcc.trainer.learning.training import TrainingObserver
from {__name__} import ranks, trained

def tell(step, steps):
    if step == 1:
        print(*ranks(), flush=True)
        sys.stdin.read()

trained(2, a_config(), TrainingObserver(on_progress=tell))
"""


@pytest.mark.slow
def test_no_process_outlives_a_killed_trainer(tmp_path: Path) -> None:
    command, here = [sys.executable, "-c", TRAINER], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=here
    ) as process:
        assert process.stdout is not None
        (child,) = map(int, process.stdout.readline().split())
        ended = os.pidfd_open(child)
        process.kill()
    try:
        assert select.select([ended], [], [], LONG_S)[0] == [ended]
        assert list(tmp_path.glob("fedplcc-*")) == []
    finally:
        os.close(ended)
