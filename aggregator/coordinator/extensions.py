"""More rounds for runs that have completed: from there on they are the runs that were longer from the start.

A method may keep state at its clients, such as MOON's last model. Trainers drop what belongs to runs that are over, so the
answer to Join names the completed runs that may still go on: the latest ones, for `Keep.unused_days`.

Id, rounds and events stay: one history and one set of blobs, where a new run would copy them. What a fold may know of its
run is what a replay can know, the round's number and its eligible clients. Whatever stands for all rounds (a cosine without
`schedule_rounds`, a method's `length_key`) makes a run that is not extended, so a method that needs a length has a key for
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from fedplcc.aggregator.computation.parts.prototypes import pooled_updates
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.rounds.machine import run_moves
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import InvalidConfig, InvalidTransition
from fedplcc.shared.methods import METHODS
from fedplcc.shared.types import Run, RunStatus

MOST_STATES = 64
"""Most completed runs whose client states trainers keep."""
DAY_S = 86_400.0


def stateful() -> tuple[str, ...]:
    """Return the names of the methods whose clients keep state between rounds."""
    return tuple(name for name, method in METHODS.items() if method.keeps_client_state)


class Extensions:
    """Extensions of one aggregator's runs."""

    def __init__(self, ledger: Ledger, store: Store, keep: Keep) -> None:
        self._ledger, self._store, self._keep = ledger, store, keep

    def keeping_states(self, client_id: str) -> list[str]:
        """Return the completed runs of a client that may go on and whose state it has to keep for that."""
        return [run_id for run_id, roster in self._with_states() if client_id in roster]

    def step(self, rounds: int) -> Callable[[Run], Run]:
        """Return the step that gives a completed run more rounds.

        Args:
            rounds: Rounds after round 0, with those that the run has.

        The step raises:
            InvalidTransition: The run has not completed, stopped early, or its clients have dropped what they kept of it.
            InvalidConfig: It has as many rounds already, or its configuration does not allow so many.
        """
        return lambda run: self._extended(run, rounds)

    def _extended(self, run: Run, rounds: int) -> Run:
        if run.status is not RunStatus.COMPLETED:
            raise InvalidTransition(
                f"run {run.run_id} is {run.status}: only a completed run goes on to more rounds",
                run_id=run.run_id,
                status=run.status,
            )
        config = longer(document_of(run), run.total_rounds, rounds)
        if run.method in stateful() and run.run_id not in {run_id for run_id, _ in self._with_states()}:
            raise InvalidTransition(
                f"the clients of run {run.run_id} no longer have the models that {run.method} keeps with them: those stay "
                f"for {self._keep.unused_days:g} days and {MOST_STATES} runs; start a longer run anew",
                run_id=run.run_id,
                status=run.status,
            )
        if config.wire.is_encoded and run.method not in stateful():
            raise InvalidTransition(
                f"the clients of run {run.run_id} no longer have what rounding left out of their updates (wire.precision); "
                "start a longer run anew",
                run_id=run.run_id,
                status=run.status,
            )
        self._require_pool(run)
        return run_moves.extend(run, rounds=rounds, config_json=config.canonical_json, config_hash=config.hash)

    def _require_pool(self, run: Run) -> None:
        """Refuse a run whose next rounds need earlier prototypes that were collected."""
        for update in pooled_updates(run, self._store, run.round_number + 1, frozenset()):
            for blob in update.payload.prototype_sets:
                if self._store.find_blob(blob.sha256) is None:
                    raise InvalidTransition(
                        f"the earlier prototypes that run {run.run_id} reuses (method.proto_staleness or proto_window) were "
                        "collected: keep more with the aggregator's keep_updates; start a longer run anew",
                        run_id=run.run_id,
                        status=run.status,
                    )

    def _with_states(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        since = self._ledger.now() - self._keep.unused_days * DAY_S
        return self._store.completed_runs(methods=stateful(), since=since, limit=MOST_STATES)


def longer(document: Mapping[str, object], present: int, rounds: int) -> RunConfig:
    """Return a run's configuration with more rounds. Pure.

    Raises:
        InvalidConfig: They are no more, the configuration does not allow so many, its learning rate or its method's loss
            changed over its rounds, or its clients made releases with noise for them.
    """
    if rounds <= present:
        raise InvalidConfig(
            f"rounds = {rounds}: the run has {present} rounds already; give the whole number, with those",
            location="rounds",
        )
    values = json.loads(json.dumps(dict(document)))
    values["run"]["rounds"] = rounds
    config = parse_run_config(values)
    if config.training.schedule == "cosine" and config.training.schedule_rounds is None:
        raise InvalidConfig(
            f"the learning rate of this run fell over its {present} rounds, so with more rounds all of them would have been "
            "others; a run that may go on to more rounds sets training.schedule_rounds; start a longer run anew",
            location="training.schedule_rounds",
        )
    key = config.method.length_key
    if key is not None:
        raise InvalidConfig(
            f"the loss of {config.run.method} changed over this run's {present} rounds, so with more rounds all of them "
            f"would have been others; a run that may go on to more rounds sets method.{key}; start a longer run anew",
            location=f"method.{key}",
        )
    if config.release is not None:
        raise InvalidConfig(
            f"the noise of this run was for what its {present} rounds release (privacy.epsilon), and with more of them its "
            "releases would come to more than it says; start a longer run anew",
            location="privacy.clip",
        )
    return config
