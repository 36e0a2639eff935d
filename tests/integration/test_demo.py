"""The demo's machinery: real processes that end in the simulation's bytes, clear ends, and nobody left behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedplcc.runs.artifacts import FILES
from fedplcc.runs.configuration import stream_demo_file
from fedplcc.shared.config.run import read_document
from fedplcc.shared.tensors import to_bytes
from fedplcc.trainer.models import build_model, state_arrays
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config

pytestmark = pytest.mark.slow

RUN_S = 150.0
FOUR = ("aggregator", "gateway", "trainer-east", "trainer-north")


def document(data: Path, *names: str, **sections: Any) -> dict[str, Any]:
    """A tiny run of these clients, each with a data set."""
    specs = [f"npz:{data / name}.npz" for name in tiny_federation.CLIENTS]
    values = tiny_federation.document(data, **sections)
    values["clients"] = {
        name: {"domain": f"{name}-side", "data": specs[number], "samples_per_class": 4 + number}
        for number, name in enumerate(names)
    }
    values["run"]["clients"] = list(names)
    return values


def a_model(values: dict[str, Any]) -> bytes:
    """A model of the run's kind that another seed makes."""
    config = tiny_federation.federation(values).config
    return to_bytes(state_arrays(build_model(config.model, len(config.data.classes), config.data.image_size, seed=7)))


class RunningDemo:
    """`fedplcc demo` as a process, of a file or with --stream; what it started is looked for afterwards."""

    def __init__(self, config: Path | None, out: Path, *flags: str) -> None:
        self.out, self.progress = out, out.with_suffix(".progress")
        chosen = ["--stream"] if config is None else ["--config", str(config)]
        arguments = ["demo", *chosen, "--out", str(out), "--device", "cpu", "--json", *flags]
        # What somebody has set for services of their own must not reach the demo's.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FEDPLCC_PORT": "1", "FEDPLCC_SAMPLES_PER_CLASS": "1"}
        with self.progress.open("ab") as progress:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fedplcc", *arguments],
                stdout=subprocess.PIPE,
                stderr=progress,
                text=True,
                env=environment,
            )
        self.children: dict[int, str] = {}

    def said(self) -> str:
        return self.progress.read_text()

    def wait_for(self, text: str) -> None:
        """Until the progress says this; remembers the processes that run then."""
        eventually(lambda: text in self.said() or self.process.poll() is not None, f"{text!r} is said", RUN_S)
        assert text in self.said(), self.said()
        self.children = children_of(self.process.pid)

    def end(self) -> tuple[int, str]:
        """Wait for the exit code and what came on stdout."""
        out, _ = self.process.communicate(timeout=RUN_S)
        return self.process.returncode, out


@contextmanager
def running(config: Path | None, out: Path, *flags: str) -> Iterator[RunningDemo]:
    demo = RunningDemo(config, out, *flags)
    try:
        yield demo
    finally:
        demo.process.kill()
        demo.process.communicate()
    eventually(lambda: not any(map(lives, demo.children)), f"the processes {demo.children} have ended", 10)


