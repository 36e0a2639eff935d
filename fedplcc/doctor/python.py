"""Checks of Python, the packages, torch and its device."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from fedplcc.doctor.findings import Finding, Subject, in_bytes, ok, problem, warning
from fedplcc.extras import EXTRAS
from fedplcc.shared.version import VERSION

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest Python that fedplcc is tested with."""
CORE = ("numpy", "scipy", "grpcio", "protobuf", "pydantic", "safetensors", "cryptography")
"""Packages whose versions are shown."""
LAST_BITS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Variables that change the last bits of what is computed."""
WORKSPACES = (":4096:8", ":16:8")
"""Values of CUBLAS_WORKSPACE_CONFIG under which cuBLAS is deterministic."""


def python_version(subject: Subject, version: tuple[int, int] = sys.version_info[:2]) -> Iterator[Finding]:
    """The version of Python."""
    oldest, newest = (".".join(map(str, limit)) for limit in PYTHONS)
    text = f"fedplcc {VERSION} on Python {platform.python_version()}, {platform.machine()}, {sys.prefix}"
    if not PYTHONS[0] <= version <= PYTHONS[1]:
        yield problem("python", f"{text}: it needs Python {oldest} to {newest}; make an environment with one of them")
    else:
        yield ok("python", text)


def packages(subject: Subject) -> Iterator[Finding]:
    """The installed packages and their versions."""
    probes = subject.probes
    versions = {package: probes.version_of(package) for package in CORE}
    yield ok("packages", ", ".join(f"{package} {version or 'missing'}" for package, version in versions.items()))
    try:
        probes.load("fedplcc.shared.convert.uploads")  # loads all of the generated code
    except Exception as error:  # whatever a package may raise while it loads
        yield problem(
            "packages", f"the protocol cannot be loaded ({_first_line(error)}); pip install --upgrade fedplcc"
        )
    for requirement, found in _unmet(subject):
        yield problem("packages", f"{requirement} is needed and {found} is installed; pip install '{requirement}'")
    whole = []
    for extra in ("aggregator", "gateway", "trainer"):
        missing = [module for module in EXTRAS[extra] if not probes.is_installed(module)]
        if not missing:
            whole.append(extra)
        elif len(missing) < len(EXTRAS[extra]):
            names = ", ".join(missing)
            yield problem("packages", f"{names} of the {extra} is missing; pip install 'fedplcc[{extra}]'")
    if whole:
        yield ok("services", f"this installation can run: {', '.join(whole)}")
    else:
        yield warning(
            "services", "this installation can only steer runs; for services pip install 'fedplcc[aggregator]'"
        )


def torch_and_device(subject: Subject) -> Iterator[Finding]:
    """Torch and its device."""
    probes = subject.probes
    if not probes.is_installed("torch"):
        yield ok("torch", "not installed: fine for an aggregator or a gateway; a trainer needs 'fedplcc[trainer]'")
        return
    try:
        torch, vision = probes.load("torch"), probes.load("torchvision")
    except Exception as error:  # a broken installation raises OSError, RuntimeError, AttributeError and more
        yield problem(
            "torch",
            f"torch or torchvision cannot be loaded ({_first_line(error)}); install both again, for the same CUDA or CPU",
        )
        return
    yield ok("torch", f"torch {torch.__version__}, torchvision {vision.__version__}")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield _cuda_device(torch, index)
        if not probes.is_installed("pynvml"):
            yield warning(
                "readings",
                "nvidia-ml-py is not installed: nobody will see how busy the GPU is and what of its memory is taken; "
                "pip install 'fedplcc[gpu]'",
            )
    elif torch.version.cuda is not None:
        yield warning(
            "device",
            f"torch is made for CUDA {torch.version.cuda} but sees no device: look at nvidia-smi, or at --gpus of the "
            "container; without one it trains on the processor",
        )
    elif probes.exists("/dev/nvidia0"):
        yield warning("device", "there is an NVIDIA device, but this torch is made without CUDA; install one with it")
    else:
        yield ok("device", f"no GPU: trains on the processor, {torch.backends.cpu.get_cpu_capability()}")


def determinism(subject: Subject) -> Iterator[Finding]:
    """Settings that change the last bits of results."""
    environment = subject.probes.environment
    workspace = environment.get("CUBLAS_WORKSPACE_CONFIG")
    if workspace is not None and workspace not in WORKSPACES:
        yield problem(
            "determinism",
            f"CUBLAS_WORKSPACE_CONFIG={workspace} makes CUDA refuse; unset it, or set it to {WORKSPACES[0]}",
        )
    given = [f"{name}={environment[name]}" for name in LAST_BITS if name in environment]
    if given:
        yield warning(
            "determinism", f"{', '.join(given)} changes last bits: set it on every host and in simulations, or nowhere"
        )
    elif workspace in (None, *WORKSPACES):
        yield ok("determinism", "no variable changes the last bits of what is computed")


def _cuda_device(torch: Any, index: int) -> Finding:
    name = f"cuda:{index}"
    try:
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        assert torch.ones(8, device=name).sum().item() == 8
    except Exception as error:  # whatever the driver says
        return problem(
            "device",
            f"{name} is there but cannot compute ({_first_line(error)}): driver, device and torch for CUDA "
            f"{torch.version.cuda} do not fit each other; --device cpu goes on without it",
        )
    text = f"{name}: {properties.name}, capability {properties.major}.{properties.minor}"
    text += f", {in_bytes(free)} of {in_bytes(total)} free"
    if free < total / 10:
        return warning("device", f"{text}: another process holds it; end that one, or choose a device with --device")
    return ok("device", text)


def _unmet(subject: Subject) -> Iterator[tuple[str, str]]:
    """Installed packages with an unsupported version, as (requirement, version)."""
    try:
        from packaging.requirements import Requirement

        lines = metadata.requires("fedplcc") or []
    except (ImportError, metadata.PackageNotFoundError):
        return
    for requirement in map(Requirement, lines):
        found = subject.probes.version_of(requirement.name)
        if found is not None and requirement.specifier and not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name}{requirement.specifier}", found


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
