"""Poisoned updates: thousands of mutants of good ones are sent to an aggregator, and none may count, crash it or fill it.

    python -m tests.chaos.fuzz --mutants 10000         over gRPC to a real process, in two runs
    python -m tests.chaos.fuzz --mutant 7:1234         one mutant of seed 7 again, in this process, with what became of it

Every mutant is a function of (seed, index) and of the round that it is sent in. Whether it is bad at all is
said by fuzz_judge.py, which shares no code with the aggregator's checks: only bad mutants are sent, so none of them may be
accepted; of the others, each must pass the aggregator's own checks. A mutant that breaks a rule is printed with the smallest
part of it that still does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedplcc.aggregator.computation.checked import Content
from fedplcc.aggregator.computation.update_checks import check_update
from fedplcc.aggregator.incoming.inline_blobs import came_along
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.store.blobs.reserve import RESERVE_FILE
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.convert.runs import run_from_proto
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.convert.updates import update_from_commit
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.tensors import read_header
from fedplcc.shared.types import FEATURE_DIM as FEATURE_DIM_LIST
from fedplcc.shared.types import BlobRef, RunStatus, Task, TaskKind
from tests.chaos.fuzz_attempt import Attempt, Scene
from tests.chaos.fuzz_doors import Door, GrpcDoor, LocalDoor
from tests.chaos.fuzz_judge import faults
from tests.chaos.fuzz_mutators import MUTATORS, mutant, names_of
from tests.support.federation.grpc_client import GrpcClient, RunControl
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.processes import Federation, eventually
from tests.support.hosts.memory_folder import memory_folder
from tests.support.oracles.federation_result import expected

HONEST = (NumpyClient("ann"), NumpyClient("bob", counts=(2, 6, 7)))
POISONERS = tuple(NumpyClient(f"mallory-{number}", counts=(2 + number, 0, 7)) for number in range(4))
"""They send at the same time; none has a sample of class 1."""
CLIENTS = (*HONEST, *POISONERS)
MAX_CHUNK_BYTES, MAX_BLOB_BYTES, MAX_INLINE_BYTES = 4096, 1 << 20, 256 << 10
ADMISSION = {"max_update_norm": 100.0, "max_num_examples": 1000}
SECOND_RUN_PART = 5
"""One of so many mutants goes to the run whose poisoners are quarantined."""
SECOND_RUN_FIRST = 10**9
"""Index of its first mutant: far from those of the first run."""
MEMORY_BYTES = 96 << 20
"""Most anonymous memory that the aggregator takes above what it had when it was idle, whatever four clients send to it at a
time; a message has up to 5 MiB."""
DISK_BYTES = 32 << 20
"""Most that its state directory grows by: two runs of small models, and what 16 uploads of each client may leave."""


@dataclass(slots=True)
class Report:
    """An attempt, its outcome, and its problems."""

    seed: int
    sent: Counter[str] = field(default_factory=Counter)
    """Mutants that were sent, by their first mutator."""
    answers: Counter[str] = field(default_factory=Counter)
    """Calls by their answer: OK, or why they were refused."""
    num_good: int = 0
    """Mutants that were good updates after all."""
    violations: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    lines: list[str] = field(default_factory=list)

    @property
    def num_sent(self) -> int:
        return sum(self.sent.values())

    def violated(self, text: str) -> None:
        with self.lock:
            self.violations.append(text)

    def text(self) -> str:
        """The figures, a line each."""
        lines = [
            f"seed {self.seed}: {self.num_sent} mutants sent, none accepted; {self.num_good} more were good updates"
        ]
        if self.violations:
            lines = [
                f"seed {self.seed}: {self.num_sent} mutants sent, {len(self.violations)} VIOLATIONS",
                *self.violations,
            ]
        lines += ["", "mutants by mutator:", *(f"  {count:6}  {name}" for name, count in sorted(self.sent.items()))]
        lines += ["", "calls by answer:", *(f"  {count:6}  {name}" for name, count in self.answers.most_common())]
        return "\n".join([*lines, "", *self.lines])


# Mutants


@dataclass(frozen=True, slots=True)
class Lot:
    """Mutants for one client to send: `count` bad ones of the indices `first`, `first + step` and so on."""

    first: int
    step: int
    count: int


def lots(num_mutants: int, num_lots: int, first: int = 0) -> list[Lot]:
    """So many bad mutants in so many lots that have no index in common."""
    return [
        Lot(first + number, num_lots, num_mutants // num_lots + (number < num_mutants % num_lots))
        for number in range(num_lots)
    ]


def poison(door: Door, scene: Scene, seed: int, lot: Lot, report: Report) -> None:
    """Send a lot of bad mutants; hold the good ones on the way against the aggregator's checks."""
    num_left = lot.count
    for index in itertools.count(lot.first, lot.step):
        if not num_left:
            return
        names = names_of(seed, index)
        attempt = mutant(scene, seed, index, names)
        if not faults(attempt, scene):
            refusal = refusal_of(attempt, scene)
            with report.lock:
                report.num_good += 1
            if refusal:
                report.violated(f"{_tell(seed, index, names)}: it is a good update, but refused: {refusal}")
            continue
        outcome = door.send(attempt)
        num_left -= 1
        with report.lock:
            report.sent[names[0]] += 1
            report.answers.update(outcome.answers)
        if outcome.is_accepted or outcome.bugs:
            what = "accepted" if outcome.is_accepted else f"answered {', '.join(outcome.bugs)}"
            smallest = minimal(seed, index, names)
            report.violated(
                f"{_tell(seed, index, smallest)}: {what}; wrong with it: {', '.join(faults(attempt, scene))}"
            )
            if outcome.is_accepted:
                return  # the client has had its update


