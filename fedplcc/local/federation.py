"""A whole federation on this machine: an aggregator, its trainers and a gateway, each a process of its own on loopback.

They speak TLS with each other, and the gateway asks for keys, as everywhere: see membership.py. Processes choose free ports
and log them; their readiness is asked for (admin.sock, /readyz), never guessed from time. The end of the federation ends
every process that it started, by process id; on Linux also when this process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.gateway_client.transport import Transport
from fedplcc.local import die_with_parent
from fedplcc.local.membership import HOST, Member, admit, console_address, new_key
from fedplcc.runs.atomic_file import disk_errors, make_folder
from fedplcc.runs.configuration import domain_of
from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import ClientSection, canonical_json
from fedplcc.shared.config.settings import environment_without_settings
from fedplcc.shared.errors import FedplccError, InvalidConfig, StoreUnavailable, Unavailable
from fedplcc.shared.identity.names import Role
from fedplcc.trainer.app import STATES_FOLDER
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent

MAX_SPENT = 1000.0
"""Most epsilon of a client of one's own demonstration: no limit."""
START_S = 120.0
"""Longest start of a process; importing torch on a busy machine is slow."""
POLL_S = 0.05
"""Time between two looks at a starting process."""
END_S = 10.0
"""Time between SIGTERM and SIGKILL."""
GATEWAY = "demo"
"""Name of the gateway. The one that the aggregator invites by itself has another."""
ALARM_S = 1.0
"""Time that failed work waits for the end of a process, which would be the better explanation."""

Result = TypeVar("Result")


class ProcessEnded(FedplccError):
    """A process of the federation ended by itself."""

    code = Code.INTERNAL
    reason = "PROCESS_ENDED"


class LocalProcess:
    """One `python -m PACKAGE`, its output in a log file."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name, self.log = name, log
        self._arguments = list(arguments)
        self._log_begin = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it; its output is appended to the log."""
        service, *options = self._arguments
        command = [sys.executable, "-P", "-m", f"fedplcc.{service}", *options]
        guard = [sys.executable, "-I", "-S", str(Path(die_with_parent.__file__)), str(os.getpid())]
        with disk_errors(self.log), self.log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *guard,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(),
                # Ctrl-C in a terminal reaches only the parent, which then ends the others in order.
                start_new_session=True,
            )

    async def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def failed(self) -> FedplccError:
        """Wait for its end; returns the error for it."""
        return self.failure(await self.ended())

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def log_text(self) -> str:
        """Its output since the start."""
        with disk_errors(self.log), self.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def logged(self, event: str) -> Mapping[str, Any] | None:
        """The fields of the first log line with this event, if it has been written."""
        return next((line for line in self._log_lines() if line.get("event") == event), None)

    def failure(self, code: int) -> FedplccError:
        """The error for its end, with its last logged error if there is one."""
        said = [line["detail"] for line in self._log_lines() if line.get("level") == "error" and "detail" in line]
        reason = said[-1] if said else f"with exit code {code}; what it did before is in {self.log}"
        # Exit codes of the services for wrong settings and for a failing disk.
        kind = {2: InvalidConfig, 4: StoreUnavailable}.get(code, ProcessEnded) if said else ProcessEnded
        return kind(f"{self.name} ended: {reason}" if said else f"{self.name} ended {reason}")

    def _log_lines(self) -> Iterator[Mapping[str, Any]]:
        for line in self.log_text().splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(fields, dict):
                yield fields


