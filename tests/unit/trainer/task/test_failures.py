"""Errors of a site: of its memory, of the model's own code, and others."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import InvalidData, InvalidModel
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.data.sets.arrays import open_factory
from fedplcc.trainer.models import build_model
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.failures import ModelFailed, OutOfMemory, is_out_of_memory, site_failures

CODE = """
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    feature_dim = 4

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(3 * 8 * 8, 4)
        self.classifier = nn.Linear(4, 2)

    def features(self, x):
        return self.base(x.flatten(1))

def make(num_classes, image_size):
    return Net()

def raises():
    helper()

def helper():
    raise ValueError("a patient's name")

def exits():
    raise SystemExit(3)

def shapes():
    return torch.zeros(2, 3) @ torch.zeros(2, 3)

def too_large(num_classes, image_size):
    net = Net()
    net.base.weight = nn.Parameter(torch.zeros(2**46))
    return net

class Lazy:
    y_train = y_test = np.zeros(1, np.int64)
    x_test = np.zeros((1, 8, 8, 3), np.uint8)

    @property
    def x_train(self):
        raise RuntimeError("the archive is locked")
"""
FACTORY = ModelSection(name="hospital_net:make")


@pytest.fixture
def hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    (tmp_path / "hospital_net.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("hospital_net")
    yield module
    monkeypatch.delitem(__import__("sys").modules, "hospital_net")


def line_of(text: str) -> int:
    return CODE.splitlines().index(f"    {text}") + 1


@pytest.mark.parametrize(
    "allocate",
    [lambda: torch.zeros(2**46), lambda: np.zeros(2**46), lambda: bytearray(2**60)],
    ids=["torch", "numpy", "Python"],
)
def test_memory_that_was_asked_for_and_not_got_is_known_as_that(allocate: Callable[[], object]) -> None:
    with pytest.raises(OutOfMemory) as refused, site_failures(ModelSection()):
        allocate()
    assert refused.value.reason == "OUT_OF_MEMORY"
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))


@pytest.mark.parametrize(
    ("function", "kind", "line"),
    [
        ("raises", "ValueError", 'raise ValueError("a patient\'s name")'),
        ("exits", "SystemExit", "raise SystemExit(3)"),
        ("shapes", "RuntimeError", "return torch.zeros(2, 3) @ torch.zeros(2, 3)"),
    ],
)
def test_what_the_models_code_raises_names_its_line_and_keeps_its_text_at_home(
    hospital: types.ModuleType, function: str, kind: str, line: str
) -> None:
    with pytest.raises(ModelFailed) as refused, site_failures(FACTORY):
        getattr(hospital, function)()
    place = f"hospital_net:{line_of(line)}"
    assert refused.value.detail == f"model 'hospital_net:make' raised {kind} at {place}"
    assert "patient" not in refused.value.detail


def test_an_error_of_other_code_stays_what_it_is(hospital: types.ModuleType) -> None:
    with pytest.raises(ZeroDivisionError), site_failures(FACTORY):
        1 / 0  # noqa: B018
    with (
        pytest.raises(ValueError, match="patient"),
        site_failures(ModelSection()),
    ):  # no code of a factory is in this run
        hospital.raises()
    for ours in (Cancelled(), InvalidData("no")):
        with pytest.raises(type(ours)), site_failures(FACTORY):
            raise ours


def test_a_model_that_does_not_fit_into_memory_is_no_wrong_model(hospital: types.ModuleType) -> None:
    section = ModelSection(name="hospital_net:too_large")
    with pytest.raises(OutOfMemory, match="not enough memory for the run's model"), site_failures(section):
        build_model(section, 2, 8, 0, consent=Consent.to(section))
    wrong = ModelSection(name="hospital_net:nothing")
    with pytest.raises(InvalidModel, match="no callable"), site_failures(wrong):
        build_model(wrong, 2, 8, 0, consent=Consent.to(wrong))


def test_data_code_that_raises_when_its_arrays_are_read_is_wrong_data(hospital: types.ModuleType) -> None:
    with pytest.raises(InvalidData, match="'hospital_net:Lazy' cannot be made: RuntimeError: the archive is locked"):
        open_factory("hospital_net:Lazy")
