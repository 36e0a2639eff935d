"""One liar of four on a stage: it speaks through the servicer, in place of the honest calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message

from fedplcc.aggregator.rounds.machine import round_waits
from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.shared import types
from fedplcc.shared.convert.clients import heartbeat_to_proto
from fedplcc.shared.convert.evaluations import evaluation_to_report
from fedplcc.shared.convert.membership import client_to_join
from fedplcc.shared.convert.updates import update_to_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_to_proto
from fedplcc.shared.errors import FedplccError, FirstModelDiffers
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.steering import StopRun
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, to_bytes
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, tensor_lists

HONEST = ("bob", "cid", "dan")
LIAR, MAKER = "eve", "abe"
"""The liar as the last of four, and as the first, which makes the first model."""
ROUNDS = 3
NEAR_STEPS = 5.0
"""Honest steps by which the end of a run may be moved by a client that is not named."""
NEAR_ACCURACY = 0.25
"""Most by which it may move the mean accuracy: one of four."""
EXCLUSIVE = ("Join", "CommitUpdate", "ReportEvaluation")
"""Calls of which the first that is taken counts."""


@dataclass
class Eve(NumpyClient):
    """The liar: honest in all that it computes, unless a lie about its content changes that."""

    moved_by: float = 0.0
    model_times: float = 1.0
    prototypes_times: float = 1.0
    test_images: int = 0
    first_times: float = 1.0
    first_moved_by: float = 0.0

    def trained(self, task: types.Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        honest = super().trained(task, model)
        times, by = np.float32(self.model_times), np.float32(self.moved_by)
        return {name: value * times + by if value.dtype == np.float32 else value for name, value in honest.items()}

    def first_model(self, seed: int = 0) -> dict[str, np.ndarray]:
        times, by = np.float32(self.first_times), np.float32(self.first_moved_by)
        made = super().first_model(seed)
        return {name: value * times + by if value.dtype == np.float32 else value for name, value in made.items()}

    def prototypes(self, task: types.Task, kind: str | None = types.LOCAL_CLUSTER) -> types.PrototypeSet:
        made = super().prototypes(task, kind)
        return replace(made, vectors=made.vectors * np.float32(self.prototypes_times))

    def evaluation(self, task: types.Task, model: bytes) -> types.Evaluation:
        report = super().evaluation(task, model)
        if not self.test_images:
            return report
        all_right = tuple(self.test_images for _ in self.counts)
        return replace(
            report, counts=tuple(replace(each, correct=all_right, total=all_right) for each in report.counts)
        )


class Honest(NumpyClient):
    """A client that makes the first model and its lists of tensors too, as trainers do."""

    compares = True

    def work(self, task: types.Task, model: bytes | None) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        update, blobs = super().work(task, model)
        if not self.compares or task.kind is not types.TaskKind.TRAIN or task.round != 1:
            return update, blobs
        made = to_bytes(self.first_model())
        if model != made:
            raise FirstModelDiffers("it is another one")
        lists = {"feature_dim": (FEATURE_DIM,), **tensor_lists(made)}
        return replace(update, payload=replace(update.payload, int_lists=lists)), blobs


@dataclass(frozen=True)
class Lie:
    """A change of one call's honest request."""

    call: str
    field: str
    tells: Callable[[Message], None]


@dataclass
class Said:
    """What the liar says in one run: each lie once, until one is taken, which it then repeats.

    Attributes:
        lies: Lies that wait for their call.
        taken: The one that was taken in place of the honest call.
        refused: Those that were not.
    """

    lies: list[Lie] = field(default_factory=list)
    taken: Lie | None = None
    refused: list[Lie] = field(default_factory=list)


