"""Enums of shared/types and their numbers on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from fedplcc.shared.convert.reading.fields import malformed
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, types_pb2
from fedplcc.shared.run_lists import RunOrder, RunShow
from fedplcc.shared.types import ClientActivity, LogLevel, RoundPhase, RunStatus, TaskKind

Value = TypeVar("Value", bound=StrEnum)


class _Numbers(Generic[Value]):
    """Mapping between an enum's members and their numbers; `RUNNING` is `RUN_STATUS_RUNNING` on the wire."""

    def __init__(self, kind: type[Value], wire: Any, prefix: str) -> None:
        self._number = {member: wire.Value(f"{prefix}_{member.name}") for member in kind}
        self._member = {number: member for member, number in self._number.items()}

    def number(self, member: Value | None) -> Any:
        return 0 if member is None else self._number[member]

    def member(self, number: int, field: str) -> Value:
        member = self._member.get(number)
        if member is None:
            raise malformed(field, f"{number} is no value of it")
        return member


STATUS = _Numbers(RunStatus, types_pb2.RunStatus, "RUN_STATUS")
PHASE = _Numbers(RoundPhase, types_pb2.RoundPhase, "ROUND_PHASE")
TASK = _Numbers(TaskKind, types_pb2.TaskKind, "TASK_KIND")
ACTIVITY = _Numbers(ClientActivity, types_pb2.ClientActivity, "CLIENT_ACTIVITY")
LOG_LEVEL = _Numbers(LogLevel, types_pb2.LogLevel, "LOG_LEVEL")
ORDER = _Numbers(RunOrder, run_service_pb2.RunOrder, "RUN_ORDER")
SHOW = _Numbers(RunShow, run_service_pb2.RunShow, "RUN_SHOW")
