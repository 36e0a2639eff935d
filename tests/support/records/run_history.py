"""A run in the middle, for tests of the view that watches it: five domains, a client in trouble and one that is away."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fedplcc.shared.documents import Client, ClientEnvironment, ClientProblem, Event
from fedplcc.shared.types import ClientActivity
from fedplcc.terminal.run_history import RunHistory

BEGIN = datetime(2026, 11, 21, 22, 0, tzinfo=UTC)
ROUND_S = 21
DOMAINS = ("mnist", "mnistm", "svhn", "synth", "usps")
CLIENTS = ("lab", "ward-1", "ward-2", "ward-3", "ward-4")
UNREADABLE = ClientProblem(
    reason="UNREADABLE_FILES",
    detail="2 of 1,204 files cannot be read",
    hint="the log of this trainer names the first one; mend or remove them",
    is_fatal=False,
)


def an_event(name: str, number: int | None = None, client: str | None = None, second: float = 0, **data: Any) -> Event:
    time = BEGIN + timedelta(seconds=second)
    return Event(sequence=1, time=time, type=name, run_id="digits-9", round=number, client_id=client, data=data)


def metrics_of(number: int, domains: Sequence[str] = DOMAINS) -> dict[str, Any]:
    """A line of metrics.jsonl whose accuracies rise, later domains more slowly."""
    accuracy = {name: round(0.95 - 0.07 * k - 0.5 * math.exp(-number / (3 + k)), 4) for k, name in enumerate(domains)}
    summaries = {"mean": sum(accuracy.values()) / len(accuracy), "worst": min(accuracy.values())}
    return {
        "round": number,
        "accuracy": {**accuracy, **summaries},
        "loss": {"ce": 2.0 / number, "contrast": 1.4 / math.sqrt(number), "alignment": 0.3 / number},
        "prototypes": {"local": 60, "global": 24},
    }


def history(num_rounds: int = 12, domains: Sequence[str] = DOMAINS) -> Iterator[Event]:
    """The events of so many rounds, and of one that is open."""
    yield an_event("run_started", clients=dict.fromkeys(CLIENTS))
    for number in range(1, num_rounds + 1):
        begin = (number - 1) * ROUND_S
        yield an_event("round_opened", number, None, begin, cohort=list(CLIENTS), phase="collecting")
        if number == 7:
            yield an_event("client_dropped", 7, "ward-4", begin + 9, reason="lost", detail="not connected")
        if number == 9:
            problem = {"detail": UNREADABLE.detail, "hint": UNREADABLE.hint}
            yield an_event("client_problem", 9, "ward-3", begin + 3, **problem)
        yield an_event("round_committed", number, None, begin + ROUND_S, metrics=metrics_of(number, domains))
    begin = num_rounds * ROUND_S
    yield an_event("round_opened", num_rounds + 1, None, begin, cohort=list(CLIENTS), phase="collecting")
    yield an_event("update_committed", num_rounds + 1, "ward-1", begin + 5)


def a_client(
    name: str,
    activity: ClientActivity = ClientActivity.IDLE,
    progress: float = 0.0,
    *,
    domain: str = "mnist",
    number: int = 13,
    problem: ClientProblem | None = None,
    is_connected: bool = True,
) -> Client:
    is_busy = activity is not ClientActivity.IDLE
    return Client(
        client_id=name,
        domain=domain,
        is_connected=is_connected,
        activity=activity,
        run_id="digits-9" if is_busy else None,
        round=number if is_busy else None,
        progress=progress,
        num_examples=100,
        class_counts={},
        environment=ClientEnvironment(packages={}, cpu="any", device="cpu", platform="any"),
        last_seen_at=BEGIN + timedelta(seconds=200),
        problem=problem,
        readings={},
    )


def the_clients() -> list[Client]:
    training = ClientActivity.TRAINING
    return [
        a_client("lab", training, 0.42, domain="usps"),
        a_client("ward-1"),
        a_client("ward-2", training, 0.73, domain="mnistm"),
        a_client("ward-3", training, 0.1, domain="svhn", problem=UNREADABLE),
        a_client("ward-4", domain="synth", is_connected=False),
    ]


def a_run_history(num_rounds: int = 12, domains: Sequence[str] = DOMAINS) -> RunHistory:
    run = RunHistory(method="fedplcc", total_rounds=30)
    for event in history(num_rounds, domains):
        run.take(event)
    return run
