"""Parts of two versions in one run, replaced in the middle of it and put back: the undisturbed bytes, or a refusal by name.

The other version is the one of tests/support/federation/other_versions.py, and a copy of this tree that says that it is the
next minor version. `make test` replaces all parts at once, `make test-full` each alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.store.database.schema import REVISION
from fedplcc.shared.version import VERSION
from fedplcc.trainer.app import STATES_FOLDER
from tests.support.federation import forks, tiny_federation
from tests.support.federation.other_versions import Installed, other_version, this_tree
from tests.support.federation.processes import Federation, Process, eventually
from tests.support.federation.remote_runs import LEFT
from tests.support.federation.simulations import hashed, simulated

RUN_S = 240.0
"""Bound on whatever is waited for: services of another version load everything when they start."""
ROUNDS = 6
"""So many that a request which comes a round late still meets the run, twice."""
VICTIM = f"trainer-{tiny_federation.CLIENTS[1]}"
PARTS = {
    "aggregator": ("aggregator",),
    "gateway": ("gateway",),
    "one trainer": (VICTIM,),
    "command": (),
    "everything": ("aggregator", "gateway", *(f"trainer-{name}" for name in tiny_federation.CLIENTS)),
}
"""Processes that are replaced, in the order of the guide; the command with everything, and alone."""
MAJOR, MINOR = (int(number) for number in VERSION.split(".")[:2])
NEXT, FAR = f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR}.{MINOR + 7}.0"
"""The next minor version, and one that does not work with this one."""
pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(900)]


@dataclass
class Operator:
    """A federation's operator, who replaces parts of it, and a person with its command."""

    federation: Federation
    command: Installed | None = None
    """Version of the person's command; this tree's if None."""

    def start(self, values: dict[str, Any]) -> str:
        """Start a run; returns its id."""
        return str(self.federation.ask("/v1/runs", tiny_federation.run_document(values))["run_id"])

    def hold(self, run_id: str) -> None:
        """Let the round in progress be the last before a pause."""
        self.federation.ask(f"/v1/runs/{run_id}/pause", method="POST")

    def wait(self, run_id: str, status: str) -> dict[str, Any]:
        """Wait until the run has a status; returns it."""

        def has_status() -> dict[str, Any] | None:
            try:
                run: dict[str, Any] = self.federation.ask(f"/v1/runs/{run_id}")
            except OSError:  # what was replaced is not back yet
                return None
            assert run["status"] in (status, "pending", "running", "paused"), f"{run['status']}: {run['reason']}"
            return run if run["status"] == status else None

        return eventually(has_status, f"{run_id} is {status}", RUN_S)

    def wait_training(self, run_id: str, number: int) -> None:
        """Wait until somebody trains in this round or a later one."""

        def trains() -> bool:
            clients = self.federation.ask("/v1/clients")["clients"]
            run = self.federation.ask(f"/v1/runs/{run_id}")
            return run["round"] >= number and any(client["activity"] == "training" for client in clients)

        eventually(trains, f"somebody trains in round {number}", RUN_S)

    def replace(self, part: str, version: Installed | None) -> None:
        """End the processes of a part and start them as another version on the same state; this tree's if None."""
        if part in ("command", "everything"):
            self.command = version
        for name in PARTS[part]:
            process = self.federation.processes[name]
            assert process.end() == 0, f"{name} ends cleanly"
            self.start_as(name, version)
            wait_version(process, VERSION if version is None else version.version)

    def start_as(self, name: str, version: Installed | None) -> None:
        """Start a part that has ended as a version."""
        process = self.federation.processes[name]
        process.installed = None if version is None else version.folder
        again = {"aggregator": self.federation.start_aggregator, "gateway": self.federation.start_gateway}
        again.get(name, process.start)()

    def typed(self, *words: str) -> str:
        """What the person's command prints, which succeeds."""
        done = self.tried(*words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def tried(self, *words: str) -> Any:
        """The person's command when it has ended."""
        environment = {"XDG_CONFIG_HOME": str(self.federation.user_folder())}
        words = (*words, "--gateway", self.federation.gateway_url)
        if self.command is None:
            return forks.typed(*words, cwd=self.federation.folder, environment=environment)
        return self.command.typed(*words, cwd=self.federation.folder, environment=environment)

    def results(self, run_id: str) -> dict[str, str]:
        """Wait for the run's end; the SHA-256 of what it leaves."""
        self.wait(run_id, "completed")
        found = {}
        for name, path in LEFT.items():
            with self.federation.open(f"/v1/runs/{run_id}/{path}") as answer:
                found[name] = hashlib.sha256(answer.read()).hexdigest()
        return found


def said_version(process: Process) -> str | None:
    """The version that a process said when it started last."""
    begun = ("aggregator_ready", "gateway_ready", "trainer_starting")
    lines = (json.loads(line) for line in process.log().splitlines() if any(f'"{name}"' in line for name in begun))
    return next((str(line["version"]) for line in reversed([*lines])), None)


def wait_version(process: Process, version: str) -> None:
    eventually(lambda: said_version(process) == version, f"{process.name} is {version}", RUN_S)


def wait_line(process: Process, text: str) -> None:
    eventually(lambda: text in process.log(), f"{process.name} says {text!r}", RUN_S)


def problem_of(federation: Federation) -> dict[str, Any] | None:
    """The problem that the gateway answers with, once it is that of versions."""
    try:
        federation.ask("/v1/runs")
    except urllib.error.HTTPError as error:
        problem: dict[str, Any] = json.load(error)
        return problem if problem["code"] == "VERSION_REFUSED" else None
    except OSError:
        pass
    return None


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this tree."""
    return this_tree(tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest, ours: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The other version that a test is about."""
    folder = tmp_path_factory.mktemp("other")
    return other_version(folder, ours) if request.param == "other" else ours.planted(folder / "next", NEXT)


@pytest.fixture(scope="module")
def far(ours: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A version that does not work with this one."""
    return ours.planted(tmp_path_factory.mktemp("far") / "far", FAR)


@pytest.fixture(scope="module")
def values(data: Path) -> dict[str, Any]:
    return tiny_federation.document(data, training={"local_steps": 40}, run={"rounds": ROUNDS})


@pytest.fixture(scope="module")
def undisturbed(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """SHA-256 of what the run leaves that nobody disturbs."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    simulated(values, out)
    return hashed(out)


@pytest.fixture(scope="module")
def all_day(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Federation]:
    """An aggregator, two trainers and a gateway that live through all tests, as deployed ones do."""
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        begin(federation, data)
        yield federation


def begin(federation: Federation, data: Path) -> None:
    federation.start_aggregator("--heartbeat-interval-s", "0.3")
    for name in tiny_federation.CLIENTS:
        federation.start_trainer(name, f"npz:{data / name}.npz", "--metrics-port", "off")
    federation.start_gateway()


@pytest.fixture
def operator(all_day: Federation) -> Operator:
    return Operator(all_day)


@pytest.mark.parametrize("other", ["other", "next"], indirect=True)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_replaced_in_the_middle_of_a_run_and_put_back(
    operator: Operator, part: str, other: Installed, values: dict[str, Any], undisturbed: dict[str, str]
) -> None:
    """Rounds in the middle have both versions, and one is replaced while they train; the last has ours."""
    run_id = operator.start(values)
    operator.wait_training(run_id, 2)
    for version in (other, None):
        operator.hold(run_id)
        operator.replace(part, version)
        held = operator.wait(run_id, "paused")
        assert 2 <= held["round"] < ROUNDS, "it was in the middle"
        shown = json.loads(operator.typed("run", "status", run_id, "--json"))
        assert (shown["status"], shown["round"]) == ("paused", held["round"])
        operator.typed("run", "resume", run_id)
    assert operator.results(run_id) == undisturbed


def test_a_version_that_is_too_far_away_is_refused_by_name_and_the_way_back_ends_in_the_same_bytes(
    operator: Operator, far: Installed, values: dict[str, Any], undisturbed: dict[str, str]
) -> None:
    refusal = f"this is fedplcc {VERSION}, and the caller's is {FAR}"
    federation = operator.federation
    run_id = operator.start(values)
    operator.wait_training(run_id, 2)
    operator.hold(run_id)
    operator.command = far
    tried = operator.tried("run", "list")
    assert (tried.returncode != 0, refusal in tried.stderr) == (True, True), tried.stderr
    operator.command = None
    trainer = federation.processes[VICTIM]
    operator.replace("one trainer", far)
    wait_line(trainer, refusal)
    assert '"VERSION_REFUSED"' in trainer.log()
    assert trainer.is_running, "it waits for an aggregator of another version"
    operator.replace("one trainer", None)
    operator.wait(run_id, "paused")
    gateway = federation.processes["gateway"]
    assert gateway.end() == 0
    gateway.installed = far.folder
    gateway.start()
    wait_version(gateway, FAR)
    wait_line(gateway, refusal)
    operator.replace("gateway", None)
    operator.typed("run", "resume", run_id)
    operator.wait_training(run_id, 3)
    operator.hold(run_id)
    operator.replace("aggregator", far)
    refusal = f"this is fedplcc {FAR}, and the caller's is {VERSION}"
    for name in tiny_federation.CLIENTS:
        wait_line(federation.processes[f"trainer-{name}"], refusal)
    refused = eventually(lambda: problem_of(federation), "the gateway says so", RUN_S)
    assert refused["detail"].startswith(refusal)
    operator.replace("aggregator", None)
    operator.wait(run_id, "paused")
    operator.typed("run", "resume", run_id)
    assert operator.results(run_id) == undisturbed


def test_state_of_newer_tables_is_refused_by_the_older_version_whose_way_back_is_the_backup(
    tmp_path: Path, ours: Installed, data: Path, values: dict[str, Any], undisturbed: dict[str, str]
) -> None:
    revised = f'REVISION = "{REVISION}"', 'REVISION = "9000"'
    newer = ours.planted(tmp_path / "newer", NEXT, {"aggregator/store/database/schema.py": revised})
    migrations = newer.folder / "fedplcc" / "aggregator" / "store" / "migrations" / "versions"
    body = f"revision, down_revision = '9000', {REVISION!r}\n\n\ndef upgrade():\n    pass\n"
    (migrations / "r9000_next.py").write_text(body)
    with Federation(tmp_path) as federation:
        operator = Operator(federation)
        begin(federation, data)
        run_id = operator.start(values)
        operator.wait_training(run_id, 2)
        operator.hold(run_id)
        done = forks.typed("state", "backup", str(federation.state), "backup", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        operator.replace("aggregator", newer)
        operator.wait(run_id, "paused")
        assert (federation.state / f"aggregator.sqlite.revision-{REVISION}").is_file()
        aggregator = federation.processes["aggregator"]
        assert aggregator.end() == 0
        before = {
            path.name: path.read_bytes() for path in federation.state.iterdir() if path.name.startswith("aggregator.")
        }
        aggregator.installed = None
        aggregator.start()
        eventually(lambda: not aggregator.is_running, "the older version refuses")
        assert aggregator.exit_code == 4
        assert "the database has revision 9000" in aggregator.log()
        assert before == {name: (federation.state / name).read_bytes() for name in before}
        shutil.rmtree(federation.state)
        shutil.copytree(tmp_path / "backup", federation.state)
        federation.start_aggregator()
        operator.wait(run_id, "paused")
        operator.typed("run", "resume", run_id)
        assert operator.results(run_id) == undisturbed


def test_what_a_newer_trainer_keeps_is_refused_by_the_older_one(
    operator: Operator, ours: Installed, tmp_path: Path, data: Path
) -> None:
    newer = ours.planted(tmp_path / "newer", NEXT, {"trainer/task/manifest.py": ("\nVERSION = 1\n", "\nVERSION = 2\n")})
    values = tiny_federation.document(data, "moon", training={"local_steps": 40}, run={"rounds": ROUNDS})
    federation = operator.federation
    trainer = federation.processes[VICTIM]
    run_id = operator.start(values)
    operator.wait_training(run_id, 2)
    operator.hold(run_id)
    operator.replace("one trainer", newer)
    operator.wait(run_id, "paused")
    assert trainer.end() == 0
    states = federation.folder / VICTIM
    before = {path: path.read_bytes() for path in states.rglob("*") if path.is_file() and STATES_FOLDER in path.parts}
    trainer.installed = None
    trainer.start()
    eventually(lambda: not trainer.is_running, "the older version refuses", RUN_S)
    assert trainer.exit_code == 4
    assert "a newer version than fedplcc" in trainer.log()
    assert {path: path.read_bytes() for path in before} == before
    operator.start_as(VICTIM, newer)
    operator.typed("run", "resume", run_id)
    simulated(values, tmp_path / "out")
    left = operator.results(run_id)
    assert left == hashed(tmp_path / "out")
