"""Data sets whose domains are left out, one after another: which clients evaluate only, and one result of all the cells.

A cell leaves one domain out: its clients report on their test images and never train. What the tables show of a row and a
seed is made of its cells, one for each domain: a domain's accuracy is that of the cell without it. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedplcc.comparison.round_values import VALIDATED_MODELS, RoundValues
from fedplcc.runs.configuration import domain_of, local_clients
from fedplcc.shared.config.run import FederationFile
from fedplcc.shared.errors import InvalidConfig

Values = Mapping[str, Mapping[str, float | None]]


def domains_of(federation: FederationFile) -> list[str]:
    """Return the domains that can be left out, sorted.

    Raises:
        InvalidConfig: There is no domain to train on without another.
    """
    found = sorted({domain_of(name, client) for name, client in local_clients(federation).items()})
    if len(found) < 2:
        raise InvalidConfig(f'leave_out = "each" needs clients of two domains at least, and all are of {found[0]!r}')
    return found


def without(federation: FederationFile, domain: str) -> FederationFile:
    """Return a cell's configuration in which the clients of a domain evaluate only.

    Raises:
        InvalidConfig: Too few clients are left to train.
    """
    clients = {
        name: client.model_copy(update={"evaluate_only": True}) if domain_of(name, client) == domain else client
        for name, client in federation.clients.items()
    }
    changed = federation.model_copy(update={"clients": clients})
    local_clients(changed)
    return changed


def joined(by_domain: Mapping[str, Sequence[RoundValues]]) -> list[RoundValues]:
    """Return one row of rounds of the cells of a row and a seed.

    Values of test images are those of the cell that left their domain out. Those of validation images are means over the
    cells that trained on the domain, as computed values are means over all cells, and measured ones sums. A run that
    stopped early stands with its last round.

    Args:
        by_domain: Each cell's rounds, at least one, by the domain that it left out.
    """
    last = max(rounds[-1].number for rounds in by_domain.values())
    return [
        _joined(number, {domain: _at(rounds, number) for domain, rounds in by_domain.items()})
        for number in range(1, last + 1)
    ]


def _at(rounds: Sequence[RoundValues], number: int) -> RoundValues:
    return next((current for current in rounds if current.number == number), rounds[-1])


def _joined(number: int, cells: Mapping[str, RoundValues]) -> RoundValues:
    scored = _values(cells, lambda current: current.scored)
    is_scored = {model for model in scored if all(model in current.scored for current in cells.values())}
    return RoundValues(
        number=number,
        accuracy=_values(cells, lambda current: current.accuracy),
        scored={model: values for model, values in scored.items() if model in is_scored},
        counts={key: value for key, value in _of_left_out(cells, "counts").items() if key[1] not in VALIDATED_MODELS},
        classes=_of_left_out(cells, "classes"),
        confusion=_of_left_out(cells, "confusion"),
        pass_number=next(iter(cells.values())).pass_number,
        computed=_by_name(cells, "computed", statistics.fmean),
        measured=_by_name(cells, "measured", sum),
    )


def _values(
    cells: Mapping[str, RoundValues], of: Callable[[RoundValues], Values]
) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for model in dict.fromkeys(model for current in cells.values() for model in of(current)):
        values = found[model] = {}
        for domain, current in cells.items():
            if model in VALIDATED_MODELS:
                known = [value for each in cells.values() if (value := of(each).get(model, {}).get(domain)) is not None]
                values[domain] = statistics.fmean(known) if known else None
            else:
                values[domain] = of(current).get(model, {}).get(domain)
    return found


def _of_left_out(cells: Mapping[str, RoundValues], name: str) -> dict[tuple[str, str], Any]:
    """Return what is known of predictions by domain and model, of each domain from the cell without it."""
    return {
        key: value for domain, each in cells.items() for key, value in getattr(each, name).items() if key[0] == domain
    }


def _by_name(cells: Mapping[str, RoundValues], name: str, combined: Callable[[list[float]], float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for current in cells.values():
        for key, value in getattr(current, name).items():
            found.setdefault(key, []).append(value)
    return {key: combined(values) for key, values in found.items() if len(values) == len(cells)}
