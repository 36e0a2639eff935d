"""Every update counts exactly once, or is refused by name: sent again, late, altered, or in the middle of a crash.

A hypothesis state machine over a real coordinator on a real store. Up to three runs share three clients; updates and reports
are handed in once more at any later time, altered, for another round or by a trainer that was taken over; leases run out;
people pause, resume and stop under keys of their own and retry; and the aggregator is killed between any two steps, or at
any failpoint within one. After each step `tests.chaos.round_oracle` says what the answer, the runs, the history and the
counters must be; at the end a mean computed directly says what the models must be.

`python -m tests.chaos.exactly_once EXAMPLES` plays as many games and prints what came of them.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedplcc.aggregator.ledger.limits import Limits
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

names = st.sampled_from(NAMES)
moments = st.sampled_from([0] * 12 + [1, 2, 3, 4, 5, 6, 8, 10])
"""The failpoint within a call at which the aggregator is killed; 0 lets it live."""
picks = st.integers(0, 1_000)
quorums = st.sampled_from([None, None, 1, 2])


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


class ExactlyOnce(RuleBasedStateMachine):
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

    @initialize(
        method=st.sampled_from(["fedavg", "fedplcc"]),
        num_rounds=st.integers(1, 2),
        size=st.sampled_from([None, 2]),
        quorum=quorums,
    )
    def begin(self, method: str, num_rounds: int, size: int | None, quorum: int | None) -> None:
        clients = [
            Fickle("ann", size=3),
            Fickle("bob", size=3, counts=(2, 0, 7)),
            Fickle("zoe", size=3, counts=(1, 1, 1)),
        ]
        limits = Limits()
        self.federation = LocalFederation(Path(self._folder.name), clients, limits)
        self.oracle = Oracle(limits.lease_s, self.federation.clock.now)
        self.tokens = {client.client_id: [client.token, f"{client.token}-of-another"] for client in clients}
        self._has_begun = True
        for name in NAMES:
            self._join(name, 0)
        self._create(method, NAMES, num_rounds, size, quorum)
        figures["games"] += 1

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
            self._hand_in(_altered(work, "counts"), is_inline=is_inline)
        self._hand_in(work, dies_at, is_inline=is_inline)
        return True

    def _beat(self, name: str, run_id: str) -> None:
        client = self.federation.clients[name]
        activity = ClientActivity.TRAINING if run_id else ClientActivity.IDLE
        self._ask(
            lambda oracle: oracle.heartbeat(name, client.token, run_id),
            lambda: self.federation.heartbeat(client, activity=activity, run_id=run_id, round=1),
        )

    @rule(name=names, variant=st.integers(0, 2), errs=st.booleans(), dies_at=moments, is_inline=st.booleans())
    def work(self, name: str, variant: int, errs: bool, dies_at: int, is_inline: bool = False) -> None:
        """A client does its task."""
        self._do(name, variant, dies_at, errs=errs, is_inline=is_inline)

    @rule(variant=st.integers(0, 1), absent=st.sets(names, max_size=1), dies_at=moments, is_inline=st.booleans())
    def all_work(self, variant: int, absent: set[str], dies_at: int, is_inline: bool = False) -> None:
        """Every client does its task, or all but one, then the aggregator its work."""
        for name in NAMES:
            if name not in absent:
                self._do(name, variant, is_inline=is_inline)
        self._aggregate(dies_at)

    @rule(name=names, variant=st.integers(0, 2), sends=st.booleans(), dies_at=moments)
    def prepare(self, name: str, variant: int, sends: bool, dies_at: int) -> None:
        """A client computes its task and perhaps uploads it, and hands nothing in yet."""
        work = self._prepare(name, variant)
        if work is not None and work.blobs is not None and sends:
            self._send(work, dies_at)

    @rule(name=names, pauses=st.booleans(), is_late=st.booleans())
    def straggle(self, name: str, pauses: bool, is_late: bool) -> None:
        """A client computes its task and is silent until its lease has run out; then it comes back and hands it in."""
        work = self._prepare(name, 0)
        if work is None or (work.blobs is not None and self._send(work) != DONE):
            return
        if pauses:
            self._steer("pause", work.run_id)
        for other in NAMES:
            if other != name:
                self._do(other)
        self._be_silent(12.0, {name})
        if is_late:
            self._aggregate()
        if self._join(name, 0) == DONE:
            self._hand_in(work)

    @precondition(lambda self: self.works)
    @rule(pick=picks, way=st.sampled_from(["bare", "uploaded", "inline"]), dies_at=moments)
    def hand_in_again(self, pick: int, way: str, dies_at: int) -> None:
        """Anything that was ever computed is handed in, for the first time or not, in time or not."""
        work = self.works[-1 - pick % len(self.works)]
        if way != "uploaded" or work.blobs is None or self._send(work) == DONE:
            self._hand_in(work, dies_at, is_inline=way == "inline" and work.blobs is not None)

    @precondition(lambda self: self.works)
    @rule(pick=picks, change=st.sampled_from(["slower", "losses", "counts"]))
    def hand_in_altered(self, pick: int, change: str) -> None:
        """What was computed is handed in with other seconds, other losses or a wrong count."""
        work = self.works[-1 - pick % len(self.works)]
        if work.update is None:
            return
        altered = _altered(work, change)
        answer = self._hand_in(altered)
        if answer == ACCEPTED:
            self.works.append(altered)

    @precondition(lambda self: self.works)
    @rule(pick=picks, number=st.integers(-1, 3))
    def hand_in_for_another_round(self, pick: int, number: int) -> None:
        """What was computed for one round is handed in for another."""
        work = self.works[-1 - pick % len(self.works)]
        if work.report is not None or (work.task.kind is TaskKind.INIT) == (number == 0):
            self._hand_in(work, number=number)

    @precondition(lambda self: self.works)
    @rule(pick=picks, name=names)
    def hand_in_as_somebody_else(self, pick: int, name: str) -> None:
        """A client hands in what another one computed, as its own."""
        work = self.works[-1 - pick % len(self.works)]
        if work.report is not None:
            self._hand_in(replace(work, client_id=name, report=replace(work.report, client_id=name)))
        elif name != work.client_id and work.update is not None:
            self._hand_in(replace(work, client_id=name, update=replace(work.update, client_id=name)))

    @precondition(lambda self: self.works)
    @rule(pick=picks)
    def hand_in_as_the_trainer_before(self, pick: int) -> None:
        """A trainer that another one took over from, or that never joined, hands in what it computed."""
        work = self.works[-1 - pick % len(self.works)]
        client = self.federation.clients[work.client_id]
        (other,) = set(self.tokens[work.client_id]) - {client.token}
        self._hand_in(work, token=other)

    @rule(name=names, which=st.integers(0, 1))
    def join(self, name: str, which: int) -> None:
        """A trainer joins: for the first time, again, or in place of another."""
        self._join(name, which)

    @rule(name=names, is_busy=st.booleans(), pick=picks)
    def beat(self, name: str, is_busy: bool, pick: int) -> None:
        """A trainer says that it is idle, or that it works for some run."""
        runs = list(self.oracle.runs)
        self._beat(name, runs[pick % len(runs)] if is_busy else "")

    # What people do

    @precondition(lambda self: len(self.oracle.runs) < 3)
    @rule(
        method=st.sampled_from(["fedavg", "fedplcc"]),
        roster=st.sampled_from([NAMES, ("bob", "zoe"), ("ann", "zoe")]),
        quorum=quorums,
    )
    def create(self, method: str, roster: tuple[str, ...], quorum: int | None) -> None:
        """Another run begins, of some of the same clients."""
        self._create(method, roster, 1, None, quorum)

    @rule(
        action=st.sampled_from(["pause", "pause", "resume", "resume", "resume", "stop"]),
        pick=picks,
        now=st.booleans(),
        key=st.sampled_from(["", "", *KEYS]),
        dies_at=moments,
    )
    def steer(self, action: str, pick: int, now: bool, key: str, dies_at: int) -> None:
        """Somebody pauses, resumes or stops a run, for the first time or as a retry."""
        runs = list(self.oracle.runs)
        self._steer(action, runs[pick % len(runs)], now=now and action == "pause", key=key, dies_at=dies_at)

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

    @rule(dies_at=moments)
    def aggregate(self, dies_at: int) -> None:
        self._aggregate(dies_at)

    @rule(absent=st.sets(names, max_size=2))
    def restart(self, absent: set[str]) -> None:
        """The aggregator is killed between two calls, and some of its trainers notice at once."""
        figures["killed between calls"] += 1
        self._start_again([self.oracle])
        for name in sorted(set(NAMES) - absent):
            self._join(name, self.tokens[name].index(self.federation.clients[name].token))

    @rule(seconds=st.sampled_from([1.0, 6.0, 12.0]), silent=st.sets(names, max_size=2))
    def let_time_pass(self, seconds: float, silent: set[str]) -> None:
        """Time passes; the leases of those who are silent for more than 10 s run out."""
        self._be_silent(seconds, silent)

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

    # What always holds

    @invariant()
    def the_judge_agrees(self) -> None:
        if self._has_begun:
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

    def teardown(self) -> None:
        """Left alone, every run that nobody stopped comes to its end, with the model of the updates that counted."""
        try:
            if self._has_begun:
                self._play_out()
                for run in self.oracle.runs.values():
                    self._check_results(run)
        finally:
            if self._has_begun:
                self.federation.close()
            self._folder.cleanup()

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
            self.the_judge_agrees()
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


def _altered(work: Work, what: str) -> Work:
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of lost clients: there are thousands."""
    logger = logging.getLogger("fedplcc.aggregator")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _played_out(game: ExactlyOnce) -> Iterator[None]:
    try:
        yield
    finally:
        game.teardown()


