"""The same rounds here, in Flower and in NVIDIA FLARE, in turn within one run; then the servers of these two are killed.

    python3.11 -m venv DIR/flower && DIR/flower/bin/pip install flwr==1.42.0
    python3.11 -m venv DIR/flare && DIR/flare/bin/pip install nvflare==2.9.0
    python -m benchmarks.by_hand.peers --flower DIR/flower --flare DIR/flare [--plain]

Five clients get N float32, change one in each 4 KiB and send all of them; the server takes the mean. Ours are a real
aggregator and the trainers' client side (rounds.py), which also evaluate; theirs are their real services and the apps below,
without evaluation. Ours and FLARE speak mutual TLS, Flower TLS with signed requests; with --plain FLARE goes on so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.rounds import timed_run
from benchmarks.support.members import Served
from benchmarks.support.models import NUM_TENSORS, STRIDE, Updates
from benchmarks.support.processes import aggregator, peer
from benchmarks.support.report import Row, Sample, alternate, finish, median, options, ratio, with_children
from benchmarks.support.trainers import CLIENTS, Trainer, following
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc

SIZES = {"0.01 M": (10_000, 2, 2), "4.9 M": (4_900_000, 1, 2)}
"""Parameters, rounds at a time, and how often, by name."""
START_S = 240.0
"""Longest start of a peer, or round of it: each imports for seconds, and the machine may be busy."""
AFTER_S = 60.0
"""How long a killed server that has started again is watched."""
FLOWER_APP = f"""
import time
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    arrays = message.content["arrays"].to_numpy_ndarrays()
    for array in arrays:
        array[::{STRIDE}] += 1
    metrics = MetricRecord({{"num-examples": 100}})
    return Message(content=RecordDict({{"arrays": ArrayRecord(arrays), "metrics": metrics}}), reply_to=message)

class Noted(FedAvg):
    def aggregate_train(self, server_round, replies):
        answer = super().aggregate_train(server_round, replies)
        with open(self.lines, "a") as file:
            print(time.time(), file=file)
        return answer

@server.main()
def main(grid, context):
    config = context.run_config
    sizes = np.diff(np.linspace(0, config["parameters"], {NUM_TENSORS + 1}).astype(int))
    strategy = Noted(fraction_evaluate=0.0, min_train_nodes={len(CLIENTS)}, min_available_nodes={len(CLIENTS)})
    strategy.lines = config["lines"]
    arrays = ArrayRecord([np.random.default_rng(0).standard_normal(size, np.float32) for size in sizes])
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=config["rounds"])
"""
FLOWER_PROJECT = """
[project]
name = "bench"
version = "1.0.0"
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "bench_app:server"
clientapp = "bench_app:client"
[tool.flwr.app.config]
parameters = 1
rounds = 1
lines = ""
"""
FLARE_CLIENT = f"""
import sys, time
import nvflare.client as flare

flare.init()
while flare.is_running():
    model = flare.receive()
    if model is None:
        break
    if flare.get_site_name() == "site-1":
        with open(sys.argv[1], "a") as file:
            file.write(f"{{time.time()}}\\n")
    for array in model.params.values():
        array[::{STRIDE}] += 1
    flare.send(flare.FLModel(params=model.params, params_type=model.params_type, metrics={{"accuracy": 0.5}}))
"""
FLARE_JOB = f"""
import sys
import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe

np.save("initial.npy", np.random.default_rng(0).standard_normal(int(sys.argv[1]), np.float32))
NumpyFedAvgRecipe(name="bench", initial_ckpt=sys.argv[4] + "/initial.npy", min_clients={len(CLIENTS)},
    num_rounds=int(sys.argv[2]), train_script="client.py", train_args=sys.argv[3]).export("jobs")