class LocalFederation:
    """The processes; use it as an asynchronous context manager. Inside, all of them serve."""

    def __init__(
        self,
        clients: Mapping[str, ClientSection],
        *,
        consent: Consent = NO_CONSENT,
        withholds: bool = False,
        state: Path,
        logs: Path,
        threads: int = 1,
        device: str = "auto",
        gateway_port: int = 0,
    ) -> None:
        """Prepare the processes; nothing starts yet.

        Args:
            consent: What runs may name at every trainer.
            withholds: Whether trainers keep to themselves what a run of privacy.claim = "site" lets none tell.
            gateway_port: Where the gateway listens; 0 for any free port.
        """
        self._clients, self._consent, self._state, self._logs = clients, consent, state, logs
        self._withholds = withholds
        self._threads, self._device, self._gateway_port = threads, device, gateway_port
        self._processes: list[LocalProcess] = []
        self.gateway_url = ""
        self.key = ""
        """Key that the gateway lets through, for runs and their results; it is nowhere on the disk."""

    @property
    def processes(self) -> Sequence[LocalProcess]:
        """The processes in the order of their start."""
        return tuple(self._processes)

    async def __aenter__(self) -> Self:
        try:
            make_folder(self._logs)
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._end()

    async def guard(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await work that needs every process.

        Raises:
            ProcessEnded, InvalidConfig, StoreUnavailable: A process ended; the work was cancelled.
        """
        return await unless(work, *(process.failed() for process in self._processes))

    async def console_address(self) -> str:
        """Return an address that opens the console in a browser: once, within five minutes."""
        return await asyncio.to_thread(console_address, self.aggregator_state, self.gateway_url)

    @property
    def states(self) -> dict[str, Path]:
        """Folder of what each client keeps over restarts."""
        return {name: self._state / _trainer(name) / STATES_FOLDER / name for name in self._clients}

    @property
    def aggregator_state(self) -> Path:
        """State directory of the aggregator, whose owner administers the federation."""
        return self._state / "aggregator"

    async def _start(self) -> None:
        aggregator = self._process(
            "aggregator",
            "--host",
            HOST,
            "--port",
            "0",
            "--enrol-port",
            "0",
            "--metrics-port",
            "0",
            *self._consent.method_flags,
        )
        await self._launch(aggregator)
        ready = await self._ready(aggregator, "aggregator_ready")
        address = f"{HOST}:{ready['port']}"
        await self.guard(asyncio.to_thread(admit, self.aggregator_state, self._members()))
        gateway = self._process(
            "gateway",
            "--host",
            HOST,
            "--port",
            str(self._gateway_port),
            "--aggregator",
            address,
            *self._consent.method_flags,
        )
        trainers = [self._trainer(name, client, address) for name, client in self._clients.items()]
        for process in (gateway, *trainers):
            await self._launch(process)
        self.key = await self.guard(asyncio.to_thread(new_key, self.aggregator_state))
        ready = await self._ready(gateway, "gateway_ready")
        self.gateway_url = f"http://{HOST}:{ready['port']}"
        await self.guard(_answering(self.gateway_url))

    def _members(self) -> list[Member]:
        clients = [
            Member(Role.CLIENT, name, self._state / _trainer(name), domain_of(name, client))
            for name, client in self._clients.items()
        ]
        return [Member(Role.GATEWAY, GATEWAY, self._state / "gateway"), *clients]

    def _trainer(self, name: str, client: ClientSection, address: str) -> LocalProcess:
        numbers = {
            "--samples-per-class": client.samples_per_class,
            "--fraction": client.fraction,
            "--validation-per-class": client.validation_per_class,
        }
        samples = [text for flag, n in numbers.items() if n is not None for text in (flag, str(n))]
        return self._process(
            _trainer(name),
            *("--aggregator", address, "--client", name, "--domain", domain_of(name, client), "--data", client.data),
            *("--device", self._device, "--threads", str(self._threads), "--metrics-port", "0", *samples),
            *(["--evaluate-only"] if client.evaluate_only else []),
            *_model_flags(client),
            *self._consent.flags,
            *(("--privacy-epsilon", f"{MAX_SPENT:g}") if self._withholds else ()),
        )

    def _process(self, name: str, *flags: str) -> LocalProcess:
        package = name.partition("-")[0]
        arguments = [package, *flags, "--state-dir", str(self._state / name), "--log-level", "info"]
        return LocalProcess(name, arguments, self._logs / f"{name}.log")

    async def _launch(self, process: LocalProcess) -> None:
        await process.start()
        self._processes.append(process)

    async def _ready(self, process: LocalProcess, event: str) -> Mapping[str, Any]:
        """Wait for a process to log that it is ready; returns the fields of that line."""

        async def said() -> Mapping[str, Any]:
            while (fields := process.logged(event)) is None:
                await asyncio.sleep(POLL_S)
            return fields

        return await self.guard(_in_time(said(), process.name))

    async def _end(self) -> None:
        """End every process: the aggregator, on which all others depend, at last."""
        for group in (self._processes[1:], self._processes[:1]):
            for process in group:
                process.signal(signal.SIGTERM)
            await asyncio.gather(*(_ended(process) for process in group))


async def unless(work: Coroutine[Any, Any, Result], *alarms: Coroutine[Any, Any, FedplccError]) -> Result:
    """Await work, unless an alarm returns an error first: the error cancels the work and is raised.

    Raises:
        FedplccError: The error of an alarm.
    """
    working, watching = asyncio.ensure_future(work), [asyncio.ensure_future(alarm) for alarm in alarms]
    try:
        await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and working.exception() is not None:
            # The cause may be about to set off an alarm, whose sentence is the better one.
            await asyncio.wait(watching, timeout=ALARM_S, return_when=asyncio.FIRST_COMPLETED)
        elif working.done():
            return working.result()
        for alarm in watching:
            if alarm.done():
                raise alarm.result()
        return working.result()
    finally:
        for task in (working, *watching):
            task.cancel()
        await asyncio.gather(working, *watching, return_exceptions=True)


def _trainer(client: str) -> str:
    """Name of a client's process, and of its state directory."""
    return f"trainer-{client}"


def _model_flags(client: ClientSection) -> list[str]:
    """Flags that give a trainer its client's own kind of model."""
    model = client.model
    if model is None:
        return []
    flags = ["--model", model.name]
    flags += [] if model.stem is None else ["--stem", model.stem]
    flags += [] if model.norm == "batch" else ["--norm", model.norm]
    flags += [] if model.weights is None else ["--model-weights", f"{model.weights}@{model.weights_sha256}"]
    return flags + (["--model-options", canonical_json(dict(model.options))] if model.options else [])


async def _ended(process: LocalProcess) -> None:
    try:
        await asyncio.wait_for(process.ended(), END_S)
    except TimeoutError:
        process.signal(signal.SIGKILL)
        await process.ended()


async def _in_time(work: Coroutine[Any, Any, Result], name: str) -> Result:
    try:
        return await asyncio.wait_for(work, START_S)
    except TimeoutError:
        raise Unavailable(f"{name} was not ready within {START_S:.0f} s") from None


async def _answering(url: str) -> None:
    """Wait until the gateway and its aggregator serve."""

    async def ready() -> None:
        async with AsyncGateway(url, transport=Transport(url, attempts=1)) as gateway:
            while True:
                with suppress(Unavailable):
                    await gateway.ready()
                    return
                await asyncio.sleep(POLL_S)

    await _in_time(ready(), "gateway")


def _environment() -> dict[str, str]:
    """The processes' environment: without settings, which are flags, and with this copy of the packages first."""
    environment = environment_without_settings()
    packages = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (packages, environment.get("PYTHONPATH"))))
    return environment
