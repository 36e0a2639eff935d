"""A real federation that a Prometheus can watch, and the faults that its alerts are for.

Three runs: `digits` of three numpy clients whose accuracy rises as told, `strict` of two of them, which has stages and fails
without a quorum, and `stripes` of a real torch trainer. Everything that moves bytes is a deployed service's own. `python -m
tests.support.federation.watched_federation ADDRESS CLIENT IDENTITY` is one of the numpy clients as a process.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedplcc.aggregator.identity.admissions import CERTIFICATE_S
from fedplcc.aggregator.store.base import Certificate
from fedplcc.aggregator.store.blobs.files import BlobFiles
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.remote.admin_calls import admin_calls
from fedplcc.shared.config.tables.stream import STAGE
from fedplcc.shared.errors import InvitationUsed
from fedplcc.shared.identity.certificates import new_key, public_key_sha256
from fedplcc.shared.identity.names import Role
from fedplcc.shared.readings import DEVICE_MEMORY_BYTES, DEVICE_UTILISATION_RATIO
from fedplcc.shared.steering import AdvanceStage, QuarantineClient, ReleaseClient, ResumeRun, StopRun
from fedplcc.shared.types import (
    GLOBAL_MODEL,
    TEST_SET,
    BlobRef,
    Evaluation,
    EvaluationCounts,
    Task,
    TaskKind,
    Update,
    stage_set,
)
from fedplcc.shared.wire.enrolling.enrolment import join
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import CLASSES, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyRunner, NumpyTrainer
from tests.support.federation.processes import Federation, Process, eventually, free_port
from tests.support.federation.wedged_runs import store_a_number_of_an_earlier_version
from tests.support.identity.issued import identity_tls

HEARTBEAT_S, LEASE_HEARTBEATS = 0.25, 12
LEASE_S = HEARTBEAT_S * LEASE_HEARTBEATS
"""A busy machine must not make anybody look silent."""
TRAIN_S = 0.15
"""How long a numpy client takes: rounds are to be slower than scrapes are far apart."""
DISK_BYTES = 96 << 20
LEFT = 0.05
NUM_GARBAGE = 1200
"""Part of the disk that is free when it is filled: enough to go on, too little to be left alone."""
ROUNDS = 600
"""More than there is time for."""
CEILINGS = {"zurich": 0.97, "geneva": 0.91, "lugano": 0.78}
KILLED = "lugano"
FORGOTTEN = "forgotten"
"""Monitor that renews nothing."""
NUM_TRIES = 60
OFF_LOOPBACK = ("--metrics-host", "0.0.0.0")
"""Flags with which /metrics is TLS for monitors."""
TORCH_CLIENT = tiny_federation.CLIENTS[0]


@dataclass
class Member(NumpyClient):
    """A client that learns along a curve, unless something befalls it."""

    ceiling: float = 0.9
    is_harmed: bool = False
    """Whether the global model is bad for its domain."""
    is_poisonous: bool = False
    """Whether its model holds what is no number."""
    is_forgetful: bool = False
    """Whether the global model has forgotten the first stage of runs with stages."""
    guessed_run: str = ""
    """The run whose model only guesses."""

    def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
        """As every numpy client, after the time that training takes."""
        if task.kind is TaskKind.TRAIN:
            threading.Event().wait(TRAIN_S)
        update, blobs = super().work(task, model)
        left = math.exp(-task.round / 15)
        return replace(update, losses={"ce": 0.1 + 2 * left, "contra": 0.3 + left, "corr": -0.9 + 0.6 * left}), blobs

    def trained(self, task: Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The local model, poisoned or not."""
        trained = super().trained(task, model)
        if self.is_poisonous:
            trained["head.weight"] = np.full_like(trained["head.weight"], np.nan)
        return trained

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        """Counts that follow the curve."""
        learnt = self.ceiling * (1 - 0.8 * math.exp(-task.round / 12))
        stages = range(1, int(task.payload.scalars.get(STAGE, 0)) + 1)
        reached = {stage_set(stage): learnt - 0.5 * (self.is_forgetful and stage == 1) for stage in stages}
        is_guess = task.run is not None and task.run.run_id == self.guessed_run
        reached[TEST_SET] = 1 / len(CLASSES) if is_guess else learnt - 0.8 * self.is_harmed
        return Evaluation(
            client_id=self.client_id,
            domain=self.domain,
            counts=tuple(_counted(set_name, accuracy) for set_name, accuracy in reached.items()),
        )


