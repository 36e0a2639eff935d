"""A Ray cluster and its workers, for simulations that outgrow one machine.

Without an address this module starts a cluster of this machine alone, on loopback and without a dashboard, and ends it with
the simulation. A cluster that `ray start` has started needs this version of fedplcc and the clients' data on every machine.
"""

from __future__ import annotations

import logging
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fedplcc.shared.config.settings import thread_limits
from fedplcc.shared.errors import InvalidConfig, Unavailable
from fedplcc.shared.importing import places
from fedplcc.shared.version import VERSION
from fedplcc.simulation import ray_cleanup
from fedplcc.simulation.messages import LinkLost
from fedplcc.simulation.ray_worker import RayWorker, load_ray

LOOPBACK = "127.0.0.1"
STORE_BYTES = 512 << 20
"""Memory of the store of a cluster that we start, for models in transit; the rest goes to its folder."""
ANSWER_S = 5.0
"""Deadline for a cluster's answer."""
KEPT_BLOBS = 4
"""Blobs that stay in the cluster's store: the models and prototypes of two rounds."""
FOLDER_PREFIX = "fedplcc-ray-"
"""Short, because paths of Ray's sockets in that folder may have about a hundred characters."""


class RayCluster:
    """A connection to a Ray cluster; starts workers there."""

    def __init__(self, address: str | None, *, threads: int, cores: int, device: str) -> None:
        """Connect, or start a cluster of this machine alone.

        Args:
            address: HOST:PORT, or anything that Ray takes for one; None to start one.
            cores: Processor cores of a cluster of this machine alone.
            device: The clients' device; if it may be an accelerator, the workers share those of the cluster.

        Raises:
            InvalidConfig: Ray cannot be used as it is.
            Unavailable: Nobody answers at the address.
        """
        self._threads, self._device = threads, device
        self._folder: str | None = None
        self._cleanup: subprocess.Popen[bytes] | None = None
        ray = self._ray = load_ray()
        quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
        if ray.is_initialized():
            raise InvalidConfig("this process uses Ray already; let it end that with ray.shutdown() first")
        if address is not None:
            _require_answer(address)
        else:
            self._folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
            self._cleanup = _cleanup_process(self._folder)
            quietly |= {
                "num_cpus": max(cores, threads),
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "_node_ip_address": LOOPBACK,
                "_temp_dir": self._folder,
            }
        try:
            ray.init(address=address or "local", **quietly)
            if address is None and ray.util.get_node_ip_address() != LOOPBACK:
                raise InvalidConfig("Ray was loaded before it could be kept on loopback; give the address of a cluster")
        except ConnectionError:
            self.close()
            raise _nobody_answers(address or "local") from None
        except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            self.close()
            raise InvalidConfig(f"Ray cannot be used: {_said(error)}") from error
        except BaseException:
            self.close()
            raise
        self._resources = ray.cluster_resources()
        if max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]) < threads:
            self.close()
            raise InvalidConfig(
                f"training.threads = {threads}: no machine of the Ray cluster at {address} has so many cores"
            )
        self._blobs: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_cores(self) -> int:
        """Number of processor cores of the whole cluster."""
        return int(self._resources.get("CPU", 0))

    @property
    def num_gpus(self) -> int:
        """Number of the cluster's accelerators that the clients may use."""
        return 0 if self._device == "cpu" else int(self._resources.get("GPU", 0))

    def starter(self, num_workers: int) -> Callable[[], RayPoolWorker]:
        """Return a function that starts one of so many workers."""
        share = 0.0
        if self.num_gpus:
            # A worker uses one; Ray shares one out in equal parts.
            share = 1 / math.ceil(num_workers / self.num_gpus)
        ray = self._ray
        actor = ray.remote(RayWorker).options(
            num_cpus=self._threads,
            num_gpus=share,
            runtime_env={"env_vars": thread_limits(self._threads)},
        )
        level = logging.getLevelName(logging.getLogger("fedplcc.trainer").getEffectiveLevel()).lower()
        start = partial(actor.remote, self._threads, level, str(Path.cwd()), places())
        return lambda: RayPoolWorker(ray, start(), self.put)

    def put(self, sha256: str, path: Path) -> Any:
        """Return a reference to a blob in the cluster's store."""
        with self._lock:
            if sha256 not in self._blobs:
                self._blobs[sha256] = self._ray.put(path.read_bytes())
            self._blobs.move_to_end(sha256)
            while len(self._blobs) > KEPT_BLOBS:
                self._blobs.popitem(last=False)
            return self._blobs[sha256]

    def close(self) -> None:
        """Leave the cluster, and end it if this process started it."""
        self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._cleanup is not None:
            self._cleanup.communicate()


class RayPoolWorker:
    """One worker on the cluster, as its pool sees it."""

    def __init__(self, ray: Any, actor: Any, put: Callable[[str, Path], Any]) -> None:
        self._ray, self._actor, self._put = ray, actor, put
        self._to_send: list[object] = []
        self._received: list[object] = []
        self._why_ended = "on Ray ended"
        self._has_version = False

    def send(self, message: object) -> None:
        """See `PoolWorker`, as for the others; messages go with the next exchange."""
        self._to_send.append(message)

    def receive(self) -> Any:
        """Wait for a message."""
        if not self._received:
            self._check_version()
            messages, self._to_send = self._to_send, []
            with self._lost():
                self._received = list(self._ray.get(self._actor.exchange.remote(messages)))
        return self._received.pop(0)

    def blob(self, sha256: str, path: Path) -> Any:
        """Return a reference to the blob in the cluster's store."""
        return self._put(sha256, path)

    def end(self) -> None:
        """Kill it, if it still lives."""
        self._ray.kill(self._actor)

    def why_ended(self) -> str:
        """Return how it ended."""
        return self._why_ended

    def _check_version(self) -> None:
        """Refuse a machine with another version, whose messages would differ."""
        if self._has_version:
            return
        with self._lost():
            version = self._ray.get(self._actor.version.remote())
        if version != VERSION:
            raise InvalidConfig(
                f"a machine of the Ray cluster has fedplcc {version}, here it is {VERSION}; install the same"
            )
        self._has_version = True

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Within the block, an actor that is gone raises `LinkLost`."""
        try:
            yield
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            self._why_ended = f"on Ray ended ({_said(error)})"
            raise LinkLost from error


def _cleanup_process(folder: str) -> subprocess.Popen[bytes]:
    """Start a process that removes the cluster if this one is killed before it can do so."""
    command = [sys.executable, "-I", "-S", str(Path(ray_cleanup.__file__)), folder]
    return subprocess.Popen(  # nosec B603 # a command of ours, without a shell
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _require_answer(address: str) -> None:
    """Refuse a HOST:PORT at which nobody listens; Ray itself would notice after minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # "auto" and the like, which Ray looks up
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError):
        raise _nobody_answers(address) from None


def _nobody_answers(address: str) -> Unavailable:
    return Unavailable(f"no Ray cluster answers at {address}; start one with: ray start --head")


def _said(error: BaseException) -> str:
    """Return an error of Ray as one line: the error that caused it, if its text has one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (lines[-1] if "Error: " in lines[-1] else lines[0]).rstrip(".")
