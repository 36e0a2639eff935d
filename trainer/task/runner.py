"""A trainer's tasks, from the aggregator's request to its acknowledgement: build, train and summarise, evaluate.

The same code runs in a networked trainer and in a simulation; only the `AggregatorPort` differs. A task is a function of its
content, the client's data and the configuration: every task builds its model anew, so nothing of an earlier one can leak in,
and doing a task twice gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import cast

from torch import nn

from shared.config.run import RunConfig, canonical_json, parse_run_config
from shared.errors import (
    BlobCorrupt,
    Code,
    FedplccError,
    InvalidModel,
    MalformedRequest,
)
from shared.methods.base import ClientState, ModelArrays, excess_rows
from shared.methods.prototypes import PrototypeConfig
from shared.process.log import get_logger
from shared.readings import UNREADABLE_FILES
from shared.tensors import blob_ref, from_bytes, prototypes_from_bytes, prototypes_to_bytes, sha256_hex, to_bytes
from shared.types import (
    FEATURE_DIM,
    GLOBAL_CLUSTER,
    GLOBAL_MODEL,
    LOCAL_MODEL,
    MODEL,
    BlobRef,
    Client,
    ClientActivity,
    ClientProblem,
    Evaluation,
    EvaluationCounts,
    Payload,
    PrototypeSet,
    RunSpec,
    Task,
    TaskKind,
    Update,
)
from shared.version import VERSION
from trainer.aggregator.port import AggregatorPort
from trainer.cancellation import ShouldStop, check, never
from trainer.consent import NO_CONSENT, Consent
from trainer.data import ClientData, describe, load_dataset
from trainer.learning.device_images import DeviceImages
from trainer.learning.evaluation import Score, collect_features, evaluate
from trainer.learning.ops import TorchOps
from trainer.learning.training import LocalTraining, OnProgress, check_features, local_train, prototype_constants
from trainer.models import FeatureModel, build_model, load_arrays, state_arrays
from trainer.readings.metrics import TrainerMetrics
from trainer.readings.speed import Speed, StepWatch
from trainer.reproducibility.determinism import prepare_torch
from trainer.reproducibility.environment import environment, resolve_device
from trainer.reproducibility.randomness import derive_seed
from trainer.task.client_state import CLIENT_STATE, Staged, States
from trainer.task.delivery import Delivery, Finished
from trainer.task.failures import site_failures
from trainer.task.fetched_model import FetchedModel
from trainer.task.job import Job, Loaded, OnActivity, OnProblem
from trainer.task.latest_model import LatestModel

log = get_logger("trainer.task.runner")


class TooManyPrototypes(FedplccError):
    """The client's samples give more prototypes than the aggregator takes; the same run will always give as many."""

    code = Code.FAILED_PRECONDITION
    reason = "TOO_MANY_PROTOTYPES"


