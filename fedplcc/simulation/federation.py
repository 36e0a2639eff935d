"""A federation in this process: the aggregator's service and store, driven until the run has ended.

Updates pass the same checks and the same disk as over gRPC, so on one type of machine a simulation ends in the same bytes as
a deployment. After a crash or Ctrl-C the same state directory goes on where it was, with any engine.
"""

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

from fedplcc.aggregator.coordinator.extensions import longer
from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.interruption import Interrupted
from fedplcc.runs.artifacts import BEST_MODEL, BEST_PROTOTYPES, MODEL, PROTOTYPES, RunRecord, blob_file, write_record
from fedplcc.runs.changed_files import changed_since
from fedplcc.runs.configuration import domain_of, local_clients
from fedplcc.runs.initial_model import PIECE_BYTES, model_blob
from fedplcc.runs.kept_roles import bring_roles, images_of_roles, keep_roles
from fedplcc.runs.readiness import Readiness, check_device
from fedplcc.runs.run_folder import REQUEST_ID, RunFolder
from fedplcc.shared.config.run import FederationFile, RunConfig, canonical_json
from fedplcc.shared.documents import Evaluation as EvaluationDocument
from fedplcc.shared.documents import Event
from fedplcc.shared.errors import InvalidConfig, RequestIdReused
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.steering import ExtendRun, StopRun
from fedplcc.shared.types import BlobRef, EventQuery, Round, RoundPhase, Run, RunSpec, RunStatus, TaskKind
from fedplcc.simulation.engine import Observers, Site, Work
from fedplcc.simulation.engines import make_engine
from fedplcc.simulation.in_process_aggregator import CHUNK_BYTES, InProcessAggregator
from fedplcc.simulation.parallelism import EngineName
from fedplcc.simulation.watch import RunWatch
from fedplcc.terminal.class_sentences import copies_sentences
from fedplcc.terminal.progress import RunProgress
from fedplcc.trainer.cancellation import Cancelled, ShouldStop, never
from fedplcc.trainer.owner.consent import Consent

ArtifactKind = Literal["model", "prototypes"]

