"""`fedplcc health`: a health check of a service, for containers, systemd units, scripts and people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.remote.health import first_serving

EXAMPLES = examples("fedplcc health 10.0.0.5:50051 --insecure", "fedplcc health http://127.0.0.1:8080")


@explains_errors
def health(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="ADDRESS",
            help="HOST:PORT of an aggregator or of a trainer's health port; http://HOST:PORT of a gateway. "
            "Of several, one that serves is enough.",
            show_default=False,
        ),
    ],
    service: Annotated[str, typer.Option(help="gRPC service to ask for; the whole process if not given.")] = "",
    timeout_s: Annotated[float, typer.Option(min=0.01, max=3600, help="Seconds for each address to answer in.")] = 6.0,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", envvar="FEDPLCC_INSECURE", help="Accept plain text to another machine."),
    ] = False,
    identity: Annotated[
        Path | None,
        typer.Option(help="identity.pem of a member, for gRPC over TLS; plain text if not given.", show_default=False),
    ] = None,
) -> int:
    """Ask a service whether it serves: exit code 0 if it does, 1 if it does not, 3 if nobody answers."""
    print(
        f"{first_serving(addresses, service=service, timeout_s=timeout_s, insecure=insecure, identity=identity)} serves"
    )
    return ExitCode.OK
