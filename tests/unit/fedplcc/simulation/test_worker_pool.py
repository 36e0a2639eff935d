"""The worker pool: real workers over real pipes, in threads of this process; and some that end at a bad moment."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode, exit_code_of
from fedplcc.shared.config.run import ClientSection
from fedplcc.shared.errors import FedplccError, InvalidConfig, InvalidData, Unavailable
from fedplcc.shared.types import RunSpec
from fedplcc.simulation.client_worker import BY_FILES, Worker
from fedplcc.simulation.engine import Observers, Site
from fedplcc.simulation.engines import make_engine
from fedplcc.simulation.messages import LinkLost, WorkerTraceback
from fedplcc.simulation.parallel_clients import ParallelClients
from fedplcc.simulation.parallelism import num_workers, parse_engine, parse_jobs
from fedplcc.simulation.worker_pool import PoolWorker
from fedplcc.simulation.worker_process import PipeLink
from fedplcc.trainer.cancellation import Cancelled, never
from fedplcc.trainer.owner.consent import NO_CONSENT
from tests.support import ROOT
from tests.support.federation import tiny_federation

WAIT_S = 30.0


class InThread:
    """A worker in a thread of this process."""

    def __init__(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._link = PipeLink(ours)
        self._thread = threading.Thread(target=Worker(PipeLink(theirs), BY_FILES).work, daemon=True)
        self._thread.start()
        self._ending = threading.Lock()

    def send(self, message: object) -> None:
        self._link.send(message)

    def receive(self) -> Any:
        return self._link.receive()

    def blob(self, sha256: str, path: Path) -> Path:
        return path

    def end(self) -> None:
        with self._ending:
            self._link.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "a worker whose pool is gone ends"

    def why_ended(self) -> str:
        return "ended"


class Gone(InThread):
    """A worker that takes orders and is gone before it answers."""

    def receive(self) -> Any:
        raise LinkLost


class Silent(InThread):
    """A worker that answers only when it is killed."""

    def __init__(self) -> None:
        super().__init__()
        self._killed = threading.Event()

    def receive(self) -> Any:
        assert self._killed.wait(WAIT_S), "nobody killed it"
        raise LinkLost

    def end(self) -> None:
        self._killed.set()
        super().end()


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    tiny_federation.write_data(tmp_path)
    config = tiny_federation.federation(tiny_federation.document(tmp_path)).config
    return RunSpec(run_id="", config_json=config.canonical_json, config_hash=config.hash)


def sites(folder: Path, **data: str) -> list[Site]:
    return [
        Site(
            client_id=name,
            domain=name,
            section=ClientSection(data=spec),
            withholds=False,
            device="cpu",
            states=folder / "states" / name,
            consent=NO_CONSENT,
        )
        for name, spec in data.items()
    ]


def npz(folder: Path, name: str = "left") -> str:
    return f"npz:{folder / name}.npz"


@contextmanager
def pool_of(
    clients: list[Site], start: Callable[[], PoolWorker] = InThread, num_workers: int = 2, **observers: Any
) -> Iterator[ParallelClients]:
    with closing(ParallelClients(clients, Observers(**observers), num_workers, start)) as clients_at_work:
        yield clients_at_work


def test_every_client_reads_its_data_and_its_reading_is_reported_once(tmp_path: Path, spec: RunSpec) -> None:
    begun: list[str] = []
    clients = sites(tmp_path, a=npz(tmp_path), b=npz(tmp_path, "right"), c=npz(tmp_path))
    with pool_of(clients, on_begin=begun.append) as workers:
        records = workers.read(spec, never)
    assert {name: record.num_examples for name, record in records.items()} == {"a": 24, "b": 24, "c": 24}
    assert sorted(begun) == [f"{name}: reading its data" for name in "abc"]


def test_an_error_of_a_client_names_it_and_keeps_its_class(tmp_path: Path, spec: RunSpec) -> None:
    clients = sites(tmp_path, a=npz(tmp_path), b="npz:/nowhere/at-all.npz")
    with pool_of(clients) as workers, pytest.raises(InvalidData, match=r"^client b: .*at-all\.npz"):
        workers.read(spec, never)


def raise_odd(self: Worker, order: object) -> None:
    raise LookupError("odd")


def raise_local(self: Worker, order: object) -> None:
    class Local(Exception):
        pass

    raise Local


@pytest.mark.parametrize(("bug", "expected"), [(raise_odd, LookupError), (raise_local, RuntimeError)])
def test_a_bug_in_a_worker_arrives_with_its_traceback(
    tmp_path: Path,
    spec: RunSpec,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[Worker, object], None],
    expected: type[Exception],
) -> None:
    """One error that can be pickled, and one that cannot."""
    monkeypatch.setattr(Worker, "_read", bug)
    with pool_of(sites(tmp_path, a=npz(tmp_path)), num_workers=1) as workers, pytest.raises(expected) as caught:
        workers.read(spec, never)
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert f"in {bug.__name__}" in str(caught.value.__cause__)


def test_a_worker_that_ends_is_replaced_once(tmp_path: Path, spec: RunSpec) -> None:
    notes: list[str] = []
    started = iter([Gone, InThread])
    with pool_of(sites(tmp_path, a=npz(tmp_path)), lambda: next(started)(), 1, on_note=notes.append) as workers:
        assert workers.read(spec, never)["a"].num_examples == 24
    assert notes == ["client a: its worker ended; another one takes its place"]


def test_a_worker_whose_replacement_ends_too_ends_it_with_a_sentence(tmp_path: Path, spec: RunSpec) -> None:
    said = "^client a: its worker ended, and another one ended before it; where memory is short, give fewer --jobs: the same"
    with (
        pool_of(sites(tmp_path, a=npz(tmp_path)), Gone, 1) as workers,
        pytest.raises(FedplccError, match=said) as caught,
    ):
        workers.read(spec, never)
    assert exit_code_of(caught.value) is ExitCode.FAILED


def test_whoever_wants_to_stop_waits_for_no_worker(tmp_path: Path, spec: RunSpec) -> None:
    wished_at = time.monotonic() + 0.2
    clients = sites(tmp_path, a=npz(tmp_path), b=npz(tmp_path))
    with pool_of(clients, Silent) as workers, pytest.raises(Cancelled):
        workers.read(spec, lambda: time.monotonic() > wished_at)
    assert time.monotonic() < wished_at + WAIT_S / 2


def test_jobs_and_engines_are_understood_or_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [parse_jobs(text) for text in ("1", "16", "auto")] == [1, 16, None]
    for text in ("0", "-1", "two", "1.5", ""):
        with pytest.raises(InvalidConfig, match=f"^--jobs {text}: write how many clients"):
            parse_jobs(text)
    assert parse_engine("local") == "local"
    with pytest.raises(InvalidConfig, match="no engine 'spark'; write local or ray"):
        parse_engine("spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        parse_engine("ray")
    assert missing.value.name == "ray"


def test_as_many_clients_work_at_a_time_as_there_are_cores_for_but_no_more_than_there_are() -> None:
    assert num_workers(None, num_clients=100, threads=2, num_cores=9) == 4
    assert num_workers(None, num_clients=3, threads=1, num_cores=64) == 3
    assert num_workers(None, num_clients=3, threads=4, num_cores=2) == 1
    assert num_workers(8, num_clients=100, threads=1, num_cores=2) == 8
    with pytest.raises(InvalidConfig, match="jobs = 0"):
        num_workers(0, num_clients=1, threads=1, num_cores=1)


def test_a_ray_cluster_that_does_not_answer_is_said_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens at nothing
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            Unavailable, match=f"no Ray cluster answers at {address}; start one with: ray start --head"
        ) as why:
            make_engine(sites(tmp_path, a=npz(tmp_path)), Observers(), threads=1, engine="ray", ray_address=address)
    assert exit_code_of(why.value) is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        (("client_worker", "ray_worker"), {"aggregator", "gateway", "sqlalchemy", "ray"}),
        (("federation", "engines", "parallel_clients", "worker_process", "ray_cluster"), {"torch", "ray"}),
    ],
)
def test_a_worker_loads_no_aggregator_and_its_pool_no_torch(modules: tuple[str, ...], unneeded: set[str]) -> None:
    """Each would cost its process seconds and hundreds of megabytes."""
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(f'fedplcc.simulation.{name}')\n"
    program += "print(*{name.removeprefix('fedplcc.').partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program, *modules], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not unneeded & set(done.stdout.split())
