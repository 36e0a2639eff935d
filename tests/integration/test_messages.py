"""Messages to people from real processes: once for each event, with one id, whatever dies in between."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.process.failpoints import ARMED_FILE, VARIABLE
from tests.support.federation.numpy_client import a_document
from tests.support.federation.processes import eventually
from tests.support.hosts.message_receivers import WebhookHost, closed_port, status, webhook_host
from tests.support.identity.keyed_federation import Keyed

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def host() -> Iterator[WebhookHost]:
    with webhook_host() as host:
        yield host


class Told(Keyed):
    """A federation whose gateway has receivers."""

    def begin_with(self, *receivers: str) -> None:
        self.start_aggregator()
        for name, text in (("secret", SECRET), ("key", self.new_key("read")[1]["Authorization"].split()[1])):
            file = self.folder / name
            file.touch(0o600)
            file.write_text(text)
        (self.folder / "messages.toml").write_text("\n".join(('key_file = "key"', *receivers)))
        self.start_gateway("--messages", str(self.folder / "messages.toml"))
        # What happened before the first look is not told.
        eventually(lambda: len(self.places()) == 2 * len(receivers), "the lanes have begun")

    def places(self) -> list[Path]:
        return list((self.folder / "gateway" / "messages").glob("*.json"))

    def stopped_run(self) -> str:
        """The id of a run that was created and stopped."""
        run_id = str(self.ask("/v1/runs", a_document())["run_id"])
        self.ask(f"/v1/runs/{run_id}/stop", {"reason": "enough"})
        return run_id

    def receivers(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.ask("/v1/messages/receivers")["receivers"]}


def table(name: str, url: str, *lines: str) -> str:
    return "\n".join((f"[receivers.{name}]", 'kind = "webhook"', f'url = "{url}"', 'secret_file = "secret"', *lines))


def told(host: WebhookHost) -> list[tuple[str, str, str]]:
    """Id, kind and run of what came, in order."""
    documents = [(call.headers["webhook-id"], json.loads(call.body)) for call in host.calls]
    return [(named, document["type"], document["data"].get("run_id", "")) for named, document in documents]


def test_a_gateway_that_dies_between_delivery_and_record_sends_the_same_message_again_and_no_other(
    tmp_path: Path, host: WebhookHost
) -> None:
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    with Told(tmp_path) as federation:
        federation.begin_with(table("ops", host.url))
        gateway = federation.processes["gateway"]
        gateway.kill()
        gateway.environment = {VARIABLE: str(failpoints)}
        federation.start_gateway()
        for step in ("message.delivery.after", "message.place.write.before", "message.place.rename.before"):
            (failpoints / ARMED_FILE).write_text(f"{step} 1")
            run_id = federation.stopped_run()
            eventually(lambda: not gateway.is_running, f"the gateway dies at {step}")
            first = [each for each in told(host) if each[2] == run_id]
            (failpoints / ARMED_FILE).write_text("")
            federation.start_gateway()

            def again(run_id: str = run_id) -> list[tuple[str, str, str]] | None:
                found = [each for each in told(host) if each[2] == run_id]
                return found if len(found) == 2 else None

            found = eventually(again, "it comes again")
            assert [kind for _, kind, _ in found] == ["run_stopped"] * 2
            assert len(first) == 1
            assert {named for named, _, _ in found} == {first[0][0]}
            eventually(lambda: federation.receivers()["ops"]["last_kind"] == "run_stopped", "it is recorded")
            gateway.end()
            federation.start_gateway()
        last = federation.stopped_run()
        eventually(lambda: told(host)[-1][2] == last, "the next one comes")
        assert len(told(host)) == 7, "none that was recorded came again"
        assert SECRET not in gateway.log()
        assert "not-to-be-shown" not in gateway.log()


def test_a_dead_receiver_delays_nobody_and_gets_its_message_when_it_is_back(tmp_path: Path, host: WebhookHost) -> None:
    with webhook_host() as dead, Told(tmp_path) as federation:
        dead.says(status("503 not now"))
        federation.begin_with(
            table("dead", dead.url), table("ops", host.url), table("none", host.url, 'runs = ["other-*"]')
        )
        run_ids = [federation.stopped_run() for _ in range(2)]
        eventually(lambda: [each[2] for each in told(host)] == run_ids, "the others are told")
        eventually(lambda: federation.receivers()["dead"]["failure"] == "HTTP status 503", "it is said who is dead")
        shown = json.dumps(federation.receivers())
        assert "not-to-be-shown" not in shown
        assert SECRET not in shown
        assert federation.receivers()["none"]["last_at"] is None
        assert {each[2] for each in told(dead)} == {run_ids[0]}, "in order"
        dead.says(status("204 well"))
        eventually(lambda: [each[2] for each in told(dead)][-1] == run_ids[1], "it hears of both")
        names = {run_id: {each[0] for each in told(dead) if each[2] == run_id} for run_id in run_ids}
        assert all(len(found) == 1 for found in names.values()), "each attempt has the same id"
        assert names[run_ids[0]].isdisjoint({each[0] for each in told(host)}), "another receiver, another id"
        metrics = federation.open("/metrics").read().decode()
        assert 'fedplcc_messages_total{outcome="delivered"} 4.0' in metrics


def test_who_is_away_for_long_is_told(tmp_path: Path, host: WebhookHost) -> None:
    with Told(tmp_path) as federation:
        federation.begin_with(table("ops", host.url, "away_s = 1", 'events = ["client_away"]'))
        trainer = federation.start_trainer("north", "digits:optdigits", "--metrics-port", "off")
        eventually(lambda: federation.ask("/v1/clients")["clients"] or None, "it has joined")
        trainer.kill()

        def away() -> list[Any] | None:
            return [json.loads(call.body) for call in host.calls] or None

        (found,) = eventually(away, "it is told")
        assert found["type"] == "client_away"
        assert found["data"]["client_id"] == "north"


def test_a_file_that_cannot_be_used_keeps_the_gateway_from_starting(tmp_path: Path) -> None:
    with Told(tmp_path) as federation:
        with pytest.raises(AssertionError, match="ended"):
            federation.begin_with(table("ops", f"http://127.0.0.1:{closed_port()}/").replace("secret_file", "secret"))
        assert federation.processes["gateway"].exit_code == 2
        assert "receivers.ops" in federation.processes["gateway"].log()


def test_an_administrator_sends_a_test_and_the_log_says_who(tmp_path: Path, host: WebhookHost) -> None:
    with Told(tmp_path) as federation:
        federation.begin_with(table("ops", host.url))
        key_id, reader = federation.new_key("run")
        path = "/v1/messages/receivers/ops/test"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            federation.ask(path, method="POST", **reader)
        assert host.calls == []
        assert federation.ask(path, method="POST") == {"is_delivered": True, "failure": ""}
        host.says(status("401 no"))
        assert federation.ask(path, method="POST") == {"is_delivered": False, "failure": "HTTP status 401"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            federation.ask("/v1/messages/receivers/nobody/test", method="POST")
        assert [kind for _, kind, _ in told(host)] == ["test", "test"]
        lines = [json.loads(line) for line in federation.processes["gateway"].log().splitlines()]
        callers = {line["caller"] for line in lines if line["event"] == "message_tested"}
        assert len(callers) == 1
        assert callers.pop().startswith("key:")
        assert key_id not in callers
