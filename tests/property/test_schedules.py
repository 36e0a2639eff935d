"""Federations that change at random: who is in a round, and of which stage it is, follow from configuration and events.

The judge below is written from the documents alone: it reads the configuration and the history of the run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.errors import ClientNotFound, InvalidTransition
from fedplcc.shared.steering import AdmitClient, AdvanceStage, QuarantineClient, ReleaseClient, RetireClient
from fedplcc.shared.types import STREAM_PLACE, Event, RunStatus
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.hosts.memory_folder import memory_folder

NAMES = ("ann", "bob", "cat", "dan")
ACTIONS = ("admit", "retire", "forget", "quarantine", "release", "stay away", "restart", "end the stage")
LONG_S = 10_000.0
"""Longer than every lease and deadline of these runs."""


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Sections of a run of four clients."""
    stages, is_manual = draw(st.integers(2, 3)), draw(st.booleans())
    stream: dict[str, Any] = {"stages": stages, "cohort": draw(st.sampled_from(["round", "pass"]))}
    stream |= {"epoch_model": draw(st.sampled_from(["last", "stage_mean"]))} if not is_manual else {}
    rounds = draw(st.integers(3, 6))
    if is_manual:
        stream["advance"] = "manual"
    else:
        stream |= {"rounds_per_stage": draw(st.integers(1, 2)), "passes": draw(st.integers(1, 2))}
        rounds = stream["rounds_per_stage"] * stream["passes"] * stages
    first, last = draw(st.integers(1, rounds)), draw(st.integers(1, rounds))
    return {
        "run": {"rounds": rounds, "clients": list(NAMES), "cohort_size": draw(st.sampled_from([None, 2, 3]))},
        "stream": stream,
        "membership": {"cat": f"{first}-", "dan": f"-{last}"},
        "quorum": {"min_clients": 1, "deadline_s": 5.0},
    }


changes = st.lists(st.tuples(st.integers(1, 8), st.sampled_from(ACTIONS), st.sampled_from(NAMES)), max_size=8)


RELEASED_TOO_LATE = {
    "document": {
        "run": {"rounds": 2, "clients": list(NAMES), "cohort_size": None},
        "stream": {"stages": 2, "advance": "manual", "cohort": "round"},
        "membership": {"cat": "1-", "dan": "-2"},
        "quorum": {"min_clients": 1, "deadline_s": 5.0},
    },
    "schedule": [(1, "quarantine", "ann"), (1, "release", "ann")],
}
"""A client is released while the round, which went on without its update, is evaluated."""


@settings(max_examples=12, deadline=None, derandomize=True)
@given(document=documents(), schedule=changes)
@example(**RELEASED_TOO_LATE)
def test_cohort_and_stage_follow_from_configuration_and_events(
    document: dict[str, Any], schedule: list[tuple[int, str, str]]
) -> None:
    with memory_folder() as folder:
        clients = [NumpyClient(name, size=3, counts=(2, 1, 1)) for name in NAMES]
        with LocalFederation(Path(folder), clients, Limits(lease_heartbeats=2), Clock()) as federation:
            federation.join()
            run_id = federation.create("fedplcc", **document).run_id
            drive(federation, run_id, schedule)
            judge(federation, run_id, document)


def drive(federation: LocalFederation, run_id: str, schedule: Sequence[tuple[int, str, str]]) -> None:
    """Let the run end, with each change while its round is open; where nobody is left, all come back."""
    done, away = 0, dict[str, int]()
    for _ in range(400):
        run = federation.coordinator.get_run(run_id)
        if run.status.is_final:
            return
        number = run.round_number
        due = [change for change in schedule[done:] if change[0] <= number]
        for _, action, name in due[:1]:
            done += 1
            change(federation, run_id, action, name)
            if action == "stay away":
                away[name] = number
        federation.join()
        if not federation.step([name for name in NAMES if away.get(name) != number]) and not due:
            federation.clock.now += LONG_S
            if federation.coordinator.get_run(run_id).reason is not None:  # it waits until somebody may take part
                away.clear()
                for action, name in itertools.product(("release", "admit"), NAMES):
                    change(federation, run_id, action, name)
    raise AssertionError(f"the run does not end: {federation.coordinator.get_run(run_id)}")


