"""One client's share of a round: nearly all samples, by which updates weigh, or nearly all predictions. Pure.

Such a round counts: one site may well have nearly all data. But a client says itself how many it has, and nobody else can
count them; so the run's warnings name it, for a person to ask its site.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.types import Round

LARGE = 0.9
"""Share beyond which one client decides nearly alone."""
FEWEST = 3
"""Fewest clients of which one can be named: of two, one mostly has more by far."""


def large_share(counts: Mapping[str, int]) -> tuple[str, float] | None:
    """Return the client that has more than `LARGE` of everything, and its share; None where no client has."""
    total = sum(counts.values())
    if len(counts) < FEWEST or not total:
        return None
    name = max(counts, key=lambda each: counts[each])
    return (name, counts[name] / total) if counts[name] > LARGE * total else None


def warning_of(last: Round) -> RunWarning | None:
    """Return the warning about the shares of a committed round; None where no client's is large."""
    samples = {name: update.num_examples for name, update in last.updates.items()}
    predictions = {name: sum(sum(each.total) for each in report.counts) for name, report in last.evaluations.items()}
    found = {what: large_share(of) for what, of in (("samples", samples), ("predictions", predictions))}
    named = [f"{each[1]:.1%} of all {what} are {each[0]}'s" for what, each in found.items() if each is not None]
    if not named:
        return None
    return RunWarning(
        RunWarningKind.SHARE_LARGE,
        last.number,
        f"{' and '.join(named)} in round {last.number}, as it says itself: ask its site, quarantine it if that is wrong, or "
        "set admission.max_num_examples in a new run",
        ("admission.max_num_examples",),
    )
