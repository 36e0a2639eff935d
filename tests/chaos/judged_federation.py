"""An aggregator, its clients and the people who steer runs, with a judge who says after each call what must have come of it.

`tests.chaos.round_oracle` says what the answer, the runs, the history and the counters must be; at the end a mean computed
directly says what the models must be.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.process import failpoints
from fedplcc.shared.steering import PauseRun, ResumeRun, StopRun, Verb
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import (
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    ClientActivity,
    Evaluation,
    EventQuery,
    PrototypeSet,
    Run,
    Task,
    TaskKind,
    Update,
)
from tests.chaos.round_oracle import ACCEPTED, DONE, DUPLICATE, ENDED, Offer, Oracle, RunModel
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.failing_disk import Killed
from tests.support.hosts.memory_folder import memory_folder
from tests.support.oracles.federation_result import mean_model

NAMES = ("ann", "bob", "zoe")
KEYS = ("k1", "k2", "k3", "k4")
"""Request ids of what people ask for."""
KILLED = "KILLED"
DEADLINE_S = 5.0
WHO_IS_AWAY = frozenset({"client_dropped", "client_returned", "client_asked", "quorum_missing", "quorum_regained"})
"""Events about clients that an overdue round goes on without: the judge is told of them, see `Oracle.drop`."""
MAX_HELD = 12
"""Uploads of one client that wait for a commit; a few less than the aggregator keeps."""

figures: Counter[str] = Counter()
"""What came of everything that was asked, and how often; for all games of this process."""


class Fickle(NumpyClient):
    """A client that computes another update for the same task if it is told to: whoever restarts may have other data."""

    variant = 0

    def _rng(self, task: Task) -> np.random.Generator:
        seed = super()._rng(task).integers(1 << 30)
        return np.random.default_rng([int(seed), self.variant])


@dataclass(frozen=True)
class Work:
    """A client's result of a task."""

    client_id: str
    task: Task
    update: Update | None = None
    blobs: dict[BlobRef, bytes] | None = None
    report: Evaluation | None = None

    @property
    def run_id(self) -> str:
        assert self.task.run is not None
        return self.task.run.run_id

    @property
    def offer(self) -> Offer:
        assert self.update is not None
        return _offer_of(self.update)


