"""Settings for the contract of methods: every method as it is, and settings that lead it through other code.

A method is here because it is in `METHODS`. A setting that matters gets a row in `OTHER_SETTINGS`, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.methods import METHODS
from shared.methods.base import Method, MethodConfig

OTHER_SETTINGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("fedavg", {"averaging": "equal"}),
    ("fedprox", {"mu": 1.0}),
    ("moon", {"mu": 5.0, "tau": 0.1}),
    ("fedntd", {"beta": 0.3, "tau": 3.0}),
    ("fedproto", {"share_model": False}),
    ("fedproto", {"proto_avg": "counts", "proto_staleness": 3}),
    ("fpl", {"upcr_reduction": "sum", "partition": "first"}),
    ("fpl", {"proto_pass": "last_epoch"}),
    ("fedplvm", {"corr": "all_protos"}),
    ("fedplvm", {"partition": "first", "min_cluster_size": 3}),
    ("fedplcc", {"ramp_rounds": 20}),
    ("fedplcc", {"merge_mean": "weighted"}),
    ("fedplcc", {"unit_weights": True, "topk_rank": "similarity"}),
    ("fedplcc", {"partition": "index:1", "min_cluster_size": 2, "phi": 1.0, "alpha": 1.0}),
    ("fedplcc", {"lambda1": 0.0}),
    ("fedplcc", {"lambda2": 0.0}),
    ("fedccl", {"max_pool_per_class": 1}),
    ("fedccl", {"lambda1": 0.0}),
    ("fedccl", {"lambda2": 0.0}),
)
"""Methods by name, each with hyper-parameters that lead it through other code than its defaults do."""

OF_THE_ROUND = frozenset({"share_model", "proto_pass"})
"""Hyper-parameters under which not the loss is another, but what travels, or when."""


@dataclass(frozen=True)
class Setting:
    """A method with some of its hyper-parameters set."""

    method: Method
    hyper: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it stands in a test's name: the method, then what differs from its defaults."""
        return " ".join([self.method.name, *(f"{key}={value}" for key, value in self.hyper.items())])

    @property
    def goes_another_way(self) -> bool:
        """Whether a round of it goes another way than the method's own does."""
        return bool(OF_THE_ROUND & self.hyper.keys())

    @property
    def config(self) -> MethodConfig:
        """Its hyper-parameters."""
        return self.method.config.model_validate(self.hyper)

    @property
    def neutral(self) -> MethodConfig:
        """Its hyper-parameters with those that make the method FedAvg."""
        assert self.method.neutral is not None
        return self.method.config.model_validate({**self.hyper, **self.method.neutral})


SETTINGS: tuple[Setting, ...] = (
    *(Setting(method) for method in METHODS.values()),
    *(Setting(METHODS[name], hyper) for name, hyper in OTHER_SETTINGS),
)
"""Every method with its defaults, then the others."""


def of_settings(claim: Callable[[Setting], bool] = lambda setting: True) -> pytest.MarkDecorator:
    """Try a test with every setting of which the claim holds."""
    found = [setting for setting in SETTINGS if claim(setting)]
    return pytest.mark.parametrize("setting", found, ids=[setting.name for setting in found])


def of_methods(claim: Callable[[Method], bool] = lambda method: True) -> pytest.MarkDecorator:
    """Try a test with every method of which the claim holds."""
    found = [method for method in METHODS.values() if claim(method)]
    return pytest.mark.parametrize("method", found, ids=[method.name for method in found])