def change(federation: LocalFederation, run_id: str, action: str, name: str) -> None:
    """Ask for something; what the run's state does not allow is refused, and changes nothing."""
    coordinator = federation.coordinator
    try:
        match action:
            case "admit":
                coordinator.steer(run_id, AdmitClient(name))
            case "retire" | "forget":
                coordinator.steer(run_id, RetireClient(name, forgets=action == "forget"))
            case "quarantine":
                coordinator.steer(run_id, QuarantineClient(name, reason="a test"))
            case "release":
                coordinator.steer(run_id, ReleaseClient(name))
            case "end the stage":
                coordinator.steer(run_id, AdvanceStage())
            case "restart":
                federation.restart()
    except (ClientNotFound, InvalidTransition):
        pass


def judge(federation: LocalFederation, run_id: str, document: Mapping[str, Any]) -> None:
    """Compare every round with what configuration and events say of it."""
    run = federation.coordinator.get_run(run_id)
    history = federation.events(run_id)
    lines = [json.loads(line) for line in federation.metrics_lines(run_id)]
    if run.status is RunStatus.COMPLETED:
        assert len(lines) == document["run"]["rounds"]
    rows: dict[int, list[list[float]]] = {}
    for line in lines:
        number = line["round"]
        place = place_of(document["stream"], number, history)
        assert (line["pass"], line["stage"]) == place
        first = 1 + (place[0] - 1) * document["stream"]["stages"] * document["stream"].get("rounds_per_stage", 0)
        lot = first if document["stream"]["cohort"] == "pass" else number
        assert line["cohort"] == drawn(
            members(document, number, history), run.seed, lot, document["run"]["cohort_size"]
        )
        stored = federation.whole_round(run_id, number)
        for update in stored.updates.values():
            assert update.payload.int_lists[STREAM_PLACE] == place
        dropped = line.get("dropped", [])
        assert {*stored.updates, *dropped} == {*line["cohort"]}, "each client counts or was dropped"
        if line["accuracy_by_stage"] is not None and None not in line["accuracy_by_stage"]:
            rows.setdefault(place[0], [])[place[1] - 1 :] = [line["accuracy_by_stage"][: place[1]]]
            compare_measures(rows[place[0]], line)


def place_of(stream: Mapping[str, Any], number: int, history: Sequence[Event]) -> tuple[int, int]:
    """Pass and stage of a round."""
    if stream.get("advance") == "manual":
        ended = [event for event in history if event.type == "stage_ended" and event.data["first_round"] <= number]
        return 1, 1 + len(ended)
    index = (number - 1) // stream["rounds_per_stage"]
    return 1 + index // stream["stages"], 1 + index % stream["stages"]


def members(document: Mapping[str, Any], number: int, history: Sequence[Event]) -> list[str]:
    """Clients that may be in a round: those who began, with all that happened before the round opened."""
    first, last = (int(document["membership"][name].strip("-")) for name in ("cat", "dan"))
    inside = {name for name in NAMES if name != "cat" or first == 1}
    assert last >= 1
    out: set[str] = set()
    for event in history:
        if event.type == "round_opened" and event.round == number:
            break
        name = event.client_id or ""
        match event.type:
            case "client_admitted":
                inside.add(name)
            case "client_retired":
                inside.discard(name)
            case "client_quarantined":
                out.add(name)
            case "client_released":
                out.discard(name)
    return sorted(inside - out)


def drawn(clients: Sequence[str], seed: int, lot: int, size: int | None) -> list[str]:
    """The clients with the lowest numbers."""
    by_number = sorted(clients, key=lambda name: hashlib.sha256(f"{seed}/{lot}/{name}".encode()).digest())
    return sorted(by_number[:size])


def compare_measures(rows: Sequence[Sequence[float]], line: Mapping[str, Any]) -> None:
    """Average accuracy, forgetting and backward transfer of a pass, a second time."""
    last = len(rows) - 1
    if [len(row) for row in rows] != [*range(1, last + 2)]:
        return  # a stage of the pass was not evaluated as a whole
    matrix = np.array([[*row, *[-1.0] * (last + 1 - len(row))] for row in rows])
    assert line["average_accuracy"] is not None
    np.testing.assert_allclose(line["average_accuracy"], matrix[last].mean())
    if last:
        np.testing.assert_allclose(line["forgetting"], (matrix[:last, :last].max(axis=0) - matrix[last, :last]).mean())
        np.testing.assert_allclose(line["backward_transfer"], (matrix[last, :last] - np.diag(matrix)[:last]).mean())
