"""A client's tasks, from the aggregator's request to its acknowledgement: make the first model, train, evaluate.

The same code runs in a networked trainer and in a simulation; only the `AggregatorPort` differs. A task is a function of its
content, the client's data and the configuration. Every task builds its model anew: nothing of an earlier one can leak in,
and a task that is done twice gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.readings import UNREADABLE_FILES
from fedplcc.shared.types import Client, ForgottenRun, RunSpec, Task, TaskKind
from fedplcc.trainer.aggregator.port import AggregatorPort
from fedplcc.trainer.cancellation import ShouldStop, never
from fedplcc.trainer.learning.alone import AloneSoFar
from fedplcc.trainer.owner.approval.gate import Gate
from fedplcc.trainer.owner.refusals import check_policy
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.readings.speed import Speed
from fedplcc.trainer.reproducibility.determinism import prepare_torch
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.delivery import Delivery, Finished
from fedplcc.trainer.task.encoding import without_errors
from fedplcc.trainer.task.failures import site_failures
from fedplcc.trainer.task.inputs import TaskInputs, place_of
from fedplcc.trainer.task.job import FIRST_ACTIVITY, Job, Loaded, OnActivity, OnProblem
from fedplcc.trainer.task.local_update import trained_update, without_data
from fedplcc.trainer.task.models.initial_model import initial_update
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.parts.private_sums import check_release
from fedplcc.trainer.task.round_evaluation import round_evaluation
from fedplcc.trainer.task.run_data import RunData, beginning_of
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.task.withholding import no_scores, told_timings, without_detail


class TaskRunner:
    """Does one client's tasks, one at a time."""

    def __init__(
        self,
        site: ClientSite,
        states: ClientStates,
        *,
        metrics: TrainerMetrics | None = None,
        keeps_evaluated: bool = False,
        latest_model: LatestModel | None = None,
        gate: Gate | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            states: Keeps the client's state and its finished update over restarts.
            keeps_evaluated: Whether to keep the evaluated model until the next task, which mostly starts from it: it is then
                downloaded once a round, not twice; and how far a training alone has come. Many clients in one process have
                no memory for that.
            latest_model: The model that the clients of this process share. A client that finds its model there counts the
                bytes that it would have received on its own.
            gate: Lets the tasks of runs pass that the site's owner has approved; all of them if None.
        """
        self._gate = gate
        self.site, self._metrics = site, metrics
        self._inputs = TaskInputs(site, metrics, keeps_evaluated=keeps_evaluated, latest_model=latest_model)
        self._delivery = Delivery(site.client_id, states)
        self._run_data = RunData(site.client_id, states)
        self._speed, self._keeps_models = Speed(site.device), keeps_evaluated
        self._alone: tuple[tuple[str, str], AloneSoFar] | None = None
        self.announced: Client | None = None
        """The client as the aggregator knows it, or is about to."""

    def readings(self) -> dict[str, float]:
        """Return the latest measurements by name, see shared/readings.py; any thread may call it."""
        unreadable = self._inputs.num_unreadable
        known = {} if unreadable is None else {UNREADABLE_FILES.name: float(unreadable)}
        return known | self._speed.readings() if self.site.tells_counts else {}

    def announce(self) -> Client:
        """Return the client as it is before any run is known: sample counts by the data set's own class names.

        Raises:
            InvalidData: The data set cannot be opened.
        """
        self.announced = self.site.announced()
        return self.announced

    def client_for(self, run: RunSpec, on_problem: OnProblem | None = None) -> Client:
        """Return the client as it takes part in a run: counts of the samples that were read, by the run's class names.

        In a run with stages they are those of all stages.

        Raises:
            InvalidData: The data set cannot be read or does not fit the run's data contract.
            InvalidConfig, MalformedRequest: The run's configuration is not valid.
        """
        config = self._inputs.config(run)
        self._run_data.meets(run.run_id)  # for its first task they are not read again
        counts = self._inputs.class_counts(config, self._told(on_problem, config))
        named = dict(zip(config.data.classes, counts, strict=True))
        self.announced = self.site.client(named, withholds=config.withholds)
        return self.announced

    def images(self, run: RunSpec, should_stop: ShouldStop, on_activity: OnActivity) -> Loaded:
        """Return the client's data as its tasks in a run without stages see them; for who simulates all clients.

        Raises:
            InvalidData: They are not those that the run began with.
            FedplccError, Cancelled: As `perform`.
        """
        config = self._inputs.config(run)
        began = self._run_data.began(run.run_id, None)
        loaded = self._inputs.data(config, None, None, began, should_stop)
        self._run_data.check(run.run_id, None, loaded.record, beginning_of(config, self.site))
        return self._inputs.on_features(config, loaded, should_stop, on_activity)

    def forget(self, forgotten: Sequence[ForgottenRun]) -> None:
        """Delete what is kept of runs that are to forget the client; any thread may call it, also during a task.

        Raises:
            DiskFull, StoreUnavailable: It cannot be deleted yet; the next change of what is kept tries again.
        """
        self._delivery.forget(forgotten)

    def perform(
        self,
        task: Task,
        aggregator: AggregatorPort,
        should_stop: ShouldStop = never,
        on_activity: OnActivity | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        """Do a task until the aggregator has acknowledged it; for WAIT and STOP there is nothing to do.

        If storing or committing fails for a reason that passes, or this process ends before the update is committed, doing
        the same task again sends the finished update without training.

        Args:
            aggregator: Where blobs come from and results go.
            should_stop: Asked before every batch and between the parts of the task.

        Raises:
            Cancelled: `should_stop()` held, or the aggregator no longer wants the task.
            TooManyPrototypes: The client's data do not fit into an update.
            FailedPrecondition: The client's devices cannot share the run's training.
            ModelKindRefused: The client has its own kind of model, and the run averages models.
            UnfitInitialModel: The run's initial model is of another specification.
            AwaitsApproval, RunRejected, RunWithdrawn: The site's owner has not approved the run, or has ended it here.
            CodeNotAllowed, WeightsMissing: The run names what the site's owner did not list or does not keep.
            PolicyForbids: The policy of the site's owner forbids the run; nothing was read for it.
            ClaimNotKept, BudgetSpent: The run claims more than the site holds, or would exceed the owner's limit.
            DiskFull, StoreUnavailable: The finished update cannot be kept; doing the task again tries again.
            OutOfMemory, ModelFailed: The site's memory does not suffice, or the model's own code raised.
            FedplccError: The task cannot be done for another reason, or the aggregator refused its result.
        """
        if task.run is None or task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return
        config = self._inputs.config(task.run)
        check_policy(self.site.policy, config, task)
        if self._gate is not None:
            self._gate.check(task)
        self.site.check_kind(config)
        self.site.check_devices(config)
        if task.kind is not TaskKind.EVALUATE:
            check_release(self.site, config, task.run, task.round)
        elif not self.site.policy.leaves.scores:
            report = no_scores(self.site.client_id, self.site.domain, len(config.data.classes))
            aggregator.report_evaluation(task.run.run_id, task.round, report)
            return
        on_problem = self._told(on_problem, config)
        built = config.model if task.kind is TaskKind.INIT else self.site.model or config.model
        with site_failures(built, withholds=self._withholds(config)):
            prepare_torch(config.training.threads, self.site.device)
            place = place_of(task, config)
            began, anew = self._run_data.began(task.run.run_id, place), self._run_data.is_new(task.run.run_id)
            activity = on_activity or (lambda activity, progress: None)
            first = FIRST_ACTIVITY[task.kind]
            loaded = self._inputs.data(
                config, on_problem, place, began, should_stop, lambda done: activity(first, done), anew=anew
            )
            self._run_data.check(task.run.run_id, place, loaded.record, beginning_of(config, self.site), on_problem)
            client = self.site.client(loaded.counts_by_name, withholds=config.withholds)
            self._announce(client, aggregator)
            if task.kind is not TaskKind.INIT:
                loaded = self._inputs.on_features(config, loaded, should_stop, activity)
            job = Job(
                task=task,
                run=task.run,
                config=config,
                site=self.site,
                client=client,
                loaded=loaded,
                aggregator=aggregator,
                speed=self._speed,
                metrics=self._metrics,
                should_stop=should_stop,
                on_activity=activity,
                on_problem=on_problem or (lambda problem: None),
            )
            if task.kind is TaskKind.EVALUATE:
                evaluation = round_evaluation(
                    job,
                    self._inputs,
                    lambda: without_errors(self._delivery.settle(job, None)),
                    self._alone_so_far(job),
                )
                told = told_timings(evaluation.timings, withholds=job.withholds_times)
                evaluation = replace(evaluation, timings=told)
                aggregator.report_evaluation(task.run.run_id, task.round, evaluation)
            else:
                self._alone = None
                self._contribute(job)

    def _alone_so_far(self, job: Job) -> AloneSoFar | None:
        """Return how far the client's training alone in a run has come, for a task that is asked for again."""
        of = (job.run.config_hash, job.loaded.record.sha256)
        if self._alone is None or self._alone[0] != of:
            self._alone = (of, AloneSoFar())
        return self._alone[1] if self._keeps_models else None

    def _told(self, on_problem: OnProblem | None, config: RunConfig) -> OnProblem | None:
        """Return whom to tell of problems, without what the site withholds."""
        if on_problem is None or not self._withholds(config):
            return on_problem
        tell = on_problem
        return lambda problem: tell(without_detail(problem))

    def _withholds(self, config: RunConfig) -> bool:
        return config.withholds or not self.site.tells_counts

    def _announce(self, client: Client, aggregator: AggregatorPort) -> None:
        """Tell the aggregator where the client has other samples than it said.

        Files were unreadable, the run splits them in another way, or a stage has others.
        """
        known = self.announced
        if client.num_examples and known is not None and samples_of(client) != samples_of(known):
            client = replace(client, smallest_side=known.smallest_side if client.class_counts else 0)
            aggregator.announce(client)
            self.announced = client

    def _contribute(self, job: Job) -> None:
        """Make the update that the task asks for, unless it is finished already, and hand it in."""
        if job.site.evaluate_only:
            raise InvalidData(
                f"client {job.site.client_id} evaluates only (evaluate_only), and the run asks it to train: begin the run "
                "when its trainer has joined as it is now, retire it there, or start its trainer without the setting"
            )
        if job.task.kind is TaskKind.TRAIN and not len(job.loaded.train):
            job.aggregator.commit_update(job.run.run_id, job.task.round, without_data(job))
            return
        identity = job.identity()
        finished = self._delivery.found(identity) or self._delivery.sent(job) or self._made(job, identity)
        self._delivery.hand_in(job, finished)

    def _made(self, job: Job, identity: str) -> Finished:
        """Make the update. The client's earlier state is freed on return, because sending takes a while."""
        client_state = self._delivery.settle(job, identity)
        if job.task.kind is TaskKind.INIT:
            return initial_update(job, self._inputs, identity)
        return trained_update(job, self._inputs, identity, client_state)


def samples_of(client: Client) -> dict[str, int]:
    """Return the numbers of a client's samples by class, of classes that it has."""
    return {name: count for name, count in client.class_counts.items() if count}