def refusal_of(attempt: Attempt, scene: Scene) -> str:
    """Why the aggregator's checks refuse an update that was sent whole; empty if they do not."""
    assert attempt.commit is not None
    with memory_folder() as name:
        folder = Path(name)
        contents: dict[BlobRef, Content] = {}
        start = folder / "start"
        start.write_bytes(scene.start)
        with start.open("rb") as file:
            table = read_header(file)
        try:
            update = update_from_commit(attempt.commit)
            for blob, upload in zip(update.payload.blobs, attempt.uploads, strict=False):
                path = contents[blob] = folder / blob.sha256
                path.write_bytes(b"".join(data for _, data in upload.chunks))
            contents |= came_along(update.payload, attempt.commit.inline_blobs, max_bytes=scene.max_inline_bytes)
            check_update(
                update, contents, scene.client.record, scene.config, table, {FEATURE_DIM_LIST: (FEATURE_DIM,)}, start
            )
        except FedplccError as error:
            return f"{error.reason}: {error.detail}"
        except Exception as error:  # a bug, whatever it is: that is what is looked for
            return repr(error)
    return ""


def minimal(seed: int, index: int, names: Sequence[str]) -> tuple[str, ...]:
    """The fewest mutators with which a mutant still breaks a rule in this process; all of them if none does."""
    for count in range(1, len(names) + 1):
        for part in itertools.combinations(names, count):
            with local_scene() as (door, scene):
                attempt = mutant(scene, seed, index, part)
                if faults(attempt, scene):
                    outcome = door.send(attempt)
                    if outcome.is_accepted or outcome.bugs:
                        return part
    return tuple(names)


def _tell(seed: int, index: int, names: Sequence[str]) -> str:
    return f"mutant {seed}:{index} ({' + '.join(names)})"


# In this process


@contextmanager
def local_scene() -> Iterator[tuple[LocalDoor, Scene]]:
    """A poisoner's first training task in a federation of its own."""
    with memory_folder() as folder, local_federation(Path(folder)) as federation:
        federation.create("fedplcc", admission=ADMISSION)
        yield LocalDoor(federation), scene_of(federation, POISONERS[0])


