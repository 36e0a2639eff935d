"""Rounds under any schedule: whatever clients and aggregator do, in any order and again, a run ends in its one right end.

The machine drives a real coordinator on a real store. Its judge is `tests.support.oracles.federation_result`, which
computes every round's model and prototypes directly from the same clients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import FedplccError, MalformedUpdate, NotAMember, RoundClosed, UpdateConflict
from fedplcc.shared.steering import PauseRun, ResumeRun
from fedplcc.shared.types import BlobRef, CommittedUpdate, RoundPhase, Run, RunStatus, Task, TaskKind, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.memory_folder import memory_folder
from tests.support.oracles.federation_result import Expected, expected

NAMES = ("ann", "bob", "zoe")
names = st.sampled_from(NAMES)
MODELS_STAY = "fedproto"
"""Run as published: updates are prototypes alone."""


class Rounds(RuleBasedStateMachine):
    """A run of three clients, and everything that can happen to it short of being stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = memory_folder()
        self.federation: LocalFederation
        self.run_id = ""
        self.right: Expected
        self.sent: list[tuple[str, Task, Update, CommittedUpdate]] = []

    @initialize(
        method=st.sampled_from(["fedavg", "fedplcc", "fedccl", MODELS_STAY]),
        num_rounds=st.integers(1, 3),
        cohort_size=st.sampled_from([None, 2]),
        block_elements=st.sampled_from([5, 1 << 18]),
    )
    def begin(self, method: str, num_rounds: int, cohort_size: int | None, block_elements: int) -> None:
        clients = [
            NumpyClient("ann", size=3),
            NumpyClient("bob", size=3, counts=(2, 0, 7)),
            NumpyClient("zoe", size=3, counts=(1, 1, 1)),
        ]
        limits = Limits(fold_block_elements=block_elements)
        self.federation = LocalFederation(Path(self._folder.name), clients, limits)
        self.federation.join()
        hyper = {"share_model": False} if method == MODELS_STAY else {}
        document = a_document(method, clients=NAMES, run={"rounds": num_rounds, "cohort_size": cohort_size})
        document["method"] = hyper
        run = self.federation.coordinator.create_run("the run", document)
        self.run_id = run.run_id
        cohorts = [
            select_cohort(NAMES, seed=run.seed, round_number=number, cohort_size=cohort_size)
            for number in range(1, num_rounds + 1)
        ]
        self.right = expected(parse_run_config(document), clients, cohorts)

    @property
    def run(self) -> Run:
        return self.federation.coordinator.get_run(self.run_id)

    def _client(self, name: str) -> NumpyClient:
        """A client that is in: one whose lease ran out joins again, as a trainer does."""
        client = self.federation.clients[name]
        try:
            self.federation.idle(client)
        except NotAMember:
            self.federation.coordinator.join(client.record, client.token)
        return client

    # What clients do

    @rule(name=names)
    def work(self, name: str) -> None:
        """A client does its task to the end."""
        client = self._client(name)
        task = self.federation.task(client)
        if task.kind not in (TaskKind.INIT, TaskKind.TRAIN):
            self.federation.perform(client, task)
            return
        update, blobs = client.work(task, self.federation.fetch(client, task))
        self.sent.append((name, task, update, self.federation.submit(client, task, update, blobs)))

    @rule(name=names, share=st.floats(0, 1))
    def give_up_in_an_upload(self, name: str, share: float) -> None:
        """A client is cut off somewhere in its upload, or before the commit."""
        client = self._client(name)
        task = self.federation.task(client)
        if task.kind not in (TaskKind.INIT, TaskKind.TRAIN):
            return
        _update, blobs = client.work(task, self.federation.fetch(client, task))
        for blob, data in blobs.items():
            self._send_until(client, task, blob, data, int(share * len(data)))

    def _send_until(self, client: NumpyClient, task: Task, blob: BlobRef, data: bytes, end: int) -> None:
        assert task.run is not None
        transfers = self.federation.coordinator.transfers
        receiver = transfers.begin_upload(client.client_id, client.token, task.run.run_id, task.round, blob)
        if receiver is None:
            return
        offset, _ = transfers.upload_status(client.client_id, client.token, task.run.run_id, task.round, blob)
        if offset < end:
            receiver.write(offset, data[offset:end])
        if end == len(data):
            receiver.finish()
        receiver.close()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """A client sends again what it sent in this or an earlier round, blobs and all."""
        name, task, update, answer = data.draw(st.sampled_from(self.sent))
        client, before = self._client(name), self.run
        slower = replace(update, timings={"train_seconds": 9.0})
        assert self._commit(client, task, slower) == answer
        assert self.run == before

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def change_their_mind(self, data: st.DataObject) -> None:
        """A client sends something else for a round that it has committed to."""
        name, task, update, _answer = data.draw(st.sampled_from(self.sent))
        client, before = self._client(name), self.run
        other = replace(update, losses={"ce": 99.0})
        self._refused(client, task, other, (UpdateConflict, RoundClosed))
        assert self.run == before

    @rule(name=names)
    def poison(self, name: str) -> None:
        """A client claims samples that it does not have."""
        client = self._client(name)
        task = self.federation.task(client)
        if task.kind is not TaskKind.TRAIN:
            return
        before = self.run
        update, blobs = client.work(task, self.federation.fetch(client, task))
        self.federation.upload(client, task, blobs)
        counts = (update.class_counts[0] + 1, *update.class_counts[1:])
        wrong = replace(update, num_examples=update.num_examples + 1, class_counts=counts)
        self._refused(client, task, wrong, (MalformedUpdate,))
        held = before.rejections[name].count if name in before.rejections else 0
        assert self.run.rejections[name].count == held + 1
        assert replace(self.run, rejections=before.rejections, updated_at=before.updated_at) == before

    def _commit(self, client: NumpyClient, task: Task, update: Update) -> CommittedUpdate:
        return self.federation.coordinator.commit_update(
            client.client_id, client.token, self.run_id, task.round, update
        )

    def _refused(self, client: NumpyClient, task: Task, update: Update, kinds: tuple[type[FedplccError], ...]) -> None:
        try:
            self._commit(client, task, update)
        except kinds:
            return
        raise AssertionError(f"{client.client_id} was not refused")

    # What the aggregator does, and what is done to it

    @rule()
    def aggregate(self) -> None:
        self.federation.coordinator.work()

    @rule()
    def restart(self) -> None:
        self.federation.restart()

    @rule(seconds=st.sampled_from([1.0, 9.0, 11.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.federation.clock.now += seconds
        self.federation.coordinator.tick()

    @precondition(lambda self: self.run.status in (RunStatus.RUNNING, RunStatus.PAUSED))
    @rule(now=st.booleans())
    def pause(self, now: bool) -> None:
        self.federation.coordinator.steer(self.run_id, PauseRun(now=now))

    @precondition(lambda self: self.run.status in (RunStatus.RUNNING, RunStatus.PAUSED))
    @rule()
    def resume(self) -> None:
        self.federation.coordinator.steer(self.run_id, ResumeRun())

    # What always holds

    @invariant()
    def every_committed_round_is_right(self) -> None:
        committed = [
            current
            for current in self.federation.coordinator.list_rounds(self.run_id)
            if current.phase is RoundPhase.COMMITTED
        ]
        assert [current.number for current in committed] == list(range(len(committed)))
        found = [(current.model, current.prototypes) for current in committed]
        right = list(zip(self.right.models, self.right.prototypes, strict=True))[: len(committed)]
        assert [(model and model.sha256, prototypes and prototypes.sha256) for model, prototypes in found] == right

    @invariant()
    def nothing_happened_twice(self) -> None:
        once = ("round_opened", "update_committed", "round_aggregating", "evaluation_reported", "round_committed")
        counted: Counter[Any] = Counter(
            (event.type, event.round, event.client_id) for event in self.federation.events(self.run_id, *once)
        )
        assert set(counted.values()) <= {1}

    @invariant()
    def the_store_says_what_memory_says(self) -> None:
        assert self.federation.store.find_run(self.run_id) == self.run

    def teardown(self) -> None:
        """Left alone, the run comes to its end, which is the right one."""
        if not self.run_id:
            self._folder.cleanup()
            return
        self.federation.join()
        if self.run.status is not RunStatus.COMPLETED:
            self.federation.coordinator.steer(self.run_id, ResumeRun())
        run = self.federation.run_to_end(self.run_id)
        assert run.status is RunStatus.COMPLETED
        assert run.model is not None
        assert run.prototypes is not None
        assert (run.model.sha256, run.prototypes.sha256) == (self.right.models[-1], self.right.prototypes[-1])
        self.every_committed_round_is_right()
        self.nothing_happened_twice()
        self.federation.close()
        self._folder.cleanup()


def test_an_update_that_changes_no_row_leaves_the_time_of_change() -> None:
    rounds = Rounds()
    rounds.begin(method="fedavg", num_rounds=1, cohort_size=None, block_elements=5)
    rounds.work(name="ann")
    rounds.let_time_pass(seconds=1.0)
    rounds.work(name="ann")
    rounds.the_store_says_what_memory_says()
    rounds.teardown()


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=15, stateful_step_count=40)
