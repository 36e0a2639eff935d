"""A method with some of its hyper-parameters set: what the contract is tried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.personal import Personal

OF_THE_ROUND = frozenset({"share_model", "proto_pass", "evaluate", "personal", "upload_head", "global_average"})
"""Hyper-parameters under which not the loss is another, but what travels, when, or what the server makes of it."""


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
    def personal_part(self) -> Personal:
        """The tensors that its clients keep for themselves."""
        return self.method.personal_part(self.config)

    @property
    def neutral(self) -> MethodConfig:
        """Its hyper-parameters with those that make the method FedAvg."""
        assert self.method.neutral is not None
        return self.method.config.model_validate({**self.hyper, **self.method.neutral})