def local_federation(folder: Path) -> LocalFederation:
    """The clients around a coordinator with small limits."""
    limits = Limits(max_chunk_bytes=MAX_CHUNK_BYTES, max_blob_bytes=MAX_BLOB_BYTES, max_inline_bytes=MAX_INLINE_BYTES)
    federation = LocalFederation(folder, CLIENTS, limits)
    federation.join()
    return federation


def scene_of(federation: LocalFederation, client: NumpyClient) -> Scene:
    """The scene of a client's training task; the first model is made if there is none yet."""
    while (task := federation.task(client)).kind is not TaskKind.TRAIN:
        first = federation.clients[min(federation.clients)]
        assert federation.perform(first, federation.task(first)), f"{client.client_id} waits: {task.detail}"
    start = federation.fetch(client, task)
    assert start is not None
    return scene_at(client, task, start)


def scene_at(client: NumpyClient, task: Task, start: bytes) -> Scene:
    """The scene of a task whose model was fetched."""
    assert task.run is not None
    _, blobs_of_ann = HONEST[0].work(task, start)
    return Scene(
        client=client,
        task=task,
        config=config_of(task),
        start=start,
        foreign=(*blobs_of_ann, *task.payload.blobs),
        others=tuple(other for other in CLIENTS if other is not client),
        max_chunk_bytes=MAX_CHUNK_BYTES,
        max_blob_bytes=MAX_BLOB_BYTES,
        max_inline_bytes=MAX_INLINE_BYTES,
    )


def config_of(task: Task) -> RunConfig:
    assert task.run is not None
    return parse_run_config(json.loads(task.run.config_json))


def poison_locally(seed: int, num_mutants: int, report: Report) -> None:
    """Send mutants to a coordinator in this process, then let the run end and compare it."""
    with memory_folder() as folder, local_federation(Path(folder)) as federation:
        run = federation.create("fedplcc", admission=ADMISSION)
        for client, lot in zip(POISONERS, lots(num_mutants, len(POISONERS)), strict=True):
            poison(LocalDoor(federation), scene_of(federation, client), seed, lot, report)
        try:
            run = federation.run_to_end(run.run_id)
        except Exception as error:  # what was accepted cannot be aggregated
            report.violated(f"in process: the run cannot go on: {error!r}")
            return
        right = expected(parse_run_config(a_document("fedplcc")), CLIENTS)
        if run.status is not RunStatus.COMPLETED or run.model is None or run.model.sha256 != right.models[-1]:
            report.violated(f"in process: the run is {run.status} and its model is not that of an undisturbed run")


# Over gRPC


