"""`fedplcc doctor`: an examination of this machine or of a state directory."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.shared_options import Way

EXAMPLES = examples(
    "fedplcc doctor /var/lib/fedplcc/aggregator",
    "fedplcc doctor --aggregator 10.0.0.5:50051 --insecure",
    "fedplcc doctor --serves 127.0.0.1:50051 --serves http://127.0.0.1:8080",
)
DEFAULT_PORTS = {50051: "--port", 8080: "--port", 9464: "--metrics-port"}
MARKS = {"ok": "ok", "warning": "WARN", "problem": "FAIL"}
STYLES = {"ok": "", "warning": "yellow", "problem": "bold red"}


@explains_errors
def doctor(
    *,
    state_dir: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STATE_DIR]",
            help="State directory of an aggregator, or of a trainer, to examine in place of the machine: every file's "
            "SHA-256, the history, each run.",
            file_okay=False,
        ),
    ] = None,
    state: Annotated[
        Path,
        typer.Option(
            "--state",
            "--state-dir",
            help="Folder of the state, there or not: what the disk can do is tried out in it, and an aggregator's state "
            "in it is looked at.",
            file_okay=False,
        ),
    ] = Path("fedplcc-state"),
    aggregator: Annotated[
        str | None, typer.Option(help="Also try to reach this aggregator.", metavar="HOST:PORT")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address at which services will listen; its ports are tried.")
    ] = "127.0.0.1",
    database_url: Annotated[
        str | None,
        typer.Option(help="Also look at this PostgreSQL database.", metavar="URL", envvar="FEDPLCC_DATABASE_URL"),
    ] = None,
    serves: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Only ask whether a service serves: HOST:PORT of an aggregator or of a trainer's health port, "
            "http://HOST:PORT of a gateway. Of several, one that serves is enough; the exit code is 1 if none does, 3 if "
            "nobody answers.",
        ),
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(help="With --serves: identity.pem of a member, for gRPC over TLS; plain text if not given."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Only try the contract of methods on this one of another package, which is imported: package.module with "
            "the record METHOD, or an entry point of the group fedplcc.methods.",
        ),
    ] = None,
    way: Way,
    as_json: bool,
) -> int:
    """Examine this machine: Python, packages, GPU, processor, disk, database, ports, clock, and the way to other hosts.

    Each line is a finding and, unless it is fine, what to do. The exit code is 1 if there is a problem.

    With STATE_DIR it examines an aggregator's or a trainer's state, also while the service runs, and changes nothing. With
    --gateway it tries to reach that one too.
    """
    if serves:
        from fedplcc.remote.health import first_serving

        print(f"{first_serving(serves, insecure=way.insecure, identity=identity)} serves")
        return ExitCode.OK
    if method is not None:
        from fedplcc.command.method_check import check_method

        return check_method(method, as_json=as_json)

    from fedplcc.doctor import CHECKS, examine
    from fedplcc.doctor.findings import Check, Status, Subject
    from fedplcc.terminal.progress import console_for

    checks: Sequence[Check] = CHECKS
    if state_dir is not None:
        from fedplcc.doctor import aggregator_state

        checks = aggregator_state.CHECKS
    subject = Subject(
        state=state_dir or state,
        host=host,
        ports=DEFAULT_PORTS,
        aggregator=aggregator,
        gateway=way.given,
        insecure=way.insecure,
        database_url=database_url,
    )
    console = console_for(json=False)
    findings = []
    for finding in examine(subject, checks):
        findings.append(finding)
        if not as_json:
            width = console.width if console.is_terminal else 0
            console.print(_line(finding.check, finding.status, finding.sentence, width), style=STYLES[finding.status])
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    if as_json:
        rows = [
            {"check": finding.check, "status": finding.status.value, "detail": finding.sentence} for finding in findings
        ]
        print(json.dumps({"findings": rows, **{status.value: count for status, count in counts.items()}}, indent=2))
    else:
        words = {Status.PROBLEM: "problem", Status.WARNING: "warning"}
        numbers = [f"{counts[status]} {word}{'' if counts[status] == 1 else 's'}" for status, word in words.items()]
        console.print(", ".join(numbers))
    return ExitCode.FAILED if counts[Status.PROBLEM] else ExitCode.OK


def _line(check: str, status: str, sentence: str, width: int) -> str:
    """A finding as text; on a terminal its sentence is indented beside its mark."""
    head = f"{MARKS[status]:<4}  {check:<11} "
    if width < len(head) + 20:
        return head + sentence
    return textwrap.fill(
        sentence,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )
