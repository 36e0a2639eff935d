"""Updates much further from the round's global model than those of the others. Pure.

Such an update counts, as no limit of the run refuses it; the history and the run's warnings name its sender.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.types import MODEL, Event, Round, RoundPhase, Run

PROTOTYPES, LOSSES = "prototypes", "losses"
UPDATE_FAR = "update_far"
"""Event of such an update: once for a member and round."""
FAR = 10.0
"""Times the median norm of a round beyond which an update is named."""
FAR_LOSS = 1000.0
"""The same of losses, which a hard domain may have many times those of others."""
MAX_NAMED = 16
"""Most updates of a round that are named, the furthest."""
MAX_SHOWN = 10
"""Most members that a warning names."""


@dataclass(frozen=True, slots=True)
class FarUpdate:
    """An accepted update much further from the global model than the others of its round."""

    client_id: str
    round: int
    norm: float
    median: float
    of: str = MODEL
    """Its part that is far: the model from the round's global model, a prototype, a group of arrays or its losses from 0."""

    @property
    def sentence(self) -> str:
        """What people read about it."""
        part = "" if self.of == MODEL else f"{self.of}: "
        return f"{self.client_id} in round {self.round} ({part}{self.norm:.3g}, the median was {self.median:.3g})"

    def event(self, run_id: str, now: float) -> Event:
        """Return the event of a far part that is no model."""
        data = {"update_norm": self.norm, "median_norm": self.median, "of": self.of}
        return Event(type=UPDATE_FAR, run_id=run_id, round=self.round, client_id=self.client_id, data=data, time=now)


def far_updates(current: Round, *, counts_passes: bool = False) -> list[FarUpdate]:
    """Return a round's updates whose norm is more than `FAR` times the median, the furthest first.

    Args:
        counts_passes: Whether clients train in passes over their samples: who has more makes more steps, and one whose norm
            is not as far by the sample is not named.
    """
    norms = {client_id: update.norm for client_id, update in current.updates.items() if update.norm is not None}
    found = far_among(norms, current.number)
    if not counts_passes:
        return found
    by_sample = {client_id: norm / current.updates[client_id].num_examples for client_id, norm in norms.items()}
    also = {each.client_id for each in far_among(by_sample, current.number)}
    return [each for each in found if each.client_id in also]


def far_among(norms: Mapping[str, float], number: int, of: str = MODEL) -> list[FarUpdate]:
    """Return the clients of a round whose norm is more than `FAR` times the median, the furthest first.

    Where half of the clients do not move at all there is no size to compare with, nor in a round of two.
    """
    median = statistics.median(norms.values()) if norms else 0.0
    if median <= 0:
        return []
    far = [FarUpdate(name, number, norm, median, of) for name, norm in norms.items() if norm > FAR * median]
    return sorted(far, key=lambda each: (-each.norm, each.client_id))[:MAX_NAMED]


def relative_sizes(norms: Mapping[str, Sequence[float]], num_examples: Mapping[str, int]) -> dict[str, float]:
    """Return how large one array of each client is, in units of the median: by the measure by which it is least so.

    Sums grow with a client's samples, means do not; the norm of all rows grows where few classes have all samples, and the
    sum of their norms with the number of classes. What is far by each count is none of these. Nothing where a median is 0.
    """
    found = dict.fromkeys(norms, math.inf)
    for measured in zip(*norms.values(), strict=True):
        for per in (dict.fromkeys(norms, 1), num_examples):
            sizes = {name: size / max(1, per[name]) for name, size in zip(norms, measured, strict=True)}
            median = statistics.median(sizes.values())
            if median <= 0:
                return {}
            found = {name: min(found[name], sizes[name] / median) for name in norms}
    return found


def newly_far(before: Run, after: Run) -> list[FarUpdate]:
    """Return the updates to name where a run's round closes its updates for the first time."""
    was, now = before.current_round, after.current_round
    if was is None or now is None or was.number != now.number or RoundPhase.AGGREGATING.value in was.phase_started_at:
        return []
    if (was.phase, now.phase) != (RoundPhase.COLLECTING, RoundPhase.AGGREGATING):
        return []
    counts_passes = document_of(after).get("training", {}).get("local_epochs") is not None
    return far_updates(now, counts_passes=counts_passes) + far_losses(now)


def far_losses(current: Round) -> list[FarUpdate]:
    """Return a round's updates whose losses are more than `FAR_LOSS` times the median: the shown mean is theirs alone."""
    sizes = {client_id: max(map(abs, each.losses.values()), default=0.0) for client_id, each in current.updates.items()}
    return [each for each in far_among(sizes, current.number, LOSSES) if each.norm > FAR_LOSS * each.median]


def far_in(events: Sequence[Event]) -> list[FarUpdate]:
    """Return the updates that the history names."""
    return [
        FarUpdate(
            each.client_id,
            each.round,
            float(each.data["update_norm"]),
            float(each.data["median_norm"]),
            str(each.data.get("of", MODEL)),
        )
        for each in events
        if each.type == UPDATE_FAR
    ]


def warning_of(far: Sequence[FarUpdate]) -> RunWarning | None:
    """Return the warning about a run's far updates, the newest of each member; None without any."""
    newest: Mapping[str, FarUpdate] = {each.client_id: each for each in sorted(far, key=lambda each: each.round)}
    if not newest:
        return None
    shown = sorted(newest.values(), key=lambda each: (-each.round, each.client_id))
    named = ", ".join(each.sentence for each in shown[:MAX_SHOWN])
    named_by = {MODEL: "admission.max_update_norm", PROTOTYPES: "admission.max_prototype_norm"}
    keys = tuple(key for part, key in named_by.items() if any(each.of == part for each in shown))[:1]
    limit = f", or set {keys[0]} in a new run" if keys else ""
    more = f" and {len(shown) - MAX_SHOWN} more clients" if len(shown) > MAX_SHOWN else ""
    return RunWarning(
        RunWarningKind.UPDATE_FAR,
        min(each.round for each in far),
        f"accepted updates are more than {FAR:g} times as far away as the median: {named}{more}; ask "
        f"their sites, quarantine a client that is wrong{limit}",
        keys,
    )
