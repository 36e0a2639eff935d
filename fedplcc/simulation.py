"""A whole federation in one process: the aggregator's service and store and the trainers' core, without sockets.

What travels is what would travel over gRPC, through the same checks and the same disk, so a simulation ends in the same
bytes as six processes do on this type of machine. Clients work one after another in the order of their ids. After a crash
or Ctrl-C the same state directory goes on where it was.
"""

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aggregator.metrics import AggregatorMetrics
from aggregator.service import Coordinator, Limits
from aggregator.store.blobs import BlobStore
from aggregator.store.sql import SqlStore
from fedplcc.artifacts import MODEL, PROTOTYPES, RunRecord, blob_file, write_record
from fedplcc.configuration import domain_of, local_clients
from fedplcc.initial_model import PIECE_BYTES, model_blob
from fedplcc.interruption import Interrupted
from fedplcc.progress import RunProgress
from fedplcc.run_folder import REQUEST_ID, RunFolder
from gateway.schemas import Evaluation as EvaluationDocument
from gateway.schemas import Event
from shared.errors import FedplccError, from_reason
from shared.metrics import new_registry
from shared.run_config import ClientSection, FederationFile, RunConfig, canonical_json
from shared.types import (
    BlobRef,
    Client,
    ClientProblem,
    CommittedUpdate,
    Evaluation,
    Membership,
    Round,
    RoundPhase,
    Run,
    RunSpec,
    Task,
    TaskKind,
    Update,
)
from trainer.cancellation import Cancelled, ShouldStop, never
from trainer.client_state import ClientStates
from trainer.data import opened_once
from trainer.tasks import TaskRunner

ArtifactKind = Literal["model", "prototypes"]

CHUNK_BYTES = 1 << 20
"""Piece in which an upload is handed over."""
EVENTS_PER_READ = 1000
TRAINERS_FOLDER = "trainers"
"""Below the state directory: what each client keeps, as a trainer does in its own."""

OnEvent = Callable[[Event], None]
OnProblem = Callable[[str, ClientProblem], None]
"""Told the client id and what its operator should know."""
OnActivity = Callable[[str, str, float], None]
"""Told the client id, what it does and which fraction of that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Who is told what happens."""

    on_event: OnEvent = lambda event: None
    on_problem: OnProblem = lambda client_id, problem: None
    on_activity: OnActivity = lambda client_id, activity, progress: None
    on_begin: Callable[[str], None] = lambda what: None
    """Told what begins and may take a while."""


class InProcessCoordinator:
    """The trainer's view of an aggregator that lives in the same process."""

    retries: int = 0

    def __init__(self, service: Coordinator, client_id: str, token: str) -> None:
        self._service, self._client_id, self._token = service, client_id, token

    def announce(self, client: Client) -> Membership:
        """Join again."""
        return self._service.join(client, self._token)

    def fetch(self, blob: BlobRef) -> bytes:
        """The bytes of a blob of the client's present task."""
        _blob, kind, path = self._service.transfers.open_download(self._client_id, self._token, blob.sha256)
        data = path.read_bytes()
        self._service.transfers.count_transfer(len(data), direction="sent", kind=kind)
        return data

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update, chunk by chunk, from where an interrupted upload ended."""
        names = (self._client_id, self._token, run_id, round_number, blob)
        receiver = self._service.transfers.begin_upload(*names)
        if receiver is None:
            return
        with closing(receiver):
            offset, _is_complete = self._service.transfers.upload_status(*names)
            for begin in range(offset, len(data), CHUNK_BYTES):
                receiver.write(begin, data[begin : begin + CHUNK_BYTES])
            receiver.finish()
        kind = "prototypes" if is_prototypes else "model"
        self._service.transfers.count_transfer(len(data) - offset, direction="received", kind=kind)

    def commit_update(self, run_id: str, round_number: int, update: Update) -> CommittedUpdate:
        """Make the update part of its round."""
        return self._service.commit_update(self._client_id, self._token, run_id, round_number, update)

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report the counts of one round's global model."""
        self._service.report_evaluation(self._client_id, self._token, run_id, round_number, evaluation)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedClient:
    """One client: its task runner, and its way to the aggregator."""

    client_id: str
    token: str
    runner: TaskRunner
    coordinator: InProcessCoordinator


