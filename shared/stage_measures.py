"""Measures of runs with stages: what is known of earlier stages after later ones. Pure.

R[s][j] is the accuracy after the last round of stage s on the test images of stage j, for j <= s, as a fraction. Entries may
be None where nothing was evaluated; a measure that needs such an entry is None.

Average accuracy, forgetting and backward transfer as in Chaudhry et al., ECCV 2018, and Lopez-Paz and Ranzato, NeurIPS 2017.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = Sequence[float | None]
"""A row of R: accuracy on stage 1, 2 and so on, up to the present one."""


def average_accuracy(rows: Sequence[Row]) -> float | None:
    """Return A, the mean over j of R[S][j]."""
    return _mean(rows[-1])


def forgetting(rows: Sequence[Row]) -> float | None:
    """Return F, the mean over j < S of max over j <= s < S of R[s][j] minus R[S][j]; None after the first stage.

    Smaller is better; it is negative where accuracy on earlier stages grew.
    """
    last, lost = rows[-1], list[float | None]()
    for stage in range(len(rows) - 1):
        before, now = [row[stage] for row in rows[stage:-1]], last[stage]
        known = [value for value in before if value is not None]
        lost.append(max(known) - now if now is not None and len(known) == len(before) else None)
    return _mean(lost)


def backward_transfer(rows: Sequence[Row]) -> float | None:
    """Return BWT, the mean over j < S of R[S][j] minus R[j][j]; None after the first stage."""
    pairs = [(rows[-1][stage], rows[stage][stage]) for stage in range(len(rows) - 1)]
    return _mean(None if now is None or then is None else now - then for now, then in pairs)


def rarest_classes(counts: Sequence[int]) -> list[int]:
    """Return the half of the classes with the fewest samples, rounded down; of equal ones the later come first."""
    order = sorted(range(len(counts)), key=lambda label: (counts[label], -label))
    return sorted(order[: len(counts) // 2])


def _mean(values: Iterable[float | None]) -> float | None:
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) / len(known) if known and len(known) == len(listed) else None
