"""Both Dockerfiles built step by step, and the federation of deploy/compose.yaml out of the two images on its own network.

There is no container engine: tests/support/hosts/dockerfile.py reads the files, tests/support/hosts/debian_root.py does
what they say. Commands, variables and volumes of the containers are those of compose.yaml and compose.trainer.yaml.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.support.hosts.compose import compose
from tests.support.hosts.debian_root import Built, Container, Disk, FromHost, build, need_debian_roots
from tests.support.hosts.dockerfile import Context, read_plan
from tests.support.hosts.namespaces import Host, Network, need_namespaces
from trainer.reproducibility.environment import PACKAGES

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1200)]

AGGREGATOR, GATEWAY, LAPTOP = "192.0.2.10", "192.0.2.11", "192.0.2.50"
TRAINERS = {"north": "192.0.2.21", "south": "192.0.2.22"}
DATA = dict(zip(TRAINERS, tiny_federation.CLIENTS, strict=True))
"""Whose pictures each client has."""
UID = "10001"
VERSIONS = {found.name: found.version for found in metadata.distributions() if found.name in PACKAGES}
"""What decides a model's bytes, as it is installed here, where the simulation runs that containers are compared with."""
WAIT_S = 120.0
SERVES, DOES_NOT_SERVE = 0, 1
"""Exit codes of a HEALTHCHECK."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("containers")


@pytest.fixture(scope="module")
def disk(folder: Path) -> Iterator[Disk]:
    """Where roots and volumes are; nothing of it is left, whatever happens."""
    need_debian_roots()
    need_namespaces()
    with Disk(folder) as disk:
        yield disk


@pytest.fixture(scope="module")
def images(folder: Path, disk: Disk) -> dict[str, Built]:
    """Both images."""
    arguments = {"aggregator": {}, "trainer": {"TORCH_VERSION": VERSIONS["torch"]}}
    plans = {name: read_plan((ROOT / f"Dockerfile.{name}").read_text(), given) for name, given in arguments.items()}
    timings: dict[str, float] = {}
    try:
        from_host = FromHost.gather(folder / "from-host", VERSIONS)
        return build(plans, Context(ROOT), disk, folder / "build", from_host, timings)
    finally:
        for step, seconds in timings.items():
            print(f"{seconds:7.1f} s  {step[:100]}")


@pytest.fixture(scope="module")
def network(folder: Path) -> Iterator[dict[str, Host]]:
    """Hosts on one switch, as containers on one bridge; by address."""
    with Network() as network:
        network.add_switch("bridge", "192.0.2.1")
        addresses = (AGGREGATOR, GATEWAY, *TRAINERS.values(), LAPTOP)
        yield {address: network.add_host(f"at-{address[-2:]}", address, "bridge") for address in addresses}


@pytest.fixture(scope="module")
def values(folder: Path) -> dict[str, Any]:
    """The run's configuration, with data that user 10001 may read."""
    data = folder / "data"
    data.mkdir()
    tiny_federation.write_data(data)
    run = {"rounds": 2, "clients": list(TRAINERS)}
    values = tiny_federation.document(data, data={"image_size": 16}, training={"local_steps": 40}, run=run)
    return values | {"clients": {client: {"data": f"npz:{data / name}.npz"} for client, name in DATA.items()}}