def _counted(set_name: str, accuracy: float) -> EvaluationCounts:
    correct = round(1000 * max(accuracy, 0.05))
    return EvaluationCounts(set_name, GLOBAL_MODEL, (correct,) * len(CLASSES), (1000,) * len(CLASSES))


def member(client_id: str) -> Member:
    """One of the three, by its name."""
    return Member(client_id, domain=client_id, ceiling=CEILINGS[client_id])


class WatchedFederation:
    """All of it within its block; the aggregator's state is on a disk of its own where that may be mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.federation = Federation(folder)
        self.members = {name: member(name) for name in CEILINGS if name != KILLED}
        self.trainer_metrics_port = free_port()
        self.has_own_disk = False
        self._around = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as around:
            self.has_own_disk = around.enter_context(_small_disk(self.folder / "aggregator"))
            around.enter_context(self.federation)
            self._start(around)
            self._around = around.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._around.__exit__(kind, error, trace)

    def _start(self, around: ExitStack) -> None:
        often = ("--heartbeat-interval-s", str(HEARTBEAT_S), "--lease-heartbeats", str(LEASE_HEARTBEATS))
        self.federation.start_aggregator(*often, *OFF_LOOPBACK)
        tiny_federation.write_data(self.folder, num_per_class=4)
        data, port = f"npz:{self.folder / TORCH_CLIENT}.npz", str(self.trainer_metrics_port)
        self.federation.start_trainer(TORCH_CLIENT, data, "--metrics-port", port, *OFF_LOOPBACK)
        address = self.federation.address
        identity = str(self.federation.identity_file(Role.CLIENT, KILLED, self.folder / KILLED))
        other = Process(KILLED, self.folder, ("tests.support.federation.watched_federation", address, KILLED, identity))
        self.federation.processes[KILLED] = other
        other.start()
        for each in self.members.values():
            tls = self.federation.client_tls(each.client_id)
            around.enter_context(NumpyTrainer(address, each, runner=_runner(each), tls=tls))
        self.federation.start_gateway()
        self.control = RunControl(address, tls=self.federation.operator_tls)
        around.callback(self.control.close)

    def begin(self) -> None:
        """Create the runs when everybody is there; each goes on, the one with stages in its second, when this returns."""
        eventually(lambda: sum(client.is_connected for client in self.control.clients()) == 4, "everybody has joined")
        self.runs = {document["run"]["name"]: self.control.create(document).run_id for document in self._documents()}
        for run_id in self.runs.values():
            eventually(lambda run_id=run_id: self.control.get(run_id).round >= 3, f"{run_id} goes on")  # type: ignore[misc]
        self.control.steer(self.runs["strict"], AdvanceStage())

    def _documents(self) -> Iterator[dict[str, Any]]:
        quorum = {"deadline_s": 0.5, "silence_s": LEASE_S}
        yield a_document(
            "fedplcc",
            tuple(CEILINGS),
            run={"name": "digits", "rounds": ROUNDS},
            quorum={**quorum, "min_clients": 2},
        )
        yield a_document(
            "fedavg",
            ("geneva", KILLED),
            run={"name": "strict", "rounds": ROUNDS},
            stream={"stages": 2, "advance": "manual"},
            quorum={**quorum, "on_no_quorum": "fail"},
        )
        # A model of the client's own, too; so slow a learner's accuracy stands still, and no alert comes from how it learns.
        stripes = tiny_federation.document(
            self.folder,
            "fedproto",
            run={"name": "stripes", "rounds": ROUNDS, "clients": [TORCH_CLIENT]},
            training={"local_steps": 2, "batch_size": 4, "learning_rate": 1e-9},
            data={"image_size": 16},
        )
        yield {**tiny_federation.run_document(stripes), "method": {"share_model": False}}

    @property
    def targets(self) -> dict[str, list[str]]:
        """Targets to scrape, by job."""
        return {
            "aggregator": [f"127.0.0.1:{self.federation.metrics_port}"],
            "gateway": [f"127.0.0.1:{self.federation.gateway_port}"],
            "trainer": [f"127.0.0.1:{self.trainer_metrics_port}"],
        }

    def go_on(self, rounds: int) -> None:
        """Wait until the numpy clients' run is so many rounds further."""
        self.federation.wait_healthy()
        goal = self.control.get(self.runs["digits"]).round + rounds
        eventually(lambda: self.control.get(self.runs["digits"]).round >= goal, "the run goes on")

    def admit_prometheus(self, folder: Path) -> None:
        """Put a monitor's identity and a key for metrics where the shipped configuration looks for them."""
        self.federation.identity_file(Role.MONITOR, "prometheus", folder / "fedplcc")
        with admin_calls(self.federation.state) as calls:
            _key, text = calls.create_key("prometheus", ["metrics"], 86_400.0)
        (folder / "fedplcc" / "key").write_text(text)

    # Faults, and what mends them

    def harm_a_domain(self, *, is_harmed: bool = True) -> None:
        """The global model becomes bad for one domain, or is good again."""
        self.members["geneva"].is_harmed = is_harmed

    def forget(self, *, is_forgetful: bool = True) -> None:
        """The model of the run with stages forgets the first one, or knows it again."""
        self.members["geneva"].is_forgetful = is_forgetful

    def guess(self) -> None:
        """Another run begins, whose model never learns anything."""
        document = a_document("fedavg", tuple(self.members), run={"name": "guessing", "rounds": ROUNDS})
        self.runs["guessing"] = self.control.create(document).run_id
        for each in self.members.values():
            each.guessed_run = self.runs["guessing"]

    def end_the_guessing(self) -> None:
        """The run is stopped."""
        self.control.steer(self.runs["guessing"], StopRun())

    def poison(self) -> None:
        """A client sends what is no number, and cannot do its task, for as long as this takes."""
        self.members["zurich"].is_poisonous = True

    def freeze_the_torch_trainer(self) -> None:
        """The process is there and does nothing: its run waits for it, for it has no quorum to go on with."""
        os.kill(self.federation.processes[f"trainer-{TORCH_CLIENT}"].pid, signal.SIGSTOP)

    def thaw_the_torch_trainer(self) -> None:
        """It goes on where it stood."""
        os.kill(self.federation.processes[f"trainer-{TORCH_CLIENT}"].pid, signal.SIGCONT)

    def kill_a_trainer(self) -> None:
        """SIGKILL: of three clients of one run, and of two of another."""
        self.federation.processes[KILLED].kill()

    def start_the_trainer_again(self) -> None:
        """The one that was killed."""
        self.federation.processes[KILLED].start()

    def lose_a_blob(self) -> int:
        """The file of a stored model vanishes from the disk; returns the status with which its download is answered."""
        run = f"/v1/runs/{self.runs['digits']}"
        first = self.federation.ask(f"{run}/rounds?page_size=1")["rounds"][0]
        BlobFiles(self.folder / "aggregator").stored_path(first["model"]["sha256"]).unlink()
        try:
            with self.federation.open(f"{run}/model?round={first['round']}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def fill_the_disk(self) -> Path:
        """Leave little room; returns the file to delete."""
        folder = self.folder / "aggregator"
        disk = os.statvfs(folder)
        filler = folder / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, int(disk.f_bavail * disk.f_frsize - LEFT * DISK_BYTES))
        return filler

    @contextmanager
    def held_up_collection(self) -> Iterator[None]:
        """Leave more garbage than a crash ever did, and have a backup hold its collection up until the block ends."""
        folder = self.folder / "aggregator"
        with no_collection(folder):
            for number in range(NUM_GARBAGE):
                path = BlobFiles(folder).path(f"{number % 256:02x}{number:062x}")
                path.parent.mkdir(exist_ok=True)
                path.touch()
            yield

    def kill_the_aggregator(self) -> None:
        """SIGKILL."""
        self.federation.processes["aggregator"].kill()

    def ask_without_a_key(self) -> None:
        """Somebody tries the gateway, more often than an alert lets pass."""
        for _ in range(NUM_TRIES):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{self.federation.gateway_url}/v1/runs", timeout=20)

    def use_an_invitation_twice(self) -> None:
        """Two hosts join with one line."""
        where = f"127.0.0.1:{self.federation.enrol_port}"
        with admin_calls(self.federation.state) as calls:
            code, _end = calls.invite("monitor", "twice", address=where, valid_s=3600.0)
        join(code, new_key())
        with pytest.raises(InvitationUsed):
            join(code, new_key())

    def age_a_certificate(self) -> None:
        """A member of the aggregator that is not running has not renewed its certificate, of which an hour is left."""
        held = self.federation.credentials(Role.MONITOR, FORGOTTEN)
        key = held.certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        now = time.time()
        old = Certificate(
            serial=held.serial,
            role=Role.MONITOR,
            name=FORGOTTEN,
            public_key_sha256=public_key_sha256(key),
            issued_at=now - CERTIFICATE_S,
            not_after=now + 3600,
            pem=held.chain_pem.decode(),
        )
        with closing(SqlStore.in_folder(self.federation.state)) as store, store.transaction() as transaction:
            transaction.save_certificate(old)

    def revoke_the_aged(self) -> None:
        """Nobody needs it any more."""
        with admin_calls(self.federation.state) as calls:
            calls.revoke("monitor", FORGOTTEN)

    def leave_a_number_of_an_earlier_version(self) -> None:
        """The open round of the numpy clients' run holds a loss that an earlier version let in; no aggregator runs."""
        run_id = self.runs["digits"]
        with closing(SqlStore.in_folder(self.federation.state)) as store:
            run = store.find_run(run_id)
            assert run is not None
            assert run.current_round is not None
            number, updates = run.current_round.number, run.current_round.updates
        store_a_number_of_an_earlier_version(self.federation.state, run_id, number, min(updates))
        self._spoiled = min(updates)

    def mend_the_parked_run(self) -> None:
        """What the alert's text says: quarantine whose number it is, and resume; then take the client back."""
        run_id = self.runs["digits"]
        self.control.steer(run_id, QuarantineClient(self._spoiled))
        self.control.steer(run_id, ReleaseClient(self._spoiled))
        self.control.steer(run_id, ResumeRun())

    def start_the_aggregator_again(self) -> None:
        """On the state that it left; returns at once."""
        self.federation.processes["aggregator"].start()


def _runner(client: Member) -> NumpyRunner:
    runner = NumpyRunner(client)
    if client.client_id == "zurich":  # as a trainer beside a GPU says
        runner.measured = {DEVICE_MEMORY_BYTES.name: 3.5e9, DEVICE_UTILISATION_RATIO.name: 0.62}
    return runner


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Whether the folder is a file system of its own, which it is where mounting is allowed."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def main(arguments: list[str]) -> None:
    """Act for one client until the process is killed."""
    address, client_id, identity = arguments
    client = member(client_id)
    with NumpyTrainer(address, client, runner=_runner(client), tls=identity_tls(Path(identity))):
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(sys.argv[1:])
