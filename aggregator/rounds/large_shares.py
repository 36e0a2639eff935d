"""One client's share of a round: nearly all samples, by which updates weigh, or nearly all predictions. Pure.

Such a round counts: one site may well have nearly all data. But a client says itself how many it has, and nobody else can
count them; so the run's warnings name it, for a person to ask its site.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.types import Round

LARGE = 0.9
"""Share beyond which one client decides nearly alone."""
MAX_SHOWN = 5
"""Most capped shares that a warning names."""
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


def capped_warning(last: Round, config: RunConfig) -> RunWarning | None:
    """Return the warning about clients of a committed round whose weight the configuration limits; None without any."""
    most, method = config.aggregation.max_weight_share, config.algorithm
    if most is None or len(last.updates) < 2:
        return None
    said = {}
    if method.shares_model(config.method) and config.method.averaging == "weighted":
        said["all samples"] = {name: update.num_examples for name, update in last.updates.items()}
    if method.has_prototypes:
        for place, label in enumerate(config.data.classes):
            said[f"class {label}"] = {name: update.class_counts[place] for name, update in last.updates.items()}
    capped = [
        (count / sum(counts.values()), name, what)
        for what, counts in said.items()
        for name, count in counts.items()
        if count > most * sum(counts.values())
    ]
    if not capped:
        return None
    shown = sorted(capped, key=lambda each: (-each[0], *each[1:]))[:MAX_SHOWN]
    named = ", ".join(f"{name} says that it has {share:.1%} of {what}" for share, name, what in shown)
    more = "" if len(capped) <= MAX_SHOWN else f", and {len(capped) - MAX_SHOWN} more"
    return RunWarning(
        RunWarningKind.SHARE_CAPPED,
        last.number,
        f"{named}{more} in round {last.number}: what is beyond aggregation.max_weight_share = {most:g} does not count",
        ("aggregation.max_weight_share",),
    )
