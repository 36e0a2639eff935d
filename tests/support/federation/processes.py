"""Real processes on loopback for integration tests: started on free ports, awaited by health, killed by process id.

They speak mutual TLS, and the gateway asks for keys. Their certificates are issued here, by the aggregator's own authority,
before a process starts; tests of admission let them join instead.

A process says its ports in `endpoint.json` in its state directory; nothing sleeps for a fixed time, and nothing that the
harness did not start is touched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.remote.admin_calls import admin_calls
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.tls import ClientTls
from tests.support import ROOT
from tests.support.federation import forks
from tests.support.federation.ports import free_port as free_port
from tests.support.identity.enrolled import enrolled
from tests.support.identity.issued import OperatorTls

START_S = 60.0
"""Importing torch on a busy machine takes seconds."""
DATABASE_URL = "FEDPLCC_DATABASE_URL"
TOLD = "told"
"""Property of a test whose value stands in the summary at the end."""

_T = TypeVar("_T")


def eventually(probe: Callable[[], _T | None], what: str, timeout_s: float = START_S) -> _T:
    """The first result of `probe` that is not None, False or empty, within a bounded time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        result = probe()
        if result is not None and result is not False and not (isinstance(result, Sized) and not len(result)):
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {timeout_s:.0f} s")


def as_module(arguments: Sequence[str]) -> list[str]:
    """Return a command's words for `python -m`: a service goes by the name of its package."""
    name, *options = arguments
    return [f"fedplcc.{name}" if name in ("aggregator", "gateway", "trainer") else name, *options]


class Process:
    """One `python -m PACKAGE`, its log in a file; with a prefix on another host (tests/support/hosts/namespaces.py)."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], prefix: Sequence[str] = ()) -> None:
        self.name, self.folder, self.arguments, self._prefix = name, folder, list(arguments), list(prefix)
        self.log_file = folder / f"{name}.log"
        self.environment: dict[str, str] = {}
        """What it gets beside this process's environment."""
        self.installed: Path | None = None
        """Folder of another version's packages (other_versions.py), whose command it is started by; this tree if None."""
        self.may_fork = True
        """Whether a fork of one that has loaded the same will do (forks.py)."""
        self._process: subprocess.Popen[bytes] | forks.Forked | None = None

    def start(self) -> None:
        assert self._process is None or self._process.poll() is not None, f"{self.name} runs already"
        packages, is_ours = self.installed or ROOT, self.installed is None
        environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONUNBUFFERED": "1", **self.environment}
        module, *arguments = as_module(self.arguments) if is_ours else ["fedplcc", *self.arguments]
        with self.log_file.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            if is_ours and self.may_fork and not self._prefix and forks.can_fork(module, arguments, self.environment):
                self._process = forks.parent_of(module).fork(
                    module, arguments, self.folder, environment, [nothing.fileno(), log.fileno(), log.fileno()]
                )
                return
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", module, *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit status, the negative number of a signal that ended it; None while it runs."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """SIGKILL: no line of the process runs any more."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30.0) -> int:
        """Send a signal and wait; returns the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end within {timeout_s} s of {number.name}") from None

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


