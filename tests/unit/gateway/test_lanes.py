"""What a receiver is told of the history of a real aggregator, and where it goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from fedplcc.gateway.messages.couriers import AWAY, NOW
from fedplcc.gateway.messages.lane import Lane
from fedplcc.gateway.messages.place import Place, keep_place, read_place
from fedplcc.gateway.messages.receivers import read_receivers
from fedplcc.gateway.messages.worst_domain import Course, after_round
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.errors import Unavailable
from fedplcc.shared.types import Client, ClientProblem, Event, EventQuery
from tests.support.federation.in_process import LocalFederation
from tests.support.hosts.message_receivers import WebhookHost, status, webhook_host

AWAITS = ClientProblem(reason="AWAITS_APPROVAL", detail="its owner has not approved the run", hint="", is_fatal=False)


@dataclass
class History:
    """The aggregator's history without a connection."""

    federation: LocalFederation
    is_away: bool = False

    async def list_events(self, query: EventQuery) -> Sequence[Event]:
        if self.is_away:
            raise Unavailable("nobody answers")
        return self.federation.coordinator.list_events(query)

    async def list_clients(self, *, after: str = "", limit: int) -> Sequence[Client]:
        return self.federation.coordinator.list_clients(after=after, limit=limit)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with LocalFederation.small(tmp_path / "aggregator") as federation:
        yield History(federation)


@pytest.fixture
def host() -> Iterator[WebhookHost]:
    with webhook_host() as host:
        yield host


def a_lane(folder: Path, history: History, host: WebhookHost, *lines: str, away: bool = False, begin: int = 0) -> Lane:
    """A lane of a gateway that has known the history from an event on."""
    secret, file = folder / "secret", folder / "messages.toml"
    secret.touch(0o600)
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    table = ("[receivers.ops]", 'kind = "webhook"', f'url = "{host.url}"', 'secret_file = "secret"', *lines)
    file.write_text("\n".join(table))
    place = folder / "place.json"
    if begin >= 0:
        keep_place(place, Place("f", begin))
    return Lane(
        read_receivers(file, asks_keys=False).by_name["ops"],
        (AWAY,) if away else NOW,
        place,
        source=lambda: ("f", cast("RunServiceClient", history)),
        counted=lambda outcome: None,
    )


def told(host: WebhookHost) -> list[dict[str, Any]]:
    return [json.loads(call.body) for call in host.calls]


def ids(host: WebhookHost) -> list[str]:
    return [call.headers["webhook-id"] for call in host.calls]


def test_a_history_that_is_met_for_the_first_time_is_not_told(
    tmp_path: Path, history: History, host: WebhookHost
) -> None:
    history.federation.whole_run()
    lane = a_lane(tmp_path, history, host, begin=-1)
    asyncio.run(lane.look())
    assert host.calls == []
    history.federation.whole_run(request_id="another")
    asyncio.run(lane.look())
    assert [each["type"] for each in told(host) if each["type"].startswith("run_")] == ["run_completed"]
    asyncio.run(lane.look())
    kept = read_place(tmp_path / "place.json")
    assert kept is not None
    assert kept.delivered == "run_completed"


def test_another_or_a_restored_history_begins_anew(tmp_path: Path, history: History, host: WebhookHost) -> None:
    history.federation.whole_run()
    last = history.federation.events()[-1].sequence
    for place in (Place("another", 0), Place("f", last + 100)):
        keep_place(tmp_path / "place.json", place)
        asyncio.run(a_lane(tmp_path, history, host, begin=-1).look())
        assert read_place(tmp_path / "place.json") == Place("f", last)
    assert host.calls == []


def test_a_history_that_does_not_answer_loses_nothing(tmp_path: Path, history: History, host: WebhookHost) -> None:
    lane = a_lane(tmp_path, history, host, 'events = ["run_completed"]')
    history.federation.whole_run()
    history.is_away = True
    with pytest.raises(Unavailable):
        asyncio.run(lane.look())
    history.is_away = False
    asyncio.run(lane.look())
    assert [each["type"] for each in told(host)] == ["run_completed"]


def test_an_old_message_that_nobody_takes_is_given_up_after_one_attempt_and_the_next_one_comes(
    tmp_path: Path, history: History, host: WebhookHost
) -> None:
    history.federation.whole_run()  # long ago, by its clock
    history.federation.whole_run(request_id="another")
    host.says(status("500 no"))
    lane = a_lane(tmp_path, history, host, 'events = ["run_completed"]')
    asyncio.run(lane.look())
    assert len(set(ids(host))) == len(host.calls) == 2
    assert lane.failure == "HTTP status 500"


def test_the_same_approval_is_wanted_once_for_each_client(tmp_path: Path, history: History, host: WebhookHost) -> None:
    federation = history.federation
    run = federation.create()
    for _ in range(2):  # as after each start of a trainer
        federation.join()
        for client in federation.clients.values():
            federation.heartbeat(client, problem=AWAITS, run_id=run.run_id)
        federation.restart()
    assert len(federation.events(run.run_id, "client_problem")) > 2
    asyncio.run(a_lane(tmp_path, history, host, 'events = ["approval_wanted"]').look())
    assert sorted(each["data"]["client_id"] for each in told(host)) == ["ann", "bob"]
    assert {each["data"]["run_id"] for each in told(host)} == {run.run_id}


def test_who_is_back_or_was_lost_again_is_not_away(tmp_path: Path, history: History, host: WebhookHost) -> None:
    federation = history.federation

    def lose() -> None:
        federation.join()
        federation.clock.now += 1000
        federation.coordinator.tick()

    lose()
    lose()
    federation.coordinator.join(federation.clients["bob"].record, federation.clients["bob"].token)
    assert len(federation.events("", "client_lost")) == 4
    asyncio.run(a_lane(tmp_path, history, host, away=True).look())
    assert [each["data"]["client_id"] for each in told(host)] == ["ann"]


def test_falls_of_the_worst_domain_are_those_of_the_history_wherever_a_lane_begins(
    tmp_path: Path, history: History, host: WebhookHost
) -> None:
    run = history.federation.whole_run(rounds=12)
    committed = history.federation.events(run.run_id, "round_committed")
    course, falls = Course(), []
    for event in committed:
        worst = (event.data.get("metrics", {}).get("accuracy") or {}).get("worst")
        if worst is not None:
            course, has_fallen = after_round(course, worst, points=0.5)
            falls += [event.round] if has_fallen else []
    assert falls
    assert falls != [event.round for event in committed]
    lines = ("points = 0.5", 'events = ["worst_domain_falls"]')
    asyncio.run(a_lane(tmp_path, history, host, *lines).look())
    assert [each["data"]["round"] for each in told(host)] == falls
    assert all(each["data"]["best"] > each["data"]["worst"] for each in told(host))
    whole = ids(host)
    host.calls.clear()
    middle = next(event.sequence for event in committed if event.round == falls[-1]) - 1
    asyncio.run(a_lane(tmp_path, history, host, *lines, begin=middle).look())
    assert ids(host) == whole[-1:], "the same message has the same id"
