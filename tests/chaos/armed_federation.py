"""A federation of real processes whose failpoints are armed: killed where they are told, and started again."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import create_engine

from fedplcc.aggregator.identity.authority import AUTHORITY_FILE, Authority
from fedplcc.aggregator.store.database.engines.postgres import parse_url
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.failpoints import ARMED_FILE, PASSED_FILE, VARIABLE
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Process, free_port
from tests.support.identity.enrolled import enlist
from tests.support.identity.issued import issued
from tests.support.records.method_settings import PUBLIC_DATA

DAY_S = 86_400.0
DUE_S = 57_600.0
"""Age of a trainer's certificate, which lives for a day from its beginning on."""
LOOK_S = 0.02
"""How often a process that is to die is looked at."""


@dataclass(frozen=True, slots=True)
class Order:
    """A death that is ordered: at the `count`-th passing of a failpoint from when it is told."""

    point: str
    count: int = 1


class ArmedProcess(Process):
    """A process with failpoints, and the folder by which it is told where to die and tells what it passed."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], state: Path) -> None:
        super().__init__(name, folder, arguments)
        self.state = state
        self.prepare: Callable[[], None] = lambda: None
        """Makes what it needs in its state directory before it starts anew."""
        self._failpoints = folder / f"{name}.failpoints"
        self._failpoints.mkdir()
        self.environment = {VARIABLE: str(self._failpoints)}
        self._read = 0

    def tell(self, order: Order | None) -> None:
        """Tell it where to die; nowhere if None."""
        armed = self._failpoints / ARMED_FILE
        if order is None:
            armed.unlink(missing_ok=True)
            return
        new = armed.with_suffix(".new")
        new.write_text(f"{order.point} {order.count}", encoding="utf-8")
        new.rename(armed)

    def passed(self) -> list[str]:
        """Failpoints passed since the last call."""
        path = self._failpoints / PASSED_FILE
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode().split()

    def wipe(self) -> None:
        """End it, and take away everything that it keeps but for what `prepare` makes."""
        if self.is_running:
            self.kill()
        shutil.rmtree(self.state, ignore_errors=True)
        self.prepare()


@dataclass(slots=True)
class Deaths:
    """Results of the orders to die."""

    expected: int
    points: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Ends that nobody ordered."""

    @property
    def are_too_few(self) -> bool:
        """Whether the process lived on where it was told to die."""
        return len(self.points) < self.expected and not self.wrong

    @property
    def trouble(self) -> str:
        """Orders that were not carried out, in words."""
        return "; ".join(self.wrong) or ("never passed" if self.are_too_few else "")


