"""Time that each method adds to a training step: its local training beside FedAvg's, on the same batches, in turn.

Both go through `fedplcc.trainer.learning.training.local_train`, as every task does, with everything that a round's training
does once (the parameters as received, the prototypes on the device, reference models) divided among its steps. The
learning rate is so small that no model moves: values change no time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.support.report import Row, Sample, alternate, finish, median, options, quartiles, ratio, timed
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.methods.parts.public import PublicLearning
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.training import RoundInputs, local_train
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
from fedplcc.trainer.reproducibility.determinism import prepare_torch
from fedplcc.trainer.reproducibility.environment import environment, resolve_device

NUM_CLASSES, NUM_IMAGES, BATCH_SIZE = 10, 300, 32
"""As a client of Digit-5 has them."""
NUM_PROTOTYPES: Mapping[str, int] = {
    "fedproto": 10,
    "fedproc": 10,
    "fedmlp": 20,
    "fpl": 40,
    "fedpcl": 60,
    "fedplvm": 40,
    "fedplcc": 40,
    "fedccl": 210,
}
"""Global ones over ten classes, as five clients give: one a class; four a class; five clients' and the averages, one a class
each; or a pool of 200 and ten signals."""
GOAL = 1.15
"""Most that a method with prototypes may take, in steps of FedAvg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, and how it is measured: so many steps at a time, so often."""

    model: Mapping[str, str]
    image_size: int
    steps: int
    repeats: int

    @property
    def label(self) -> str:
        """Name in the table."""
        return " ".join([*self.model.values(), f"{self.image_size} px"])


CASES = (
    Case(model={"name": "resnet10", "stem": "imagenet7x7"}, image_size=32, steps=10, repeats=15),
    Case(model={"name": "resnet10", "stem": "imagenet5x5"}, image_size=64, steps=4, repeats=7),
    Case(model={"name": "resnet10", "stem": "cifar3x3"}, image_size=32, steps=1, repeats=5),
    Case(model={"name": "cnn4"}, image_size=32, steps=10, repeats=21),
)
QUICK = (Case(model={"name": "cnn4"}, image_size=16, steps=1, repeats=1),)


def main() -> None:
    """Measure every method with every model."""
    arguments = options(__doc__, more=_more)
    try:
        device = resolve_device(arguments.device)
    except FedplccError as error:
        raise SystemExit(error.detail) from error
    cases = [case for case in CASES if any(word in case.label for word in arguments.models or [""])]
    names = [name for name in METHODS if name != "fedavg" and name in (arguments.methods or METHODS)]
    if arguments.repeats:
        cases = [replace(case, repeats=arguments.repeats) for case in cases]
    rows = [_measured(case, name, device) for case in (QUICK if arguments.quick else cases) for name in names]
    finish("steps", rows, arguments, device=environment(device).device)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="where to train: cpu, cuda or cuda:N")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="some methods; all if not given")
    parser.add_argument("--repeats", type=int, help="how often each is measured; by the model if not given")
    parser.add_argument("--models", nargs="+", help="words in the first column; all models if not given")


def _measured(case: Case, name: str, device: torch.device) -> Row:
    """One method beside FedAvg."""
    cases = {each: _training(case, each, device) for each in ("fedavg", name)}
    for train in cases.values():  # the first time of anything is slower
        train()
    samples = alternate(cases, case.repeats)
    mine, base = samples[name], samples["fedavg"]
    lower, upper = quartiles(mine, base)
    has_goal = METHODS[name].has_prototypes
    return {
        "model": case.label,
        "method": name,
        "prototypes": NUM_PROTOTYPES.get(name),
        "FedAvg's step (ms)": 1e3 * median(base),
        "step (ms)": 1e3 * median(mine),
        "ratio": ratio(mine, base),
        "quartiles": f"{lower:.3g} to {upper:.3g}",
        "CPU ratio": ratio(mine, base, "cpu_s"),
        "goal": f"<= {GOAL}" if has_goal else None,
        "reached": ratio(mine, base) <= GOAL if has_goal else None,
    }


def _training(case: Case, name: str, device: torch.device) -> Callable[[], Sample]:
    """A method's local training from the same model on the same batches; returns the times of one of its steps."""
    config = _config(case, name)
    rng = np.random.default_rng(0)
    shape = (NUM_IMAGES, case.image_size, case.image_size, 3)
    images = ImageSet(rng.integers(0, 256, shape, dtype=np.uint8), rng.integers(0, NUM_CLASSES, NUM_IMAGES))
    data = DeviceImages.put(images, config.data, device)
    model = build_model(config.model, NUM_CLASSES, case.image_size, config.run.seed)
    received = state_arrays(model)
    model = model.to(device)
    prototypes = _prototypes(NUM_PROTOTYPES.get(name, 0), int(model.feature_dim), rng)  # type: ignore[arg-type]
    state = received if METHODS[name].keeps_client_state else None

    def train() -> Sample:
        load_arrays(model, received)
        prepare_torch(config.training.threads, device)
        sample = timed(lambda: _finished(model, data, config, prototypes, state))
        return Sample(sample.wall_s / case.steps, sample.cpu_s / case.steps)

    return train


def _finished(
    model: nn.Module, data: DeviceImages, config: RunConfig, prototypes: PrototypeSet, state: ClientState | None
) -> None:
    """Train, until the device has nothing left to do."""
    local_train(
        model,
        data,
        RoundInputs(
            config=config,
            method=config.algorithm,
            prototypes=prototypes,
            round=2,
            client_id="client",
            client_state=state,
        ),
    )
    if data.device.type == "cuda":
        torch.cuda.synchronize(data.device)


def _config(case: Case, name: str) -> RunConfig:
    document: dict[str, Any] = {
        "run": {"name": "bench", "method": name, "rounds": 50, "clients": ["client"]},
        "model": dict(case.model),
        "data": {"classes": [str(number) for number in range(NUM_CLASSES)], "image_size": case.image_size},
        "training": {"local_steps": case.steps, "batch_size": BATCH_SIZE, "learning_rate": 1e-9, "threads": 1},
        **({} if METHODS[name].part(PublicLearning) is None else {"public": {"data": "digits:synth"}}),
    }
    return parse_run_config(document)


def _prototypes(count: int, dim: int, rng: np.random.Generator) -> PrototypeSet:
    """Prototypes spread evenly over the classes and the owners; the last of each class is nobody's, as averages are."""
    if not count:
        return PrototypeSet.empty()
    per_class = count // NUM_CLASSES
    return PrototypeSet(
        np.abs(rng.standard_normal((count, dim))).astype(np.float32),
        np.tile(np.arange(NUM_CLASSES), per_class),
        np.full(count, 1 / per_class, np.float32),
        np.repeat(np.append(np.arange(per_class - 1), -1), NUM_CLASSES),
    )


if __name__ == "__main__":
    main()
