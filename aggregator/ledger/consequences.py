"""Consequences of a change: the steps of a run that follow by themselves, and the events that say what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedplcc.aggregator.computation.weighed_domains import HAS_ALL_UPDATES, with_domains
from fedplcc.aggregator.histories.run_memories import RunMemories
from fedplcc.aggregator.ledger.changes import Step
from fedplcc.aggregator.ledger.parking import check_numbers, why_parked
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds import results
from fedplcc.aggregator.rounds.doubted_model import first_model_came, why_uncompared
from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.machine import members, round_parts, run_facts, run_moves
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.aggregator.rounds.settling import Surroundings, may_settle, settled
from fedplcc.aggregator.rounds.validation import early_stop, event_of, judged_round
from fedplcc.aggregator.store.base import ControlRequest, Store
from fedplcc.shared.config.run import canonical_json, own_kind_refusal
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import StoppedEarly
from fedplcc.shared.types import (
    Client,
    Evaluation,
    Event,
    Run,
    RunStatus,
    Update,
)

log = get_logger(__name__)


class Consequences:
    """What follows from changes of open runs. It reads the store, sessions and histories, and writes nothing."""

    def __init__(self, store: Store, sessions: Sessions, memories: RunMemories) -> None:
        self._store, self._sessions, self._memories = store, sessions, memories

    def step(
        self,
        before: Run,
        after: Run,
        now: float,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        request: ControlRequest | None = None,
        extra: Sequence[Event] = (),
    ) -> Step:
        """Return a change with all that follows by itself; after an error in that, with the run parked."""
        states, events = [before, after], [*extra]
        if after is not before:
            events += self._events(before, after, now)
        try:
            while (state := self._settled(states[-1], now)) is not states[-1]:
                happened = self._events(states[-1], state, now)
                states.append(state)
                events += happened
        except StoreUnavailable:
            raise
        except Exception as error:
            states.append(self.parked(states[-1], error))
            events += self._events(states[-2], states[-1], now)
        step = Step(states, events, states[-1], update, evaluation, request)
        return step if step.only_adds else replace(step, final=replace(states[-1], updated_at=now))

    def parked(self, run: Run, error: Exception) -> Run:
        """Return a run that is parked for an error in its own step."""
        reason = why_parked(run, error)
        log.error("run_cannot_go_on", run_id=run.run_id, round=run.round_number, exc_info=error)
        return run_moves.park(run, reason)

    def quorum_of(self, run: Run) -> Quorum:
        """The quorum of a run's open round."""
        rule = self._memories.config_of(run).quorum
        if rule.min_clients is None and not rule.every_domain:
            return WHOLE_COHORT
        cohort = () if run.current_round is None else run.current_round.cohort
        return Quorum(min_clients=rule.min_clients, domains=self._domains_of(cohort) if rule.every_domain else None)

    def _settled(self, run: Run, now: float) -> Run:
        if not may_settle(run, self._sessions.is_connected):
            return run
        looks_for_clients = run.status is RunStatus.PENDING or run_facts.may_open_another(run)
        connected = self._sessions.connected() if looks_for_clients else ()
        if run.status is RunStatus.PENDING and not run.roster and not connected:
            return run
        noted = self._with_evaluators(run) if looks_for_clients else run
        if noted is not run:
            return noted  # before a cohort is drawn
        config = self._memories.config_of(run)
        if config.run.min_clients is not None and own_kind_refusal(config) is not None:
            # Its trainer would refuse every task, and the run would wait for it. A roster names it all the same.
            connected = [name for name in connected if not self._sessions.kind_of(name)]
        around = Surroundings(
            rule=config.run,
            connected=connected,
            evaluating=[name for name in connected if self._sessions.evaluates_only(name)],
            quorum=self.quorum_of,
            fails=config.quorum.on_no_quorum == "fail",
            evaluates=config.evaluates(run.round_number, run.total_rounds),
            commit=lambda evaluated: self._committed(evaluated, now),
            stream=config.stream,
            plan=config.membership,
            stops_early=lambda run: self._early_stop(run, config.run.patience),
        )
        after = settled(run, around, now=now)
        has_more = after.roster is not run.roster or after.status is not run.status
        has_more = has_more or (after.num_admissions > 0 and after.round_number > run.round_number)
        return after if not (config.algorithm.has("scalars") and has_more) else self._with_examples(after)

    def _early_stop(self, run: Run, patience: int | None) -> StoppedEarly | None:
        best = self._memories.best_after(run)
        return early_stop(best, judged_round(run.current_round, best), patience)

    def _with_evaluators(self, run: Run) -> Run:
        """Return the run with the clients of its roster noted that are here and said that they have nothing to train on."""
        unknown = (name for name in run.roster if name not in run.admitted_examples)
        found = {name: 0 for name in unknown if self._sessions.evaluates_only(name)}
        return members.record_examples(run, found) if found else run

    def _with_examples(self, run: Run) -> Run:
        clients = [self._find_client(name) for name in run.roster if name not in run.admitted_examples]
        found = {client.client_id: client.num_examples for client in clients if client is not None}
        return members.record_examples(run, found) if found else run

    def _committed(self, run: Run, now: float) -> Run:
        current = run.current_round
        assert current is not None
        assert current.prototype_counts is not None
        check_numbers(current)
        domains = self._domains_of(current.cohort)
        domains |= {client_id: evaluation.domain for client_id, evaluation in current.evaluations.items()}
        config = self._memories.config_of(run)
        evaluated = config.evaluated_models
        num_global = current.prototype_counts.total
        line = results.metrics_line(
            current,
            domains=domains,
            num_global_prototypes=num_global,
            evaluated=evaluated,
            is_evaluated=config.evaluates(current.number, run.total_rounds),
            attacks=config.evaluation.attacks,
            is_validated=config.data.validation_every is not None,
            is_alone=len(run.roster) == 1,
            score=config.evaluation.score,
            stage=self._memories.stage_rows.context(run, config),
        )
        number, phases = self._memories.interrupted.get(run.run_id, (-1, ()))
        timings = results.timings_line(current, now=now, interrupted=phases if number == current.number else ())
        return round_parts.commit_round(
            run, results_json=canonical_json(line), timings_json=canonical_json(timings), now=now
        )

    def _find_client(self, client_id: str) -> Client | None:
        """A client's record: that of its session, which may be about to be written, else the stored one."""
        session = self._sessions.find(client_id)
        return self._store.find_client(client_id) if session is None else session.client

    def _domains_of(self, clients: Sequence[str]) -> dict[str, str]:
        """Domains by client; see `_find_client`."""
        sessions = {client_id: self._sessions.find(client_id) for client_id in clients}
        present = {client_id: session.client.domain for client_id, session in sessions.items() if session is not None}
        return self._store.domains(clients) | present

    def _events(self, before: Run, after: Run, now: float) -> list[Event]:
        events = [self._with_facts(event, after) for event in events_between(before, after, now=now)]
        if run_facts.has_open_round(before) and not run_facts.has_open_round(after):
            best = self._memories.best_after(after)
            if best is not None and best.round == after.round_number:
                events.append(event_of(best, after.run_id, now))
        if first_model_came(before, after):
            why = why_uncompared(after)
            if why is not None:
                facts = {"detail": why}
                events.append(Event(type="first_model_uncompared", run_id=after.run_id, round=0, data=facts, time=now))
        admitted = set() if after.roster is before.roster else set(after.roster) - set(before.roster)
        has_started = before.status is RunStatus.PENDING and after.status is RunStatus.RUNNING
        if has_started:
            admitted = set(after.roster)
        if not admitted:
            return events
        clients = [self._find_client(client_id) for client_id in sorted(admitted)]
        entries = {client.client_id: results.roster_entry(client) for client in clients if client is not None}
        if has_started:
            events = [replace(event, data={**event.data, "clients": entries}) for event in events]
        else:
            events.insert(0, Event(type="clients_admitted", run_id=after.run_id, data={"clients": entries}, time=now))
        environments = [entry["environment"] for entry in entries.values()]
        if any(environment != environments[0] for environment in environments):
            # Such a run is correct, but its bytes cannot be repeated on one type of machine.
            events.append(Event(type="environments_differ", run_id=after.run_id, time=now))
        return events

    def _with_facts(self, event: Event, run: Run) -> Event:
        """Return the event; that a round has all its updates, with their clients' domains where those weigh.

        That a client is admitted, with the samples that it has: see taken_in.py.
        """
        if event.type == "client_admitted":
            client = self._find_client(event.client_id)
            more = {} if client is None else {"num_examples": client.num_examples}
            return replace(event, data={**event.data, **more})
        if event.type != HAS_ALL_UPDATES or self._memories.config_of(run).method.averaging != "domain":
            return event
        assert run.current_round is not None
        return with_domains(event, self._domains_of(sorted(run.current_round.updates)))
