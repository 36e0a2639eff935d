"""A person who follows deploy/README.md to the letter: its commands, as they stand, on two hosts.

Prepared is what the guide takes for granted: images below /srv/images. Of its commands only the installation is not run,
because that a wheel and an image install from nothing is proved by tests of their own; in its place this environment's
`fedplcc` is on the PATH, and what `fedplcc deploy files` writes is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.deployment.files import write_files
from tests.support import ROOT
from tests.support.federation.processes import TOLD, eventually
from tests.support.federation.remote_runs import RUN_S, RemoteRuns, key_of
from tests.support.federation.simulations import hashed, simulated
from tests.support.hosts.namespaces import Host, Network, need_namespaces
from tests.support.records.deploy_guide import AGGREGATOR_HOST, ALL_HOSTS, INSTALL, INVITED, block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.full]

ADDRESSES = {"north": "192.0.2.10", "south": "192.0.2.11"}
AS_ON_THAT_HOST = 'hostname "$1" && mount --bind "$2" /srv && exec bash -c "$3"'
"""Gives what is run a host's name and its /srv, both of which nothing else on this machine sees."""


class Person:
    """Somebody with a terminal on each of the two hosts."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        network.add_switch("office", "192.0.2.1")
        self.hosts = {name: network.add_host(name, address, "office") for name, address in ADDRESSES.items()}
        self.hub = self.hosts["north"]
        self.invitations: dict[str, str] = {}
        """The line for each host, as `fedplcc invite` printed it."""
        for name in self.hosts:
            write_files(self.clone(name))

    def clone(self, host: str) -> Path:
        return self.folder / host / "fedplcc"

    @property
    def runs(self) -> RemoteRuns:
        """The gateway, with the key that `fedplcc login` kept."""
        return RemoteRuns(self.hub, "http://127.0.0.1:8080", key_of(self.folder / ".config"))

    def types(self, host: Host, commands: str, cwd: Path | None = None, given: str = "") -> str:
        """Run commands in the clone on a host, which read what is given; what they print."""
        srv = self.folder / host.name / "srv"
        wrapped = ["unshare", "--uts", "--mount", "sh", "-c", AS_ON_THAT_HOST, "sh", host.name, str(srv), commands]
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "",
        }
        folder = cwd or self.clone(host.name)
        done = host.run(wrapped, cwd=folder, env=environment, timeout_s=RUN_S, given=given)
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def follows(self, section: str, when_started: Callable[[], None] = lambda: None) -> str:
        """Type the section's lines but the installation on the hosts that their marks name; what the last one prints.

        `join` is given what `invite` printed for its host. Between the start of the run and the line that follows it,
        `when_started` is called.
        """
        said = ""
        for each in blocks(section=section):
            if INSTALL in each.marks or not each.marks:
                continue
            start, then_watch, watch = each.text.partition(" && fedplcc run watch")
            for host in self.hosts.values() if ALL_HOSTS in each.marks else [self.hub]:
                said = self.types(host, start, given=self.invitations[host.name] if INVITED in each.marks else "")
            if then_watch:
                when_started()
                said = self.types(self.hub, f"fedplcc run watch{watch}")
            if lines := re.findall(r"^fedplcc1_\S+$", said, re.MULTILINE):
                self.invitations = dict(zip(self.hosts, lines, strict=True))
        return said

    def restores(self, kind: str, backup: str, run_id: str) -> dict[str, str]:
        """Lose the aggregator with its folder, restore a backup elsewhere; the SHA-256 of what the run then ends in."""
        stop, _copy, start = block(AGGREGATOR_HOST, "backup").lines
        for pid_file in self.folder.glob("north/*/aggregator.pid"):
            self.types(self.hub, f"{stop} && flock fedplcc-state/aggregator/lock true", cwd=pid_file.parent)
            pid_file.unlink()
        elsewhere = self.folder / "north" / f"after-{kind}"
        elsewhere.mkdir()
        (self.clone("north") / backup).rename(elsewhere / backup)
        self.types(self.hub, block(AGGREGATOR_HOST, kind).text, cwd=elsewhere)
        self.types(self.hub, start, cwd=elsewhere)
        left = self.runs.end_of(run_id)
        events = [json.loads(line) for line in (elsewhere / "aggregator.log").read_text().splitlines()]
        recovered = [event for event in events if event["event"] == "run_recovered"]
        assert [(event["run_id"], event["status"]) for event in recovered] == [(run_id, "running")], (
            "its middle was kept"
        )
        return left

    def logs(self) -> str:
        return "".join(f"\n--- {log}\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*/*/*.log")))


def write_images(folder: Path, seed: int) -> None:
    """Two classes of pictures: a bright spot in the middle, or none."""
    rng = np.random.default_rng(seed)
    for name, brightness in (("healthy", 0), ("ill", 120)):
        (folder / name).mkdir(parents=True)
        for number in range(15):
            pixels = rng.integers(0, 90, (32, 32, 3)) + 30 * seed
            pixels[10:22, 10:22] += brightness
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number:02}.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guide")
    for seed, name in enumerate(ADDRESSES):
        write_images(folder / name / "srv" / "images", seed)
    return folder


@pytest.fixture(scope="module")
def person(folder: Path) -> Iterator[Person]:
    need_namespaces()
    with Network() as network:
        person = Person(folder, network)
        try:
            yield person
        finally:
            for host in person.hosts.values():
                host.kill_all()


def expected(folder: Path, document: dict[str, Any], name: str) -> dict[str, str]:
    """What a simulation of the configuration with the same images leaves."""
    clients = {client: {"data": f"folder:{folder / client / 'srv' / 'images'}"} for client in ADDRESSES}
    simulated({**document, "clients": clients}, folder / name)
    return hashed(folder / name)


def test_two_hosts_are_a_federation_after_eight_commands(
    person: Person, record_property: Callable[[str, object], None]
) -> None:
    commands = [line for each in blocks(section="Without containers") for line in each.lines if each.marks]
    assert len(commands) == 9, "eight, and one that fetches the results"
    begun = time.monotonic()

    def first_round() -> None:
        (run,) = person.runs.listed()
        eventually(lambda: person.runs.get(run)["round"] > 1, "the first round is committed", RUN_S)
        record_property(TOLD, f"{time.monotonic() - begun:.0f} s from installed to the first committed round over TLS")

    said = person.follows("Without containers", first_round)
    first = person.clone("north") / "first"
    assert "metrics.jsonl" in said
    document = tomllib.loads((person.clone("north") / "deploy" / "first-run.toml").read_text())
    assert hashed(first) == expected(person.folder, document, "first-simulated")
    lines = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["accuracy"].keys() == {"north", "south", "mean", "worst"}
    assert "completed" in person.follows("Is it well?")


def test_a_configuration_for_the_trainers_that_have_joined_starts_as_it_is_typed(person: Person) -> None:
    said = person.follows("A run of your own")
    (run_id,) = re.findall(r"^run (\S+) is ", said, re.MULTILINE)
    document = tomllib.loads((person.clone("north") / "run.toml").read_text())
    assert document["run"]["clients"] == ["north", "south"]
    assert document["data"]["classes"] == ["healthy", "ill"]
    person.runs.wait(run_id, "running", 2)
    person.types(person.hub, f"fedplcc run stop {run_id} --yes")


def test_what_is_run_in_a_container_works_beside_a_gateway(person: Person) -> None:
    lines = [line for each in blocks(section="With containers") for line in each.lines]
    in_container = re.compile(r"^docker compose -f deploy/compose\.yaml run --rm (?:-T )?(--entrypoint sh )?command ")
    inner = [in_container.sub(lambda found: "sh " if found[1] else "fedplcc ", line) for line in lines]
    inner = [line for line in inner if line.startswith(("fedplcc", "sh"))]
    assert [line.split()[1:3] for line in inner[:-1]] == [
        ["login"],
        ["invite", "south"],
        ["run", "start"],
        ["run", "watch"],
    ]
    elsewhere = person.folder / "north" / "container"
    write_files(elsewhere)
    for line in inner[2:]:
        person.types(person.hub, line, cwd=elsewhere)
    assert hashed(elsewhere / "first") == hashed(person.clone("north") / "first")


def test_a_run_goes_on_from_a_backup_of_its_middle_to_the_same_bytes(person: Person) -> None:
    document = tomllib.loads((person.clone("north") / "deploy" / "first-run.toml").read_text())
    document["run"] |= {"name": "longer", "rounds": 4}
    document["training"] |= {"local_steps": 50}
    run_id = person.runs.start(document)
    person.runs.wait(run_id, "running", 1)
    person.types(person.hub, block(AGGREGATOR_HOST, "online-backup").text)
    person.runs.wait(run_id, "running", 2)
    person.types(person.hub, block(AGGREGATOR_HOST, "backup").text)
    undisturbed = expected(person.folder, document, "longer-simulated")
    assert person.runs.end_of(run_id) == undisturbed

    assert person.restores("restore", "aggregator-backup.tar", run_id) == undisturbed
    assert person.restores("online-restore", "online-backup", run_id) == undisturbed


PLAIN_TEXT = {
    "aggregator": "nohup fedplcc aggregator --host 0.0.0.0 --insecure >> aggregator.log 2>&1 &",
    "gateway": "nohup fedplcc gateway --insecure >> gateway.log 2>&1 & "
    "until fedplcc doctor --serves http://127.0.0.1:8080; do sleep 1; done",
    "trainer": "nohup fedplcc trainer --aggregator 192.0.2.10:50051 --insecure --client $(hostname) "
    "--data folder:/srv/images >> trainer.log 2>&1 &",
}
"""How the guide started a federation before there were certificates."""


def test_a_deployment_of_plain_text_goes_over_to_tls_in_the_middle_of_a_run(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_namespaces()
    with Network() as network:
        person = Person(tmp_path_factory.mktemp("upgrade"), network)
        for name in ADDRESSES:
            shutil.copytree(folder / name / "srv", person.folder / name / "srv")
        try:
            person.types(person.hub, PLAIN_TEXT["aggregator"])
            person.types(person.hub, PLAIN_TEXT["gateway"])
            for host in person.hosts.values():
                person.types(host, PLAIN_TEXT["trainer"])
            document = tomllib.loads((person.clone("north") / "deploy" / "first-run.toml").read_text())
            document["run"] |= {"rounds": 4}
            document["training"] |= {"local_steps": 50}
            without_key = RemoteRuns(person.hub, "http://127.0.0.1:8080")
            run_id = without_key.start(document)
            without_key.wait(run_id, "running", 2)
            for host in person.hosts.values():
                host.kill_all()
            person.follows("From plain text to TLS")
            assert person.runs.end_of(run_id) == expected(person.folder, document, "upgraded-simulated")
        finally:
            for host in person.hosts.values():
                host.kill_all()