class ArmedFederation:
    """An aggregator, a trainer of each client, all with failpoints, and a gateway, below one folder."""

    def __init__(self, folder: Path, store_url: str = "") -> None:
        """Prepare the processes; none of them runs.

        Args:
            folder: An empty one, for the processes' state directories, logs and failpoints.
            store_url: A PostgreSQL database that may be emptied, for the aggregator; SQLite in its folder if empty.
        """
        self.folder, self.store_url = folder, store_url
        port, self._enrol_port, self.gateway_port = free_port(), free_port(), free_port()
        tiny_federation.write_data(folder)
        self._members: dict[Path, Credentials] = {}
        """First identity of each member, by its state directory."""
        # Certificates that are due for renewal when a trainer starts.
        (folder / "authority").mkdir(mode=0o700)
        self._authority = Authority.open(folder / "authority", clock=lambda: time.time() - DUE_S)
        self._is_new = False
        state = folder / "aggregator"
        flags = ["--port", str(port), "--enrol-port", str(self._enrol_port), "--metrics-port", "0"]
        flags += ["--state-dir", str(state), "--heartbeat-interval-s", "0.5"]
        # Several chunks a model, so that an upload dies in between.
        # Models in chunks, and prototypes without a model inside their commits: both ways have their crash points.
        flags += [
            "--max-chunk-bytes",
            "65536",
            "--max-inline-bytes",
            "65536",
            *(("--database-url", store_url) if store_url else ()),
        ]
        self.aggregator = ArmedProcess("aggregator", folder, ["aggregator", *flags], state)
        self.trainers = {name: self._trainer(name, port) for name in tiny_federation.CLIENTS}
        self.aggregator.prepare = self._place_authority
        gateway_state = folder / "gateway"
        self._certify(Role.GATEWAY, "console", gateway_state, Authority.open(folder / "authority"))
        gateway = ["gateway", "--aggregator", f"127.0.0.1:{port}", "--port", str(self.gateway_port)]
        self.gateway = Process("gateway", folder, [*gateway, "--state-dir", str(gateway_state)])
        for process in (*self.trainers.values(), self.aggregator):
            process.prepare()

    def _trainer(self, client: str, port: int) -> ArmedProcess:
        state = self.folder / f"trainer-{client}"
        arguments = [
            "trainer",
            "--aggregator",
            f"127.0.0.1:{port}",
            "--client",
            client,
            "--domain",
            client,
        ]
        arguments += ["--data", f"npz:{self.folder / client}.npz", "--state-dir", str(state), "--device", "cpu"]
        arguments += ["--public-data", PUBLIC_DATA]
        trainer = ArmedProcess(f"trainer-{client}", self.folder, arguments, state)
        trainer.prepare = lambda: self._certify(Role.CLIENT, client, state, self._authority)
        return trainer

    def _certify(self, role: Role, name: str, state: Path, authority: Authority) -> None:
        """Put a member's identity, always the same, into an empty state directory."""
        state.mkdir(mode=0o700)
        if state not in self._members:
            held = issued(authority, role, name, DAY_S)
            self._members[state] = replace(held, enrolment=f"127.0.0.1:{self._enrol_port}")
        self._members[state].save(state / IDENTITY_FILE)

    def _place_authority(self) -> None:
        """Let a new aggregator have the authority whose members the others are, and their certificates on its list."""
        if self._is_new:
            return
        identity = self.aggregator.state / "identity"
        identity.mkdir(mode=0o700, parents=True)
        shutil.copy(self.folder / "authority" / "identity" / AUTHORITY_FILE, identity)
        renewed = [Credentials.load(state / IDENTITY_FILE) for state in self._members]
        enlist(self.aggregator.state, [*self._members.values(), *renewed], self.store_url or None)

    @property
    def url(self) -> str:
        """Of the gateway."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def victims(self) -> Mapping[str, ArmedProcess]:
        """Whom the sweep kills, by the kind of process: of the trainers the one that also makes the first model."""
        return {"aggregator": self.aggregator, "trainer": self.trainers[min(tiny_federation.CLIENTS)]}

    @property
    def processes(self) -> list[Process]:
        return [self.aggregator, self.gateway, *self.trainers.values()]

    def __enter__(self) -> Self:
        for process in self.processes:
            process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.is_running:
                process.kill()
        if error is not None:
            print(self.logs())

    def renew_aggregator(self, *, is_new: bool = False) -> None:
        """Leave an aggregator that does not run and has never done anything; trainers that run stay.

        With `is_new` it has no authority either, and what it makes is not that of the trainers.
        """
        self._is_new = is_new
        if self.store_url:
            if self.aggregator.is_running:
                self.aggregator.kill()
            _empty(self.store_url)
        self.aggregator.wipe()

    @contextmanager
    def killing(self, victim: ArmedProcess, orders: Sequence[Order]) -> Iterator[Deaths]:
        """Within the block, a process dies at each of these in turn, and is started again each time.

        Each order but the first is given before the process is started again, so it may name what a start passes; so may the
        first one if the process does not run.
        """
        deaths, waiting, is_over = Deaths(len(orders)), list(orders), threading.Event()
        victim.tell(waiting[0] if waiting else None)
        if not victim.is_running:
            victim.start()

        def revive() -> None:
            order = waiting.pop(0) if waiting else None
            if order is not None and victim.exit_code == -signal.SIGKILL:
                deaths.points.append(order.point)
            else:
                deaths.wrong.append(f"{victim.name} ended with {victim.exit_code}")
            victim.tell(waiting[0] if waiting else None)
            victim.start()

        def watch() -> None:
            while not is_over.wait(LOOK_S):
                if not victim.is_running:
                    revive()

        watcher = threading.Thread(target=watch, name="reviver", daemon=True)
        watcher.start()
        try:
            yield deaths
        finally:
            is_over.set()
            watcher.join()
            victim.tell(None)
            if not victim.is_running:  # it died as the block ended
                revive()

    def logs(self) -> str:
        """The ends of the processes' logs."""
        return "\n".join(f"--- {process.name}\n{process.log()[-3000:]}" for process in self.processes)


def _empty(url: str) -> None:
    """Take every table out of a PostgreSQL database."""
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
