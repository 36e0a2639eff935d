"""Two gateways of one aggregator: the second by the commands that are printed alone, and both behind one address."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from fedplcc.shared.identity.api_keys import new_api_key
from fedplcc.shared.identity.names import Role
from tests.support.federation.forks import typed
from tests.support.federation.numpy_client import a_document
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.hosts.message_receivers import WebhookHost, webhook_host
from tests.support.hosts.proxies import RoundRobin
from tests.support.identity.keyed_federation import Keyed

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GUESSES = 3
"""New keys a minute that a gateway lets an address try."""

pytestmark = pytest.mark.slow


def test_a_second_gateway_serves_by_the_printed_lines(tmp_path: Path) -> None:
    with Keyed(tmp_path) as federation:
        federation.begin()
        line = federation.owner("invite", "second", "--role", "gateway", "--address", "127.0.0.1")
        there = tmp_path / "there"
        there.mkdir()
        joined = typed("join", cwd=there, given=line)
        assert joined.returncode == 0, joined.stderr
        (printed,) = re.findall(r"start it with: fedplcc (.+)", joined.stderr)
        port = free_port()
        second = Process("second", there, ["fedplcc", *printed.split(), "--port", str(port)])
        federation.processes["second"] = second
        second.start()
        ready = eventually(lambda: answer_of(f"http://127.0.0.1:{port}/readyz"), "the second gateway is ready")
        assert ready == 200


def answer_of(url: str) -> int | None:
    try:
        status = httpx.get(url).status_code
    except httpx.TransportError:
        return None
    return status if status == 200 else None


class Two(Keyed):
    """A federation with two gateways that tell one receiver, of which a proxy gives each connection to the next."""

    def begin_two(self, host: WebhookHost) -> list[str]:
        """Start them; returns their addresses."""
        self.start_aggregator()
        for name, text in (("secret", SECRET), ("key", self.new_key("read")[1]["Authorization"].split()[1])):
            file = self.folder / name
            file.touch(0o600)
            file.write_text(text)
        receiver = f'[receivers.ops]\nkind = "webhook"\nurl = "{host.url}"\nsecret_file = "secret"\n'
        messages = self.folder / "messages.toml"
        messages.write_text(f'key_file = "key"\n{receiver}')
        first = self.start_gateway("--messages", str(messages), "--guess-rate", str(GUESSES))
        port, state = free_port(), self.identity_file(Role.GATEWAY, "second", self.folder / "second").parent
        changed = {"--port": str(port), "--state-dir": str(state)}
        arguments = [*first.arguments]
        for flag, value in changed.items():
            arguments[arguments.index(flag) + 1] = value
        second = self.processes["second"] = Process("second", self.folder, arguments)
        second.start()
        eventually(lambda: answer_of(f"http://127.0.0.1:{port}/readyz"), "the second gateway is ready")
        # What happened before the first look is not told.
        lanes = [folder / "messages" for folder in (self.folder / "gateway", state)]
        eventually(lambda: all(len([*lane.glob("*.json")]) == 2 for lane in lanes), "the lanes of both have begun")
        return [f"127.0.0.1:{self.gateway_port}", f"127.0.0.1:{port}"]


@pytest.fixture
def host() -> Iterator[WebhookHost]:
    with webhook_host() as host:
        yield host


@pytest.fixture
def two(tmp_path: Path, host: WebhookHost) -> Iterator[tuple[Two, RoundRobin, httpx.Client]]:
    """The federation, the proxy, and a client without a key whose every request takes another connection."""
    with Two(tmp_path) as federation:
        addresses = federation.begin_two(host)
        alone = httpx.Limits(max_keepalive_connections=0)
        with RoundRobin(addresses) as proxy, httpx.Client(base_url=f"http://{proxy.address}", limits=alone) as http:
            yield federation, proxy, http


def test_a_session_a_repeated_request_and_guesses_are_the_same_to_both(
    two: tuple[Two, RoundRobin, httpx.Client],
) -> None:
    federation, proxy, http = two
    code = {"code": federation.code()}
    assert http.post("/v1/console/sessions", json=code).status_code == 204
    assert [http.get("/v1/me").status_code for _ in range(4)] == [200] * 4
    once = {"Idempotency-Key": "one", "X-Fedplcc-Console": "1"}
    created = [http.post("/v1/runs", json=a_document(), headers=once) for _ in range(2)]
    assert len({answer.json()["run_id"] for answer in created}) == 1
    other = http.post("/v1/runs", json=a_document("feddyn"), headers=once)
    assert (other.status_code, other.json()["code"]) == (409, "REQUEST_ID_REUSED")
    assert len(http.get("/v1/runs").json()["runs"]) == 1
    assert http.post("/v1/session/end", headers={"X-Fedplcc-Console": "1"}).status_code == 204
    http.cookies.clear()
    assert [http.post("/v1/console/sessions", json=code).status_code for _ in range(2)] == [401] * 2, (
        "a code is for once"
    )
    guessed = [
        http.get("/v1/me", headers={"Authorization": f"Bearer {new_api_key()[2]}"}).status_code
        for _ in range(8 * GUESSES)
    ]
    assert 429 in guessed, "each counts for itself, and both end"
    assert min(proxy.passed.values()) > 8


def test_whoever_follows_a_run_goes_on_at_the_other_when_one_is_killed_and_a_message_keeps_its_id(
    two: tuple[Two, RoundRobin, httpx.Client], host: WebhookHost
) -> None:
    federation, proxy, http = two
    http.headers.update(federation.headers)

    def told(run_id: str) -> list[str]:
        return [
            call.headers["webhook-id"] for call in host.calls if json.loads(call.body)["data"].get("run_id") == run_id
        ]

    first = http.post("/v1/runs", json=a_document()).json()["run_id"]
    assert http.post(f"/v1/runs/{first}/stop").status_code == 200
    eventually(lambda: len(told(first)) == 2, "both tell of it")
    assert len({*told(first)}) == 1, "which is one message to its receiver"

    run_id = http.post("/v1/runs", json=a_document()).json()["run_id"]
    seen: list[int] = []
    with suppress(httpx.TransportError), http.stream("GET", f"/v1/runs/{run_id}/events") as answer:
        lines = answer.iter_lines()
        serving = proxy.last
        seen.append(next(int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")))
        ports = {str(federation.gateway_port): "gateway"}
        federation.processes[ports.get(serving.rpartition(":")[2], "second")].kill()
        seen += [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert http.post(f"/v1/runs/{run_id}/stop").status_code == 200
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": str(seen[-1])}) as answer:
        rest = [*answer.iter_lines()]
    assert "event: end" in rest
    seen += [int(line.removeprefix("id: ")) for line in rest if line.startswith("id: ")]
    history = http.get(f"/v1/runs/{run_id}/events", headers={"Accept": "application/json"}).json()["events"]
    assert seen == [event["sequence"] for event in history], "each once, and in order"
    eventually(lambda: told(run_id), "the other tells of it")
    assert len({*told(run_id)}) == 1