def children_of(parent: int) -> dict[int, str]:
    """Process ids and command lines of a process's living children."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found[int(folder.name)] = command
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_its_keys_are_its_owners_alone(demo: RunningDemo) -> None:
    """Each file with a key is for its owner alone, nothing secret is in a log, and the printed console opens once."""
    files = [path for path in demo.out.rglob("*") if path.is_file()]
    private = {path.relative_to(demo.out): path for path in files if b"PRIVATE KEY" in path.read_bytes()}
    identities = {Path("state", name, "identity.pem") for name in ("gateway", "trainer-north")}
    assert identities < private.keys()
    assert {path.stat().st_mode & 0o777 for path in private.values()} == {0o600}
    logs = "".join(path.read_text() for path in (demo.out / "logs").iterdir())
    kept = "".join(path.read_text() for path in private.values())
    secrets = {line for line in kept.splitlines() if len(line) == 64}
    for address in re.findall(r"console: (\S+)", demo.said()):
        url, _, code = address.partition("/#code=")
        secrets.add(code)
        with httpx.Client(base_url=url, trust_env=False) as http:
            assert http.get("/v1/me").status_code == 401
            assert http.post("/v1/console/sessions", json={"code": code}).status_code == 204
            assert http.get("/v1/me").json()["is_insecure"] is False
            assert http.post("/v1/console/sessions", json={"code": code}).status_code == 401
    assert len(secrets) > 4
    assert "fedpk_" not in logs
    assert not [secret for secret in secrets if secret in logs]


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


@linux
def test_four_processes_and_a_simulation_end_in_the_same_bytes(data: Path, tmp_path: Path) -> None:
    values = document(data, "north", "east", run={"rounds": 2})
    (tmp_path / "first.safetensors").write_bytes(a_model(values))
    values["run"]["initial_model"] = str(tmp_path / "first.safetensors")
    config = write_config(tmp_path / "tiny_federation.toml", values)
    with running(config, tmp_path / "demo") as demo:
        demo.wait_for("run tiny-")
        code, text = demo.end()
    assert code == 0, demo.said()

    commands = sorted(" ".join(command.split()[1:4]) for command in demo.children.values())
    assert commands == ["-P -m fedplcc.aggregator", "-P -m fedplcc.gateway", *["-P -m fedplcc.trainer"] * 2]
    assert not [command for command in demo.children.values() if "--insecure" in command]
    expected = simulated(values, tmp_path / "simulation")
    assert hashed(tmp_path / "demo") == hashed(tmp_path / "simulation")

    (line,) = text.splitlines()
    answer = json.loads(line)
    assert {key: answer[key] for key in expected} == expected
    assert (answer["status"], answer["rounds"], answer["directory"]) == ("completed", 2, str(tmp_path / "demo"))
    assert answer["accuracy"].keys() == {"north-side", "east-side", "mean", "worst"}

    left = {path.name for path in (tmp_path / "demo").iterdir()}
    assert left == {*FILES, "federation.json", "logs", "roles"}
    assert sorted(path.stem for path in (tmp_path / "demo" / "logs").iterdir()) == list(FOUR)
    manifests = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("demo", "simulation")]
    for key in ("config", "config_hash", "initial_model", "clients", "aggregator", "seed"):
        assert manifests[0][key] == manifests[1][key]
    assert manifests[0]["initial_model"]["name"] == "first.safetensors"
    lines = [line.split() for line in demo.said().splitlines()]
    assert [line[0] for line in lines if line[-1] == "s" and line[0].isdigit()] == ["1", "2"]


@pytest.mark.full
@linux
def test_the_demo_of_stages_says_what_was_taught_and_forgotten(tmp_path: Path) -> None:
    less = ("--set", "training.local_steps=1", "--set", "evaluation.every=12", "--set", "evaluation.last=1")
    with running(None, tmp_path / "demo", "--samples-per-class", "2", *less) as demo:
        demo.wait_for("run digits-stream-")
        code, _ = demo.end()
    assert code == 0, demo.said()
    lines = [json.loads(line) for line in (tmp_path / "demo" / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == [1] * 12 + [2] * 12
    always = {"mnistm", "optdigits", "synth"}
    came = [
        {"mnist"} if number < 12 else {"mnist", "newcomer"} if number < 20 else {"newcomer"} for number in range(1, 25)
    ]
    assert [{*line["cohort"]} for line in lines] == [always | some for some in came]
    assert "client newcomer is admitted" in demo.said()
    assert "client mnist is retired" in demo.said()
    for word in (
        "percent of the test images of each stage",
        "average accuracy: ",
        "forgetting: ",
        "backward transfer: ",
    ):
        assert word in demo.said()
    values = read_document(stream_demo_file())
    values |= {"training": values["training"] | {"local_steps": 1}, "evaluation": {"every": 12, "last": 1}}
    for client in values["clients"].values():
        client["samples_per_class"] = 2
    simulated(values, tmp_path / "simulation")
    assert hashed(tmp_path / "demo") == hashed(tmp_path / "simulation")


def test_the_demo_of_stages_takes_no_other_configuration(tmp_path: Path) -> None:
    with running(tmp_path / "none.toml", tmp_path / "demo", "--stream") as demo:
        code, _ = demo.end()
    assert code == 2
    assert "--stream is a demo of its own: leave out --config" in demo.said()


@pytest.mark.full
@linux
def test_ctrl_c_ends_every_process_and_the_same_command_goes_on(data: Path, tmp_path: Path) -> None:
    values = document(data, "north", "east", training={"local_steps": 60}, run={"rounds": 4})
    config = write_config(tmp_path / "tiny_federation.toml", values)
    with running(config, tmp_path / "demo") as demo:
        demo.wait_for("\n     1 ")
        demo.process.send_signal(signal.SIGINT)
        code, text = demo.end()
    assert (code, text) == (130, "")
    assert len(demo.children) == 4
    assert f"fedplcc: interrupted; what was committed is kept: the same command with --out {demo.out}" in demo.said()
    assert "Traceback" not in demo.said()

    with running(config, tmp_path / "demo") as demo:
        assert demo.end()[0] == 0, demo.said()
    simulated(values, tmp_path / "simulation")
    assert hashed(tmp_path / "demo") == hashed(tmp_path / "simulation")


@linux
def test_a_demo_keeps_its_keys_to_itself_and_once_killed_leaves_no_process_behind(data: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny_federation.toml", document(data, "north", run={"rounds": 1000}))
    with running(config, tmp_path / "demo") as demo:
        demo.wait_for("run tiny-")
        assert_its_keys_are_its_owners_alone(demo)
        demo.process.kill()
        assert demo.end()[0] == -signal.SIGKILL
    assert len(demo.children) == 3  # and `running` has seen all of them end


@linux
def test_a_process_that_is_killed_ends_the_demo_with_its_log(data: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny_federation.toml", document(data, "north", run={"rounds": 1000}))
    with running(config, tmp_path / "demo") as demo:
        demo.wait_for("\n     1 ")
        aggregator = next(pid for pid, command in demo.children.items() if "-m fedplcc.aggregator" in command)
        os.kill(aggregator, signal.SIGKILL)
        code, text = demo.end()
    assert (code, text) == (1, "")
    sentence = demo.said().splitlines()[-1]
    assert sentence.startswith("fedplcc: aggregator ended with exit code -9; what it did before is in ")
    assert "aggregator_ready" in Path(sentence.rpartition(" in ")[2]).read_text()


@pytest.mark.full
@linux
def test_kept_processes_serve_until_ctrl_c_and_then_the_results_are_printed(data: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny_federation.toml", document(data, "north", run={"rounds": 1}))
    with running(config, tmp_path / "demo", "--keep") as demo:
        demo.wait_for("the processes stay until Ctrl-C")
        demo.wait_for("fedplcc login --gateway ")
        assert len(demo.children) == 3
        demo.process.send_signal(signal.SIGINT)
        code, text = demo.end()
    assert code == 0, demo.said()
    assert json.loads(text)["round"] == 1
    assert (tmp_path / "demo" / "state" / "aggregator").is_dir()
    model = hashlib.sha256((tmp_path / "demo" / "model.safetensors").read_bytes()).hexdigest()
    assert model == json.loads(text)["model_sha256"]