class Watch(threading.Thread):
    """Looks at a process's anonymous memory many times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status, self._ended = Path(f"/proc/{pid}/status"), threading.Event()
        self.peak_bytes = self.now_bytes()

    def now_bytes(self) -> int:
        """What the process has now."""
        (line,) = (line for line in self._status.read_text().splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) << 10

    def run(self) -> None:
        """Look until `end`."""
        while not self._ended.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, self.now_bytes())

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self.join()


class Party:
    """Clients that act over gRPC until their run has ended, each in a thread; poisoners poison before they work.

    The others train once those poisoners have ended that never work: until then the round is open for them.
    """

    def __init__(self, federation: Federation, run_id: str, seed: int, report: Report) -> None:
        self._federation, self._run_id, self._seed, self._report = federation, run_id, seed, report
        self._threads: list[threading.Thread] = []
        self._poisoning: list[threading.Thread] = []
        self._may_train, self._has_failed = threading.Event(), threading.Event()

    def add(self, client: NumpyClient, poisons: Sequence[Lot] = (), *, never_works: bool = False) -> None:
        """Let a client act.

        Args:
            client: Who.
            poisons: The mutants that it sends in round 1, 2 and so on.
            never_works: Whether it only poisons, until it is quarantined.
        """
        thread = threading.Thread(target=self._act, args=(client, poisons, never_works), daemon=True)
        (self._poisoning if never_works else self._threads).append(thread)
        thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether all of them have come to the end in this time; one that cannot go on keeps the others from it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not self._has_failed.is_set():
            if not any(thread.is_alive() for thread in self._poisoning):
                self._may_train.set()
                if not any(thread.is_alive() for thread in self._threads):
                    return True
            self._has_failed.wait(0.02)
        return False

    def _act(self, client: NumpyClient, poisons: Sequence[Lot], never_works: bool) -> None:
        address, tls = self._federation.address, self._federation.client_tls(client.client_id)
        assert tls is not None
        there, door = GrpcClient(address, client, tls=tls), GrpcDoor(address, tls)
        try:
            there.join()
            for response in there.tasks():
                task = task_from_proto(response.task)
                if task.run is None or task.run.run_id != self._run_id:
                    if "no run names" in task.detail or "quarantined" in task.detail:
                        return
                    continue
                if task.kind is TaskKind.TRAIN and task.round <= len(poisons):
                    start = there.download(task.payload.tensor_groups[0])
                    poison(door, scene_at(client, task, start), self._seed, poisons[task.round - 1], self._report)
                    if never_works:
                        return
                if task.kind is TaskKind.TRAIN and self._poisoning:
                    self._may_train.wait()
                there.perform(task)
        except Exception as error:  # the thread's only way to say so
            self._report.violated(f"client {client.client_id} could not go on: {error!r}")
            self._has_failed.set()
        finally:
            there.close()
            door.close()


def poison_process(seed: int, num_mutants: int, report: Report, folder: Path) -> None:
    """Send mutants to an aggregator's process in two runs, and compare both with what they must come to.

    In the first run the poisoners send a good update in the end, which counts, so the run ends as an undisturbed one. In the
    second they never do, and are quarantined; it ends as a run of the others.
    """
    flags = ["--max-chunk-bytes", str(MAX_CHUNK_BYTES), "--max-blob-bytes", str(MAX_BLOB_BYTES)]
    flags += ["--max-inline-bytes", str(MAX_INLINE_BYTES)]
    flags += ["--heartbeat-interval-s", "30", "--lease-heartbeats", "1000"]
    second = max(len(POISONERS) * len(MUTATORS), num_mutants // SECOND_RUN_PART)
    with ExitStack() as stack:
        federation = stack.enter_context(Federation(folder))
        process = federation.start_aggregator(*flags)
        control = RunControl(federation.address, tls=federation.operator_tls)
        stack.callback(control.close)
        watch = Watch(process.pid)
        idle_bytes, disk_bytes = watch.now_bytes(), _size_of(folder / "aggregator")
        watch.start()
        begun = time.monotonic()
        _first_run(federation, control, seed, num_mutants - second, report)
        between_bytes = watch.now_bytes()
        _second_run(federation, control, seed, second, report)
        seconds = time.monotonic() - begun
        watch.end()
        grown = _size_of(folder / "aggregator") - disk_bytes
        report.lines += [
            f"aggregator: {idle_bytes >> 10} KiB of anonymous memory when idle, at most {watch.peak_bytes >> 10} KiB, "
            f"{between_bytes >> 10} KiB after the first run, {watch.now_bytes() >> 10} KiB after the second "
            f"(bound: idle + {MEMORY_BYTES >> 20} MiB)",
            f"state directory: grew by {grown >> 10} KiB (bound: {DISK_BYTES >> 20} MiB)",
            f"{report.num_sent / seconds:.0f} mutants a second, {seconds:.0f} s",
        ]
        if watch.peak_bytes > idle_bytes + MEMORY_BYTES:
            report.violated(f"memory grew by {(watch.peak_bytes - idle_bytes) >> 20} MiB")
        if grown > DISK_BYTES:
            report.violated(f"the state directory grew by {grown >> 20} MiB")
        if not process.is_running:
            report.violated("the aggregator ended")
        crashed = [line for line in process.log().splitlines() if "Traceback" in line or "crashed" in line]
        if crashed:
            report.violated(f"the aggregator's log has {len(crashed)} stack traces, the first: {crashed[0][:2000]}")


def _first_run(federation: Federation, control: RunControl, seed: int, num_mutants: int, report: Report) -> None:
    """Everybody takes part, and the poisoners end with what an honest client sends."""
    document = a_document("fedplcc", clients=tuple(client.client_id for client in CLIENTS), admission=ADMISSION)
    run = control.create(document)
    rounds = int(document["run"]["rounds"])
    party = Party(federation, run.run_id, seed, report)
    for client in HONEST:
        party.add(client)
    shares = lots(num_mutants, len(POISONERS) * rounds)
    for number, client in enumerate(POISONERS):
        party.add(client, shares[number * rounds : (number + 1) * rounds])
    if not party.wait(60.0 + num_mutants / 20):
        report.violated("the first run did not come to its end in time")
    right = expected(parse_run_config(document), CLIENTS)
    _compare("the run whose poisoners sent good updates in the end", control, run.run_id, right.models[-1], report)


def _second_run(federation: Federation, control: RunControl, seed: int, num_mutants: int, report: Report) -> None:
    """The poisoners send nothing good; what is held against them quarantines them, and the others go on."""
    shares = lots(num_mutants, len(POISONERS), first=SECOND_RUN_FIRST)
    admission = {**ADMISSION, "quarantine_after": max(1, shares[-1].count // 3)}
    document = a_document("fedplcc", clients=tuple(client.client_id for client in CLIENTS), admission=admission)
    run = control.create(document)
    party = Party(federation, run.run_id, seed, report)
    for client, lot in zip(POISONERS, shares, strict=True):
        party.add(client, [lot], never_works=True)
    for client in HONEST:
        party.add(client)
    if not party.wait(60.0 + num_mutants / 20):
        report.violated("the second run did not come to its end in time")
    rounds = int(document["run"]["rounds"])
    cohorts = [[client.client_id for client in HONEST]] * rounds
    right = expected(parse_run_config(document), CLIENTS, cohorts)
    _compare("the run whose poisoners were quarantined", control, run.run_id, right.models[-1], report)


def _compare(what: str, control: RunControl, run_id: str, model_sha256: str, report: Report) -> None:
    """Hold a run's last model against what it must be."""

    def last() -> str | None:
        lines = control.metrics_lines(run_id)
        ended = run_from_proto(control.get(run_id)).run.status is RunStatus.COMPLETED
        return str(json.loads(lines[-1])["model_sha256"]) if ended and lines else None

    try:
        found = eventually(last, f"{what} is completed", timeout_s=30.0)
    except AssertionError as error:
        report.violated(str(error))
        return
    if found == model_sha256:
        report.lines.append(f"{what} ended with the model of a run that nobody poisoned: {found}")
    else:
        report.violated(f"{what} ended with another model: {found}, expected {model_sha256}")