def play_straggler() -> Counter[str]:
    """Play one game by a script, of a client that is too late for a round with a quorum, and too early for the next."""
    figures.clear()
    game = ExactlyOnce()
    with _quiet(), _played_out(game):
        game.begin(method="fedplcc", num_rounds=3, size=None, quorum=2)
        (run_id,) = game.oracle.runs
        game.work(name="ann", variant=0, errs=False, dies_at=0)  # the first model
        game.the_judge_agrees()
        game.straggle(name="zoe", pauses=False, is_late=False)  # an update, when the others' are being aggregated
        game.the_judge_agrees()
        game.aggregate(dies_at=0)
        report = game._prepare("ann", 0)
        for name in NAMES:
            game.work(name=name, variant=0, errs=False, dies_at=0)
        assert report is not None
        game._hand_in(report, number=2)  # a report, when round 2 has no model yet
        game.all_work(variant=0, absent=set(), dies_at=0)
        game.the_judge_agrees()
        game.straggle(
            name="bob", pauses=True, is_late=True
        )  # a report, when its round has committed and the run is paused
        game.the_judge_agrees()
        assert game.oracle.runs[run_id].dropped == {"bob"}
    return Counter(figures)


def play(games: int, *, steps: int, is_random: bool) -> Counter[str]:
    """Play games, other ones each time if they are random; returns what came of them.

    Raises:
        AssertionError: The aggregator and its judge disagree; hypothesis prints the shortest game in which they do.
    """
    figures.clear()
    with _quiet():
        run_state_machine_as_test(
            ExactlyOnce,
            settings=settings(
                max_examples=games,
                stateful_step_count=steps,
                deadline=None,
                derandomize=not is_random,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    return Counter(figures)


def table(found: Counter[str]) -> str:
    """The figures in lines for people."""
    return "\n".join(
        f"{count:>9,}  {what}" for what, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    )


def main(arguments: Sequence[str]) -> int:
    """Play as many games as the first argument says."""
    games = int(arguments[0]) if arguments else 200
    began = time.monotonic()
    print(table(play(games, steps=60, is_random=True) + play_straggler()))
    print(f"{time.monotonic() - began:>8.0f}s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
