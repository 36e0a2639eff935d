"""The best round of a run by its score on validation images, and the end of a run that gets no better. Pure.

The best round is told by events of the run's history, `best_round`, each of which replaces the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedplcc.shared.reasons import StoppedEarly
from fedplcc.shared.scoring.scores import ACCURACY, BALANCED, Score, is_better
from fedplcc.shared.types import Event, Round, RoundPhase

BEST_ROUND = "best_round"
"""Type of the event that says that a round is the best one so far."""


@dataclass(frozen=True, slots=True)
class Best:
    """The committed round with the highest mean score on validation images, the first one of several; a fraction.

    The score is that of the first round that was validated: values of two scores are never compared. Rounds are compared by
    the domains that both have, as clients may have been away.
    """

    round: int
    accuracy: float
    score: Score = ACCURACY
    by_domain: Mapping[str, float | None] = field(default_factory=dict, compare=False)
    """What the score is the mean of; empty where that is not known."""


def best_of(events: Iterable[Event]) -> Best | None:
    """Return what the first of these events says, which is the newest; None without any."""
    event = next(iter(events), None)
    return (
        None if event is None else Best(event.round, float(event.data["accuracy"]), event.data.get("score", ACCURACY))
    )


def best_after(known: Best | None, current: Round | None) -> Best | None:
    """Return the best round after a round that may have committed."""
    judged = judged_round(current, known)
    return known if judged is None else better(known, judged)


def judged_round(current: Round | None, known: Best | None = None) -> Best | None:
    """Return a run's latest round as the best one of itself; None if it has not committed, or was not validated."""
    if current is None or current.phase is not RoundPhase.COMMITTED or not current.results_json:
        return None
    return judged_line(json.loads(current.results_json), known)


def judged_line(line: Mapping[str, Any], known: Best | None = None) -> Best | None:
    """Return the round of a line of metrics.jsonl as the best one of itself; None if it was not validated.

    Args:
        known: The best round before it, whose score it is judged by; None for the line's own score.
    """
    found: dict[Score, Mapping[str, float | None]] = {
        score: line.get(f"{score}_validation") or {} for score in (ACCURACY, BALANCED)
    }
    own = ACCURACY if found[BALANCED].get("mean") is None else BALANCED
    score = own if known is None else known.score
    value = found[score].get("mean")
    return None if value is None else Best(line["round"], value, score, found[score])


def best_of_lines(lines: Iterable[Mapping[str, Any]]) -> Best | None:
    """Return the best round of lines of metrics.jsonl, in order; None where none was validated."""
    best: Best | None = None
    for line in lines:
        judged = judged_line(line, best)
        best = best if judged is None else better(best, judged)
    return best


def better(known: Best | None, other: Best) -> Best:
    """Return the better one of two rounds, the first one where they are equal."""
    return other if known is None or is_better(other.by_domain, known.by_domain) else known


def early_stop(best: Best | None, last: Best | None, patience: int | None) -> StoppedEarly | None:
    """Return why a run ends after its last committed round; None if it goes on, as after a round that was not validated.

    Args:
        best: Its best round; None where no round was validated.
        last: Its last committed round; None if that was not validated.
        patience: Rounds without a better one after which it ends; None to go on in any case.
    """
    if patience is None or best is None or last is None or last.round - best.round < patience:
        return None
    return StoppedEarly(best_round=best.round, patience=patience)


def event_of(best: Best, run_id: str, time: float) -> Event:
    """Return the event for a new best round."""
    data = {"accuracy": best.accuracy, **({} if best.score == ACCURACY else {"score": best.score})}
    return Event(type="best_round", run_id=run_id, round=best.round, data=data, time=time)
