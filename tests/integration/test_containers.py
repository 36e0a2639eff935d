"""Both Dockerfiles built by buildah or podman, and what is in the images. Skipped where neither is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import pytest

from fedplcc.trainer.reproducibility.environment import PACKAGES
from tests.support import ROOT

UID = "10001"
NAMES = ("aggregator", "trainer")
VERSIONS = {found.name: found.version for found in metadata.distributions() if found.name in PACKAGES}
"""What decides a model's bytes, as it is installed here."""
BUILD_S = 1800
INSTALLED = "from importlib import metadata\nfor found in metadata.distributions(): print(found.name, found.version)"


def call(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout.strip()


class Image:
    """An image that was built, and a way to run commands in it."""

    def __init__(self, engine: str, name: str, *arguments: str) -> None:
        self._engine, self._tag = engine, f"localhost/fedplcc-test-{name}"
        given = [f"--build-arg={argument}" for argument in arguments]
        call(engine, "build", *given, "-f", f"Dockerfile.{name}", "-t", self._tag, ".")
        self._container = call("buildah", "from", self._tag) if engine == "buildah" else ""

    def run(self, *command: str) -> str:
        """What a command in the image prints, as its user."""
        if self._engine == "buildah":
            return call("buildah", "run", self._container, "--", *command)
        return call("podman", "run", "--rm", f"--entrypoint={command[0]}", self._tag, *command[1:])

    def remove(self) -> None:
        if self._container:
            call("buildah", "rm", self._container)
        call(self._engine, "rmi", "--force", self._tag)


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Image]]:
    engine = next((name for name in ("podman", "buildah") if shutil.which(name)), None)
    if engine is None:
        pytest.skip("neither podman nor buildah is installed: apt-get install buildah")
    arguments = {"aggregator": (), "trainer": (f"TORCH_VERSION={VERSIONS['torch']}",)}
    built: dict[str, Image] = {}
    try:
        for name in NAMES:
            built[name] = Image(engine, name, *arguments[name])
        yield built
    finally:
        for image in built.values():
            image.remove()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(2 * BUILD_S)
def test_the_images_have_what_they_need_no_torch_at_the_aggregator_and_files_that_their_user_cannot_change(
    images: dict[str, Image],
) -> None:
    packages = {
        name: dict(line.split() for line in image.run("python3", "-c", INSTALLED).splitlines())
        for name, image in images.items()
    }
    inside = {name: version for name, version in packages["trainer"].items() if name in VERSIONS}
    assert {"torch", "torchvision", "numpy", "scipy"} <= inside.keys()
    assert inside.items() <= VERSIONS.items(), "other versions than here give other bytes: see TORCH_VERSION"
    assert not {"torch", "torchvision", "triton"} & packages["aggregator"].keys()
    for image in images.values():
        assert image.run("id", "-u") == image.run("id", "-g") == UID
        assert image.run("fedplcc", "--version").startswith("fedplcc ")
        own = image.run("find", "/", "-xdev", "-uid", UID, "-not", "-path", "/proc/*").split()
        assert set(own) <= {"/var/lib/fedplcc", "/var/lib/fedplcc-join", "/home/fedplcc"}
        assert image.run("stat", "-c", "%a", "/var/lib/fedplcc") == "750"


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{sys.prefix}/bin") or shutil.which("hadolint")
    assert hadolint is not None, "hadolint is part of the extra dev"
    call(hadolint, *(str(ROOT / f"Dockerfile.{name}") for name in NAMES))