"""


class Services:
    """The processes of a peer, in a folder and a virtual environment of its own; the first of them is the server."""

    def __init__(self, folder: Path, venv: Path) -> None:
        folder.mkdir()
        self.folder, self.lines = folder, folder / "lines"
        path = f"{venv.absolute() / 'bin'}:{os.environ['PATH']}"
        self._environment = {"PATH": path, "HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0"}
        self._commands: list[list[str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> None:
        """Start a service."""
        self._commands.append(list(arguments))
        self.processes.append(self._started(len(self.processes)))

    def _started(self, index: int) -> subprocess.Popen[bytes]:
        own = self.folder / f"home{index}"
        own.mkdir(exist_ok=True)
        with (self.folder / f"{index}.log").open("ab") as log:
            return subprocess.Popen(
                self._commands[index],
                cwd=self.folder,
                env={**self._environment, "FLWR_HOME": str(own)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def call(self, *arguments: str) -> str:
        """Run a command of the peer until it succeeds, since its server may not be there yet; return what it says.

        Raises:
            RuntimeError: It did not succeed in time.
        """
        deadline = time.monotonic() + START_S
        while True:
            answer = subprocess.run(
                arguments, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
            )
            if answer.returncode == 0:
                return answer.stdout
            if time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(arguments)}: {answer.stdout}{answer.stderr}")
            time.sleep(1)

    def kill_server(self) -> None:
        """End the server alone as a lack of memory does, and start it again."""
        self.processes[0].kill()
        self.processes[0].wait()
        self.processes[0] = self._started(0)

    def close(self) -> None:
        """End all processes."""
        for each in self.processes:
            for pid in with_children(each.pid):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            each.wait()


class Flower(Services):
    """A SuperLink with its database on the disk, and SuperNodes, each of which starts a process for each message."""

    def __init__(self, folder: Path, venv: Path, *, plain: bool) -> None:
        super().__init__(folder, venv)
        (folder / "app").mkdir()
        (folder / "app" / "bench_app.py").write_text(FLOWER_APP)
        (folder / "app" / "pyproject.toml").write_text(FLOWER_PROJECT)
        new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench")
        self.call(*new, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "root.pem")
        served = ("--ssl-ca-certfile", "root.pem", "--ssl-certfile", "root.pem", "--ssl-keyfile", "key.pem")
        port = 21_000
        trust = "insecure = true" if plain else f'root-certificates = "{folder}/root.pem"'
        (folder / ".flwr").mkdir()
        (folder / ".flwr" / "config.toml").write_text(f'[superlink.bench]\naddress = "127.0.0.1:{port}"\n{trust}\n')
        security = ("--insecure",) if plain else served
        link = ("--disable-runtime-dependency-installation", "--database", "state.db", "--port", str(port))
        self.start("flower-superlink", *security, *link)
        root = ("--insecure",) if plain else ("--root-certificates", "root.pem", *served)
        for index in range(1, len(CLIENTS) + 1):
            self.start("flower-supernode", *root, "--superlink", f"127.0.0.1:{port}", "--port", str(port + index))

    def run(self, parameters: int, rounds: int) -> None:
        """Begin a run."""
        config = f"parameters={parameters} rounds={rounds} lines='{self.lines}'"
        self.call("flwr", "run", "app", "bench", "--run-config", config)

    def said(self) -> str:
        """Its list of runs."""
        return self.call("flwr", "list", "bench", "--limit", "1", "--format", "json")


class Flare(Services):
    """A server and five sites as its proof of concept provisions them; each starts a process for a job."""

    def __init__(self, folder: Path, venv: Path) -> None:
        super().__init__(folder, venv)
        self._environment["NVFLARE_POC_WORKSPACE"] = str(folder / "poc")
        (folder / "client.py").write_text(FLARE_CLIENT)
        (folder / "job.py").write_text(FLARE_JOB)
        self.call("nvflare", "poc", "prepare", "-n", str(len(CLIENTS)), "--force")
        self._kits = next((folder / "poc").glob("*/prod_00"))
        for name in ("server", *(f"site-{index + 1}" for index in range(len(CLIENTS)))):
            self.start("bash", str(self._kits / name / "startup" / "sub_start.sh"), "--once")

    def run(self, parameters: int, rounds: int) -> None:
        """Begin a run."""
        self.call("python", "job.py", str(parameters), str(rounds), str(self.lines), str(self.folder))
        self._job("submit", "-j", "jobs/bench")

    def said(self) -> str:
        """Its list of runs."""
        return self._job("list")

    def _job(self, *arguments: str) -> str:
        kit = ("--startup-kit", str(self._kits / "admin@nvidia.com"))
        return self.call("nvflare", "--connect-timeout", "30", "job", *arguments, *kit)


def main() -> None:
    """Measure every size, then kill each server if that is asked for."""
    arguments = options(__doc__, _flags)
    sizes = {"0.01 M": (10_000, 1, 1)} if arguments.quick else SIZES
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedplcc-peers-")))
        peers: dict[str, Flower | Flare] = {}
        if arguments.flower:
            peers["Flower"] = Flower(folder / "flower", arguments.flower, plain=arguments.plain)
            stack.callback(peers["Flower"].close)
        if arguments.flare:
            peers["FLARE"] = Flare(folder / "flare", arguments.flare)
            stack.callback(peers["FLARE"].close)
        for name, (parameters, rounds, repeats) in sizes.items():
            with _ours(folder / name, parameters, rounds, plain=arguments.plain) as mine:
                theirs = {who: partial(peer_rounds, it, parameters, rounds) for who, it in peers.items()}
                samples = alternate({"fedplcc": mine, **theirs}, repeats)
            for who in ("fedplcc", "Flower", "FLARE"):
                rows.append({"parameters": name, "who": who, **_row(samples.get(who), samples["fedplcc"])})
                print(rows[-1], f"load {os.getloadavg()[0]:.0f}", flush=True)
        kills = {} if arguments.quick else {who: killed(services) for who, services in peers.items()}
    print(*kills.items(), sep="\n")
    finish("peers", rows, arguments, kills=kills)


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flower", type=Path, help="virtual environment with flwr")
    parser.add_argument("--flare", type=Path, help="virtual environment with nvflare")


@contextmanager
def _ours(folder: Path, parameters: int, rounds: int, *, plain: bool) -> Iterator[Callable[[], Sample]]:
    folder.mkdir()
    with aggregator(folder, plain=plain) as (served, pid), ExitStack() as stack:
        trainers = [stack.enter_context(peer(train, index, parameters, served)) for index in range(len(CLIENTS))]
        for trainer in trainers:
            trainer.receive()
        control = run_service_pb2_grpc.RunServiceStub(stack.enter_context(served.open_channel()))
        yield lambda: timed_run(control, rounds, CLIENTS, [pid, *(each.pid for each in trainers)], [])


def train(control: Connection, index: int, parameters: int, served: Served) -> None:
    """A trainer's process."""
    updates = Updates(parameters, index)
    with following(served, CLIENTS[index], lambda client: Trainer(client, updates).perform):
        control.send(None)
        with suppress(EOFError):
            control.recv()


