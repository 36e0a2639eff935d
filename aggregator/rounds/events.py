"""Events of one change of a run, computed from the states before and after it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from fedplcc.aggregator.rounds.far_updates import FarUpdate, newly_far
from fedplcc.aggregator.rounds.machine.run_facts import evaluators, is_parked, is_retired, waits_for_quorum
from fedplcc.aggregator.rounds.results import intervals_beside, score_intervals
from fedplcc.shared.reasons import Parked, WaitsForApproval, sentence_of
from fedplcc.shared.types import MODEL, Event, Round, RoundPhase, Run, RunStatus

STATUS_EVENTS = {
    RunStatus.RUNNING: "run_started",
    RunStatus.PAUSED: "run_paused",
    RunStatus.STOPPING: "run_stopping",
    RunStatus.STOPPED: "run_stopped",
    RunStatus.COMPLETED: "run_completed",
    RunStatus.FAILED: "run_failed",
}
"""Event of entering a status; RUNNING or PENDING after PAUSED is "run_resumed", and PAUSED by an error is "run_parked"."""

FINAL_EVENTS = frozenset(STATUS_EVENTS[status] for status in RunStatus if status.is_final)
"""Events that end a run's history."""

_NONE: Set[str] = frozenset()


def events_between(before: Run, after: Run, *, now: float) -> list[Event]:
    """Events between two states of one run, in order."""
    events: list[Event] = []

    def happened(event_type: str, *, number: int = -1, client_id: str = "", **data: Any) -> None:
        events.append(
            Event(type=event_type, run_id=after.run_id, round=number, client_id=client_id, data=data, time=now)
        )

    for client_id in sorted(set(after.quarantined) - set(before.quarantined)):
        reason = after.quarantined[client_id]
        happened("client_quarantined", number=after.round_number, client_id=client_id, reason=reason)
    for client_id in sorted(set(before.quarantined) - set(after.quarantined)):
        happened("client_released", number=after.round_number, client_id=client_id)
    for client_id, retired in after.retired.items():
        if before.retired.get(client_id) != retired and not retired.is_back:
            happened("client_retired", number=retired.round, client_id=client_id, forgets=retired.is_forgotten)
    if after.num_admissions > before.num_admissions:
        came = {*after.roster} - {*before.roster}
        for client_id in sorted(came | {name for name in before.retired if not is_same_part(before, after, name)}):
            happened("client_admitted", number=after.round_number, client_id=client_id)
    for client_id, stages in after.without_data.items():
        for stage in sorted(set(stages) - set(before.without_data.get(client_id, ()))):
            cohorts = [() if run.current_round is None else run.current_round.cohort for run in (before, after)]
            drawn = sorted(set(cohorts[1]) - set(cohorts[0]))  # in its place, one at most
            happened("client_without_data", number=after.round_number, client_id=client_id, stage=stage, drawn=drawn)
    for first in after.stage_began[len(before.stage_began) :]:
        happened("stage_ended", number=after.round_number, stage=len(after.stage_began), first_round=first)
    _round_events(before.current_round, after.current_round, happened, after, newly_far(before, after))
    _quorum_events(before, after, happened)
    if after.is_pause_requested and not before.is_pause_requested:
        happened("pause_requested", number=after.round_number)
    if before.is_pause_requested and not after.is_pause_requested and after.status is before.status:
        happened("pause_withdrawn", number=after.round_number)
    if isinstance(after.reason, Parked) and is_parked(after) and not is_parked(before):
        clients = list(after.reason.clients)
        happened("run_parked", number=after.round_number, reason=sentence_of(after.reason), clients=clients)
    elif before.status is RunStatus.COMPLETED and after.status is RunStatus.RUNNING:
        happened("run_extended", number=after.round_number, rounds=after.total_rounds, config_hash=after.config_hash)
    elif after.status is not before.status:
        resumed = before.status is RunStatus.PAUSED and after.status in (RunStatus.RUNNING, RunStatus.PENDING)
        name = "run_resumed" if resumed else STATUS_EVENTS[after.status]
        why = {} if after.reason is None else {"reason": sentence_of(after.reason)}
        happened(name, number=after.round_number, **why)
    return events