EVENTS_PER_READ = 1000
TRAINERS_FOLDER = "trainers"
"""Folder of the clients' kept state, below the state directory."""


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
        should_stop: ShouldStop = never,
        **workers: Any,
    ) -> None:
        """Open the state directory, let every client read its data and join, and begin the run or go on with it.

        Args:
            state_dir: Folder of the aggregator's database and blobs and of the clients' kept state; exists.
            should_stop: Asked while the clients read their data.
            workers: `jobs`, `engine` and `ray_address` of `make_engine`.

        Raises:
            Cancelled: `should_stop()` held.
            InvalidConfig, InvalidData: The configuration, the device or a client's data is wrong.
            RequestIdReused, InvalidConfig: The directory holds a run of another configuration, not of fewer rounds alone.
            StoreUnavailable: The directory cannot be used.
        """
        config = federation.config
        sites = [
            Site(
                client_id=name,
                domain=domain_of(name, client),
                section=client,
                withholds=config.withholds,
                device=device,
                states=state_dir / TRAINERS_FOLDER / name,
                consent=Consent.to_run(config),
            )
            for name, client in local_clients(federation).items()
        ]
        self._sites, self._trainers = sites, state_dir / TRAINERS_FOLDER
        self._observers = observers or Observers()
        self._cursor = 0
        self._closing = ExitStack()
        try:
            store = self._closing.enter_context(closing(SqlStore.in_folder(state_dir)))
            self._engine = make_engine(sites, self._observers, threads=config.training.threads, **workers)
            self._closing.enter_context(closing(self._engine))
            # Clients wait for each other here, however long one trains: no lease may end, no heartbeat is missed.
            limits = Limits(heartbeat_interval_s=math.inf, max_chunk_bytes=CHUNK_BYTES)
            metrics = AggregatorMetrics(new_registry("aggregator"))
            self._service = Coordinator(store, BlobStore(state_dir), metrics, limits)
            # A trainer learns of its run from a task. Here the run is known, so wrong data ends it before it begins.
            spec = RunSpec(run_id="", config_json=config.canonical_json, config_hash=config.hash)
            clients = self._engine.read(spec, should_stop)
            self._aggregators = {
                site.client_id: InProcessAggregator(self._service, site.client_id, token=uuid.uuid4().hex)
                for site in sites
            }
            for name, aggregator in self._aggregators.items():
                aggregator.announce(clients[name])
            bring_roles(federation.initial_model_file, self.states)
            if federation.initial_model_file is not None:
                _hold(self._service, federation.initial_model_file)
            self._run_id = self._begun(request_id, config)
        except BaseException:
            self.close()
            raise

    def _begun(self, request_id: str, config: RunConfig) -> str:
        """Begin the run, go on with it, or let it go on to more rounds; returns its id."""
        try:
            return self._service.create_run(request_id, json.loads(config.canonical_json)).run_id
        except RequestIdReused as error:
            run = self._service.get_run(error.metadata["run_id"])
            if run.config_hash == config.hash:  # it was extended before
                return run.run_id
            is_longer = config.run.rounds > run.total_rounds
            if not is_longer or longer(document_of(run), run.total_rounds, config.run.rounds).hash != config.hash:
                raise
            return self._service.steer(run.run_id, ExtendRun(config.run.rounds)).run_id

    def close(self) -> None:
        """End all work, and close the state directory."""
        self._closing.close()

    @property
    def run(self) -> Run:
        """The run."""
        return self._service.get_run(self._run_id)

    @property
    def states(self) -> dict[str, Path]:
        """Folder of each client's kept state."""
        return {name: self._trainers / name for name in self._aggregators}

    @property
    def last_event(self) -> int:
        """Position of the last event of the run's history; those up to there are reported again by `run_to_end`."""
        last = self._service.list_events(EventQuery(run_id=self._run_id, limit=1, newest_first=True))
        return last[-1].sequence if last else 0

    def manifest(self) -> dict[str, Any]:
        """Return the content of run.json so far."""
        return self._service.manifest(self.run)

    def run_to_end(self, should_stop: ShouldStop = never, stop_reason: Callable[[], str | None] = lambda: None) -> Run:
        """Train until the run has ended, and return it.

        Args:
            should_stop: Asked before every batch, or many times a second where several clients work at a time.
                Committed rounds stay, and the next simulation goes on from there.
            stop_reason: Asked after the events of each pass have been reported: why to end the run there, or None.

        Raises:
            Cancelled: `should_stop()` held.
            FedplccError: A client cannot do its task; the sentence names it.
        """
        while not (run := self._service.get_run(self._run_id)).status.is_final:
            self._report_events()
            if run.status is not RunStatus.STOPPING and (why := stop_reason()) is not None:
                run = self._service.steer(self._run_id, StopRun(why))
            if run.status is RunStatus.STOPPING:
                for aggregator in self._aggregators.values():
                    aggregator.leave()
                self._service.tick()
                continue
            # All tasks are collected first: a round that one task opens begins in the next pass, in the order of ids.
            work = [
                Work(client_id=name, task=aggregator.task(), aggregator=aggregator)
                for name, aggregator in self._aggregators.items()
            ]
            work = [each for each in work if each.task.kind not in (TaskKind.WAIT, TaskKind.STOP)]
            self._engine.perform(work, should_stop, self._report_events)
            has_moved = bool(work)
            while self._service.work():
                has_moved = True
            self._service.tick()
            while self._service.garbage_collection.is_due() and not self._service.garbage_collection.wait_s():
                self._service.garbage_collection.step()
            assert has_moved, f"run {run.run_id} is {run.status} and nobody has anything to do"
        self._report_events()
        return run

    def record(self) -> RunRecord:
        """Return the record of the committed rounds."""
        run = self._service.get_run(self._run_id)
        rounds = self._committed_rounds()
        committed = {current.number for current in rounds}
        return RunRecord(
            manifest=self._service.manifest(run),
            status=run.status.value,
            reason=sentence_of(run.reason),
            metrics_lines=[current.results_json for current in rounds if current.results_json],
            timings_lines=[current.timings_json for current in rounds if current.timings_json],
            model=self.artifact("model")[0],
            prototypes=self.artifact("prototypes")[0],
            evaluations_lines=[
                canonical_json(EvaluationDocument.of(number, report).model_dump(mode="json", exclude_none=True))
                for number, report in self._service.list_evaluations(self._run_id)
                if number in committed
            ],
        )

    def with_pooled(self, record: RunRecord, should_stop: ShouldStop) -> RunRecord:
        """Return a completed run's record with a model of all clients' images together; see `in_process.with_pooled`."""
        from fedplcc.simulation.in_process import with_pooled

        self._engine.close()  # frees the images that it holds
        run = self.run
        spec = RunSpec(run_id=run.run_id, config_json=run.config_json, config_hash=run.config_hash)
        return with_pooled(record, self._sites, spec, self._observers, should_stop)

    def artifact(self, kind: ArtifactKind, number: int = -1) -> tuple[BlobRef, Path]:
        """Return the global model or prototypes of a committed round, and their file; -1 is the last round."""
        return self._service.artifact(self._run_id, number, kind)

    def _report_events(self) -> None:
        """Report the events that were added to the run's history."""
        while events := self._service.list_events(
            EventQuery(run_id=self._run_id, after=self._cursor, limit=EVENTS_PER_READ)
        ):
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
    engine: EngineName = "local",
    watch: RunWatch | None = None,
    **workers: Any,
) -> RunRecord:
    """Train until the run has ended, and write its results into the folder.

    Args:
        folder: Its folder; prepared.
        should_stop: Asked before every batch, or many times a second where several clients work at a time.
        engine: "local" for processes of this machine, "ray" for those of a Ray cluster.
        workers: `jobs` and `ray_address` of `make_engine`.

    Raises:
        Interrupted: `should_stop()` held; the same call goes on where this one stopped.
        FedplccError: As `Simulation`.
    """

    def on_event(event: Event) -> None:
        progress.event(event)
        if watch is not None:
            watch.event(event)

    if federation.config.evaluation.joining == "pooled" and engine == "ray":
        raise InvalidConfig(
            'evaluation.joining = "pooled" reads all clients\' images in one process of this machine; leave out --engine ray'
        )
    Readiness().check_models(federation)
    if engine == "local":
        check_device(device)
    observers = Observers(
        on_event=on_event,
        on_problem=lambda client_id, problem: progress.problem(f"client {client_id}: {problem.detail}; {problem.hint}"),
        on_activity=lambda client_id, activity, done: progress.now(f"{client_id}: {activity}, {done:.0%}"),
        on_begin=progress.step,
        on_note=progress.note,
    )
    try:
        simulation = Simulation(
            federation,
            folder.aggregator_state,
            request_id=REQUEST_ID,
            device=device,
            observers=observers,
            should_stop=should_stop,
            engine=engine,
            **workers,
        )
    except Cancelled:
        raise Interrupted from None
    with closing(simulation):
        try:
            if watch is not None:
                watch.begins(simulation.run, simulation.manifest(), folder.path, simulation.last_event)
            simulation.run_to_end(should_stop, watch.stop_reason if watch is not None else lambda: None)
            record = simulation.record()
            if federation.config.evaluation.joining == "pooled" and record.status == RunStatus.COMPLETED.value:
                record = simulation.with_pooled(record, should_stop)
        except Cancelled:
            raise Interrupted from None
        files: list[tuple[ArtifactKind, int, str]] = [("model", -1, MODEL), ("prototypes", -1, PROTOTYPES)]
        if record.best is not None:
            number = record.best.round
            files += [("model", number, BEST_MODEL), ("prototypes", number, BEST_PROTOTYPES)]
        for kind, number, name in files:
            blob, path = simulation.artifact(kind, number)
            with path.open("rb") as source, blob_file(folder.path / name, blob) as target:
                shutil.copyfileobj(source, target)
        keep_roles(simulation.states, folder.path)
        only_tested = [name for name, client in federation.clients.items() if client.evaluate_only]
        for sentence in copies_sentences(*images_of_roles(simulation.states, simulation.run.run_id, only_tested)):
            progress.problem(sentence)
    write_record(folder.path, record)
    if (changed := changed_since(federation, folder.path)) is not None:
        progress.problem(changed)
    return record


def _hold(service: Coordinator, path: Path) -> None:
    """Upload the file of the initial model to the service."""
    receiver = service.initial_models.begin_upload(model_blob(path), path.name)
    if receiver is None:
        return
    with closing(receiver), path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            receiver.write(piece)
        receiver.finish()