def _size_of(folder: Path) -> int:
    """Bytes of a folder's files, without the reserve, whose size is the disk's."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size if path.is_file() and path.name != RESERVE_FILE else 0)
        except FileNotFoundError:
            continue  # an upload that was just forgotten
    return sum(sizes)


# The command


def replay(text: str) -> int:
    """Send one mutant in this process and say what became of it."""
    seed, index = map(int, text.split(":"))
    names = names_of(seed, index)
    with local_scene() as (door, scene):
        attempt = mutant(scene, seed, index, names)
        wrong = faults(attempt, scene)
        outcome = door.send(attempt)
    print(_tell(seed, index, names))
    print(f"wrong with it: {', '.join(wrong) or 'nothing'}")
    print(f"answers: {', '.join(outcome.answers)}")
    return int(bool(outcome.bugs) or outcome.is_accepted != (not wrong))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=10_000, help="how many bad ones to send over gRPC")
    parser.add_argument("--seed", type=int, default=20_240, help="all mutants follow from it")
    parser.add_argument("--mutant", metavar="SEED:INDEX", help="send this one again, in this process")
    options = parser.parse_args(arguments)
    if options.mutant:
        return replay(options.mutant)
    report = Report(options.seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        poison_process(options.seed, options.mutants, report, Path(folder))
    print(report.text())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