class Federation:
    """The services of compose.yaml, north by its file and south as on a host of its own, and what a person types."""

    def __init__(self, images: dict[str, Built], network: dict[str, Host], folder: Path) -> None:
        self.folder, self._images, self._network = folder, images, network
        self._hosts_file = folder / "hosts"
        self._hosts_file.write_text(f"127.0.0.1 localhost\n{AGGREGATOR} aggregator\n")
        self.aggregator = self._service("compose.yaml", "aggregator", AGGREGATOR)
        self.gateway = self._service("compose.yaml", "gateway", GATEWAY)
        self.trainers = {
            "north": self._trainer("compose.yaml", "trainer-north", "north"),
            "south": self._trainer("compose.trainer.yaml", "trainer", "south"),
        }
        self.containers = [self.aggregator, self.gateway, *self.trainers.values()]

    def _trainer(self, file: str, service: str, client: str, arguments: tuple[str, ...] = ()) -> Container:
        environment = {"FEDPLCC_DATA": f"npz:/data/{DATA[client]}.npz", "FEDPLCC_DEVICE": "cpu"}
        found = compose(file)["services"][service]
        command = [each for each in found["command"] if not each.startswith(("--data", "--device"))]
        return self._container(file, service, TRAINERS[client], arguments or command, environment)

    def _service(self, file: str, service: str, address: str, arguments: tuple[str, ...] = ()) -> Container:
        command = compose(file)["services"][service].get("command", ())
        return self._container(file, service, address, arguments or command, {})

    def _container(
        self, file: str, service: str, address: str, arguments: Sequence[str], environment: dict[str, str]
    ) -> Container:
        """A container as the file describes it; where it mounts data of the host, the pictures are."""
        found = compose(file)["services"][service]
        mounts = found.get("volumes", ())
        project = compose(file)["name"]
        data = {each["target"]: self.folder / "data" for each in mounts if isinstance(each, dict)}
        return Container(
            f"{project}-{service}",
            self._images[found["image"].removeprefix("fedplcc-")],
            self._network[address],
            self.folder,
            arguments,
            data=data | {"/etc/hosts": self._hosts_file},
            environment={name: str(value) for name, value in found.get("environment", {}).items()} | environment,
            volumes=[f"{project}_{each}" for each in mounts if isinstance(each, str)],
            entrypoint=found.get("entrypoint"),
            user=found.get("user", ""),
            workdir=found.get("working_dir", ""),
        )

    def type(self, *arguments: str, given: str = "") -> str:
        """What `docker compose run --rm -T command ...` prints."""
        container = self._container("compose.yaml", "command", GATEWAY, arguments, {})
        done = container.run(given, timeout_s=WAIT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def invite_the_trainers_of_this_machine(self) -> None:
        """What `docker compose up` does when the aggregator is healthy."""
        done = self._service("compose.yaml", "invitations", AGGREGATOR).run()
        assert done.returncode == 0, done.stderr

    def start_monitor(self) -> Container:
        """What `docker compose up prometheus` starts first."""
        for _again in range(2):
            done = self._service("compose.yaml", "monitor-invitation", AGGREGATOR).run()
            assert done.returncode == 0, done.stderr
        monitor = self._service("compose.yaml", "monitor", GATEWAY)
        self.containers.append(monitor)
        monitor.start()
        check = compose("compose.yaml")["services"]["monitor"]["healthcheck"]["test"][1:]
        eventually(lambda: monitor.is_running and monitor.execute(check).returncode == 0, "the monitor joins", WAIT_S)
        return monitor

    def join(self, client: str, invitation: str) -> None:
        """What the owner of a site types: `docker compose -f deploy/compose.trainer.yaml run --rm trainer join`."""
        done = self._trainer("compose.trainer.yaml", "trainer", client, ("join",)).run(invitation)
        assert done.returncode == 0, done.stderr

    def end(self) -> None:
        for container in self.containers:
            container.kill()

    def await_health(self, container: Container, *codes: int) -> None:
        eventually(lambda: container.check_health() in codes, f"{container.name}: health is one of {codes}", WAIT_S)


@pytest.fixture
def federation(images: dict[str, Built], network: dict[str, Host], folder: Path) -> Iterator[Federation]:
    federation = Federation(images, network, folder)
    try:
        yield federation
    finally:
        federation.end()
        for container in federation.containers:
            print(f"\n--- {container.name}\n{container.log()[-3000:]}")


def python(container: Container, program: str) -> str:
    done = container.execute(["python3", "-c", program])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCRAPE = """
import socket, ssl

def first_line_and_metric(connection, head):
    connection.sendall(f"GET /metrics HTTP/1.0\\r\\nHost: gateway\\r\\n{head}\\r\\n".encode())
    answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return answer.partition(b"\\r\\n")[0], b"fedplcc_build_info" in answer

context = ssl.create_default_context(cafile="identity.pem")
context.load_cert_chain("identity.pem")
aggregator = socket.create_connection(("aggregator", 9464))
gateway = socket.create_connection(("127.0.0.1", 8080))
print(
    *first_line_and_metric(context.wrap_socket(aggregator, server_hostname="aggregator.fedplcc"), ""),
    *first_line_and_metric(gateway, f"Authorization: Bearer {open('key').read().strip()}\\r\\n"),
)
"""
"""Reads the metrics of aggregator and gateway with the monitor's files, as prometheus.yml says."""
OWN_FOLDERS = {
    True: {"var/lib/fedplcc": 0o750, "var/lib/fedplcc-join": 0o700, "home/fedplcc": 0o700},
    False: {"var/lib/fedplcc": 0o750, "var/lib/fedplcc-join": 0o700},
}
"""Folders for volumes, with their modes: of the aggregator's image, and of the trainer's."""


def test_the_aggregators_image_has_no_torch_and_both_are_owned_by_root_but_for_the_volume(
    images: dict[str, Built],
) -> None:
    aggregator, trainer = images["aggregator"].root, images["trainer"].root
    inside = {name: version for name, version in installed(trainer).items() if name in VERSIONS}
    assert {"torch", "torchvision", "numpy", "scipy"} <= inside.keys()
    assert inside.items() <= VERSIONS.items(), "other versions than here give other bytes: see TORCH_VERSION"
    assert not {"torch", "torchvision", "triton"} & installed(aggregator).keys()
    assert not list(aggregator.glob("opt/fedplcc/lib/python3*/site-packages/torch*"))
    assert not list(aggregator.rglob("libtorch*.so"))
    for built in images.values():
        assert built.image.user == f"{UID}:{UID}"
        volume = (built.root / "var/lib/fedplcc").stat()
        assert (volume.st_uid, volume.st_gid, volume.st_mode & 0o777) == (int(UID), int(UID), 0o750)
        found = subprocess.run(["find", str(built.root), "-uid", UID], capture_output=True, text=True, check=True)
        own = {str(built.root / folder): mode for folder, mode in OWN_FOLDERS[built is images["aggregator"]].items()}
        assert set(found.stdout.split()) == own.keys(), "the service can change no file of its image"
        for path, mode in own.items():
            assert Path(path).is_dir()
            assert Path(path).stat().st_mode & 0o777 == mode
            assert not any(Path(path).iterdir())
        assert sorted(built.root.glob("var/cache/pip/**/*")) == [], "no cache is left in the image"


def installed(root: Path) -> dict[str, str]:
    folders = [str(path) for path in root.glob("opt/fedplcc/lib/python3*/site-packages")]
    return {found.name: found.version for found in metadata.distributions(path=folders)}


def test_a_federation_of_containers_survives_restarts_and_ends_in_the_bytes_of_the_simulation(
    federation: Federation, values: dict[str, Any], folder: Path
) -> None:
    reference = folder / "reference"
    simulated(values, reference)

    # A gateway waits for its invitation; a trainer without one ends with a sentence, and its engine starts it again.
    federation.gateway.start()
    federation.await_health(federation.gateway, DOES_NOT_SERVE)
    federation.trainers["north"].start()
    assert federation.trainers["north"].wait(WAIT_S) == 2
    assert "there is no certificate in /var/lib/fedplcc" in federation.trainers["north"].log()
    federation.aggregator.start()
    federation.await_health(federation.aggregator, SERVES)
    for _again in range(2):  # every `up` starts it
        federation.invite_the_trainers_of_this_machine()
    federation.await_health(federation.gateway, SERVES)
    federation.type("login")
    federation.join("south", federation.type("invite", "south", "--address", "aggregator"))
    federation.trainers["north"].start()
    federation.await_health(federation.trainers["north"], SERVES)
    assert [line.split()[:2] for line in federation.type("client", "list").splitlines()] == [
        ["client", "north"],
        ["client", "south"],
        ["gateway", "gateway"],
    ]
    for container in (federation.gateway, federation.trainers["north"], federation.aggregator):
        assert container.stop() == 0, container.name

    # Of members, whoever comes first waits for the others, and is unhealthy meanwhile.
    early = [federation.gateway, *federation.trainers.values()]
    for container in early:
        container.start()
    for container in early:
        federation.await_health(container, DOES_NOT_SERVE)
    federation.aggregator.start()
    for container in federation.containers:
        federation.await_health(container, SERVES)

    for container in federation.containers:
        kernel = container.status()
        assert kernel["Uid"].split() == kernel["Gid"].split() == [UID] * 4
        assert kernel["Groups"].split() == [UID]
        assert kernel["NSpid"].split()[-1] == "1", "signals reach the service itself"
    assert python(federation.aggregator, "from importlib.util import find_spec; print(find_spec('torch'))") == "None"
    assert python(federation.start_monitor(), SCRAPE) == "b'HTTP/1.0 200 OK' True b'HTTP/1.1 200 OK' True"

    config = write_config(folder / "run.toml", values).read_text()
    run_id = json.loads(federation.type("run", "start", "--config", "/dev/stdin", "--json", given=config))["run_id"]

    def status() -> dict[str, Any]:
        run: dict[str, Any] = json.loads(federation.type("run", "status", run_id, "--json"))
        return run

    eventually(lambda: status()["metrics"] is not None, "the first round is done", WAIT_S)
    south = federation.trainers["south"]
    assert federation.aggregator.stop() == 0
    federation.await_health(federation.gateway, DOES_NOT_SERVE)
    federation.await_health(south, DOES_NOT_SERVE)
    assert south.stop() == 0
    south.start()
    federation.aggregator.start()
    for container in federation.containers:
        federation.await_health(container, SERVES)
    federation.type("run", "watch", run_id)
    assert status()["status"] == "completed"

    assert federation.gateway.stop() == 0
    assert federation.aggregator.stop() == 0
    federation.aggregator.start()
    federation.gateway.start()
    federation.await_health(federation.gateway, SERVES)
    federation.type("run", "fetch", run_id, "--out", "/home/fedplcc/result")
    person = federation.aggregator.volumes["/var/lib/fedplcc"].parent / "fedplcc_person"
    assert hashed(person / "result") == hashed(reference)
    for container in (*early, federation.aggregator):
        assert container.stop() == 0, container.name


LACKING: dict[str, tuple[str, tuple[str, ...], dict[str, str], int, str]] = {
    "a certificate of a trainer": ("trainer", ("trainer", "--client", "ann"), {}, 2, "there is no certificate in"),
    "a whole invitation": ("trainer", ("trainer",), {"FEDPLCC_JOIN": "fedplcc1_"}, 2, "cannot join by FEDPLCC_JOIN"),
    "a client": ("trainer", ("trainer",), {}, 2, "client is missing; give --client or set FEDPLCC_CLIENT"),
    "a volume of its own user": (
        "aggregator",
        ("aggregator",),
        {},
        4,
        f"Permission denied; make it writable for user id {UID}, or choose another with --state-dir",
    ),
    "data": (
        "trainer",
        ("trainer", "--client", "ann", "--aggregator", f"{AGGREGATOR}:50051", "--insecure"),
        {"FEDPLCC_DEVICE": "cpu"},
        2,
        "/data",
    ),
}
"""What may be forgotten: image, command, environment, exit code, and words of the one line that a person then reads."""


@pytest.mark.parametrize("what", LACKING)
def test_a_container_that_lacks_something_ends_with_a_sentence_that_says_what(
    images: dict[str, Built], network: dict[str, Host], folder: Path, what: str
) -> None:
    image, arguments, environment, code, words = LACKING[what]
    name = what.replace(" ", "-")
    container = Container(name, images[image], network[LAPTOP], folder, arguments, environment=environment)
    if "volume" in what:  # somebody mounts a folder of the host that belongs to root
        for volume in container.volumes.values():
            volume.mkdir(parents=True)
    container.start()
    try:
        assert container.wait(WAIT_S) == code, container.log()
    finally:
        container.kill()
    assert words in container.log().splitlines()[-1]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert hadolint is not None, "hadolint is part of the extra dev"
    files = [str(ROOT / f"Dockerfile.{name}") for name in ("aggregator", "trainer")]
    done = subprocess.run([hadolint, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