class Simulation:
    """A federation on a state directory."""

    def __init__(
        self,
        federation: FederationFile,
        state_dir: Path,
        *,
        request_id: str,
        device: str = "auto",
        observers: Observers | None = None,
    ) -> None:
        """Open the state directory and let every client read its data and join; the run begins or goes on.

        Args:
            federation: The run and its clients.
            state_dir: Folder of the aggregator's database and blobs, and of what the clients keep; exists.
            request_id: Names the run in this directory.
            device: On which all clients train.
            observers: Who is told what happens.

        Raises:
            InvalidConfig, InvalidData: The configuration, the device or a client's data is wrong.
            RequestIdReused: The directory holds a run of another configuration.
            StoreUnavailable: The directory cannot be used.
        """
        clients = local_clients(federation)
        self._device, self._state_dir = device, state_dir
        self._observers = observers or Observers()
        self._cursor = 0
        self._store = SqlStore.in_folder(state_dir)
        try:
            # Clients wait for each other here, however long one trains: no lease may end, no heartbeat is missed.
            limits = Limits(heartbeat_interval_s=math.inf, max_chunk_bytes=CHUNK_BYTES)
            metrics = AggregatorMetrics(new_registry("aggregator"))
            self._service = Coordinator(self._store, BlobStore(state_dir), metrics, limits)
            with opened_once():
                self._clients = [self._join(name, client, federation.config) for name, client in clients.items()]
            if federation.initial_model_file is not None:
                _hold(self._service, federation.initial_model_file)
            document = json.loads(federation.config.canonical_json)
            self._run_id = self._service.create_run(request_id, document).run_id
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        """Let go of the state directory."""
        self._store.close()

    def run_to_end(self, should_stop: ShouldStop = never) -> Run:
        """Train until the run has ended, and return it.

        Args:
            should_stop: Asked before every batch. What was committed stays, and the next simulation goes on from there.

        Raises:
            Cancelled: `should_stop()` held.
            FedplccError: A client cannot do its task; the sentence names it.
        """
        while not (run := self._service.get_run(self._run_id)).status.is_final:
            self._tell()
            # All are asked first: what one client's task opens, the others begin in the next pass, in the order of ids.
            tasks = [self._service.task(client.client_id, client.token) for client in self._clients]
            pairs = zip(self._clients, tasks, strict=True)
            has_moved = [self._perform(client, task, should_stop) for client, task in pairs]
            while self._service.work():
                has_moved.append(True)
            self._service.tick()
            if self._service.collection.is_due() and not self._service.collection.wait_s():
                self._service.collection.collect()
            assert any(has_moved), f"run {run.run_id} is {run.status} and nobody has anything to do"
        self._tell()
        return run

    def record(self) -> RunRecord:
        """What the run has committed."""
        run = self._service.get_run(self._run_id)
        rounds = self._committed_rounds()
        committed = {current.number for current in rounds}
        return RunRecord(
            manifest=self._service.manifest(run),
            status=run.status.value,
            reason=run.reason,
            metrics_lines=[current.metrics_json for current in rounds if current.metrics_json],
            timings_lines=[current.timings_json for current in rounds if current.timings_json],
            model=self.artifact("model")[0],
            prototypes=self.artifact("prototypes")[0],
            evaluations_lines=[
                canonical_json(EvaluationDocument.of(number, report).model_dump(mode="json"))
                for number, report in self._service.list_evaluations(self._run_id)
                if number in committed
            ],
        )

    def artifact(self, kind: ArtifactKind) -> tuple[BlobRef, Path]:
        """The global model or prototypes of the last committed round, and the file that holds them."""
        return self._service.artifact(self._run_id, -1, kind)

    def _join(self, client_id: str, client: ClientSection, config: RunConfig) -> SimulatedClient:
        with _naming(client_id):
            runner = TaskRunner(
                client_id,
                domain_of(client_id, client),
                client.data,
                ClientStates(self._state_dir / TRAINERS_FOLDER / client_id),
                device=self._device,
                samples_per_class=client.samples_per_class,
            )
            # A trainer learns of its run from a task. Here the run is known, so wrong data ends it before it begins.
            spec = RunSpec(run_id="", config_json=config.canonical_json, config_hash=config.hash)
            self._observers.on_begin(f"{client_id}: reading its data")
            record = runner.client_for(spec, lambda problem: self._observers.on_problem(client_id, problem))
        token = uuid.uuid4().hex
        self._service.join(record, token)
        return SimulatedClient(
            client_id=client_id,
            token=token,
            runner=runner,
            coordinator=InProcessCoordinator(self._service, client_id, token),
        )

    def _perform(self, client: SimulatedClient, task: Task, should_stop: ShouldStop) -> bool:
        """Let a client do its task; says whether it had one."""
        if task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return False
        with _naming(client.client_id):
            client.runner.perform(
                task,
                client.coordinator,
                should_stop,
                lambda activity, progress: self._observers.on_activity(client.client_id, activity.value, progress),
            )
        self._tell()
        return True

    def _tell(self) -> None:
        """Pass on what has been added to the run's history."""
        while events := self._service.list_events(run_id=self._run_id, after=self._cursor, limit=EVENTS_PER_READ):
            self._cursor = events[-1].sequence
            for event in events:
                self._observers.on_event(Event.of(event))

    def _committed_rounds(self) -> list[Round]:
        rounds: list[Round] = []
        while page := self._service.list_rounds(self._run_id, after=rounds[-1].number if rounds else -1):
            rounds += page
        return [current for current in rounds if current.phase is RoundPhase.COMMITTED]


