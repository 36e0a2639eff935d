"""Memory and utilisation of the GPU that a trainer computes on, read from NVIDIA's management library (NVML).

It needs the package nvidia-ml-py (`pip install 'fedplcc[gpu]'`); a trainer without it trains all the same. Readings are of
the whole GPU, or of the whole MIG instance: they include other processes that share it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from fedplcc.shared.config.settings import visible_cuda_devices
from fedplcc.shared.process.clock import Clock
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.readings import DEVICE_MEMORY_BYTES, DEVICE_UTILISATION_RATIO

INTERVAL_S = 2.0
"""Time between two readings; NVML itself measures at most six times a second."""
STALE_S = 10.0
"""Age from which a reading is no longer used: the driver does not answer."""
CLOSE_S = 1.0
"""Longest time that `close` waits for a reading in progress."""

log = get_logger("fedplcc.trainer.readings.gpu")


class NoDeviceReadings(Exception):
    """There is no GPU to read from; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """One GPU, or one MIG instance of it, as NVML sees it."""

    nvml: Any
    """The module pynvml, which has no types."""
    handle: Any
    uuid: str
    _missing: set[str] = field(default_factory=set)

    def read(self) -> dict[str, float]:
        """Return the present readings; one that this GPU does not support is left out and logged once."""
        questions: dict[str, Callable[[], float]] = {
            DEVICE_MEMORY_BYTES.name: lambda: float(self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used),
            DEVICE_UTILISATION_RATIO.name: lambda: self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100,
        }
        readings = {}
        for name, ask in questions.items():
            try:
                readings[name] = ask()
            except self.nvml.NVMLError as error:
                if name not in self._missing:
                    self._missing.add(name)
                    log.info("reading_missing", reading=name, reason=str(error), gpu=self.uuid)
        return readings


def open_gpu(device: torch.device) -> Gpu:
    """Return the GPU that torch computes on, whatever its number under CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.

    Raises:
        NoDeviceReadings: It is no NVIDIA GPU, or NVML is not there or does not know it.
    """
    if device.type != "cuda":
        raise NoDeviceReadings(f"the device is {device}, and only NVIDIA GPUs are read")
    if torch.version.hip is not None:
        raise NoDeviceReadings("this torch is made for AMD GPUs, and only NVIDIA GPUs are read")
    try:
        import pynvml
    except ImportError:
        raise NoDeviceReadings("nvidia-ml-py is not installed: pip install 'fedplcc[gpu]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDeviceReadings(f"NVIDIA's management library does not answer: {error}") from error
    return find_gpu(pynvml, str(torch.cuda.get_device_properties(device).uuid), visible_cuda_devices())


def find_gpu(nvml: Any, uuid: str, visible: Sequence[str]) -> Gpu:
    """Return the GPU, or the MIG instance, that a process computes on.

    NVML numbers the GPUs in another order than CUDA does, and includes those that the process does not see. So the GPU is
    found by its UUID.

    Args:
        nvml: The module pynvml, initialised.
        uuid: UUID of the GPU or of the MIG instance as torch has it, without a prefix.
        visible: Entries of CUDA_VISIBLE_DEVICES. A process computes only on the first of several MIG instances.

    Raises:
        NoDeviceReadings: NVML does not know it, or it may be any of several MIG instances.
    """
    instance = next((entry for entry in visible if entry.startswith("MIG-")), None)
    names = [instance] if instance is not None else [f"GPU-{uuid}", f"MIG-{uuid}"]
    reason = ""
    for name in names:
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(name)
            return Gpu(nvml, handle, name) if name.startswith("MIG-") else _whole_or_only_instance(nvml, handle, name)
        except nvml.NVMLError as error:
            reason = reason or str(error)
    raise NoDeviceReadings(f"NVIDIA's management library does not know {names[0]}: {reason}")


def _whole_or_only_instance(nvml: Any, handle: Any, uuid: str) -> Gpu:
    """Return the GPU; where it is split, the only MIG instance that this process sees."""
    try:
        is_split = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # most GPUs cannot be split
        is_split = False
    if not is_split:
        return Gpu(nvml, handle, uuid)
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(nvml.NVMLError):  # no instance has this number
            instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    if len(instances) != 1:
        raise NoDeviceReadings(
            f"{uuid} is split into {len(instances)} MIG instances, and it cannot be told on which one this process "
            "computes: set CUDA_VISIBLE_DEVICES to its UUID, which nvidia-smi -L shows"
        )
    return Gpu(nvml, instances[0], nvml.nvmlDeviceGetUUID(instances[0]))


class DeviceReadings:
    """The latest readings of one device, taken by a thread of its own: a driver that hangs delays nothing else.

    For the processor there is no thread and no reading.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        find: Callable[[torch.device], Gpu] = open_gpu,
        interval_s: float = INTERVAL_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._device, self._find, self._interval_s, self._clock = device, find, interval_s, clock
        self._latest: tuple[float, dict[str, float]] | None = None
        self._is_slow = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-readings", daemon=True)
        if device.type == "cuda":
            self._thread.start()

    def latest(self) -> dict[str, float]:
        """Return the latest readings; none where there are none or they are too old. Any thread may call it."""
        latest = self._latest
        if latest is None:
            return {}
        age_s = self._clock() - latest[0]
        if age_s <= STALE_S:
            return latest[1]
        if not self._is_slow and not self._is_closing.is_set():
            self._is_slow = True
            log.warning("device_readings_missing", reason=f"NVIDIA's driver has not answered for {age_s:.0f} s")
        return {}

    def close(self) -> None:
        """End the thread."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            gpu = self._find(self._device)
            log.info("device_readings", device=str(self._device), gpu=gpu.uuid)
            while True:
                self._latest = self._clock(), gpu.read()
                if self._is_closing.wait(self._interval_s):
                    return
        except NoDeviceReadings as error:
            log.info("device_readings_missing", reason=str(error))
        except Exception as error:  # an error of a driver or a library: training goes on without readings
            log.warning("device_readings_missing", reason=f"{type(error).__name__}: {error}")