def peer_rounds(services: Flower | Flare, parameters: int, rounds: int) -> Sample:
    """Let a peer run; what comes before its first round is over is not measured."""
    services.lines.unlink(missing_ok=True)
    services.run(parameters, rounds + 1)
    begin = _wait(services, 1)
    spent = cpu_of_all(services.processes)
    end = _wait(services, rounds + 1)
    return Sample((end - begin) / rounds, (cpu_of_all(services.processes) - spent) / rounds)


def _wait(services: Flower | Flare, number: int) -> float:
    """Return the moment of a line, once it is there."""
    deadline = time.monotonic() + START_S * number
    while len(moments := _moments(services)) < number:
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-1500:] for path in services.folder.glob("*.log"))
            raise RuntimeError(f"round {number} did not come; the ends of the logs:\n{logs}")
        time.sleep(0.01)
    return moments[number - 1]


def _moments(services: Flower | Flare) -> Sequence[float]:
    return [float(line) for line in services.lines.read_text().splitlines()] if services.lines.exists() else []


def cpu_of_all(processes: Iterable[subprocess.Popen[bytes]]) -> float:
    """Processor seconds of processes, of all that they have started, and of those of these that have ended."""
    ticks = 0
    for pid in set().union(*(with_children(each.pid) for each in processes)):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def killed(services: Flower | Flare) -> Row:
    """Kill the server once two rounds of twenty are over; return what comes of the run."""
    services.lines.unlink(missing_ok=True)
    services.run(10_000, 20)
    _wait(services, 2)
    services.kill_server()
    before = len(_moments(services))
    time.sleep(AFTER_S)
    return {"rounds before": before, "rounds after": len(_moments(services)) - before, "says": services.said()}


def _row(samples: list[Sample] | None, mine: list[Sample]) -> dict[str, Any]:
    if samples is None:
        return {"round (s)": "not installed"}
    return {
        "round (s)": median(samples),
        "CPU of a round (s)": median(samples, "cpu_s"),
        "ratio": ratio(samples, mine),
        "CPU ratio": ratio(samples, mine, "cpu_s"),
    }


if __name__ == "__main__":
    main()
