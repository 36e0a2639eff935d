"""The examination of a machine before a deployment: a list of independent checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedplcc.doctor import database, machine, network, python, state_folder
from fedplcc.doctor.findings import Check, Finding, Subject, problem

CHECKS: Sequence[Check] = (
    python.python_version,
    python.packages,
    python.torch_and_device,
    python.determinism,
    machine.processor,
    machine.memory,
    machine.open_files,
    machine.clock,
    machine.ports,
    state_folder.folder,
    state_folder.aggregator_state,
    database.server,
    network.aggregator,
    network.gateway,
)


def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Yield every check's findings at once. A check that fails is a finding itself and stops no other."""
    for check in checks:
        try:
            yield from check(subject)
        except Exception as error:  # machines differ: any exception of a check is reported
            name = getattr(check, "__name__", "check").replace("_", " ")
            yield problem(name, f"the check itself failed ({type(error).__name__}: {error}); please report it")
