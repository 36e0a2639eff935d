"""The gateway in front of a real aggregator service, over real sockets; see tests/support/federation/served_gateway.py."""

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedplcc.shared import documents
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.types import Event, EventQuery
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway

Frame = tuple[int | None, str, Any]
"""Id, name and data of an event; of a comment None, nothing and its text."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway and the id of a run that has ended; tests of this fixture only read."""
    with ServedGateway(tmp_path_factory.mktemp("finished")) as gateway:
        yield gateway, gateway.create_and_finish(method="fedplcc", run={"rounds": 3})


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServedGateway]:
    with ServedGateway(tmp_path) as gateway:
        yield gateway


@contextmanager
def stream(gateway: ServedGateway, run_id: str, **headers: str) -> Iterator[Iterator[Frame]]:
    """The frames of an event stream as (id, name, data), comments as (None, "", text)."""
    headers = {"Accept": "text/event-stream", **headers}
    with gateway.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield frames(response)


def frames(response: httpx.Response) -> Iterator[Frame]:
    found: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if "data" in found:
                yield (int(found["id"]) if "id" in found else None, found["event"], json.loads(found["data"]))
            found = {}
        elif line.startswith(":"):
            yield (None, "", line.removeprefix(": "))
        else:
            key, _, value = line.partition(": ")
            found[key] = value


def history(gateway: ServedGateway, run_id: str) -> Sequence[Event]:
    return gateway.federation.coordinator.list_events(EventQuery(run_id=run_id))


def problem(answer: httpx.Response) -> documents.Problem:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return documents.Problem.model_validate_json(answer.content)


# Runs


def test_a_run_is_accepted_with_its_location_and_pending(gateway: ServedGateway) -> None:
    answer = gateway.http.post("/v1/runs", json=a_document(run={"rounds": 7}))
    assert answer.status_code == 202
    run = documents.Run.model_validate_json(answer.content)
    assert answer.headers["location"] == run.links.self == f"/v1/runs/{run.run_id}"
    assert (run.status, run.round, run.phase, run.total_rounds) == ("pending", -1, None, 7)
    assert run.config["training"]["batch_size"] == 32
    assert run.roster == ["ann", "bob"]
    assert gateway.http.get(answer.headers["location"]).json() == answer.json()


def test_the_same_key_and_configuration_give_the_same_run(gateway: ServedGateway) -> None:
    first = gateway.http.post("/v1/runs", json=a_document(), headers={"Idempotency-Key": "once"})
    reordered = dict(reversed(list(a_document().items())))
    again = gateway.http.post("/v1/runs", json=reordered, headers={"Idempotency-Key": '"once"'})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["run_id"] == again.json()["run_id"]
    assert len(gateway.http.get("/v1/runs").json()["runs"]) == 1


