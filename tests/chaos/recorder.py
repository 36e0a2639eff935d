"""Cut the power at every moment of a run, and see that what is left goes on to the same bytes.

    python -m tests.chaos.recorder

Programs work in a folder that is recorded (recording.py): an aggregator with two clients through a run, one with a model
that a run begins with, a trainer's instance token, what a trainer keeps of its work and of what left it, and the
federation's authority with a member from its invitation to its revocation (recorded_members.py). For every moment of theirs,
each tree that a power cut could leave is made, and recovery must hold on it: the next process starts, every blob that a row
names is whole, everything that was answered is still so, and the work goes on to the bytes of the undisturbed one.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedplcc.shared.errors import BlobCorrupt
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, CommittedUpdate, Payload, RunStatus, Task, TaskKind, Update
from fedplcc.trainer.instance import held_state_dir
from fedplcc.trainer.owner.egress.log import EgressLog, Message, What, lines_in
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import CLIENT_STATE, Staged
from tests.chaos.recorded_members import Members
from tests.chaos.recording import Recording, cuts, identity, write
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.memory_folder import memory_folder

SEED = 0
"""Of the random subsets of what was not synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Something that works in a folder, and what must hold there after a power cut.

    Attributes:
        name: For people.
        work: Does all of it, in a folder that may hold what an earlier one left; answers on the way, and says what came out.
        check: Raises AssertionError if what a power cut left does not hold these answers, before anything else is done.
    """

    name: str
    work: Callable[[Path, Callable[[Any], None]], Any]
    check: Callable[[Path, Sequence[Any]], None]


@dataclass(slots=True)
class Exploration:
    """Results of the power cuts in one program."""

    program: Program
    num_moments: int = 0
    num_trees: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.program.name:<42}  {self.num_moments:5} prefixes  {self.num_trees:5} different states of the disk  "
            f"{len(self.violations)} violations"
        )


def explore(program: Program, *, every: int = 1, is_over_at_first: bool = False) -> Exploration:
    """Record a program, then cut the power at every so-manyth moment of it, or until something is violated."""
    found = Exploration(program)
    rng = random.Random(SEED)
    with memory_folder() as folder:
        recording = Recording(Path(folder))
        with recording.recording():
            ending = program.work(Path(folder), recording.answered)
    # What is the same disk with the same promises is looked at once.
    seen: set[tuple[str, int]] = set()
    for number, moment in enumerate(recording.moments):
        found.num_moments += 1
        if number % every:
            continue
        for kind, tree in cuts(moment, rng):
            key = (identity(tree), moment.num_answers)
            if key in seen:
                continue
            seen.add(key)
            found.num_trees += 1
            trouble = _recovered(program, tree, recording.answers[: moment.num_answers], ending)
            if trouble:
                found.violations.append(f"{program.name}: {moment.what} ({number}), {kind}: {trouble}")
                if is_over_at_first:
                    return found
    return found


@contextmanager
def without_fsync(left_out: str) -> Iterator[None]:
    """Within the block, shared/process/disk.py leaves out one fsync: "upload.fsync" or "blob.fsync_folder"."""
    of_files, of_folders = disk.fsync_file, disk.fsync_folder

    def fsync_file(descriptor: int, step: str) -> None:
        if f"{step}.fsync" != left_out:
            of_files(descriptor, step)

    def fsync_folder(folder: Path, step: str = "folder") -> None:
        if f"{step}.fsync_folder" != left_out:
            of_folders(folder, step)

    disk.fsync_file, disk.fsync_folder = fsync_file, fsync_folder
    try:
        yield
    finally:
        disk.fsync_file, disk.fsync_folder = of_files, of_folders


def _recovered(program: Program, tree: Any, answers: Sequence[Any], ending: Any) -> str:
    """What does not hold after a power cut, in words."""
    with memory_folder() as folder:
        write(tree, Path(folder))
        try:
            program.check(Path(folder), answers)
            again = program.work(Path(folder), lambda _answer: None)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "" if again == ending else f"another ending: {again}, undisturbed {ending}"


# An aggregator


class _Answering(LocalFederation):
    """Says what its clients are answered."""

    def __init__(self, folder: Path, clients: Sequence[NumpyClient], answered: Callable[[Any], None]) -> None:
        disk.make_state_folder(folder, "state")  # as app.py does
        super().__init__(folder, clients)
        self._answered = answered

    def upload(self, client: NumpyClient, task: Task, blobs: dict[BlobRef, bytes]) -> None:
        """See `LocalFederation.upload`; what arrived damaged is sent again, as trainer/aggregator/connection.py does."""
        try:
            super().upload(client, task, blobs)
        except BlobCorrupt:
            super().upload(client, task, blobs)

    def perform(self, client: NumpyClient, task: Task) -> bool:
        """See `LocalFederation.perform`; whoever is told that a task is done relies on it."""
        is_done = super().perform(client, task)
        if is_done and task.run is not None:
            kind = "evaluation_reported" if task.kind is TaskKind.EVALUATE else "update_committed"
            self._answered(("event", kind, task.round, client.client_id))
        return is_done


def _clients() -> list[NumpyClient]:
    return [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]


def _a_run(folder: Path, answered: Callable[[Any], None]) -> Any:
    with _Answering(folder / "state", _clients(), answered) as federation:
        federation.join()
        run = federation.coordinator.create_run("the run", a_document("fedplcc", run={"rounds": 1}))
        answered(("run", "the run"))
        run = federation.run_to_end(run.run_id)
        assert run.status is RunStatus.COMPLETED, f"{run.status}: {run.reason}"
        return federation.metrics_lines(run.run_id)


def _an_inline_run(folder: Path, answered: Callable[[Any], None]) -> Any:
    _Answering.is_inline = True
    try:
        return _a_run(folder, answered)
    finally:
        _Answering.is_inline = False


def _a_warm_run(folder: Path, answered: Callable[[Any], None]) -> Any:
    (ann, _bob) = _clients()
    data = to_bytes(ann.first_model(seed=7))
    blob = blob_ref(MODEL, data)
    with _Answering(folder / "state", [ann], answered) as federation:
        federation.join()
        receiver = federation.coordinator.initial_models.begin_upload(blob, "model.safetensors")
        if receiver is not None:
            with closing(receiver):
                receiver.write(data)
                receiver.finish()
        answered(("held", blob.sha256))
        run_section = {"rounds": 1, "initial_model": f"sha256:{blob.sha256}"}
        document = a_document("fedavg", clients=("ann",), run=run_section)
        run = federation.coordinator.create_run("the run", document)
        answered(("run", "the run"))
        run = federation.run_to_end(run.run_id)
        assert run.status is RunStatus.COMPLETED, f"{run.status}: {run.reason}"
        return federation.metrics_lines(run.run_id)


def _check_aggregator(folder: Path, answers: Sequence[Any]) -> None:
    state = folder / "state"
    database = state / "aggregator.sqlite"
    if not database.exists():
        assert not answers, f"the database is gone, and with it {answers}"
        return
    with closing(sqlite3.connect(database)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = connection.execute("SELECT sha256 FROM blobs").fetchall() if "blobs" in tables else []
        events = (
            connection.execute("SELECT type, round, client_id FROM events").fetchall() if "events" in tables else []
        )
        requests = connection.execute("SELECT request_id FROM runs").fetchall() if "runs" in tables else []
    for (sha256,) in rows:
        path = state / "blobs" / sha256[:2] / sha256
        assert path.is_file(), f"a row names the blob {sha256[:8]}, which is not there"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, f"blob {sha256[:8]} is not whole"
    for answer in answers:
        match answer:
            case ("event", kind, number, client_id):
                assert (kind, number, client_id) in events, f"{answer} was answered, and is gone"
            case ("run", request_id):
                assert (request_id,) in requests, f"{answer} was answered, and is gone"
            case ("held", sha256):
                path = state / "initial" / sha256
                assert path.with_suffix(".name").read_text() == "model.safetensors", (
                    "the model was held, and has no name"
                )
                assert path.is_file(), "the model was held, and is gone"
                assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, "the model was held, and is not whole"


# A trainer


def _a_token(folder: Path, answered: Callable[[Any], None]) -> Any:
    with held_state_dir(folder / "made" / "state") as token:
        answered(token)
    return "a token" if len(token) > 20 else token


def _check_token(folder: Path, answers: Sequence[Any]) -> None:
    path = folder / "made" / "state" / "instance-token"
    for token in answers:
        assert path.is_file(), "the token was shown to the aggregator, and is gone"
        assert path.read_text() == token, "the token was shown to the aggregator, and is another"


def _staged(number: int) -> tuple[Staged, dict[str, bytes]]:
    """The finished update of a round, with what the client remembers of it."""
    rng = np.random.default_rng(number)
    model = to_bytes({"weight": rng.normal(size=20).astype(np.float32)})
    state = to_bytes({"previous.weight": rng.normal(size=20).astype(np.float32)})
    blob, kept = blob_ref(MODEL, model), blob_ref(CLIENT_STATE, state)
    update = Update(client_id="ann", payload=Payload(tensor_groups=(blob,)), num_examples=1)
    staged = Staged(identity=f"round {number}", run_id="run", round=number, update=update, keeps_state=True, state=kept)
    return staged, {blob.sha256: model, kept.sha256: state}


def _client_states(folder: Path, answered: Callable[[Any], None]) -> Any:
    """Three rounds: stage, commit, promote; what is found staged is handed in as it is, as a trainer does."""
    states = ClientStates(folder / "made" / "client-state")
    last: CommittedUpdate | None = None
    for number in (1, 2, 3):
        staged, blobs = _staged(number)
        newest = states.manifest.promoted.get("run")
        if newest is not None and newest.update.round >= number:
            continue
        if states.finished(staged.identity) is None:
            states.stage(staged, blobs)
        answered(("staged", number))
        last = staged.committed
        states.promote()
        answered(("promoted", number))
    assert last is None or states.manifest.promoted["run"].update == last
    kept = states.state("run")
    assert kept is not None
    return {name: np.asarray(value).tolist() for name, value in kept.items()}


def _check_client_states(folder: Path, answers: Sequence[Any]) -> None:
    if not answers:
        return
    states = ClientStates(folder / "made" / "client-state")
    what, number = answers[-1]
    staged, blobs = _staged(number)
    found = states.finished(staged.identity)
    promoted = states.manifest.promoted.get("run")
    is_promoted = promoted is not None and promoted.update == staged.committed
    if what == "promoted":
        assert is_promoted, f"the state of round {number} was promoted, and is not"
    if is_promoted:
        assert states.state("run") is not None, f"the state of round {number} cannot be read"
    else:
        assert found is not None, f"the update of round {number} was kept, and is gone"
        assert found[1] == blobs


def _egress_log(folder: Path, answered: Callable[[Any], None]) -> Any:
    """Messages, each sent once its line is there, in files of three lines."""
    state = folder / "state"
    disk.make_state_folder(state, "trainer.state")
    log = EgressLog(state, max_bytes=600, clock=lambda: 0.0)
    for number in range(7):
        log.write(Message.whole(What.COMMIT, b"update", run="run", round=number), "none", lambda: 0.0)
        answered(number)
    return sorted({line.round for line in lines_in(state) if line is not None})


def _check_egress_log(folder: Path, answers: Sequence[Any]) -> None:
    found = list(lines_in(folder / "state")) if (folder / "state").is_dir() else []
    rounds = [None if line is None else line.round for line in found]
    assert rounds[: len(answers)] == list(answers), f"{len(answers)} messages left, and the lines are {rounds}"


RUN = Program(name="an aggregator and two clients", work=_a_run, check=_check_aggregator)
INLINE_RUN = Program(
    name="an aggregator and two clients whose updates come with their commits",
    work=_an_inline_run,
    check=_check_aggregator,
)
WARM_RUN = Program(name="an aggregator with a model to begin with", work=_a_warm_run, check=_check_aggregator)
TOKEN = Program(name="a trainer's instance token", work=_a_token, check=_check_token)
CLIENT_STATES = Program(name="a trainer's staged and promoted state", work=_client_states, check=_check_client_states)
EGRESS = Program(name="a trainer's log of what left", work=_egress_log, check=_check_egress_log)
_MEMBERS = Members()
MEMBERS = Program(name="an authority, a member and roots", work=_MEMBERS.work, check=_MEMBERS.check)
PROGRAMS = (RUN, INLINE_RUN, WARM_RUN, TOKEN, CLIENT_STATES, EGRESS, MEMBERS)

NEEDED = (
    (RUN, "state.fsync_folder"),
    (RUN, "blob.put.fsync"),
    (RUN, "blob.folder.fsync_folder"),
    (RUN, "blob.fsync_folder"),
    (RUN, "upload.fsync"),
    (INLINE_RUN, "blob.put.fsync"),
    (INLINE_RUN, "blob.fsync_folder"),
    (WARM_RUN, "initial.name.fsync"),
    (WARM_RUN, "initial.fsync_folder"),
    (WARM_RUN, "upload.fsync"),
    (TOKEN, "trainer.state.fsync_folder"),
    (TOKEN, "trainer.token.fsync"),
    (TOKEN, "trainer.token.fsync_folder"),
    (CLIENT_STATES, "trainer.state.folder.fsync_folder"),
    (CLIENT_STATES, "trainer.state.blob.fsync"),
    (CLIENT_STATES, "trainer.state.manifest.fsync"),
    (CLIENT_STATES, "trainer.state.manifest.fsync_folder"),
    (EGRESS, "trainer.egress.fsync"),
    (EGRESS, "trainer.egress.fsync_folder"),
    (EGRESS, "trainer.egress.old.fsync_folder"),
    (MEMBERS, "authority.fsync"),
    (MEMBERS, "authority.fsync_folder"),
    (MEMBERS, "identity.fsync"),
    (MEMBERS, "identity.fsync_folder"),
    (MEMBERS, "identity.next_key.fsync"),
    (MEMBERS, "identity.next_key.fsync_folder"),
)
"""Programs, and the fsyncs without which a power cut does violate something: so the recording sees what it is there for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore; returns 1 if anything was violated, or if an fsync that was left out went unseen."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.recorder", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="cut only at every N-th moment")
    options = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # hundreds of aggregators recover, and each says so
    try:
        return _main(options.every)
    finally:
        logging.disable(logging.NOTSET)


def _main(every: int) -> int:
    began = time.monotonic()
    explorations = []
    for program in PROGRAMS:
        explorations.append(explore(program, every=every))
        print(explorations[-1], flush=True)
        for violation in explorations[-1].violations:
            print(f"VIOLATED: {violation}")
    num_seen = 0
    for program, step in NEEDED:
        with without_fsync(step):
            violations = explore(program, every=every, is_over_at_first=True).violations
        num_seen += len(violations)
        print(f"without {step:<36}  {violations[0] if violations else 'UNSEEN'}", flush=True)
    num_violations = sum(len(found.violations) for found in explorations)
    print(
        f"{sum(found.num_moments for found in explorations)} prefixes, "
        f"{sum(found.num_trees for found in explorations)} different states of the disk, {num_violations} violations; "
        f"{num_seen} of {len(NEEDED)} missing fsyncs seen; {time.monotonic() - began:.0f} s"
    )
    return 1 if num_violations or num_seen < len(NEEDED) else 0


if __name__ == "__main__":
    sys.exit(main())
