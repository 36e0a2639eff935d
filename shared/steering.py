"""The ways to steer a run: what is asked for, the same in service, servicer, gateway and audit. Pure.

A new one is a record here with a message of its name in run_service.proto, and its step in
aggregator/coordinator/steering.py; then a route, and a command. The audit has a record's name as the method. To label or
delete a run is none: it changes no training, and has a limit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class PauseRun:
    """Pause a run when its open round commits. Pausing a paused run changes nothing."""

    now: bool = False
    """Whether the open round is interrupted at once; it goes on from the same model with the same cohort on resume."""


@dataclass(frozen=True, slots=True)
class ResumeRun:
    """Resume a run. Resuming a running one withdraws a requested pause."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Stop a run. Stopping one that has ended changes nothing."""

    reason: str = ""
    """Why, for the history."""


@dataclass(frozen=True, slots=True)
class ExtendRun:
    """Let a completed run go on to more rounds; from there on it is the run that was longer from the start."""

    rounds: int
    """Rounds after round 0, with those that it has."""


@dataclass(frozen=True, slots=True)
class QuarantineClient:
    """Exclude a client from a run until it is released. Quarantining it again changes nothing."""

    client_id: str
    reason: str = ""
    """Why, for the history and for the client."""


@dataclass(frozen=True, slots=True)
class ReleaseClient:
    """Let a quarantined client take part again. Releasing one that is not quarantined changes nothing."""

    client_id: str


@dataclass(frozen=True, slots=True)
class AdmitClient:
    """Admit a client to a run from the next round on. Admitting one that takes part changes nothing."""

    client_id: str


@dataclass(frozen=True, slots=True)
class RetireClient:
    """Retire a client from a run: its part in the open round ends, and no later one has it."""

    client_id: str
    forgets: bool = False
    """Whether later pools of prototypes are without what it sent, and its trainer, which is made to join again, deletes what
    it keeps of the run at once."""


@dataclass(frozen=True, slots=True)
class AdvanceStage:
    """End the present stage of a run: its next round begins the next one."""


Verb: TypeAlias = (
    PauseRun
    | ResumeRun
    | StopRun
    | ExtendRun
    | QuarantineClient
    | ReleaseClient
    | AdmitClient
    | RetireClient
    | AdvanceStage
)
"""A way to steer a run."""

VERBS: Mapping[str, type[Verb]] = MappingProxyType(
    {
        "pause": PauseRun,
        "resume": ResumeRun,
        "stop": StopRun,
        "extend": ExtendRun,
        "quarantine": QuarantineClient,
        "release": ReleaseClient,
        "admit": AdmitClient,
        "retire": RetireClient,
        "advance": AdvanceStage,
    }
)
"""Every verb by its word: the field of SteerRunRequest, and what a request id stands for."""
WORDS: Mapping[type[Verb], str] = MappingProxyType({kind: word for word, kind in VERBS.items()})
"""The word of every verb."""
