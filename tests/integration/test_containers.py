"""Both Dockerfiles built step by step, and one federation of containers out of the two images on a network of their own.

There is no container engine: tests/support/hosts/dockerfile.py reads the files, tests/support/hosts/debian_root.py does
what they say.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.support.hosts.debian_root import Built, Container, Disk, FromHost, build, need_debian_roots
from tests.support.hosts.dockerfile import Context, read_plan
from tests.support.hosts.namespaces import Host, Network, need_namespaces
from trainer.reproducibility.environment import PACKAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

AGGREGATOR, GATEWAY, LAPTOP = "192.0.2.10", "192.0.2.11", "192.0.2.50"
TRAINERS = dict(zip(tiny_federation.CLIENTS, ("192.0.2.21", "192.0.2.22"), strict=True))
GATEWAY_URL = f"http://{GATEWAY}:8080"
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
    return tiny_federation.document(data, data={"image_size": 16}, training={"local_steps": 40}, run={"rounds": 2})


class Federation:
    """The containers, and a person's laptop beside them."""

    def __init__(self, images: dict[str, Built], network: dict[str, Host], folder: Path) -> None:
        self.laptop, self.folder = network[LAPTOP], folder
        # The image's own command, with its environment only.
        self.aggregator = Container(
            "aggregator",
            images["aggregator"],
            network[AGGREGATOR],
            folder,
            (),
            environment={"FEDPLCC_INSECURE": "true"},
        )
        # Another command of the same image, with flags.
        arguments = ("gateway", "--insecure", "--aggregator", f"{AGGREGATOR}:50051")
        self.gateway = Container("gateway", images["aggregator"], network[GATEWAY], folder, arguments)
        self.trainers = {
            client: Container(
                f"trainer-{client}",
                images["trainer"],
                network[address],
                folder,
                ("trainer", "--insecure", "--aggregator", f"{AGGREGATOR}:50051", "--client", client),
                data={"/data": folder / "data"},
                environment={"FEDPLCC_DATA": f"npz:/data/{client}.npz", "FEDPLCC_DEVICE": "cpu"},
            )
            for client, address in TRAINERS.items()
        }
        self.containers = [self.aggregator, self.gateway, *self.trainers.values()]

    def end(self) -> None:
        for container in self.containers:
            container.kill()

    def await_health(self, container: Container, *codes: int) -> None:
        eventually(lambda: container.check_health() in codes, f"{container.name}: health is one of {codes}", WAIT_S)

    def run_command(self, *arguments: str) -> str:
        """What `fedplcc run ...` on the laptop prints."""
        command = [sys.executable, "-m", "fedplcc", "run", *arguments, "--gateway", GATEWAY_URL, "--insecure"]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        done = self.laptop.run(command, cwd=self.folder, env=environment, timeout_s=WAIT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout


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
        assert found.stdout.split() == [str(built.root / "var/lib/fedplcc")], (
            "the service can change no file of its image"
        )
        assert sorted(built.root.glob("var/cache/pip/**/*")) == [], "no cache is left in the image"


def installed(root: Path) -> dict[str, str]:
    folders = [str(path) for path in root.glob("opt/fedplcc/lib/python3*/site-packages")]
    return {found.name: found.version for found in metadata.distributions(path=folders)}


def test_a_federation_of_containers_survives_restarts_and_ends_in_the_bytes_of_the_simulation(
    federation: Federation, values: dict[str, Any], folder: Path
) -> None:
    reference = folder / "reference"
    simulated(values, reference)

    # Whoever comes first waits for the others, and is unhealthy meanwhile.
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

    config = write_config(folder / "run.toml", values)
    run_id = json.loads(federation.run_command("start", "--config", str(config), "--json"))["run_id"]

    def status() -> dict[str, Any]:
        run: dict[str, Any] = json.loads(federation.run_command("status", run_id, "--json"))
        return run

    eventually(lambda: status()["metrics"] is not None, "the first round is done", WAIT_S)
    left = federation.trainers["left"]
    assert federation.aggregator.stop() == 0
    federation.await_health(federation.gateway, DOES_NOT_SERVE)
    federation.await_health(left, DOES_NOT_SERVE)
    assert left.stop() == 0
    left.start()
    federation.aggregator.start()
    for container in federation.containers:
        federation.await_health(container, SERVES)
    federation.run_command("watch", run_id)
    assert status()["status"] == "completed"

    assert federation.gateway.stop() == 0
    assert federation.aggregator.stop() == 0
    federation.aggregator.start()
    federation.gateway.start()
    federation.await_health(federation.gateway, SERVES)
    federation.run_command("fetch", run_id, "--out", str(folder / "result"))
    assert hashed(folder / "result") == hashed(reference)
    for container in (*early, federation.aggregator):
        assert container.stop() == 0, container.name


LACKING: dict[str, tuple[str, tuple[str, ...], dict[str, str], int, str]] = {
    "the gateway's certificate": ("aggregator", ("gateway",), {}, 2, "or say --plain-http behind a proxy that ends TLS"),
    "a client": ("trainer", ("trainer",), {}, 2, "client is missing; give --client or set FEDPLCC_CLIENT"),
    "a volume of its own user": (
        "aggregator",
        ("aggregator", "--insecure"),
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
