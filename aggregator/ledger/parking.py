"""Parking of runs: an error in one run's own step pauses that run, with the cause, and touches no other.

The cause may be a number in an update or a report that an earlier version let in. The checks of this version find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fedplcc.aggregator.computation.report_checks import check_evaluation
from fedplcc.aggregator.computation.update_checks import check_entries
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.shared.errors import FedplccError, InvalidConfig, MalformedUpdate
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import NAMED_ABSENT, Parked
from fedplcc.shared.types import Round, Run, RunStatus

log = get_logger(__name__)


def without_raising(work: Callable[..., object], *arguments: object) -> None:
    """Do what only shows a change that is written already; an error in it is logged, and nobody's call fails for it."""
    try:
        work(*arguments)
    except Exception:
        log.exception("not_shown")


def check_numbers(current: Round) -> None:
    """Check the named numbers of a round's updates before they become results.

    Raises:
        MalformedUpdate: An update has a number that the checks refuse; the metadata name its client.
    """
    for client_id, error in _refused_updates(current):
        raise MalformedUpdate(f"update of client {client_id}: {error.detail}", client_id=client_id, **error.metadata)


def why_parked(run: Run, error: Exception) -> Parked:
    """Return the reason to park a run for an error; it names the clients whose update or report is the cause."""
    refused = refused_clients(run)
    if refused:
        detail = next(iter(refused.values()))
    elif isinstance(error, InvalidConfig):
        detail = f"this version cannot read the run's configuration: {error.detail}"
    elif isinstance(error, FedplccError):
        detail = error.detail
    else:
        detail = f"internal error ({type(error).__name__})"
    return Parked(
        round_number=run.round_number,
        detail=detail,
        clients=tuple(refused)[:NAMED_ABSENT],
        is_pending=run.status is RunStatus.PENDING,
    )


def refused_clients(run: Run) -> Mapping[str, str]:
    """Return the clients whose update or report of the latest round the checks refuse: the refusal of each, by client id."""
    current = run.current_round
    if current is None:
        return {}
    refused = {client_id: error.detail for client_id, error in _refused_updates(current)}
    try:
        config = config_of(run)
    except InvalidConfig:
        return refused
    for client_id, evaluation in current.evaluations.items():
        try:
            check_evaluation(evaluation, config)
        except MalformedUpdate as error:
            refused.setdefault(client_id, error.detail)
    return dict(sorted(refused.items()))


def _refused_updates(current: Round) -> Iterator[tuple[str, MalformedUpdate]]:
    for client_id in sorted(current.updates):
        try:
            check_entries(current.updates[client_id])
        except MalformedUpdate as error:
            yield client_id, error