def came_and_gone(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[Set[str], Set[str]]:
    """Return the keys that only `after` has, and those that only `before` has; a mapping that stayed is not looked at."""
    if after is before:
        return _NONE, _NONE
    came = after.keys() - before.keys()
    return came, _NONE if len(after) == len(before) + len(came) else before.keys() - after.keys()


def is_same_part(before: Run, after: Run, client_id: str) -> bool:
    """Whether a client is retired in both states or in none."""
    return is_retired(before, client_id) == is_retired(after, client_id)


def _quorum_events(before: Run, after: Run, happened: Any) -> None:
    if before.status is not RunStatus.RUNNING or after.status is not RunStatus.RUNNING:
        return
    if waits_for_quorum(after) and after.reason != before.reason:
        pending = {"clients": list(after.reason.clients)} if isinstance(after.reason, WaitsForApproval) else {}
        happened("quorum_missing", number=after.round_number, reason=sentence_of(after.reason), **pending)
    elif waits_for_quorum(before) and after.reason is None:
        happened("quorum_regained", number=after.round_number)


def _round_events(before: Round | None, after: Round | None, happened: Any, run: Run, far: Sequence[FarUpdate]) -> None:
    if after is None or after == before:
        return
    if before is None or before.number != after.number:
        happened("round_opened", number=after.number, cohort=list(after.cohort), phase=after.phase.value)
        before = None
    _drop_events(before, after, happened)
    updates, gone_updates = came_and_gone(before.updates if before else {}, after.updates)
    reports, gone_reports = came_and_gone(before.evaluations if before else {}, after.evaluations)
    for client_id in sorted(updates):
        update = after.updates[client_id]
        happened(
            "update_committed",
            number=after.number,
            client_id=client_id,
            num_examples=update.num_examples,
            num_prototypes=update.num_prototypes,
            **({} if update.norm is None else {"update_norm": update.norm}),
        )
    for each in far:
        happened(
            "update_far",
            number=after.number,
            client_id=each.client_id,
            update_norm=each.norm,
            median_norm=each.median,
            **({} if each.of == MODEL else {"of": each.of}),
        )
    known = before.asked_again if before else {}
    damaged = {name: asked for name, asked in sorted(after.asked_again.items()) if known.get(name) != asked}
    for client_id, asked in damaged.items():
        happened("update_damaged", number=after.number, client_id=client_id, sha256s=list(asked.sha256s))
    for client_id in sorted(reports):
        happened("evaluation_reported", number=after.number, client_id=client_id)
    for client_id in sorted(gone_updates - damaged.keys()):
        happened("update_removed", number=after.number, client_id=client_id)
    for client_id in sorted(gone_reports):
        happened("report_removed", number=after.number, client_id=client_id)
    if before is not None and before.phase is not after.phase:
        data: dict[str, Any] = {}
        if after.phase is RoundPhase.COMMITTED and after.results_json:
            line = json.loads(after.results_json)
            intervals = score_intervals(after, line)
            beside = intervals_beside(after, line)
            data = {"metrics": line, **({"intervals": intervals} if intervals else {})}
            data |= {"intervals_beside": beside} if beside else {}
        if after.phase is RoundPhase.EVALUATING and (evaluating := evaluators(run)):
            data = {"evaluators": list(evaluating)}
        happened(f"round_{after.phase.value}", number=after.number, **data)


def _drop_events(before: Round | None, after: Round, happened: Any) -> None:
    if before is None:
        return
    for client_id in sorted(set(after.dropped) - set(before.dropped)):
        why = after.dropped[client_id]
        happened("client_dropped", number=after.number, client_id=client_id, reason=why.reason.value, detail=why.detail)
    for client_id in sorted(set(before.dropped) - set(after.dropped)):
        happened("client_returned", number=after.number, client_id=client_id)
    asked = set() if after.cohort is before.cohort else set(after.cohort) - set(before.cohort)
    for client_id in sorted(asked):
        happened("client_asked", number=after.number, client_id=client_id)
