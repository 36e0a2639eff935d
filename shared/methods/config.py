"""Hyper-parameters that every method has, and the weight of a client in the fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""Factor of a term of the loss. Zero leaves the term out."""
Temperature = Annotated[float, Field(ge=1e-3, le=100)]
"""Divisor of similarities before their exponentials are taken."""


class MethodConfig(BaseModel):
    """Hyper-parameters of every method. Subclasses add their own, with the paper's values as defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    averaging: Literal["weighted", "equal", "domain"] = "weighted"
    """Weight of a client in the fold: its number of samples (weighted), 1 (equal), or its share of the samples of its
    domain, so that every domain weighs 1 (domain)."""
    global_average: Literal["none", "ema"] = "none"
    """Result of a round: what the round's updates came to (none), or an exponential average of that over the rounds
    (ema; Caldarola et al., ECCV 2022, average the models of rounds likewise). Training goes on from the newest one."""
    average_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the average so far in the next one, where `global_average` is "ema"; 0 is "none"."""

    @property
    def length_key(self) -> str | None:
        """The hyper-parameter that says over how many rounds something is stretched, while it is not set.

        All rounds count then, and such a run cannot go on to more. None where there is none.
        """
        return None

    @property
    def fewest_rounds(self) -> int:
        """Least number of rounds after which the method has done what it is asked to."""
        return 1


def fold_weights(
    num_examples: Sequence[int], config: MethodConfig, domains: Sequence[str] | None = None
) -> list[float]:
    """Return the weight of each client in the fold.

    Whole numbers, whose float64 products with float32 are exact, except where domains weigh alike. There each weight is one
    rounded quotient of whole numbers, and the same on any machine.

    Args:
        num_examples: Training samples of each client.
        config: Says what weighs.
        domains: The domain of each client; all are of one domain if None.
    """
    if config.averaging == "equal":
        return [1.0] * len(num_examples)
    if config.averaging == "weighted":
        return [float(count) for count in num_examples]
    of = [""] * len(num_examples) if domains is None else domains
    totals: Counter[str] = Counter()
    for domain, count in zip(of, num_examples, strict=True):
        totals[domain] += count
    return [count / totals[domain] for domain, count in zip(of, num_examples, strict=True)]
