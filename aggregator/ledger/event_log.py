"""The event log: one line in the log for each event of the history, once it is stored.

The history keeps the whole event, and the gateway serves it; a line in the log has no cohort and no results of a round.
"""

from __future__ import annotations

import logging
from typing import Any

from fedplcc.shared.process.log import bound, get_logger
from fedplcc.shared.types import Event

SAID = ("reason", "detail", "hint", "check", "domain", "num_examples", "config_hash", "update_norm", "median_norm")
"""Fields of an event's data that its line copies unchanged."""
QUIET = frozenset(
    (
        "client_asked",
        "evaluation_reported",
        "round_aggregating",
        "round_collecting",
        "round_evaluating",
        "round_opened",
        "update_committed",
    )
)
"""Events at level debug: several in every round, and the line about the committed round follows."""
WARNINGS = frozenset(
    (
        "client_data_changed",
        "client_dropped",
        "client_lost",
        "client_problem",
        "client_quarantined",
        "environment_changed",
        "environments_differ",
        "quorum_missing",
        "report_refused",
        "update_damaged",
        "update_far",
        "update_refused",
    )
)
ERRORS = frozenset(("aggregation_failed", "run_failed", "run_parked"))
SAID_ELSEWHERE = frozenset(("run_recovered",))
"""Events whose line the ledger writes, with more fields than the event has."""

NAME = __name__
"""Name of the logger."""

log = get_logger(NAME)
_lines = logging.getLogger(NAME)


def log_event(event: Event) -> None:
    """Write the line about an event."""
    level = _level(event.type)
    if event.type in SAID_ELSEWHERE or not _lines.isEnabledFor(level):
        return
    fields: dict[str, Any] = {name: event.data[name] for name in SAID if event.data.get(name) not in (None, "")}
    if "cohort" in event.data:
        fields["num_clients"] = len(event.data["cohort"])
    fields |= _of_round(event.data.get("metrics") or {})
    if event.run_id:
        fields["run_id"] = event.run_id
    if event.round >= 0:
        fields["round"] = event.round
    if event.client_id:
        fields["client_id"] = event.client_id
    elif "client_id" in bound():
        fields["client_id"] = None  # the line about the call names the client that made it
    log.log(level, event.type, **fields)


def _level(name: str) -> int:
    if name in ERRORS:
        return logging.ERROR
    if name in WARNINGS:
        return logging.WARNING
    return logging.DEBUG if name in QUIET else logging.INFO


def _of_round(metrics: dict[str, Any]) -> dict[str, Any]:
    if not metrics:
        return {}
    accuracy = metrics["accuracy"] or {}  # a round that was not evaluated has none
    return {
        "mean_accuracy": accuracy.get("mean"),
        "worst_accuracy": accuracy.get("worst"),
        "num_examples": metrics["num_examples"],
        "num_clients": len(metrics["cohort"]),
        "num_dropped": len(metrics.get("dropped", ())),
        "num_prototypes": metrics["prototypes"]["global"],
    }
