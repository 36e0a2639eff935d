"""Sentences for the events of a run's history that matter to a person beside its rounds. Pure."""

from __future__ import annotations

from fedplcc.shared.documents import Event
from fedplcc.shared.types import RoundPhase
from fedplcc.terminal.printable import printable

PHASES = {phase.value: phase.value for phase in RoundPhase} | {
    RoundPhase.INITIALISING.value: "first model",
    RoundPhase.COLLECTING.value: "training",
}
"""Names of the phases for people."""
SENTENCES = {
    "run_recovered": "the run goes on after an interruption",
    "run_resumed": "the run goes on",
    "pause_requested": "the run pauses when the open round has committed",
    "pause_withdrawn": "the run does not pause",
    "run_stopping": "the run is being stopped",
    "environments_differ": "the clients compute on different machine types: the same run elsewhere may give other last bits",
}
"""Events whose sentence is always the same."""


def sentence_of(event: Event) -> str | None:
    """The sentence for an event, on one line; None if it has none."""
    text = SENTENCES.get(event.type) or _with_data(event)
    return None if text is None else printable(text)


def _with_data(event: Event) -> str | None:
    name, data = event.client_id, event.data
    match event.type:
        case "update_refused":
            return f"client {name}: an update was refused: {data.get('detail')}"
        case "report_refused":
            return f"client {name}: a report was refused: {data.get('detail')}"
        case "run_paused":
            return f"the run is paused: {data['reason']}" if data.get("reason") else "the run is paused"
        case "update_damaged":
            return f"client {name}: its stored update is damaged; it is asked to send it again"
        case "update_far":
            return f"client {name}: its update counts, and is far from those of the others"
        case "first_model_uncompared":
            return f"nobody can compare the first model with another: {data.get('detail')}"
        case "client_problem":
            return f"client {name}: " + "; ".join(filter(None, (data.get("detail"), data.get("hint"))))
        case "client_quarantined":
            return f"client {name} is quarantined: {data.get('reason')}"
        case "client_released":
            return f"client {name} takes part again"
        case "client_admitted":
            return f"client {name} is admitted; it may take part from the next round on"
        case "client_retired":
            forgotten = "; what it sent before leaves later pools" if data.get("forgets") else ""
            return f"client {name} is retired{forgotten}"
        case "client_without_data":
            return f"client {name} has no image of stage {data.get('stage')}, and is in none of its rounds"
        case "stage_ended":
            return f"stage {data.get('stage')} ends; round {data.get('first_round')} begins the next one"
        case "client_dropped":
            return f"round {event.round} goes on without client {name}, {data.get('reason')}: {data.get('detail')}"
        case "client_returned":
            return f"round {event.round} waits for client {name} again"
        case "update_removed":
            return f"round {event.round} goes on without the update of client {name}"
        case "report_removed":
            return f"round {event.round} goes on without the report of client {name}"
        case "run_extended":
            return f"the run goes on to {data.get('rounds')} rounds"
        case "run_parked":
            return f"the run is {data.get('reason')}"
        case "aggregation_failed":
            return str(data.get("detail"))
        case "quorum_missing":
            # Of clients whose owners have not approved the run, the reason is a sentence by itself.
            return f"the run {data.get('reason')}" if data.get("clients") else f"waiting: {data.get('reason')}"
        case "client_data_changed":
            return f"client {name} says that it has {data.get('num_examples')} samples now, {data.get('before')} before"
        case "environment_changed":
            return f"client {name} computes on another machine type now; last bits may differ from here on"
    return None
