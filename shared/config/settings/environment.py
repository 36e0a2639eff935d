"""Environment variables besides the settings: the invitation, and those that libraries read when they load."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedplcc.shared.config.settings.processes import WEIGHTS, Settings

INVITATION = "FEDPLCC_JOIN"
"""Environment variable with an invitation, which is never an argument: every user of a host sees those."""


def thread_limits(threads: int) -> dict[str, str]:
    """Return the environment variables with which numerical libraries start with so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def limit_threads(threads: int) -> None:
    """Set the number of threads of numerical libraries; they read it when they load, so call this first."""
    os.environ.update(thread_limits(threads))


def visible_cuda_devices() -> tuple[str, ...]:
    """Return the entries of CUDA_VISIBLE_DEVICES, in order; none if it is not set."""
    return tuple(entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip())


def disable_ray_usage_reports() -> None:
    """Switch off Ray's usage reports; call it before Ray starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def confine_ray_to_loopback() -> None:
    """Make a Ray cluster started by this process listen on loopback only, with a token that only this process knows.

    Ray reads the variables when it loads, so call this first.
    """
    # Despite its name, a value of 0 makes Ray on Linux listen on loopback, as it does on the systems in the name.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))


def steady_parts_on_loopback() -> None:
    """Let the processes of one training meet on loopback only, add in one order on GPUs, and end by our hand alone.

    NCCL and Gloo read the variables when a group of processes is made; child processes inherit them.
    """
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_ALGO", "Ring")
    # NCCL's watchdog would end the whole trainer where another process of the training died.
    os.environ.update(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")


def disable_tracker_reports() -> None:
    """Keep the libraries of trackers from reporting to their authors, and from trying a server that is away for minutes.

    They read the variables when they load, so call this first.
    """
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", WANDB_ERROR_REPORTING="false")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")


def weights_folder() -> Path:
    """Return the folder of backbones that commands use: a trainer's `weights_dir`, as the environment tells it."""
    return Path(os.environ.get(f"{Settings.model_config['env_prefix']}WEIGHTS_DIR") or WEIGHTS)


def cache_folder() -> Path:
    """Return the folder of this user's caches on this host."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured if os.path.isabs(configured) else os.path.expanduser("~/.cache"))


def invitation_in_environment() -> str:
    """Return the invitation in the environment; empty if there is none."""
    return os.environ.get(INVITATION, "")


def environment_without_settings() -> dict[str, str]:
    """Return the environment without our variables, for a process whose settings are all given as flags."""
    prefix = str(Settings.model_config["env_prefix"])
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