class JudgedFederation:
    """An aggregator, three clients, the people who steer runs, and their judge."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = memory_folder()
        self.federation: LocalFederation
        self.oracle: Oracle
        self.works: list[Work] = []
        self.tokens: dict[str, list[str]] = {}
        self._sequence = 0
        self._has_begun = False

    def _create(
        self, method: str, roster: Sequence[str], num_rounds: int, size: int | None, quorum: int | None
    ) -> None:
        self._wait(1.0)  # no two runs have one age: the oldest goes first
        document = a_document(method, clients=tuple(roster), run={"rounds": num_rounds, "cohort_size": size})
        if quorum is not None:
            document["quorum"] = {"deadline_s": DEADLINE_S, "min_clients": quorum, "silence_s": 1e6}
        run = self.federation.coordinator.create_run(f"run {len(self.oracle.runs)}", document)
        drawn = [
            select_cohort(roster, seed=run.seed, round_number=number + 1, cohort_size=size)
            for number in range(num_rounds)
        ]
        cohorts = [(min(roster),), *drawn]
        self.oracle.create(RunModel(run.run_id, tuple(roster), cohorts, min_clients=quorum, deadline_s=DEADLINE_S))

    # One call, and whether it was answered rightly

    def _ask(self, predict: Callable[[Oracle], str], call: Callable[[], object], dies_at: int = 0, *others: Any) -> str:
        """Make a call, and judge its answer; returns the answer.

        An aggregator that is killed within the call has done all of it or nothing when it is back, or what `others` predict.
        """
        before = copy.deepcopy(self.oracle) if dies_at else self.oracle
        futures = [copy.deepcopy(self.oracle) for _ in others]
        right = predict(self.oracle)
        try:
            with _dying(dies_at):
                call()
            found = DONE
        except FedplccError as error:
            found = error.reason
        except Killed:
            figures["killed within a call"] += 1
            for future, other in zip(futures, others, strict=True):
                other(future)
            self._start_again([self.oracle, before, *futures])
            return KILLED
        assert found == (DONE if right in (ACCEPTED, DUPLICATE) else right), f"answered {found}, must be {right}"
        figures[right] += 1
        return right

    def _start_again(self, possible: Sequence[Oracle]) -> None:
        """Start the aggregator on what it left; it must be in one of these states."""
        self.federation.start_again()
        for oracle in possible:
            oracle.restart()
            oracle.uploaded = {
                name: {path.name for path in self._incoming(name).glob("*") if path.suffix != ".part"} for name in NAMES
            }
        problems = []
        for oracle in possible:
            problem = self._difference(oracle)
            if not problem:
                self.oracle = oracle
                return
            problems.append(problem)
        raise AssertionError(f"after the crash the aggregator is in no state that it may be in: {problems}")

    def _incoming(self, name: str) -> Path:
        return self.federation.folder / "incoming" / name

    # What clients do

    def _join(self, name: str, which: int) -> str:
        client, token = self.federation.clients[name], self.tokens[name][which]
        answer = self._ask(
            lambda oracle: oracle.join(name, token), lambda: self.federation.coordinator.join(client.record, token)
        )
        if answer == DONE:
            client.token = token
        return answer

    def _task(self, name: str) -> Task | None:
        """The client's present task; None for a client that is not in."""
        client = self.federation.clients[name]
        found: list[Task] = []
        answer = self._ask(
            lambda oracle: oracle.call(name, client.token), lambda: found.append(self.federation.task(client))
        )
        if answer != DONE:
            return None
        (task,) = found
        run_id, is_stop = task.key[0], task.kind is TaskKind.STOP
        self.oracle.given(name, run_id, is_stop=is_stop)
        wanted = self.oracle.wanted(name)
        if wanted:
            assert (run_id, task.round, task.kind.value) in wanted, f"{name} got {task.key}, wanted is one of {wanted}"
            return task
        assert task.kind in (TaskKind.WAIT, TaskKind.STOP), f"{name} got {task.key}, nothing is wanted"
        assert not is_stop or self.oracle.runs[run_id].status == "stopping"
        return None

    def _prepare(self, name: str, variant: int) -> Work | None:
        """Have a client compute its task, and keep what comes of it for ever."""
        task = self._task(name)
        if task is None:
            return None
        client = self.federation.clients[name]
        assert isinstance(client, Fickle)
        client.variant = variant
        model = self.federation.fetch(client, task)
        if task.kind is TaskKind.EVALUATE:
            assert model is not None
            work = Work(name, task, report=client.evaluation(task, model))
        else:
            work = Work(name, task, *client.work(task, model))
        self.works.append(work)
        return work

    def _send(self, work: Work, dies_at: int = 0) -> str:
        """Upload the blobs of an update."""
        assert work.blobs is not None
        client, answer = self.federation.clients[work.client_id], DONE
        for blob, data in work.blobs.items():
            if len(list(self._incoming(work.client_id).glob("*"))) >= MAX_HELD:
                return answer
            answer = self._ask(
                lambda oracle, blob=blob: oracle.upload(  # type: ignore[misc]
                    work.client_id, client.token, work.run_id, work.task.round, [blob.sha256]
                ),
                lambda blob=blob, data=data: self.federation.upload(client, work.task, {blob: data}),  # type: ignore[misc]
                dies_at,
            )
            if answer != DONE:
                return answer
        return answer

    def _hand_in(
        self, work: Work, dies_at: int = 0, *, number: int | None = None, token: str = "", is_inline: bool = False
    ) -> str:
        """Commit an update or report, for its own round or another, as the present trainer of the client or another.

        An update is committed with the bytes of its blobs if `is_inline`, else after they were uploaded.
        """
        client, coordinator = self.federation.clients[work.client_id], self.federation.coordinator
        where = (work.client_id, token or client.token, work.run_id, work.task.round if number is None else number)
        if work.report is not None:
            report = work.report
            return self._ask(
                lambda oracle: oracle.report(*where), lambda: coordinator.report_evaluation(*where, report), dies_at
            )
        update, offer = work.update, work.offer
        assert update is not None
        assert work.blobs is not None
        inline = tuple(work.blobs.values()) if is_inline else ()
        return self._ask(
            lambda oracle: oracle.commit(*where, offer, is_inline=is_inline),
            lambda: coordinator.commit_update(*where, update, inline),
            dies_at,
        )

    def _do(
        self, name: str, variant: int = 0, dies_at: int = 0, *, errs: bool = False, is_inline: bool = False
    ) -> bool:
        """A client does its task to its end, perhaps after an error in counting; says whether there was one."""
        if self.oracle.present.get(name) is None and self._join(name, 0) != DONE:
            return False
        work = self._prepare(name, variant)
        if work is None:
            if name in self.oracle.present and self.oracle.present[name].token == self.federation.clients[name].token:
                self._beat(name, "")
            return False
        is_inline = is_inline and work.blobs is not None
        if work.blobs is not None and not is_inline and self._send(work) != DONE:
            return False
        if errs and work.task.kind is TaskKind.TRAIN:
            self._hand_in(altered(work, "counts"), is_inline=is_inline)
        self._hand_in(work, dies_at, is_inline=is_inline)
        return True

    def _beat(self, name: str, run_id: str) -> None:
        client = self.federation.clients[name]
        activity = ClientActivity.TRAINING if run_id else ClientActivity.IDLE
        self._ask(
            lambda oracle: oracle.heartbeat(name, client.token, run_id),
            lambda: self.federation.heartbeat(client, activity=activity, run_id=run_id, round=1),
        )

    # What people do

    def _steer(self, action: str, run_id: str, *, now: bool = False, key: str = "", dies_at: int = 0) -> None:
        coordinator = self.federation.coordinator

        def call() -> object:
            verbs: dict[str, Verb] = {"pause": PauseRun(now=now), "resume": ResumeRun(), "stop": StopRun()}
            return coordinator.steer(run_id, verbs[action], request_id=key)

        self._ask(
            lambda oracle: oracle.steer(action, run_id, now=now, key=key),
            call,
            dies_at,
            lambda oracle: oracle.steer(action, run_id, now=now, key=key, ends=False),
        )

    # What the aggregator does, and what is done to it

    def _aggregate(self, dies_at: int = 0) -> None:
        had_work: list[bool] = []

        def predict(oracle: Oracle) -> str:
            had_work.append(oracle.work())
            return DONE

        self._ask(predict, lambda: had_work.append(self.federation.coordinator.work()), dies_at)
        assert len(set(had_work)) == 1

    def _be_silent(self, seconds: float, silent: set[str]) -> None:
        for _ in range(2):
            self._wait(seconds / 2)
            for name in sorted(self.oracle.present.keys() - silent):
                if self.oracle.present[name].token == self.federation.clients[name].token:
                    self._beat(name, self.oracle.present[name].works_for)
        self._let_time_pass(0.0)

    def _let_time_pass(self, seconds: float) -> None:
        self._wait(seconds)
        self.federation.coordinator.tick()
        self.oracle.tick()
        for run in self.oracle.runs.values():
            if run.number >= 0 and run.status not in ENDED:
                found = self.federation.store.find_round(run.run_id, run.number)
                assert found is not None
                figures["dropped from a round"] += len(set(found.dropped) - run.dropped)
                assert not (problem := self.oracle.drop(run, found.cohort, set(found.dropped))), problem

    def _wait(self, seconds: float) -> None:
        self.federation.clock.now += seconds
        self.oracle.now += seconds

    # What must be so

    def _agree(self) -> None:
        figures["steps"] += 1
        assert not (problem := self._difference(self.oracle)), problem
        self._sequence = max([self._sequence, *(event.sequence for event in self._new_events())])
        self.oracle.events.clear()

    def _new_events(self) -> list[Any]:
        return self.federation.coordinator.list_events(EventQuery(after=self._sequence))

    def _difference(self, oracle: Oracle) -> str:
        """In what the aggregator is not as it must be; empty if in nothing."""
        for run in oracle.runs.values():
            real = self.federation.coordinator.get_run(run.run_id)
            stored = self.federation.store.find_run(run.run_id)
            assert stored is not None
            # An update or a report alone leaves the run's row as it is, with the time of the change before.
            if replace(stored, updated_at=real.updated_at) != real or stored.updated_at > real.updated_at:
                return f"memory and store differ in {run.run_id}"
            if _state_of(real) != _state_in(run):
                return f"{run.run_id} is {_state_of(real)}, must be {_state_in(run)}"
        done = {key for key in KEYS if self.federation.store.find_control_request(key) is not None}
        if done != oracle.requests.keys():
            return f"the requests {sorted(done)} were done, must be {sorted(oracle.requests)}"
        happened: Counter[Any] = Counter()
        for event in self._new_events():
            if event.type in WHO_IS_AWAY:
                continue
            reason = f" {event.data['reason']}" if event.type.endswith("_refused") else ""
            happened[event.type + reason, event.run_id, event.round, event.client_id] += 1
        if happened != oracle.events:
            return f"the history says {happened - oracle.events} too much and {oracle.events - happened} too little"
        counted = self._counted()
        if counted != oracle.counters:
            return f"the counters are {counted}, must be {oracle.counters}"
        return ""

    def _counted(self) -> Counter[tuple[str, str]]:
        counters = {
            "fedplcc_client_updates_total": "update",
            "fedplcc_client_reports_total": "report",
            "fedplcc_rounds_total": "rounds",
        }
        counted: Counter[tuple[str, str]] = Counter()
        for family in self.federation.registry.collect():
            for sample in family.samples:
                # How else an attempt at a round ends depends on who asked first to pause and to stop.
                if sample.name in counters and sample.value and sample.labels.get("result", "committed") == "committed":
                    counted[counters[sample.name], next(iter(sample.labels.values()))] = int(sample.value)
        return counted

    # How it ends

    def _play_out(self) -> None:
        self._let_time_pass(11.0)  # whoever held a client's place is gone
        for name in NAMES:
            assert self._join(name, 0) == DONE
        for run_id, run in self.oracle.runs.items():
            if run.status in ("running", "paused"):
                self._steer("resume", run_id)
        for _ in range(100):
            if all(run.status in ENDED for run in self.oracle.runs.values()):
                break
            for name in NAMES:
                self._do(name)
            self._aggregate()
            self._agree()
        assert all(run.status in ENDED for run in self.oracle.runs.values()), "a run came to no end"

    def _check_results(self, run: RunModel) -> None:
        """The models and prototypes of a run, folded once more from the updates that the judge counted."""
        real = self.federation.coordinator.get_run(run.run_id)
        config = parse_run_config(json.loads(real.config_json))
        method = METHODS[config.run.method]
        made = {(work.client_id, work.offer): work for work in self.works if work.update is not None}
        committed = [
            current for current in self.federation.coordinator.list_rounds(run.run_id) if current.phase == "committed"
        ]
        for current in committed:
            assert current.model is not None
            cohort = sorted(name for number, name in run.updates if number == current.number)
            counted = [made[name, run.updates[current.number, name]] for name in cohort]
            if current.number == 0:
                assert current.model.sha256 == counted[0].offer.blobs[0]
                continue
            counts = [sum(self.federation.clients[name].counts) for name in cohort]
            model = mean_model([from_bytes(_data(work, MODEL)) for work in counted], counts)
            assert current.model.sha256 == sha256_hex(to_bytes(model))
            pooled = PrototypeSet.empty()
            if (exchange := method.part(PrototypeExchange)) is not None:
                sets = [prototypes_from_bytes(_data(work, LOCAL_CLUSTER)) for work in counted]
                pooled = exchange.merge(sets, len(config.data.classes), config.method)
            assert current.prototypes is not None
            assert current.prototypes.sha256 == sha256_hex(prototypes_to_bytes(pooled))
            figures["rounds folded once more"] += 1
        if run.status == "completed":
            assert len(committed) == len(run.cohorts)
        figures[f"runs {run.status}"] += 1