class Federation:
    """An aggregator, any number of trainers and a gateway, each a process of its own below one folder."""

    may_fork = True
    """Whether its processes may be forks (forks.py); a test that reads a process's command line needs real starts."""

    def __init__(self, folder: Path, *, tls: bool = True) -> None:
        """Prepare; nothing starts yet.

        Args:
            folder: Where the processes run, and have their state directories and logs.
            tls: Whether they speak TLS and ask for keys; otherwise plain text, and anyone may call anything.
        """
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.port = free_port()
        self.enrol_port = free_port()
        self.metrics_port = free_port()
        self.gateway_port = 0
        self.tls: ClientTls | None = ClientTls(lambda: self.credentials(Role.MONITOR, "tests")) if tls else None
        """Certificate with which the aggregator's health is asked for; None where the services speak plain text."""
        self._issued: dict[tuple[Role, str], Credentials] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes.values()):
            if process.is_running:
                process.kill()
        if error is not None:
            for process in self.processes.values():
                print(f"\n--- {process.name}\n{process.log()[-4000:]}")

    @property
    def transport(self) -> tuple[str, ...]:
        """Flags of each process."""
        return ("--insecure",) if self.tls is None else ()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def state(self) -> Path:
        """State directory of the aggregator."""
        return self.folder / "aggregator"

    # Certificates and keys

    @cached_property
    def authority(self) -> Authority:
        """The aggregator's own issuer of certificates; made here if the aggregator has not started yet."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Authority.open(self.state)

    def credentials(self, role: Role, name: str) -> Credentials:
        """Key and certificate of a member."""
        if (role, name) not in self._issued:
            _ = self.authority  # so that there is a state directory
            self._issued[role, name] = enrolled(self.state, role, name, database_url=os.environ.get(DATABASE_URL))
        return self._issued[role, name]

    def client_tls(self, client: str) -> ClientTls | None:
        """TLS of a client whose trainer is in this process."""
        return None if self.tls is None else ClientTls(lambda: self.credentials(Role.CLIENT, client))

    @cached_property
    def operator_tls(self) -> ClientTls | None:
        """TLS of a gateway in this process that passes on the key of a person who may do everything."""
        return None if self.tls is None else OperatorTls(lambda: self.credentials(Role.GATEWAY, "tests"), self.key)

    @cached_property
    def key(self) -> str:
        """Key of that person, made by the running aggregator; empty where none is asked for."""
        if self.tls is None:
            return ""
        with admin_calls(self.state) as calls:
            _key, text = calls.create_key("tests", ["admin", "metrics"], 86_400.0)
        return text

    def console_code(self) -> str:
        """A code that opens the console once."""
        with admin_calls(self.state) as calls:
            return calls.console_code()

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request that the gateway lets through."""
        return {"Authorization": f"Bearer {self.key}"} if self.tls is not None else {}

    def open(
        self, path: str, body: object = None, *, method: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Open the gateway's answer to a request; what is a body is sent as JSON.

        Raises:
            urllib.error.HTTPError: The gateway refuses.
        """
        sent = {**self.headers, "Content-Type": "application/json", **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.gateway_url}{path}", data, sent, method=method)
        return urllib.request.urlopen(request, timeout=30)

    def ask(self, path: str, body: object = None, *, method: str | None = None, **headers: str) -> Any:
        """The document that the gateway answers with."""
        with self.open(path, body, method=method, headers=headers) as answer:
            return json.load(answer)

    def user_folder(self) -> Path:
        """Folder of a user's configurations with a key for the gateway, for XDG_CONFIG_HOME of a command."""
        folder = self.folder / "user"
        (folder / "fedplcc").mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "fedplcc" / "keys.json"
        file.touch(0o600)
        file.write_text(json.dumps({self.gateway_url: self.key}))
        return folder

    def identity_file(self, role: Role, name: str, folder: Path) -> Path:
        """File with a member's identity in its state directory; written unless it is there."""
        file = folder / IDENTITY_FILE
        if not file.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.credentials(role, name).save(file)
        return file

    # Processes

    def _prepared(self, name: str, arguments: Sequence[str]) -> Process:
        process = self.processes[name] = Process(name, self.folder, arguments)
        process.may_fork = self.may_fork
        return process

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def start_aggregator(self, *flags: str) -> Process:
        """Start, or start again on the same state directory and the same ports."""
        state = self.state
        process = self.processes.get("aggregator")
        if process is None:
            known = {"--port": self.port, "--metrics-port": self.metrics_port, "--enrol-port": self.enrol_port}
            ports = [text for flag, port in known.items() for text in (flag, str(port))]
            arguments = ("aggregator", *self.transport, "--state-dir", str(state), *ports, *flags)
            process = self._prepared("aggregator", arguments)
        if self.tls is not None:
            _ = self.authority  # before the aggregator's process, which locks the state directory
        (state / "endpoint.json").unlink(missing_ok=True)
        process.start()
        endpoint = eventually(lambda: self._endpoint(process, state), "the aggregator serves")
        self.port, self.metrics_port = endpoint["port"], endpoint["metrics_port"]
        self.enrol_port = endpoint["enrol_port"] or 0
        index = process.arguments.index("--port") + 1
        process.arguments[index : index + 5 : 2] = map(str, (self.port, self.metrics_port, self.enrol_port))
        self.wait_healthy()
        return process

    def wait_healthy(self) -> None:
        """Wait for grpc.health.v1 to say SERVING."""
        with open_channel(self.address, tls=self.tls) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="fedplcc.v1.RoundService")

            def is_serving() -> bool:
                try:
                    return bool(stub.Check(request, timeout=1).status == health_pb2.HealthCheckResponse.SERVING)
                except grpc.RpcError:
                    return False

            eventually(is_serving, "the aggregator is healthy")

    def start_trainer(self, client: str, data: str, *flags: str) -> Process:
        """Start the client's trainer, or start it again on the same state directory."""
        name = f"trainer-{client}"
        if name not in self.processes:
            self.trainer(name, client, data, *flags, state_dir=self.folder / name)
        self.processes[name].start()
        return self.processes[name]

    def trainer(self, name: str, client: str, data: str, *flags: str, state_dir: Path) -> Process:
        """A trainer that has not started yet."""
        if self.tls is not None:
            self.identity_file(Role.CLIENT, client, state_dir)
        arguments = ["trainer", *self.transport, "--aggregator", self.address, "--client", client]
        arguments += ["--domain", client, "--data", data]
        arguments += ["--state-dir", str(state_dir), "--device", "cpu", *flags]
        return self._prepared(name, arguments)

    def start_gateway(self, *flags: str) -> Process:
        """Start a gateway on a free port and wait until it is ready."""
        if "gateway" not in self.processes:
            self.gateway_port = free_port()
            arguments = ["gateway", *self.transport, "--aggregator", self.address, "--port", str(self.gateway_port)]
            if self.tls is not None:
                file = self.identity_file(Role.GATEWAY, "console", self.folder / "gateway")
                arguments += ["--state-dir", str(file.parent)]
            arguments += flags
            self._prepared("gateway", arguments)
        self.processes["gateway"].start()

        def is_ready() -> bool:
            assert self.processes["gateway"].is_running, "the gateway ended"
            try:
                with urllib.request.urlopen(f"{self.gateway_url}/readyz", timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        eventually(is_ready, "the gateway is ready")
        return self.processes["gateway"]

    @staticmethod
    def _endpoint(process: Process, state: Path) -> dict[str, Any] | None:
        assert process.is_running, f"the aggregator ended:\n{process.log()}"
        try:
            endpoint: dict[str, Any] = json.loads((state / "endpoint.json").read_text())
        except FileNotFoundError:
            return None
        return endpoint if endpoint["pid"] == process.pid else None
