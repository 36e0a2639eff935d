"""A run with a history as long as one likes, in a second or two: what weeks of rounds leave behind.

The aggregator's own pure steps make its states, events and lines of metrics. Only what its clients send is that of its first
round again, with other losses and counts, and everything is written in one transaction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fedplcc.aggregator.rounds import results
from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.machine import opening, round_parts, round_waits
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.types import Evaluation, PrototypeCounts, Round, Run, RunStatus, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

ROUND_S = 3.0
"""How long each round took, as its history has it."""
NUM_GLOBAL = 6
"""Global prototypes of a round."""
TESTED = 200
"""Test samples of each class and client."""


def clients(number: int) -> list[NumpyClient]:
    """Clients of five domains."""
    return [NumpyClient(f"site-{index:03}", domain=f"region-{index % 5}", size=2) for index in range(number)]


def with_long_history(folder: Path, *, num_clients: int, num_rounds: int, now: float, method: str = "fedplcc") -> str:
    """Make a state directory with a run whose round after `num_rounds` is open since `now`; returns the run's id.

    Each round of n clients has 2 n + 4 events; nobody has joined when an aggregator starts on the directory.
    """
    with LocalFederation(folder, clients(num_clients)) as federation:
        federation.clock.now = now - ROUND_S * num_rounds
        federation.join()
        run_id = federation.create(method, run={"name": "long", "rounds": num_rounds + 10}).run_id
        while federation.coordinator.get_run(run_id).round_number < 2:
            federation.step()
        _go_on(federation, run_id, num_rounds)
    return run_id


def _go_on(federation: LocalFederation, run_id: str, last_round: int) -> None:
    run = federation.coordinator.get_run(run_id)
    first = federation.whole_round(run_id, 1)
    domains = federation.store.domains(run.roster)
    with federation.store.transaction() as transaction:
        while run.round_number <= last_round:
            number = run.round_number
            updates = [_trained(update, number) for update in first.updates.values()]
            reports = [_reported(report, number) for report in first.evaluations.values()]
            for update in updates:
                transaction.add_update(run_id, number, update)
            for report in reports:
                transaction.add_evaluation(run_id, number, report)
            states = [run, *_round_of(run, updates, reports, first, domains)]
            for before, after in itertools.pairwise(states):
                for event in events_between(before, after, now=after.updated_at):
                    transaction.add_event(event)
            transaction.save_run(states[-2])
            run = states[-1]
        transaction.save_run(run)


def _round_of(
    run: Run, updates: list[Update], reports: list[Evaluation], first: Round, domains: dict[str, str]
) -> Iterator[Run]:
    """The states from an open round to the next one; the last but one has committed it."""
    number, begin = run.round_number, run.updated_at
    moments = 2 * len(updates) + 3

    def at(moment: int) -> float:
        return begin + ROUND_S * moment / moments

    for moment, update in enumerate(updates, 1):
        yield (run := replace(round_parts.add_update(run, number, update, now=at(moment)), updated_at=at(moment)))
    assert first.model is not None
    assert first.prototypes is not None
    moment, now = len(updates) + 1, at(len(updates) + 1)
    counts = PrototypeCounts(by_class=(NUM_GLOBAL,), weights=(0.5, 0.5, 0.5))
    run = round_parts.aggregated(
        run, number, model=first.model, prototypes=first.prototypes, prototype_counts=counts, now=now
    )
    yield (run := replace(run, updated_at=now))
    for later, report in enumerate(reports, moment + 1):
        yield (run := replace(round_parts.add_evaluation(run, number, report), updated_at=at(later)))
    now = at(moments)
    assert run.current_round is not None
    assert round_waits.is_evaluated(run)
    line = results.metrics_line(run.current_round, domains=domains, num_global_prototypes=NUM_GLOBAL)
    timings = results.timings_line(run.current_round, now=now)
    run = round_parts.commit_round(
        run, results_json=canonical_json(line), timings_json=canonical_json(timings), now=now
    )
    yield (run := replace(run, updated_at=now))
    run = opening.next_step(run, cohort_size=None, now=now)
    assert run.status is RunStatus.RUNNING
    yield replace(run, updated_at=now)


def _trained(update: Update, number: int) -> Update:
    """What a client sent in a later round: the same, with a smaller loss."""
    return replace(update, losses={name: value / math.sqrt(number) for name, value in update.losses.items()})


def _reported(report: Evaluation, number: int) -> Evaluation:
    """What a client reported in a later round: its domain learns, each to another limit."""
    limit = 0.95 - 0.08 * (sum(report.domain.encode()) % 5)
    share = limit * (1 - 0.8 * math.exp(-number / 12))
    counts = [
        replace(
            entry, correct=tuple(round(share * TESTED) for _ in entry.total), total=tuple(TESTED for _ in entry.total)
        )
        for entry in report.counts
    ]
    return replace(report, counts=tuple(counts))
