"""Both Dockerfiles built by buildah from a wheel and the files that it carries, and what is in the images.

Debootstrap makes the base, so that no registry is asked. The aggregator's image takes minutes; the trainer's loads several
GB, and is built where FEDPLCC_TEST_TRAINER_IMAGE is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedplcc.deployment.files import write_files
from fedplcc.shared.version import VERSION
from release.locks import read_lock
from tests.support import ROOT
from tests.support.federation.processes import TOLD
from tests.support.sources import build_wheel, copy_sources

UID = "10001"
NAMES = ("aggregator", "trainer")
BASE = "localhost/fedplcc-test-base"
BUILD_S = 1800
SLIM = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/lib/apt/lists", "var/cache/apt")
"""What Debian's own slim image leaves out too."""
OF_THIS_MACHINE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""What leads this machine to its package index."""
MAX_COMPRESSED = 200_000_000
"""Most bytes of the aggregator's image as a registry keeps it."""
INSTALLED = """
import platform
from importlib import metadata
print("python", platform.python_version())
for found in metadata.distributions(): print(found.name, found.version)
"""
SERVES = """
fedplcc aggregator --state-dir /var/lib/fedplcc/state &
until fedplcc doctor --serves 127.0.0.1:50052; do sleep 1; done
kill -TERM $!; wait $!
"""


def call(*command: str) -> str:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout.strip()


class Image:
    """An image that was built, and a way to run commands in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.tag = f"localhost/fedplcc-test-{name}"
        file = str(folder / f"Dockerfile.{name}")
        call("buildah", "build", "--format=docker", f"--build-arg=BASE={BASE}", "-f", file, "-t", self.tag, str(folder))
        self._container = call("buildah", "from", self.tag)

    def run(self, *command: str) -> str:
        """What a command in the image prints, as its user; buildah loses it now and then, so it is asked once more."""
        return self._run(*command) or self._run(*command)

    def _run(self, *command: str) -> str:
        return call("buildah", "run", self._container, "--", *command)

    def compressed(self, folder: Path) -> int:
        """Bytes as a registry keeps it."""
        file = folder / "image.tar"
        call("buildah", "push", self.tag, f"oci-archive:{file}")
        return file.stat().st_size

    def remove(self) -> None:
        call("buildah", "rm", self._container)
        call("buildah", "rmi", "--force", self.tag)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Image]]:
    if missing := [name for name in ("buildah", "debootstrap") if not shutil.which(name)]:
        pytest.skip(f"not installed: {' '.join(missing)}; apt-get install buildah debootstrap")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    folder = tmp_path_factory.mktemp("base") / "base"
    call("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(folder))
    for each in SLIM:
        shutil.rmtree(folder / each)
    for file in OF_THIS_MACHINE:
        if Path(file).exists():
            shutil.copyfile(file, f"{folder}{file}")
    container = call("buildah", "from", "scratch")
    call("buildah", "add", "--quiet", container, str(folder), "/")
    call("buildah", "commit", "--quiet", container, BASE)
    call("buildah", "rm", container)
    images: list[Image] = []
    sources, deployment = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("deployment")
    copy_sources(sources)
    build_wheel(sources, deployment, "--no-isolation")
    write_files(deployment)

    def build(name: str) -> Image:
        images.append(Image(name, deployment))
        return images[-1]

    try:
        yield build
    finally:
        for image in images:
            image.remove()
        call("buildah", "rmi", "--force", BASE)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(2 * BUILD_S)
@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_the_lock_s_packages_no_compiler_and_files_that_its_user_cannot_change(
    name: str, built: Callable[[str], Image], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if name == "trainer" and not os.environ.get("FEDPLCC_TEST_TRAINER_IMAGE"):
        pytest.skip("loads several GB: set FEDPLCC_TEST_TRAINER_IMAGE to build it")
    image = built(name)
    installed = dict(line.split() for line in image.run("python3", "-c", INSTALLED).splitlines())
    markers = {"python_full_version": installed.pop("python")}
    locked = {pin.name: pin.version for pin in read_lock(ROOT / "locks" / f"{name}.txt") if pin.is_for(markers)}
    found = {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in installed.items()}
    assert found == {**locked, "fedplcc": VERSION}
    assert name == "trainer" or not {"torch", "torchvision", "triton"} & found.keys()
    compilers = "for each in cc gcc g++ ld make pip pip3; do ! command -v $each || exit 1; done"
    image.run("sh", "-c", compilers)
    assert image.run("id", "-u") == image.run("id", "-g") == UID
    own = image.run("sh", "-c", f"find / -xdev -uid {UID} -not -path '/proc/*' 2>/dev/null || true").split()
    assert set(own) <= {"/var/lib/fedplcc", "/var/lib/fedplcc-join", "/home/fedplcc"}
    assert image.run("stat", "-c", "%a", "/var/lib/fedplcc") == "750"
    config = json.loads(call("buildah", "inspect", "--type=image", image.tag))["Docker"]["config"]
    assert (config["User"], config["StopSignal"]) == (f"{UID}:{UID}", "SIGTERM")
    assert "fedplcc doctor --serves" in config["Healthcheck"]["Test"][-1]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    size = image.compressed(tmp_path)
    assert name == "trainer" or size <= MAX_COMPRESSED
    started = time.monotonic()
    if name == "aggregator":
        assert "serves" in image.run("sh", "-euc", SERVES)
    else:
        assert image.run("fedplcc", "--version") == f"fedplcc {VERSION}"
    record_property(
        TOLD,
        f"image of the {name}: {size / 1e6:.0f} MB compressed; {time.monotonic() - started:.1f} s of a start and an end",
    )


def test_both_dockerfiles_take_packages_by_their_locks_hashes_alone() -> None:
    for name in NAMES:
        text = (ROOT / f"Dockerfile.{name}").read_text().replace("\\\n", "")
        installs = [each for each in re.findall(r"pip [^&;\n]*install [^&;\n]*", text) if "CPU_INDEX" not in each]
        assert len(installs) == 2
        assert [each for each in installs if "--require-hashes" not in each and "--no-index" not in each] == []
        assert 'image.version="${VERSION}"' in text


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{sys.prefix}/bin") or shutil.which("hadolint")
    assert hadolint is not None, "hadolint is part of the extra dev"
    call(hadolint, *(str(ROOT / f"Dockerfile.{name}") for name in NAMES))