def simulate_in_folder(
    federation: FederationFile,
    folder: RunFolder,
    progress: RunProgress,
    *,
    device: str = "auto",
    should_stop: ShouldStop = never,
) -> RunRecord:
    """Train until the run has ended, and write what it leaves into the folder.

    Raises:
        Interrupted: `should_stop()` held; the same call goes on where this one stopped.
        FedplccError: As `Simulation`.
    """
    observers = Observers(
        on_event=progress.event,
        on_problem=lambda client_id, problem: progress.note(f"client {client_id}: {problem.detail}; {problem.hint}"),
        on_activity=lambda client_id, activity, done: progress.now(f"{client_id}: {activity}, {done:.0%}"),
        on_begin=progress.step,
    )
    simulation = Simulation(
        federation, folder.aggregator_state, request_id=REQUEST_ID, device=device, observers=observers
    )
    with closing(simulation):
        try:
            simulation.run_to_end(should_stop)
        except Cancelled:
            raise Interrupted from None
        record = simulation.record()
        files: dict[ArtifactKind, str] = {"model": MODEL, "prototypes": PROTOTYPES}
        for kind, name in files.items():
            blob, path = simulation.artifact(kind)
            with path.open("rb") as source, blob_file(folder.path / name, blob) as target:
                shutil.copyfileobj(source, target)
    write_record(folder.path, record)
    return record


def _hold(service: Coordinator, path: Path) -> None:
    """Hand the file that a run begins with to the service, as an upload does."""
    receiver = service.initial_models.begin_upload(model_blob(path), path.name)
    if receiver is None:
        return
    with closing(receiver), path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            receiver.write(piece)
        receiver.finish()


@contextmanager
def _naming(client_id: str) -> Iterator[None]:
    """Within the block, errors say which client they are about."""
    try:
        yield
    except FedplccError as error:
        detail = f"client {client_id}: {error.detail}"
        raise from_reason(error.reason, detail, error.metadata, error.code) from error
