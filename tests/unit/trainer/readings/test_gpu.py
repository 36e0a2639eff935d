"""Readings of a GPU through the real nvidia-ml-py, over a library of our own in place of NVIDIA's.

No GPU is needed: nvml_double.c has the functions and structures of NVIDIA's library and is built here.
"""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from fedplcc.trainer.readings.gpu import STALE_S, DeviceReadings, Gpu, NoDeviceReadings, open_gpu
from tests.support.federation.processes import eventually

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)
GIB = 2**30
SOURCE = Path(__file__).with_name("nvml_double.c")


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library, loaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the double of NVIDIA's library with")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE], check=True, timeout=60)
    return ctypes.CDLL(str(path))


@pytest.fixture
def library(double: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """nvidia-ml-py over the double."""
    monkeypatch.setattr(pynvml, "nvmlLib", double)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield double
    double.lose_all(0)


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch say that its device has this UUID."""

    def say(uuid: str) -> None:
        def properties(device: torch.device) -> SimpleNamespace:
            assert device == GPU
            return SimpleNamespace(uuid=uuid)

        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)

    return say


def test_the_gpu_is_the_one_that_torch_names_whatever_its_number(library: ctypes.CDLL, on_device: Any) -> None:
    on_device("whole")
    gpu = open_gpu(GPU)
    assert gpu.uuid == "GPU-whole"
    assert gpu.read() == {"device_memory_bytes": 3 * GIB, "device_utilisation_ratio": 0.4}


@pytest.mark.parametrize(
    ("uuid", "visible", "found", "used_gib"),
    [("two", " MIG-two-b , MIG-two-a", "MIG-two-b", 5), ("two-a", "", "MIG-two-a", 2), ("one", "", "MIG-one-a", 1)],
    ids=["made visible", "named by torch", "the only one"],
)
def test_of_a_split_gpu_the_instance_is_read_which_tells_no_utilisation(
    library: ctypes.CDLL,
    on_device: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    uuid: str,
    visible: str,
    found: str,
    used_gib: int,
) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gpu")
    on_device(uuid)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpu = open_gpu(GPU)
    assert gpu.uuid == found
    assert [gpu.read() for _ in range(3)] == [{"device_memory_bytes": used_gib * GIB}] * 3
    (record,) = caplog.records
    assert "device_utilisation_ratio" in record.getMessage()
    assert "Not Supported" in record.getMessage()


def test_which_of_several_instances_it_is_has_to_be_said(library: ctypes.CDLL, on_device: Any) -> None:
    on_device("two")
    with pytest.raises(
        NoDeviceReadings, match=r"GPU-two is split into 2 MIG instances.*set CUDA_VISIBLE_DEVICES to its"
    ):
        open_gpu(GPU)


def test_a_gpu_that_the_library_does_not_know_is_said(library: ctypes.CDLL, on_device: Any) -> None:
    on_device("elsewhere")
    with pytest.raises(NoDeviceReadings, match=r"does not know GPU-elsewhere: Not Found"):
        open_gpu(GPU)


def test_a_driver_that_is_not_there_is_said(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_DOUBLE_BROKEN", "1")
    with pytest.raises(NoDeviceReadings, match=r"management library does not answer: Driver Not Loaded"):
        open_gpu(GPU)


def test_of_another_makers_gpu_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(NoDeviceReadings, match=r"made for AMD GPUs, and only NVIDIA GPUs are read"):
        open_gpu(GPU)


def test_the_latest_readings_are_taken_beside_and_follow_the_gpu(
    library: ctypes.CDLL, on_device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gpu")
    on_device("whole")
    readings = DeviceReadings(GPU, interval_s=0.01)
    try:
        eventually(lambda: readings.latest() != {}, "a reading is there")
        assert readings.latest() == {"device_memory_bytes": 3 * GIB, "device_utilisation_ratio": 0.4}
        library.lose_all(1)
        eventually(lambda: readings.latest() == {}, "a lost GPU tells nothing")
        library.lose_all(0)
        eventually(lambda: len(readings.latest()) == 2, "it is back")
    finally:
        readings.close()
    assert sum("GPU is lost" in record.getMessage() for record in caplog.records) == 2, "once for each reading"
    assert not readings._thread.is_alive()


def test_a_driver_that_hangs_holds_up_nobody_and_its_last_word_grows_old(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gpu")
    hang, is_hanging = threading.Event(), threading.Event()
    now = [0.0]

    class Hanging(Gpu):
        def read(self) -> dict[str, float]:
            if is_hanging.is_set():
                assert hang.wait(20)
            is_hanging.set()
            return {"device_memory_bytes": 1.0}

    gpu = Hanging(pynvml, None, "GPU-hangs")
    readings = DeviceReadings(GPU, find=lambda device: gpu, interval_s=0.0, clock=lambda: now[0])
    eventually(lambda: readings.latest() == {"device_memory_bytes": 1.0}, "the first reading is there")
    now[0] = STALE_S
    assert readings.latest() == {"device_memory_bytes": 1.0}
    now[0] = STALE_S + 1
    assert [readings.latest() for _ in range(3)] == [{}] * 3
    assert sum("has not answered for 11 s" in record.getMessage() for record in caplog.records) == 1
    hang.set()
    readings.close()


@pytest.mark.parametrize("error", [NoDeviceReadings("no driver"), AttributeError("no driver"), OSError("no driver")])
def test_what_cannot_be_read_is_said_once_and_no_more_tried(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gpu")

    def find(device: torch.device) -> Gpu:
        raise error

    readings = DeviceReadings(GPU, find=find, interval_s=0.0)
    readings._thread.join(20)
    assert not readings._thread.is_alive()
    assert readings.latest() == {}
    (record,) = caplog.records
    assert "no driver" in record.getMessage()


def test_without_the_package_the_trainer_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoDeviceReadings, match=r"nvidia-ml-py is not installed: pip install 'fedplcc\[gpu\]'"):
        open_gpu(GPU)


def test_of_the_processor_nothing_is_read_and_nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gpu")
    readings = DeviceReadings(CPU)
    assert readings.latest() == {}
    readings.close()
    assert caplog.records == []