class Stage:
    """A federation whose liar speaks through the servicer."""

    def __init__(self, folder: Path, runner: asyncio.Runner, liar: str = LIAR) -> None:
        self.runner, self.liar = runner, liar
        clients = [
            *(Honest(name, domain="lab" if name != "bob" else "ward") for name in HONEST),
            Eve(liar, domain="ward"),
        ]
        self.federation = LocalFederation(folder, clients)
        self.federation.is_inline = True
        self.eve = clients[-1]
        self.servicer = RoundServicer(
            self.federation.coordinator, Wakeups(runner.get_loop()), 1.0, idle_s=5.0, max_hold_s=0.0
        )
        self.said, self.stands_still = Said(), False

    def close(self) -> None:
        self.federation.close()

    # The liar's calls

    def call(self, name: str, *parts: Message) -> None:
        """Make a call as the server does, and take its whole answer."""

        async def made() -> None:
            async def stream() -> AsyncIterator[Message]:
                for part in parts:
                    yield part

            answer = getattr(self.servicer, name)(stream() if name.startswith("Upload") else parts[0], None)
            if not hasattr(answer, "__aiter__"):
                await answer
                return
            async for _ in answer:
                pass

        self.runner.run(made())

    def say(self, name: str, *honest: Message) -> None:
        """Make a call with each lie that waits for it, and honestly where none of them is taken."""
        said = self.said
        waiting = [lie for lie in said.lies if lie.call == name] if said.taken is None else []
        if said.taken is not None and said.taken.call == name:
            waiting = [said.taken]
        for lie in waiting:
            parts = [type(part).FromString(part.SerializeToString()) for part in honest]
            for part in parts:
                lie.tells(part)
            if lie is not said.taken:
                said.lies.remove(lie)
            if self.is_taken(name, *parts) and name in EXCLUSIVE:
                said.taken = lie
                return
            said.refused.append(lie)
        if name in EXCLUSIVE and (said.taken is None or said.taken.call != name):
            self.is_taken(name, *honest)

    def is_taken(self, name: str, *parts: Message) -> bool:
        """Make a call; return whether it was not refused."""
        try:
            self.call(name, *parts)
        except FedplccError:
            return False
        return True

    def join(self) -> None:
        self.say("Join", client_to_join(self.eve.record, instance_token=self.eve.token, version="1.0"))

    def work(self) -> None:
        """Let the liar do its task, with every call that a member can make."""
        eve, federation = self.eve, self.federation
        who: dict[str, Any] = {"client_id": eve.client_id, "instance_token": eve.token}
        try:
            task = federation.task(eve)
        except FedplccError:
            return  # it has become somebody else
        known = round_pb.TaskKey(run_id="", kind=types_pb2.TASK_KIND_WAIT)
        self.say("SyncRound", round_pb.SyncRoundRequest(**who, poll=round_pb.Poll(known=known)))
        if task.run is None or task.kind in (types.TaskKind.WAIT, types.TaskKind.STOP):
            return
        run_id, number = task.run.run_id, task.round
        problem = types.ClientProblem(reason="UNREADABLE_FILES", detail="2 files", hint="mend them")
        beat = types.Heartbeat(
            client_id=eve.client_id,
            activity=types.ClientActivity.TRAINING,
            run_id=run_id,
            round=number,
            progress=0.5,
            problem=problem,
        )
        self.say("Heartbeat", heartbeat_to_proto(beat, instance_token=eve.token))
        for blob in task.payload.blobs:
            self.say("DownloadBlob", round_pb.DownloadBlobRequest(**who, sha256=blob.sha256))
        model = federation.fetch(eve, task)
        if task.kind is types.TaskKind.EVALUATE:
            assert model is not None
            report = eve.evaluation(task, model)
            request = evaluation_to_report(report, run_id=run_id, round_number=number, instance_token=eve.token)
            self.say("ReportEvaluation", request)
            return
        update, blobs = eve.work(task, model)
        self._send(run_id, number, update, blobs)

    def _send(self, run_id: str, number: int, update: types.Update, blobs: dict[types.BlobRef, bytes]) -> None:
        for blob, data in blobs.items():
            named = UploadHeader(
                run_id=run_id, round=number, client_id=self.eve.client_id, instance_token=self.eve.token, blob=blob
            )
            header = upload_header_to_proto(named)
            self.say("GetUploadStatus", round_pb.GetUploadStatusRequest(header=header))
            chunk = round_pb.Chunk(offset_bytes=0, data=data)
            if blob in update.payload.prototype_sets:
                prototypes = round_pb.UploadPrototypesRequest
                self.say("UploadPrototypes", prototypes(header=header), prototypes(chunk=chunk))
            else:
                part = round_pb.UploadModelRequest
                self.say("UploadModel", part(header=header), part(chunk=chunk))
        inline = list(blobs.values())
        self.say(
            "CommitUpdate",
            update_to_commit(
                update, run_id=run_id, round_number=number, instance_token=self.eve.token, inline_blobs=inline
            ),
        )

    # Runs

    def run(self, said: Said) -> types.Run:
        """A run to its end, or to where it stands still."""
        federation = self.federation
        self.said = said
        for name in HONEST:
            federation.coordinator.join(federation.clients[name].record, federation.clients[name].token)
        self.join()
        if federation.coordinator._sessions.find(self.liar) is None:
            federation.coordinator.join(self.eve.record, self.eve.token)
        run_id = federation.create("fedplcc", run={"rounds": ROUNDS, "clients": [*HONEST, self.liar]}).run_id
        for _ in range(4 * ROUNDS + 4):
            before = federation.coordinator.get_run(run_id)
            for name in HONEST:
                self.honestly(federation.clients[name])
            self.work()
            while federation.coordinator.work():
                pass
            federation.coordinator.tick()
            after = federation.coordinator.get_run(run_id)
            self.stands_still = after == before
            if self.stands_still or (said.taken is not None and self.names(after)):
                break
        return federation.coordinator.get_run(run_id)

    def honestly(self, client: NumpyClient) -> None:
        task = self.federation.task(client)
        try:
            self.federation.perform(client, task)
        except FirstModelDiffers as error:
            assert task.run is not None
            problem = types.ClientProblem(reason=error.reason, detail=error.detail, is_fatal=True)
            said = {"run_id": task.run.run_id, "round": task.round, "problem": problem}
            self.federation.heartbeat(client, activity=types.ClientActivity.DOWNLOADING, **said)

    def end(self, run: types.Run) -> None:
        if not run.status.is_final:
            self.federation.coordinator.steer(run.run_id, StopRun())
        self.federation.clock.now += 10_000.0
        self.federation.coordinator.tick()

    def model(self, run: types.Run) -> dict[str, np.ndarray]:
        assert run.model is not None
        return from_bytes(self.federation.coordinator._blobs.read(run.model.sha256))

    def prototype_norm(self, run: types.Run) -> float:
        """The largest norm of the global prototypes of a run."""
        assert run.prototypes is not None
        vectors = prototypes_from_bytes(self.federation.coordinator._blobs.read(run.prototypes.sha256)).vectors
        return float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())

    def names(self, run: types.Run) -> bool:
        """Whether the status of a run names the liar; that a run waits for it says something where nothing moves."""
        warnings = [each.sentence for each in self.federation.coordinator.warnings(run)]
        reason = "" if run.reason is None else sentence_of(run.reason)
        dropped = () if run.current_round is None else run.current_round.dropped
        awaited = round_waits.waited_for(run) if self.stands_still and run.status is types.RunStatus.RUNNING else ()
        who = {*run.rejections, *run.quarantined, *dropped, *awaited}
        return self.liar in who or any(self.liar in sentence for sentence in (*warnings, reason))

    def fault(self, said: Said, run: types.Run, reference: Reference) -> str:
        """Return how a lie decided for all without a word; empty if it did not."""
        lines = self.federation.metrics_lines(run.run_id)
        if said.taken is None and not self.names(run):
            return "" if lines == reference.lines else "refused lies changed the result"
        if self.names(run):
            return ""
        if run.status is not types.RunStatus.COMPLETED:
            return f"the run is {run.status} and names nobody"
        far = distance(self.model(run), reference.model)
        if not far <= NEAR_STEPS * reference.step:
            return f"the model is {far:g} away, where a step is {reference.step:g}"
        largest = self.prototype_norm(run)
        if not largest <= NEAR_STEPS * reference.prototype_norm:
            return f"a prototype has norm {largest:g}, where the largest is {reference.prototype_norm:g}"
        apart = max(abs(mean_of(line) - mean_of(other)) for line, other in zip(lines, reference.lines, strict=True))
        return "" if apart <= NEAR_ACCURACY else f"the mean accuracy is {apart:g} away"


@dataclass(frozen=True)
class Reference:
    """The undisturbed run."""

    lines: list[str]
    model: dict[str, np.ndarray]
    step: float
    prototype_norm: float


def mean_of(line: str) -> float:
    return float(json.loads(line)["accuracy"]["mean"])


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    floats = [name for name, value in one.items() if value.dtype == np.float32]
    return float(np.sqrt(sum(np.square(one[name].astype(np.float64) - other[name]).sum() for name in floats)))