class UnfitInitialModel(FedplccError):
    """The model that the run is to begin with is none of the run's specification; no client can begin with it."""

    code = Code.INVALID_ARGUMENT
    reason = "UNFIT_INITIAL_MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """What a client says of its samples' features; nothing for a method without prototypes.

    Attributes:
        sets: Names of the prototype sets.
        blobs: Their bytes by SHA-256.
        num_excluded: Samples that no prototype stands for.
        num_prototypes: Rows of the sets.
    """

    sets: tuple[BlobRef, ...] = ()
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    num_excluded: int = 0
    num_prototypes: int = 0


class TaskRunner:
    """Does one client's tasks, one at a time.

    It keeps the loaded data; what becomes of a finished update is delivery.py.
    """

    def __init__(
        self,
        client_id: str,
        domain: str,
        data: str,
        states: States,
        *,
        device: str = "auto",
        samples_per_class: int | None = None,
        metrics: TrainerMetrics | None = None,
        keeps_evaluated: bool = False,
        latest_model: LatestModel | None = None,
        consent: Consent = NO_CONSENT,
    ) -> None:
        """Prepare a client.

        Args:
            client_id: Whose tasks they are.
            domain: Label of the domain of its data.
            data: Data specification.
            states: What the client keeps over restarts.
            device: auto, cpu, cuda or cuda:N.
            samples_per_class: Size of a class-balanced training subset; all samples if None.
            metrics: Where to count and measure.
            keeps_evaluated: Whether the model that was evaluated is held until the next task, which mostly starts from it,
                so that it is downloaded once a round, not twice; many clients in one process have no memory for that.
            latest_model: Where this client finds what another one of this process has fetched, and leaves what it has. Its
                measurements say what it would have received on its own.
            consent: What the documents of runs may name.

        Raises:
            InvalidConfig: There is no such device.
        """
        self.client_id, self.domain = client_id, domain
        self._spec, self._samples_per_class = data, samples_per_class
        self.device = resolve_device(device)
        # Once: what is installed while this process runs is not what it has loaded.
        self._environment = environment(self.device)
        self._metrics = metrics
        self._delivery = Delivery(client_id, states)
        self._configs: dict[str, RunConfig] = {}
        self._loaded: Loaded | None = None
        self._keeps_evaluated = keeps_evaluated
        self._latest_model = latest_model
        self._consent = consent
        self._evaluated: tuple[BlobRef, bytes] | None = None
        self._speed = Speed(self.device)
        self._num_unreadable: int | None = None

    def readings(self) -> dict[str, float]:
        """The latest measurements by name, see shared/readings.py; any thread may ask."""
        unreadable = self._num_unreadable
        known = {} if unreadable is None else {UNREADABLE_FILES.name: float(unreadable)}
        return known | self._speed.readings()

    def announce(self) -> Client:
        """The client as it is before any run is known: sample counts by the data set's own class names.

        Raises:
            InvalidData: The data set cannot be opened.
        """
        return self._client(describe(self._spec, samples_per_class=self._samples_per_class))

    def client_for(self, run: RunSpec, on_problem: OnProblem | None = None) -> Client:
        """The client as it takes part in a run: sample counts of the data that were read, by the run's class names.

        Raises:
            InvalidData: The data set cannot be read or does not fit the run's data contract.
            InvalidConfig, MalformedRequest: The run's configuration is none.
        """
        return self._client_in(self._load(self._config(run), on_problem))

    def perform(
        self,
        task: Task,
        aggregator: AggregatorPort,
        should_stop: ShouldStop = never,
        on_activity: OnActivity | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        """Do a task until the aggregator has acknowledged it; WAIT and STOP are nothing to do.

        If storing or committing fails for a reason that passes, or this process ends before the update is committed, doing
        the same task again sends the finished update and trains nothing.

        Args:
            task: What to do.
            aggregator: Where blobs come from and results go to.
            should_stop: Asked before every batch and between the parts of the task.
            on_activity: Told of every part's beginning and progress.
            on_problem: Told of files that could not be read.

        Raises:
            Cancelled: `should_stop()` held, or the aggregator says that the task is not wanted any more.
            TooManyPrototypes: The client's data do not fit into an update.
            UnfitInitialModel: The run's initial model is of another specification.
            CodeNotAllowed, FileNotAllowed, DownloadNotAllowed: The run names what the owner of this site did not list.
            DiskFull, StoreUnavailable: The finished update cannot be kept; doing the task again tries that again.
            OutOfMemory, ModelFailed: This site's memory, or the model's own code, does not let the task be done.
            FedplccError: The task cannot be done otherwise, or the aggregator refused its result.
        """
        if task.run is None or task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return
        config = self._config(task.run)
        with site_failures(config.model):
            self._perform(task, config, aggregator, should_stop, on_activity, on_problem)

    def _perform(
        self,
        task: Task,
        config: RunConfig,
        aggregator: AggregatorPort,
        should_stop: ShouldStop,
        on_activity: OnActivity | None,
        on_problem: OnProblem | None,
    ) -> None:
        assert task.run is not None
        prepare_torch(config.training.threads, self.device)
        loaded = self._load(config, on_problem)
        job = Job(
            task=task,
            run=task.run,
            config=config,
            client=self._client_in(loaded),
            loaded=loaded,
            aggregator=aggregator,
            should_stop=should_stop,
            on_activity=on_activity or _say_nothing,
            on_problem=on_problem or _report_nothing,
        )
        if task.kind is TaskKind.EVALUATE:
            self._evaluate(job)
        else:
            self._contribute(job)

    def _contribute(self, job: Job) -> None:
        """Make the update that the task asks for, unless it is there, and hand it in."""
        identity = self._identity(job)
        self._delivery.hand_in(job, self._delivery.found(identity) or self._made(job, identity))

    def _made(self, job: Job, identity: str) -> Finished:
        """Make the update. The state that the client kept before is let go with it, as sending takes a while."""
        client_state = self._delivery.settle(job, identity)
        if job.task.kind is TaskKind.INIT:
            return self._initialise(job, identity)
        return self._train(job, identity, client_state)

    def _identity(self, job: Job) -> str:
        """Names the work: its task, for whom and on which data it is done, and what does it."""
        loaded, task = job.loaded, job.task
        facts = {
            "client": self.client_id,
            "task": [*task.key, job.run.config_hash],
            "blobs": [blob.sha256 for blob in task.payload.blobs],
            "data": [self._spec, self._samples_per_class, *loaded.class_counts],
            "environment": asdict(self._environment),
            "version": VERSION,
        }
        return sha256_hex(canonical_json(facts).encode())

    def _initialise(self, job: Job, identity: str) -> Finished:
        """Build the run's first model from (model specification, seed), or take the one that the task comes with."""
        if job.task.payload.tensor_group(MODEL) is None:
            job.begin(ClientActivity.INITIALISING)
            with job.timed("build_seconds"):
                model: nn.Module = self._new_model(job.config, with_weights=True)
        else:
            model = self._given_model(job)
        data = to_bytes(state_arrays(model))
        group = blob_ref(MODEL, data)
        dim = cast(FeatureModel, model).feature_dim
        payload = Payload(tensor_groups=(group,), int_lists={FEATURE_DIM: (dim,)})
        update = Update(client_id=self.client_id, payload=payload, num_examples=0)
        staged = Staged(identity=identity, run_id=job.run.run_id, round=job.task.round, update=update)
        return Finished(staged, {group.sha256: data})

    def _given_model(self, job: Job) -> nn.Module:
        """The model that the run begins with.

        Raises:
            UnfitInitialModel: It is no model of the run's specification.
        """
        arrays = from_bytes(self._model_bytes(job))
        model: nn.Module = self._new_model(job.config, with_weights=False)
        try:
            load_arrays(model, arrays)
        except InvalidModel as error:
            raise UnfitInitialModel(
                f"the run's initial_model does not fit its model {job.config.model.name!r} with "
                f"{len(job.config.data.classes)} classes: {error.detail}"
            ) from error
        return model

    def _train(self, job: Job, identity: str, client_state: ClientState | None) -> Finished:
        """Train on the client's data, from the round's model or the client's own, and summarise the features (eq. 9)."""
        method, loaded = job.config.algorithm, job.loaded
        model, received = self._model_to_train(job, client_state)
        trained = self._trained(job, model, received, client_state)
        groups, state, blobs = self._model_blobs(job, model, trained.client_state)
        summary = _Summary() if method.client_report is None else self._summary(job, model, trained)
        blobs |= summary.blobs
        if self._metrics is not None:
            self._metrics.clipped_steps.inc(trained.num_clipped_steps)
            self._metrics.prototypes.set(summary.num_prototypes)
        steps = {"steps": float(trained.num_steps), "clipped_steps": float(trained.num_clipped_steps)}
        update = Update(
            client_id=self.client_id,
            payload=Payload(tensor_groups=groups, prototype_sets=summary.sets),
            num_examples=len(loaded.train),
            num_excluded=summary.num_excluded,
            class_counts=loaded.class_counts,
            losses=trained.losses,
            timings=dict(job.timings) | steps,
            num_prototypes=summary.num_prototypes,
        )
        staged = Staged(
            identity=identity,
            run_id=job.run.run_id,
            round=job.task.round,
            update=update,
            keeps_state=method.keeps_client_state,
            state=state,
        )
        return Finished(staged, blobs)

    def _trained(
        self, job: Job, model: nn.Module, received: ModelArrays | None, client_state: ClientState | None
    ) -> LocalTraining:
        """Train the model in place."""
        method = job.config.algorithm
        prototypes = _received_prototypes(job) if method.has_prototypes else PrototypeSet.empty()
        job.begin(ClientActivity.TRAINING)
        watch = self._speed.watch()
        with job.timed("train_seconds"):
            return local_train(
                model,
                job.loaded.train,
                job.config,
                method,
                prototypes,
                round=job.task.round,
                client_id=self.client_id,
                client_state=client_state,
                received=received,
                keeps_seen=_takes_seen_features(job.config),
                should_stop=job.should_stop,
                on_progress=self._on_progress(job, watch),
                on_batch=watch.has_batch,
            )

    def _model_blobs(
        self, job: Job, model: nn.Module, kept: ClientState | None
    ) -> tuple[tuple[BlobRef, ...], BlobRef | None, dict[str, bytes]]:
        """What of the trained model is sent and what is kept, by name, with the bytes of both by SHA-256.

        Many methods keep the model that they send: the same bytes are hashed once and held once.
        """
        blobs: dict[str, bytes] = {}
        sent = None
        if job.config.algorithm.shares_model(job.config.method):
            data = to_bytes(state_arrays(model))
            sent = blob_ref(MODEL, data)
            blobs[sent.sha256] = data
        state = None
        if kept is not None:
            data = to_bytes(kept)
            is_sent = sent is not None and data == blobs[sent.sha256]
            state = replace(sent, role=CLIENT_STATE) if sent is not None and is_sent else blob_ref(CLIENT_STATE, data)
            blobs.setdefault(state.sha256, data)
        return () if sent is None else (sent,), state, blobs

    def _summary(self, job: Job, model: nn.Module, trained: LocalTraining) -> _Summary:
        """The prototypes of the client's training samples under the trained model.

        Raises:
            TooManyPrototypes: They do not fit into an update.
            TrainingDiverged: A feature is not finite.
        """
        config, method, train = job.config, job.config.algorithm, job.loaded.train
        assert method.client_report is not None
        assert method.prototype_kind is not None
        num_classes = len(config.data.classes)
        job.begin(ClientActivity.SUMMARISING)
        with job.timed("summarise_seconds"):
            features_ND, labels_N = trained.seen or collect_features(
                model,
                train,
                config,
                should_stop=job.should_stop,
                on_share=lambda share: job.on_activity(ClientActivity.SUMMARISING, share),
            )
            check_features(features_ND, client_id=self.client_id, round=job.task.round)
            report = method.client_report(features_ND, labels_N, num_classes, config.method)
        excess = excess_rows(report.prototypes, num_classes)
        if excess is not None:
            raise TooManyPrototypes(
                f'the client\'s data give {excess} of an update; set partition = "last" or a larger '
                "min_cluster_size in the run's [method] section"
            )
        vectors = prototypes_to_bytes(report.prototypes)
        blob = blob_ref(method.prototype_kind, vectors)
        return _Summary(
            sets=(blob,),
            blobs={blob.sha256: vectors},
            num_excluded=report.num_excluded + len(train) - len(labels_N),
            num_prototypes=len(report.prototypes),
        )

    def _model_to_train(self, job: Job, client_state: ClientState | None) -> tuple[nn.Module, ModelArrays | None]:
        """The model that training starts from, and the round's own where that is another; else its bytes are let go."""
        received, start_model = FetchedModel(lambda: self._model_bytes(job)), job.config.algorithm.start_model
        own = None if start_model is None else start_model(received, client_state, job.config.method)
        return (self._model(job, received), None) if own is None else (self._model(job, own), received)

    def _evaluate(self, job: Job) -> None:
        """Count correct predictions on the client's test set: the global model's, and those of the client's own.

        Its own is that of its last committed update, whatever has become of this process since; a client that has none yet
        reports on the global one alone.
        """
        models = self._models_to_evaluate(job)
        counts = [
            self._counted(job, name, arrays, begin=number / len(models), share=1 / len(models))
            for number, (name, arrays) in enumerate(models.items())
        ]
        evaluation = Evaluation(
            client_id=self.client_id, domain=self.domain, counts=tuple(counts), timings=dict(job.timings)
        )
        job.aggregator.report_evaluation(job.run.run_id, job.task.round, evaluation)

    def _counted(self, job: Job, name: str, arrays: ModelArrays, *, begin: float, share: float) -> EvaluationCounts:
        """What one model comes to; that is a share of the whole evaluation, from this fraction of it on."""
        model = self._model(job, arrays)
        score = self._score(job, model) if name == LOCAL_MODEL else None
        check(job.should_stop)
        job.on_activity(ClientActivity.EVALUATING, begin)
        with job.timed("evaluate_seconds"):
            return evaluate(
                model,
                job.loaded.test,
                job.config,
                model_name=name,
                score=score,
                should_stop=job.should_stop,
                on_share=lambda done: job.on_activity(ClientActivity.EVALUATING, begin + share * done),
            )

    def _models_to_evaluate(self, job: Job) -> dict[str, ModelArrays]:
        """The models that the report is of, by name."""
        method, hyper = job.config.algorithm, job.config.method
        names = method.evaluated_models(hyper)
        received = FetchedModel(lambda: self._model_bytes(job))
        local = None
        if LOCAL_MODEL in names and method.local_model is not None:
            local = method.local_model(received, self._delivery.settle(job, None), hyper)
        models: dict[str, ModelArrays] = {}
        if GLOBAL_MODEL in names or local is None:
            models[GLOBAL_MODEL] = received
        if local is not None:
            models[LOCAL_MODEL] = local
        return models

    def _score(self, job: Job, model: nn.Module) -> Score | None:
        """By what the client's own model names classes; None for its logits."""
        method, hyper = job.config.algorithm, job.config.method
        if method.scores is None:
            return None
        name_classes = method.scores
        prototypes = prototype_constants(_received_prototypes(job), model, job.loaded.test, job.config)
        return lambda features_BD, logits_BM: name_classes(TorchOps(), features_BD, logits_BM, prototypes, hyper)

    def _model(self, job: Job, arrays: ModelArrays) -> nn.Module:
        """A model of the run's specification that holds these arrays, on the device."""
        arrays = dict(arrays)  # what has to be downloaded is, before the clock runs
        with job.timed("build_seconds"):
            model = self._new_model(job.config, with_weights=False)
            load_arrays(model, arrays)
            return model.to(self.device)

    def _new_model(self, config: RunConfig, *, with_weights: bool) -> nn.Module:
        """A model of the run's specification, made as `build_model` makes it, if the owner of the site consents."""
        return build_model(
            config.model,
            len(config.data.classes),
            config.data.image_size,
            config.run.seed,
            with_weights=with_weights,
            consent=self._consent,
        )

    def _model_bytes(self, job: Job) -> bytes:
        """The blob of the task's model."""
        job.begin(ClientActivity.DOWNLOADING)
        blob = job.task.payload.tensor_group(MODEL)
        if blob is None:
            raise MalformedRequest(f"a task {job.task.kind} comes with a model", field="payload")
        if self._latest_model is not None:
            return _fetch_for_all(job, blob, self._latest_model)
        kept, self._evaluated = self._evaluated, None
        data = kept[1] if kept is not None and kept[0] == blob else _fetch(job, blob)
        if self._keeps_evaluated and job.task.kind is TaskKind.EVALUATE:
            self._evaluated = (blob, data)
        return data

    def _config(self, run: RunSpec) -> RunConfig:
        """The run's configuration; the latest one is kept, as it is the same for every round."""
        known = self._configs.get(run.config_hash)
        if known is not None:
            return known
        if hashlib.sha256(run.config_json.encode()).hexdigest() != run.config_hash:
            raise MalformedRequest("the run's configuration does not have its SHA-256", field="config_json")
        config = parse_run_config(json.loads(run.config_json))
        self._configs = {run.config_hash: config}
        return config

    def _load(self, config: RunConfig, on_problem: OnProblem | None) -> Loaded:
        """The client's data as the run's contract wants it; the latest are kept."""
        known = self._loaded
        if known is not None and (known.contract, known.seed) == (config.data, config.run.seed):
            return known
        self._loaded = None  # let go of the images before others are read
        begin = perf_counter()
        seed = derive_seed("subset", config.run.seed, self.client_id)
        data = load_dataset(self._spec, contract=config.data, samples_per_class=self._samples_per_class, seed=seed)
        loaded = Loaded(
            contract=config.data,
            seed=config.run.seed,
            class_counts=data.class_counts,
            train=DeviceImages.put(data.train, config.data, self.device),
            test=DeviceImages.put(data.test, config.data, self.device),
        )
        log.info(
            "data_loaded",
            client_id=self.client_id,
            num_examples=len(data.train),
            num_test_examples=len(data.test),
            num_unreadable=len(data.unreadable),
            image_bytes=loaded.train.images_NSS3.nbytes + loaded.test.images_NSS3.nbytes,
            train_images_on=str(loaded.train.images_NSS3.device),
            test_images_on=str(loaded.test.images_NSS3.device),
            note=data.note,
            duration_s=round(perf_counter() - begin, 3),
        )
        self._report_unreadable(data, on_problem)
        self._loaded = loaded
        return loaded

    def _report_unreadable(self, data: ClientData, on_problem: OnProblem | None) -> None:
        count = len(data.unreadable)
        self._num_unreadable = count
        if self._metrics is not None:
            self._metrics.unreadable_files.set(count)
        if count:
            log.warning("unreadable_files", client_id=self.client_id, count=count, first=data.unreadable[0])
            if on_problem is not None:
                on_problem(
                    ClientProblem(
                        reason="UNREADABLE_FILES",
                        detail=f"{count} of the data set's files could not be read and are left out",
                        hint="the log of this trainer names the first one, and `fedplcc data describe --check` all; "
                        "mend or remove them",
                    )
                )

    def _on_progress(self, job: Job, watch: StepWatch) -> OnProgress:
        """Turn the training loop's steps into progress, readings and metrics."""

        def on_progress(step: int, steps: int) -> None:
            if step == 0:
                watch.begin()
            else:
                done = watch.done()
                if self._metrics is not None:
                    self._metrics.batch_done(done.num_examples, done.seconds, done.data_seconds)
            job.on_activity(ClientActivity.TRAINING, step / steps)

        return on_progress

    def _client_in(self, loaded: Loaded) -> Client:
        return self._client(dict(zip(loaded.contract.classes, loaded.class_counts, strict=True)))

    def _client(self, class_counts: Mapping[str, int]) -> Client:
        return Client(
            client_id=self.client_id,
            domain=self.domain,
            num_examples=sum(class_counts.values()),
            class_counts=class_counts,
            environment=self._environment,
        )


