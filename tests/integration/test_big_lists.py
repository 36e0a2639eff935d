"""Lists that no single message can hold, written into the store and read over real gRPC and through a real gateway."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fedplcc.shared import documents
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.types import Evaluation, EvaluationCounts, Round, RoundPhase, RunStatus
from fedplcc.shared.wire.statuses import translated
from tests.support.federation.grpc_client import DEADLINE_S, RunControl
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_evaluation

NUM_ROUNDS = 60
COHORT = tuple(f"client-{number:04}" for number in range(400))
CLIENTS = tuple(f"client-{number:04}" for number in range(2000))
BUSY_ROUND = NUM_ROUNDS
"""The round that every client of the cohort reported on."""
NUM_RUNS = 12
CORRECT = tuple(range(2**27, 2**27 + 1500))


def timings_line(number: int) -> str:
    """What 400 clients measured, about 500 bytes each."""
    measured = {f"measurement_{index:02}_seconds": number + index / 7 for index in range(12)}
    return json.dumps({"clients": dict.fromkeys(COHORT, measured), "round": number})


def metrics_line(number: int) -> str:
    line = {
        "round": number,
        "accuracy": {f"{name}-domain": number / NUM_ROUNDS for name in COHORT},
        "loss": {"ce": 1 / number},
        "prototypes": {"local": 12, "global": 3},
        "num_examples": 12 * len(COHORT),
        "cohort": COHORT,
        "model_sha256": a_blob(f"model {number}").sha256,
        "prototypes_sha256": a_blob(f"prototypes {number}").sha256,
    }
    return json.dumps(line)


def committed(number: int) -> Round:
    lines = {"results_json": metrics_line(number), "timings_json": timings_line(number)} if number else {}
    return a_round(number, RoundPhase.COMMITTED, cohort=COHORT, **lines)


def report(name: str) -> Evaluation:
    """Counts of 1,500 classes: 400 of these are more than one message holds."""
    counts = EvaluationCounts("test", "global", CORRECT, tuple(range(2**28, 2**28 + 1500)))
    return replace(an_evaluation(name), counts=(counts,))


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """A gateway in front of big runs and many clients, and the id of the run with rounds; tests only read."""
    with ServedGateway(tmp_path_factory.mktemp("big")) as gateway:
        run = a_run(RunStatus.COMPLETED, run_id="big", roster=COHORT, total_rounds=NUM_ROUNDS)
        with gateway.federation.store.transaction() as transaction:
            transaction.add_run(run, request_id="big", request_hash="")
            for number in range(NUM_ROUNDS + 1):
                transaction.save_run(replace(run, current_round=committed(number)))
            for name in ("client-0000", "client-0001"):
                transaction.add_evaluation("big", 1, an_evaluation(name))
            for name in COHORT:
                transaction.add_evaluation("big", BUSY_ROUND, report(name))
            for name in CLIENTS:
                transaction.save_client(
                    a_client(name, class_counts={f"class {name} {index}": 7 for index in range(100)})
                )
            for index in range(1, NUM_RUNS):
                document = {**json.loads(run.config_json), "data": {"classes": ["x" * 120] * 5000}}
                other = replace(
                    run, run_id=f"run-{index:02}", config_json=json.dumps(document), created_at=100.0 - index
                )
                transaction.add_run(other, request_id=other.run_id, request_hash="")
        yield gateway


@pytest.fixture(scope="module")
def control(big: ServedGateway) -> Iterator[RunControl]:
    control = RunControl(big.settings.aggregator)
    yield control
    control.close()


# Rounds


def test_an_entry_larger_than_the_bound_comes_alone(control: RunControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplcc.aggregator.servicer.pages.MAX_PAGE_BYTES", 1000)
    request = pb2.ListRoundsRequest(run_id="big", after_round=3)
    answer = control.stub.ListRounds(request, timeout=DEADLINE_S)
    assert ([entry.round for entry in answer.rounds], answer.has_more) == ([4], True)


@pytest.mark.parametrize(("name", "line"), [("metrics", metrics_line), ("timings", timings_line)])
def test_lines_of_a_run_of_many_clients_are_complete(big: ServedGateway, name: str, line: Callable[[int], str]) -> None:
    answer = big.http.get(f"/v1/runs/big/{name}.jsonl")
    assert answer.status_code == 200
    assert answer.text.splitlines() == [line(number) for number in range(1, NUM_ROUNDS + 1)]


def test_a_page_of_rounds_holds_as_many_as_were_asked_for_however_large_they_are(big: ServedGateway) -> None:
    page = big.http.get("/v1/runs/big/rounds", params={"page_size": 50}).json()
    assert [entry["round"] for entry in page["rounds"]] == list(range(50))
    rest = big.http.get("/v1/runs/big/rounds", params={"page_size": 50, "page_token": page["next_page_token"]}).json()
    assert [entry["round"] for entry in rest["rounds"]] == list(range(50, NUM_ROUNDS + 1))
    assert rest["next_page_token"] is None


# Reports


@pytest.mark.parametrize("token", ["nonsense", "1", "1:", ":ann", "-1:ann", "٣:ann", "99999999999:ann"])
def test_a_token_that_no_page_of_reports_gave_is_refused(control: RunControl, token: str) -> None:
    request = pb2.ListEvaluationsRequest(run_id="big", page_token=token)
    with pytest.raises(MalformedRequest, match="page_token"), translated():
        control.stub.ListEvaluations(request, timeout=DEADLINE_S)


def test_evaluations_of_a_round_of_many_clients_are_complete(big: ServedGateway) -> None:
    answer = big.http.get("/v1/runs/big/evaluations", params={"round": BUSY_ROUND})
    page = documents.EvaluationPage.model_validate_json(answer.content)
    assert [entry.client_id for entry in page.evaluations] == list(COHORT)
    assert page.evaluations[-1].counts[0].correct == list(CORRECT)


# Clients


def test_every_one_of_two_thousand_clients_is_listed(big: ServedGateway) -> None:
    seen, asked = [], {"page_size": "900"}
    while True:
        page = documents.ClientPage.model_validate_json(big.http.get("/v1/clients", params=asked).content)
        seen.append([client.client_id for client in page.clients])
        if page.next_page_token is None:
            break
        asked["page_token"] = page.next_page_token
    assert [client_id for page in seen for client_id in page] == list(CLIENTS)
    assert max(map(len, seen)) <= 900, "a page of clients with many classes ends before"


# Runs


def test_a_page_of_runs_holds_as_many_as_were_asked_for_however_large_they_are(big: ServedGateway) -> None:
    page = big.http.get("/v1/runs", params={"page_size": NUM_RUNS - 1}).json()
    assert len(page["runs"]) == NUM_RUNS - 1
    rest = big.http.get("/v1/runs", params={"page_token": page["next_page_token"]}).json()
    assert [run["run_id"] for run in rest["runs"]] == [f"run-{NUM_RUNS - 1:02}"]
    assert rest["next_page_token"] is None
