"""The gateway's connection to the aggregator: joined later, changed live, and explained where TLS fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.identity.names import Role
from tests.support.federation.processes import Federation, Process, eventually, free_port
from tests.support.identity.keyed_federation import Keyed, issued


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def log_lines(process: Process, event: str) -> list[dict[str, object]]:
    return [found for line in process.log().splitlines() if (found := json.loads(line))["event"] == event]


def started(federation: Federation, *flags: str) -> tuple[Process, str]:
    """A gateway that need not be ready; returns its URL too."""
    port = free_port()
    arguments = ["gateway", "--aggregator", federation.address, "--port", str(port), *flags]
    process = federation.processes["gateway"] = Process("gateway", federation.folder, arguments)
    process.start()
    url = f"http://127.0.0.1:{port}"

    def lives() -> bool:
        assert process.is_running, process.log()
        try:
            return httpx.get(f"{url}/livez", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    eventually(lives, "the gateway lives")
    return process, url


def readiness(url: str) -> tuple[int, dict[str, object]]:
    answer = httpx.get(f"{url}/readyz", trust_env=False, timeout=None)
    return answer.status_code, answer.json()


def test_a_gateway_that_starts_before_its_invitation_asks_for_keys_and_joins_when_it_comes(folder: Path) -> None:
    with Keyed(folder) as federation:
        federation.start_aggregator()
        invitation, kept = federation.state / "gateway.join", folder / "later.join"
        eventually(invitation.is_file, "the invitation lies there")
        process, url = started(federation, "--join-file", str(kept), "--state-dir", str(folder / "gateway"))
        assert readiness(url)[0] == 503
        assert httpx.get(f"{url}/v1/runs", trust_env=False).status_code == 401
        assert httpx.post(f"{url}/v1/runs/r/stop", trust_env=False).status_code == 401
        eventually(lambda: log_lines(process, "not_joined"), "it says what it waits for")
        shutil.copyfile(invitation, kept)
        eventually(lambda: readiness(url)[0] == 200, "the gateway has joined")
        assert httpx.get(f"{url}/v1/runs", trust_env=False).status_code == 401
        federation.gateway_port = int(url.rpartition(":")[2])
        _, headers = federation.new_key("read")
        assert httpx.get(f"{url}/v1/runs", headers=headers, trust_env=False).status_code == 200
        schemes = httpx.get(f"{url}/openapi.json", trust_env=False).json()["components"]["securitySchemes"]
        assert schemes["session"]["name"] == f"fedplcc-{federation.authority.federation}"
        assert len(log_lines(process, "not_joined")) == 1


def test_an_identity_that_another_process_puts_there_is_taken_up(folder: Path) -> None:
    with Keyed(folder) as federation:
        federation.start_aggregator()
        other = folder / "other"
        other.mkdir(mode=0o700)
        file = folder / "gateway" / IDENTITY_FILE
        file.parent.mkdir(mode=0o700)
        issued(Authority.open(other), Role.GATEWAY, "console").save(file)
        process, url = started(federation, "--state-dir", str(file.parent))
        eventually(lambda: readiness(url)[1]["code"] == "TLS_FAILED", "another federation is named")
        assert any("TLS is intercepted" in str(line["detail"]) for line in log_lines(process, "cannot_connect"))
        federation.credentials(Role.GATEWAY, "console").save(file)
        eventually(lambda: readiness(url)[0] == 200, "the gateway is ready")


def test_a_gateway_with_a_certificate_never_speaks_to_an_aggregator_in_plain_text(folder: Path) -> None:
    with Keyed(folder) as federation:
        federation.begin()
        _, headers = federation.new_key("read")
        url, gateway = federation.gateway_url, federation.processes["gateway"]
        aggregator = federation.processes["aggregator"]
        aggregator.end()
        over_tls = list(aggregator.arguments)
        aggregator.arguments.insert(1, "--insecure")
        aggregator.start()

        def is_explained() -> bool:
            status, problem = readiness(url)
            return (status, problem["code"]) == (503, "TLS_FAILED")

        eventually(is_explained, "the gateway says that TLS fails")
        assert "127.0.0.1" not in json.dumps(readiness(url)[1])  # strangers may ask
        said = [str(line["detail"]) for line in log_lines(gateway, "cannot_connect")]
        assert any("speaks no TLS" in detail for detail in said), said
        assert httpx.get(f"{url}/v1/runs", trust_env=False).status_code == 401
        refused = httpx.get(f"{url}/v1/runs", headers=headers, trust_env=False, timeout=None)
        assert (refused.status_code, refused.json()["code"]) == (503, "TLS_FAILED")
        assert "speaks no TLS" in refused.json()["detail"]
        aggregator.end()
        aggregator.arguments[:] = over_tls
        aggregator.start()
        eventually(lambda: readiness(url)[0] == 200, "the gateway is ready again")


def test_a_gateway_in_plain_text_names_an_aggregator_that_speaks_tls(folder: Path) -> None:
    with Keyed(folder) as federation:
        federation.begin()
        federation.processes["gateway"].kill()
        _, url = started(federation, "--insecure")

        def is_explained() -> bool:
            status, problem = readiness(url)
            return status == 503 and "started with --insecure; start it without" in str(problem["detail"])

        eventually(is_explained, "the gateway names the cause")
        identity = folder / "gateway"
        found = federation.command("doctor", "--aggregator", federation.address, "--state-dir", str(identity))
        assert f"{federation.address} serves" in found.stdout + found.stderr
