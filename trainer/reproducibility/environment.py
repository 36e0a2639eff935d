"""Device and environment of a trainer: resolves the device's name, and records what decides the last bits of results."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.types import Environment

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "scipy")
"""Packages whose versions may change a trained model's bytes."""


def resolve_device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu`, `cuda` or `cuda:N` names; `auto` is the first CUDA device, else the processor.

    Raises:
        InvalidConfig: Another name, or a CUDA device that torch does not see.
    """
    match = re.fullmatch(r"(auto|cpu|cuda)|cuda:(\d{1,3})", name)
    if match is None:
        raise InvalidConfig(f"unknown device {name!r}; write auto, cpu, or cuda:N with N counted from 0")
    if name == "cpu":
        return torch.device("cpu")
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda", 0) if num_devices else torch.device("cpu")
    index = int(match.group(2) or 0)
    if index >= num_devices:
        seen = f"cuda:0 to cuda:{num_devices - 1}" if num_devices else "no CUDA device"
        raise InvalidConfig(f"device {name!r} is not there: torch {torch.__version__} sees {seen}; use auto or cpu")
    return torch.device("cuda", index)


def resolve_devices(names: str) -> tuple[torch.device, ...]:
    """Return the devices that `resolve_device` takes, or several that share each mini-batch, separated by commas.

    Raises:
        InvalidConfig: As there, or several are not of one kind, or a CUDA device comes twice.
    """
    found = tuple(map(resolve_device, names.split(",")))
    if len(found) > 1:
        if "auto" in names or len({device.type for device in found}) > 1:
            raise InvalidConfig(f"devices {names!r} are not of one kind; name each: cuda:0,cuda:1, or cpu,cpu")
        if found[0].type == "cuda" and len(set(found)) < len(found):
            raise InvalidConfig(f"devices {names!r} have one twice; a card has one part of a mini-batch")
    return found


def card_names(devices: Iterable[torch.device]) -> list[str]:
    """Return the names of the cards among devices: the UUID of each, since processes may count them in another order."""
    cards = [device for device in devices if device.type == "cuda"]
    return [str(getattr(torch.cuda.get_device_properties(card), "uuid", card)) for card in cards]


def environment(device: torch.device, *others: torch.device) -> Environment:
    """Return the record of packages, processor and devices; trainers with equal records compute equal bytes."""
    names = [torch.cuda.get_device_name(each) if each.type == "cuda" else "cpu" for each in (device, *others)]
    kinds = {name: names.count(name) for name in names}
    return Environment(
        packages=dict(_versions()),
        cpu=" ".join(part for part in (platform.machine(), torch.backends.cpu.get_cpu_capability(), _vendor()) if part),
        device=", ".join(f"{count} x {name}" if others else name for name, count in kinds.items()),
        platform=platform.platform(aliased=True, terse=True),
    )


@cache
def _versions() -> Mapping[str, str]:
    """Return the versions of those packages that are installed; each client of a simulation asks for them."""
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _vendor() -> str:
    """Return the processor's maker where Linux reports it: MKL chooses its kernels by maker, which decides last bits."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
