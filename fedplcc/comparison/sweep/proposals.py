"""Proposals of a study's next points by Optuna, a function of seed, number and finished trials.

A study in memory is made anew for each proposal, from the finished trials, and its sampler's seed follows from the number.
Nothing has to be kept but the points and their accuracies: a study that was killed goes on as one that was not.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import ModuleType
from typing import Any

from fedplcc.comparison.sweep.records import Trial
from fedplcc.comparison.sweep.section import Axis, SweepSection
from fedplcc.shared.errors import InvalidConfig

SIGNIFICANT_DIGITS = 6
"""Of a proposed number: enough, and it can be read and named."""
SEED_BYTES = 4


def load() -> ModuleType:
    """Return Optuna.

    Raises:
        InvalidConfig: It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise InvalidConfig(
            "sweep.trials: a study needs Optuna; install it with pip install 'fedplcc[sweep]', or try a list of values with "
            "sweep.grid"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def propose(sweep: SweepSection, key: tuple[str, str], number: int, finished: Sequence[Trial]) -> dict[str, Any]:
    """Return the point of a study's trial.

    Args:
        key: Data set and row.
        number: The trial's number, from 0.

    Raises:
        InvalidConfig: Optuna is not installed.
    """
    optuna = load()
    space = sweep.space(key[1])
    axes = {name: _distribution(optuna, axis) for name, axis in space.items()}
    seed = int.from_bytes(sha256(f"{sweep.seed}/{'/'.join(key)}/{number}".encode()).digest()[:SEED_BYTES], "big")
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lists of unlike values are fine for a study that nobody keeps
        study = optuna.create_study(direction="maximize", sampler=samplers[sweep.sampler](seed=seed))
        for trial in finished:
            if trial.accuracy is not None:
                study.add_trial(
                    optuna.trial.create_trial(params=dict(trial.point), distributions=axes, value=trial.accuracy)
                )
        asked: Mapping[str, Any] = study.ask(axes).params
    return {name: _rounded(asked[name], axis) for name, axis in space.items()}


def _distribution(optuna: ModuleType, axis: Axis) -> Any:
    if isinstance(axis, tuple):
        return optuna.distributions.CategoricalDistribution(axis)
    if axis.is_whole:
        return optuna.distributions.IntDistribution(axis.low, axis.high, log=axis.log, step=axis.step or 1)
    return optuna.distributions.FloatDistribution(
        float(axis.low), float(axis.high), log=axis.log, step=None if axis.step is None else float(axis.step)
    )


def _rounded(value: Any, axis: Axis) -> Any:
    """Return a proposed number with few digits, within its range."""
    if isinstance(axis, tuple) or axis.is_whole:
        return value
    return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), float(axis.low)), float(axis.high))