def test_pause_resume_and_stop_may_be_said_twice(gateway: ServedGateway) -> None:
    run_id = gateway.create()
    gateway.federation.join()

    def say(what: str, **options: Any) -> documents.Run:
        answers = [gateway.http.post(f"/v1/runs/{run_id}/{what}", **options) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
        assert answers[0].json()["status"] == answers[1].json()["status"]
        return documents.Run.model_validate_json(answers[1].content)

    assert say("pause").is_pause_requested
    assert not say("resume").is_pause_requested
    assert say("pause", json={"now": True}).status == "paused"
    assert say("resume").status == "running"
    assert say("pause", params={"now": "true"}).status == "paused"
    stopped = say("stop", json={"reason": "enough"})
    assert (stopped.status, stopped.reason) == ("stopped", "enough")
    refused = gateway.http.post(f"/v1/runs/{run_id}/resume")
    assert (refused.status_code, problem(refused).code) == (409, "INVALID_TRANSITION")


# Results


def test_rounds_show_accuracy_by_domain_loss_prototypes_and_hashes(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    page = documents.RoundPage.model_validate_json(gateway.http.get(f"/v1/runs/{run_id}/rounds").content)
    assert [entry.round for entry in page.rounds] == [0, 1, 2, 3]
    assert page.rounds[0].metrics is None
    last, metrics = page.rounds[-1], page.rounds[-1].metrics
    assert metrics is not None
    assert last.model is not None
    assert last.prototypes is not None
    assert metrics.accuracy is not None
    assert set(metrics.accuracy) == {"ann-domain", "bob-domain", "mean", "worst"}
    assert metrics.loss == {"ce": 1 / 3}
    assert metrics.prototypes.local == 12
    assert metrics.prototypes.global_ > 0
    assert (last.model.sha256, last.prototypes.sha256) == (metrics.model_sha256, metrics.prototypes_sha256)


def list_pages(gateway: ServedGateway, path: str, **query: str | int) -> list[dict[str, Any]]:
    """Return the pages of a list, each asked for by the token of the one before."""
    pages: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        answer = gateway.http.get(path, params={**query, **({"page_token": token} if token else {})})
        pages.append(answer.raise_for_status().json())
        token = pages[-1]["next_page_token"]
    return pages


def test_lines_are_those_of_the_rounds_to_the_byte(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    rounds = gateway.federation.coordinator.list_rounds(run_id, after=0)
    metrics = gateway.http.get(f"/v1/runs/{run_id}/metrics.jsonl")
    timings = gateway.http.get(f"/v1/runs/{run_id}/timings.jsonl")
    assert metrics.text == "".join(f"{current.results_json}\n" for current in rounds)
    assert timings.text == "".join(f"{current.timings_json}\n" for current in rounds)
    assert len(rounds) == 3


def test_lines_after_a_round_are_the_last_lines_of_all(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    for name in ("metrics.jsonl", "timings.jsonl"):
        path = f"/v1/runs/{run_id}/{name}"
        lines = gateway.http.get(path).text.splitlines()
        assert gateway.http.get(path, params={"after": 1}).text.splitlines() == lines[1:]
        assert gateway.http.get(path, params={"after": 3}).text == ""


def test_a_run_without_a_committed_round_has_no_lines(gateway: ServedGateway) -> None:
    answer = gateway.http.get(f"/v1/runs/{gateway.create()}/metrics.jsonl")
    assert (answer.status_code, answer.text) == (200, "")


def test_the_manifest_is_the_content_of_run_json(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    coordinator = gateway.federation.coordinator
    answer = gateway.http.get(f"/v1/runs/{run_id}/manifest")
    assert answer.text == canonical_json(coordinator.manifest(coordinator.get_run(run_id)))
    assert set(answer.json()["clients"]) == {"ann", "bob"}


def test_evaluations_give_the_counts_behind_the_accuracy(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    pages = list_pages(gateway, f"/v1/runs/{run_id}/evaluations", page_size=2)
    seen = [entry for page in pages for entry in documents.EvaluationPage.model_validate(page).evaluations]
    assert len(pages) == 2
    assert [(entry.round, entry.client_id) for entry in seen] == [
        (number, name) for number in (1, 2, 3) for name in ("ann", "bob")
    ]
    accuracy = gateway.http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"][3]["metrics"]["accuracy"]
    for entry in seen[-2:]:
        (counts,) = entry.counts
        assert accuracy[entry.domain] == sum(counts.correct) / sum(counts.total)


def test_clients_show_who_they_are_and_what_they_do(finished: tuple[ServedGateway, str]) -> None:
    gateway, _ = finished
    clients = documents.ClientPage.model_validate_json(gateway.http.get("/v1/clients").content).clients
    assert [(client.client_id, client.domain, client.is_connected) for client in clients] == [
        ("ann", "ann-domain", True),
        ("bob", "bob-domain", True),
    ]
    assert clients[0].class_counts == {"a": 5, "b": 3, "c": 4}


# Downloads


@pytest.mark.parametrize("kind", ["model", "prototypes"])
@pytest.mark.parametrize("number", [None, 1, 3])
def test_a_download_has_the_bytes_of_the_round_under_their_hash(
    finished: tuple[ServedGateway, str], kind: str, number: int | None
) -> None:
    gateway, run_id = finished
    rounds = gateway.federation.coordinator.list_rounds(run_id)
    answer = gateway.http.get(f"/v1/runs/{run_id}/{kind}", params={} if number is None else {"round": number})
    blob = getattr(rounds[3 if number is None else number], kind)
    assert hashlib.sha256(answer.content).hexdigest() == blob.sha256
    assert answer.headers["etag"] == f'"{blob.sha256}"'
    assert answer.headers["content-length"] == str(blob.size_bytes)
    assert answer.headers["content-type"] == "application/octet-stream"
    name = f"{run_id}-{kind}" if number is None else f"{run_id}-round-{number}-{kind}"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.safetensors"'


def test_a_download_goes_on_where_it_broke_off(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    path = f"/v1/runs/{run_id}/model"
    whole = gateway.http.get(path)
    for offset in (1, 100, len(whole.content) - 1):
        headers = {"Range": f"bytes={offset}-", "If-Range": whole.headers["etag"]}
        rest = gateway.http.get(path, headers=headers)
        assert rest.status_code == 206
        assert whole.content[:offset] + rest.content == whole.content
        size = len(whole.content)
        assert rest.headers["content-range"] == f"bytes {offset}-{size - 1}/{size}"


def test_a_download_of_another_file_since_begins_again(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    headers = {"Range": "bytes=100-", "If-Range": '"another"'}
    answer = gateway.http.get(f"/v1/runs/{run_id}/model", headers=headers)
    assert (answer.status_code, len(answer.content)) == (200, int(answer.headers["content-length"]))


def test_a_range_beyond_the_end_is_refused_with_the_size(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    path = f"/v1/runs/{run_id}/model"
    size = len(gateway.http.get(path).content)
    for offset in (size, size + 7):
        answer = gateway.http.get(path, headers={"Range": f"bytes={offset}-"})
        assert (answer.status_code, problem(answer).code) == (416, "RANGE_NOT_SATISFIABLE")
        assert answer.headers["content-range"] == f"bytes */{size}"


@pytest.mark.parametrize("asked", ["bytes=-5", "bytes=0-3,7-9", "lines=1-", "bytes=a-", "bytes=0-"])
def test_other_ranges_give_the_whole_file(finished: tuple[ServedGateway, str], asked: str) -> None:
    gateway, run_id = finished
    path = f"/v1/runs/{run_id}/model"
    answer = gateway.http.get(path, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, gateway.http.get(path).content)


def test_a_file_that_the_reader_has_is_not_sent_again(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    path = f"/v1/runs/{run_id}/prototypes"
    etag = gateway.http.get(path).headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        answer = gateway.http.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert gateway.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_head_tells_size_and_hash_without_the_bytes(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    path = f"/v1/runs/{run_id}/model"
    whole, head = gateway.http.get(path), gateway.http.head(path)
    assert head.content == b""
    for name in ("etag", "content-length", "content-type", "accept-ranges"):
        assert head.headers[name] == whole.headers[name]


# Events


def test_a_stream_holds_the_whole_history_and_then_the_run(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    with stream(gateway, run_id) as found:
        *events, end = list(found)
    assert [(sequence, name) for sequence, name, _ in events] == [
        (event.sequence, event.type) for event in history(gateway, run_id)
    ]
    assert all(data["sequence"] == sequence and data["run_id"] == run_id for sequence, _, data in events)
    assert end[:2] == (None, "end")
    assert end[2] == gateway.http.get(f"/v1/runs/{run_id}").json()


def test_a_stream_that_breaks_at_any_event_goes_on_after_it(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    whole = [event.sequence for event in history(gateway, run_id)]
    for count in range(1, len(whole) + 1):
        with stream(gateway, run_id) as found:
            before = [next(found)[0] for _ in range(count)]
        with stream(gateway, run_id, **{"Last-Event-ID": str(before[-1])}) as found:
            *after, end = list(found)
        assert before + [sequence for sequence, _, _ in after] == whole
        assert end[1] == "end"


def test_a_stream_is_the_default_and_says_so_to_proxies(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    answer = gateway.http.get(f"/v1/runs/{run_id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("retry: 2000\n\n")


def test_pages_of_events_hold_the_same_history(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    pages = [
        documents.EventPage.model_validate(page)
        for page in list_pages(gateway, f"/v1/runs/{run_id}/events", page_size=4, after=0)
    ]
    seen = [event for page in pages for event in page.events]
    assert [page.has_ended for page in pages] == [False] * (len(pages) - 1) + [True]
    assert pages[-1].last_sequence == seen[-1].sequence
    assert [event.sequence for event in seen] == [event.sequence for event in history(gateway, run_id)]
    committed = [event.data["metrics"]["round"] for event in seen if event.type == "round_committed" and event.round]
    assert committed == [1, 2, 3]


def test_a_page_of_a_run_that_goes_on_says_so(gateway: ServedGateway) -> None:
    run_id = gateway.create()
    page = gateway.http.get(f"/v1/runs/{run_id}/events", headers={"Accept": "application/json"}).json()
    assert page["has_ended"] is False
    again = gateway.http.get(f"/v1/runs/{run_id}/events", params={"after": page["last_sequence"]}).json()
    assert again == {**page, "events": []}


def test_pages_go_backwards_from_the_newest_event_to_the_first(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    whole = [event.sequence for event in history(gateway, run_id)]
    asked: dict[str, str | int] = {"order": "newest_first", "page_size": 4}
    pages = [
        documents.EventPage.model_validate(page) for page in list_pages(gateway, f"/v1/runs/{run_id}/events", **asked)
    ]
    assert [event.sequence for page in pages for event in page.events] == whole[::-1]
    assert pages[0].last_sequence == whole[-1], "a stream can begin where the first page ends"
    assert [page.has_ended for page in pages] == [True] + [False] * (len(pages) - 1)
    older = list_pages(gateway, f"/v1/runs/{run_id}/events", **asked, before=whole[-2], after=whole[1])
    assert [event["sequence"] for page in older for event in page["events"]] == whole[2:-2][::-1]


def test_a_page_may_have_events_of_some_types_and_of_one_client_only(finished: tuple[ServedGateway, str]) -> None:
    gateway, run_id = finished
    wanted = [e for e in history(gateway, run_id) if e.type in ("update_committed", "evaluation_reported")]
    query = {"type": ["update_committed", "evaluation_reported"], "client": "bob"}
    page = gateway.http.get(f"/v1/runs/{run_id}/events", params=query).json()
    of_bob = [event.sequence for event in wanted if event.client_id == "bob"]
    assert [event["sequence"] for event in page["events"]] == of_bob
    assert len(of_bob) == 6
    newest = gateway.http.get(f"/v1/runs/{run_id}/events", params={**query, "order": "newest_first", "page_size": 2})
    assert [event["sequence"] for event in newest.json()["events"]] == of_bob[:-3:-1]
    nobody = gateway.http.get(f"/v1/runs/{run_id}/events", params={"client": "nobody"}).json()
    assert (nobody["events"], nobody["has_ended"]) == ([], True)


@pytest.mark.parametrize("query", ["before=7", "order=newest_first", "type=run_created", "client=ann", "page_token=x"])
def test_a_stream_has_every_event_and_says_so(finished: tuple[ServedGateway, str], query: str) -> None:
    gateway, run_id = finished
    answer = gateway.http.get(f"/v1/runs/{run_id}/events?{query}", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, problem(answer).code) == (400, "MALFORMED_REQUEST")
    assert "accept application/json" in str(problem(answer).detail)


@pytest.mark.parametrize("query", ["before=-1", "before=x", "order=sideways", "type=A", "type=a&" * 65, "client=a%20b"])
def test_a_choice_of_events_that_is_none_is_refused(finished: tuple[ServedGateway, str], query: str) -> None:
    gateway, run_id = finished
    answer = gateway.http.get(f"/v1/runs/{run_id}/events?{query}", headers={"Accept": "application/json"})
    assert (answer.status_code, problem(answer).code) == (400, "MALFORMED_REQUEST")


@pytest.mark.parametrize("cursor", ["abc", "-1", "1e3", "9" * 19, "9" * 40, "٣"])
def test_a_cursor_that_is_none_is_refused(finished: tuple[ServedGateway, str], cursor: str) -> None:
    gateway, run_id = finished
    answer = gateway.http.get(f"/v1/runs/{run_id}/events", headers={b"Last-Event-ID": cursor.encode()})
    assert (answer.status_code, problem(answer).code) == (400, "MALFORMED_REQUEST")


def test_events_arrive_as_they_happen_and_the_stream_ends_with_the_run(gateway: ServedGateway) -> None:
    run_id = gateway.create()
    with stream(gateway, run_id) as found:
        assert next(found)[1] == "run_created"
        gateway.federation.join()
        assert [next(found)[1] for _ in range(2)] == ["run_started", "round_opened"]
        gateway.federation.run_to_end(run_id)
        rest = list(found)
    assert rest[-1][1] == "end"
    assert rest[-1][2]["status"] == "completed"
    assert [sequence for sequence, _, _ in rest[:-1]] == [event.sequence for event in history(gateway, run_id)][3:]


def test_no_more_streams_are_opened_than_the_gateway_holds(gateway: ServedGateway) -> None:
    run_id = gateway.create()
    streams = gateway.services.streams
    with stream(gateway, run_id) as found:
        next(found)
        streams._free = 0
        answer = gateway.http.get(f"/v1/runs/{run_id}/events")
    assert (answer.status_code, problem(answer).code) == (429, "OVERLOADED")
    assert answer.headers["retry-after"] == "1"


# Without an aggregator


def test_without_an_aggregator_every_request_for_it_is_a_problem_and_the_process_lives(gateway: ServedGateway) -> None:
    run_id = gateway.create()
    gateway.stop_aggregator()
    for method, path in (
        ("GET", "/v1/runs"),
        ("GET", f"/v1/runs/{run_id}"),
        ("GET", f"/v1/runs/{run_id}/events"),
        ("GET", f"/v1/runs/{run_id}/model"),
        ("GET", f"/v1/runs/{run_id}/metrics.jsonl"),
        ("POST", f"/v1/runs/{run_id}/stop"),
        ("GET", "/v1/clients"),
        ("GET", "/readyz"),
    ):
        answer = gateway.http.request(method, path)
        assert (answer.status_code, problem(answer).code) == (503, "AGGREGATOR_UNAVAILABLE"), path
        assert gateway.settings.aggregator in str(problem(answer).detail)
        assert answer.headers["retry-after"] == "1"
    metadata = problem(gateway.http.get("/readyz")).metadata
    assert metadata is not None
    assert metadata["part"] == "aggregator"
    assert gateway.http.get("/livez").status_code == 200
    gateway.start_aggregator()
    assert any(gateway.http.get("/readyz").status_code == 200 or threading.Event().wait(0.05) for _ in range(100))
    assert gateway.http.get(f"/v1/runs/{run_id}").json()["status"] == "pending"


def test_a_download_that_breaks_off_is_never_taken_for_the_whole_file(gateway: ServedGateway) -> None:
    run_id = gateway.create_and_finish()
    coordinator = gateway.federation.coordinator
    _blob, path = coordinator.artifact(run_id, -1, "model")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(httpx.RemoteProtocolError):
        gateway.http.get(f"/v1/runs/{run_id}/model")


# Metrics


# What a run may be configured with


def test_a_checked_configuration_is_the_run_that_it_becomes_and_creates_none(gateway: ServedGateway) -> None:
    document = a_document("fedplcc", training={"local_epochs": 2})
    checked = gateway.http.post("/v1/run-configuration/check", json=document).json()
    assert checked["problems"] == []
    assert gateway.http.get("/v1/runs").json()["runs"] == []
    run = gateway.http.post("/v1/runs", json=document).json()
    assert (run["config"], run["config_hash"]) == (checked["config"], checked["config_hash"])


def test_what_may_be_configured_is_told_without_the_aggregator(gateway: ServedGateway) -> None:
    gateway.stop_aggregator()
    try:
        form = documents.RunConfigurationForm.model_validate_json(gateway.http.get("/v1/run-configuration").content)
        assert "fedplcc" in [choice.name for choice in form.methods]
        answer = gateway.http.post("/v1/run-configuration/check", json={})
        assert [entry["location"] for entry in answer.json()["problems"]] == ["run.method", "data.classes"]
    finally:
        gateway.start_aggregator()