def _takes_seen_features(config: RunConfig) -> bool:
    """Whether prototypes are made of the features that training saw, not of a pass after it."""
    return isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch"


def _received_prototypes(job: Job) -> PrototypeSet:
    blob = job.task.payload.prototype_set(GLOBAL_CLUSTER)
    if blob is None:
        raise MalformedRequest(f"method {job.config.run.method} comes with prototypes", field="payload")
    return prototypes_from_bytes(_fetch(job, blob))


def _fetch_for_all(job: Job, blob: BlobRef, latest: LatestModel) -> bytes:
    """A model, fetched by the first client of this process that needs it."""
    data = latest.get(blob)
    if data is None:
        data = _fetch(job, blob)
        latest.put(blob, data)
    else:
        _count_received(job, data)
    return data


def _fetch(job: Job, blob: BlobRef) -> bytes:
    """A blob whose SHA-256 is the one that the task names; fetched anew once if it is not.

    Raises:
        BlobCorrupt: It was not, twice.
    """
    for _ in range(2):
        check(job.should_stop)
        with job.timed("download_seconds"):
            data = job.aggregator.fetch(blob)
        if sha256_hex(data) == blob.sha256:
            _count_received(job, data)
            return data
        log.warning("blob_corrupt", role=blob.role, sha256=blob.sha256)
    raise BlobCorrupt(f"the {blob.role} that arrived does not have the announced SHA-256", sha256=blob.sha256)


def _count_received(job: Job, data: bytes) -> None:
    job.timings["received_bytes"] = job.timings.get("received_bytes", 0.0) + len(data)


def _say_nothing(activity: ClientActivity, progress: float) -> None:
    """Nobody wants to know."""


def _report_nothing(problem: ClientProblem) -> None:
    """Nobody wants to know."""