@contextmanager
def _dying(at: int) -> Iterator[None]:
    """Kill the aggregator at the so many-th failpoint within the block; 0 lets it live."""
    passed = 0

    def hook(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed >= at:
            raise Killed(name)

    failpoints.install(hook if at else None)
    try:
        yield
    finally:
        failpoints.install(None)


def _offer_of(update: Update) -> Offer:
    named = tuple(blob.sha256 for blob in update.payload.blobs)
    is_sound = update.num_examples == sum(update.class_counts)
    return Offer((*sorted(update.losses.items()), update.num_examples), named, is_sound)


def _state_of(run: Run) -> Any:
    """What a run is, as the judge says it."""
    current = run.current_round
    if current is None:
        return (run.status.value, run.is_pause_requested, -1, "", (), set(), {}, set())
    updates = {name: _offer_of(update) for name, update in current.updates.items()}
    who = (current.cohort, set(current.dropped))
    state = (run.status.value, run.is_pause_requested, current.number, current.phase.value, *who)
    return (*state, updates, set(current.evaluations))


def _state_in(run: RunModel) -> Any:
    """What a run must be."""
    updates = {name: offer for (number, name), offer in run.updates.items() if number == run.number}
    cohort = run.cohort if run.number >= 0 else ()
    state = (run.status, run.is_pause_requested, run.number, run.phase, cohort, run.dropped)
    return (*state, updates, run.with_report)


def altered(work: Work, what: str) -> Work:
    """The same work, with other seconds, other losses or a wrong count."""
    assert work.update is not None
    changes: dict[str, Any] = {
        "slower": {"timings": {"train_seconds": 9.0}},
        "losses": {"losses": {"ce": 99.0}},
        "counts": {"num_examples": work.update.num_examples + 1},
    }
    return replace(work, update=replace(work.update, **changes[what]))


def _data(work: Work, role: str) -> bytes:
    assert work.blobs is not None
    return next(data for blob, data in work.blobs.items() if blob.role == role)
