"""The processes that the Helm chart starts, started here: environment, probes and the guide's commands as they stand.

Prepared is what a cluster gives: volumes, the Secret's file, and names that lead to pods. Ports are free ones.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.federation.ports import free_port
from tests.support.federation.processes import eventually
from tests.support.hosts.helm import RELEASE, Document
from tests.support.hosts.kubernetes import GUIDE, WORKLOADS, charts, component, container, of_kind

pytestmark = pytest.mark.slow
STOP_S = 60
COMMAND_S = START_S = 120
FEDPLCC = (sys.executable, "-m", "fedplcc")


class Pod:
    """A container of the chart as processes of this machine."""

    def __init__(self, name: str, folder: Path, ports: Mapping[str, int], replaced: Mapping[str, str]) -> None:
        (workload,) = (each for each in of_kind(charts()[0], *WORKLOADS) if component(each) == name)
        self.container = container(workload)
        self.ports = ports
        self.folder = folder
        folder.mkdir()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("FEDPLCC_")}
        for each in self.container["env"]:
            value = str(each.get("value", f"{RELEASE}-{name}-0")).replace("$(POD_NAME)", f"{RELEASE}-{name}-0")
            for part, other in {"/var/lib/": f"{folder}/", **replaced}.items():
                value = value.replace(part, other)
            self.environment[each["name"]] = value
        self.environment.update({f"FEDPLCC_{key.upper()}": str(port) for key, port in ports.items()})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("wb") as log:
            command = [*FEDPLCC, *self.container["args"]]
            self.process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stderr=log)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What `kubectl exec` runs."""
        words = [*FEDPLCC, *command[1:]] if command[0] == "fedplcc" else command
        return subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )

    def passes(self, probe: str) -> bool:
        asked = self.container[f"{probe}Probe"]
        if "exec" in asked:
            command = [each.replace("50052", str(self.ports["health_port"])) for each in asked["exec"]["command"]]
            return self.run(*command).returncode == 0
        return self._answers(asked["httpGet"])

    def _answers(self, asked: Document) -> bool:
        """As a kubelet asks: by HTTPS, with no look at the certificate."""
        context = ssl._create_unverified_context()
        url = f"{asked['scheme'].lower()}://127.0.0.1:{self.ports['port']}{asked['path']}"
        headers = {each["name"]: each["value"] for each in asked["httpHeaders"]}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), context=context, timeout=10
            ) as found:
                return bool(found.status == 200)
        except OSError:
            return False

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[dict[str, Any]]:
    ports = {name: free_port() for name in ("port", "enrol_port", "health_port", "metrics_port")}
    aggregator = Pod("aggregator", tmp_path / "aggregator", ports, {f"{RELEASE}-aggregator.fl.svc": "localhost"})
    there = {f"{RELEASE}-aggregator:50051": f"localhost:{ports['port']}"}
    gateway = Pod("gateway", tmp_path / "gateway", {"port": free_port()}, there)
    try:
        yield {"aggregator": aggregator, "gateway": gateway}
    finally:
        gateway.kill()
        aggregator.kill()


def typed(pattern: str) -> list[str]:
    """The words of the guide's one command in the aggregator's pod that a pattern finds."""
    (found,) = re.findall(rf"exec {RELEASE}-aggregator-0 -- ({pattern}[^\n>|]*)", GUIDE.read_text())
    return [word.strip("'") for word in found.split()]


def test_the_chart_s_processes_serve_after_the_guide_s_commands(pods: dict[str, Pod], tmp_path: Path) -> None:
    aggregator, gateway = pods["aggregator"], pods["gateway"]
    aggregator.start()
    eventually(lambda: aggregator.passes("startup"), "the aggregator's first probe", START_S)
    assert aggregator.passes("readiness")

    line = aggregator.run(*typed("fedplcc invite fed-gateway-0"))
    assert line.returncode == 0, line.stderr
    secret = Path(gateway.environment["FEDPLCC_JOIN_FILE"])
    secret.parent.mkdir(parents=True)
    secret.write_text(line.stdout)
    secret.chmod(0o440)
    gateway.start()
    for probe in ("startup", "readiness", "liveness"):
        eventually(lambda probe=probe: gateway.passes(probe), f"the gateway's probe of {probe}", START_S)  # type: ignore[misc]

    (script,) = re.findall(r"sed -n '([^']+)'", GUIDE.read_text())
    state = aggregator.environment["FEDPLCC_STATE_DIR"]
    roots = aggregator.run("sed", "-n", script, f"{state}/identity/identity.pem").stdout
    assert "PRIVATE KEY" not in roots
    (tmp_path / "roots.pem").write_text(roots)
    key = aggregator.run(*typed("fedplcc key create me"))
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    home["FEDPLCC_GATEWAY"] = f"https://127.0.0.1:{gateway.ports['port']}"
    for words, given in (("login --stdin --gateway-ca roots.pem", key.stdout), ("run list", "")):
        assert f"fedplcc {words}" in GUIDE.read_text()
        done = subprocess.run(
            [*FEDPLCC, *words.split()],
            env=home,
            cwd=tmp_path,
            input=given,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (gateway.stop(), aggregator.stop()) == (0, 0)
