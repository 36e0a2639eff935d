"""`fedplcc join`: this host becomes a member of a federation by an invitation."""

from __future__ import annotations

import getpass
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.shared.errors import InvalidConfig

EXAMPLES = examples(
    "fedplcc join",
    "fedplcc join --code-file invitation.txt --state-dir north",
    "fedplcc join --renew --state-dir /var/lib/prometheus/fedplcc",
)
MAX_CODE = 4096
"""Most characters of an invitation that are read."""


@explains_errors
def join(
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the trainer's or the gateway's state, or of a monitor's own, in which the identity is kept; the "
            "role's in fedplcc-state if not given.",
            file_okay=False,
            envvar="FEDPLCC_STATE_DIR",
        ),
    ] = None,
    code_file: Annotated[
        Path | None,
        typer.Option(help="File with the invitation.", dir_okay=False, metavar="FILE"),
    ] = None,
    aggregator: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of the aggregator, where it is reached at another port than its own.", metavar="HOST:PORT"
        ),
    ] = "",
    http_proxy: Annotated[
        str,
        typer.Option(
            help="HTTP proxy on the way, which is asked to CONNECT.",
            metavar="HOST:PORT",
            envvar="FEDPLCC_HTTP_PROXY",
        ),
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Join anew, in place of the identity that is there.")
    ] = False,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Renew the identity that is there, if half of its life is left or less: for a monitor, which has no "
            "process that does so, from a daily timer.",
        ),
    ] = False,
) -> None:
    """Join a federation with the invitation that its owner sent.

    The invitation is asked for; it may also come by stdin, from --code-file or in FEDPLCC_JOIN. This host makes its key, and
    what answers is checked against the invitation before the secret in it is sent. Then `fedplcc trainer --data ...` knows
    the aggregator, the client and the domain, and `fedplcc gateway` the aggregator.
    """
    from fedplcc.command.members.next_steps import start_command
    from fedplcc.remote.joining import join_federation, renew_identity
    from fedplcc.shared.config.settings.site_identity import JOINED
    from fedplcc.shared.identity.invitation_codes import InvitationCode

    if renew:
        held, is_new = renew_identity(state_dir or JOINED, http_proxy=http_proxy)
        end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(held.not_after))
        say(
            f"the certificate of {held.identity.role} {held.identity.name} {'now holds' if is_new else 'holds'} until {end}"
        )
        return
    held, folder = join_federation(
        InvitationCode.parse(_code(code_file)),
        state_dir,
        aggregator=aggregator,
        http_proxy=http_proxy,
        replace=replace,
        tell=say,
    )
    print(f"{held.identity.role.value} {held.identity.name} of federation {held.identity.federation}: {folder}")
    if begins := start_command(held.identity, folder):
        say(f"start it with: {begins}")


def _code(file: Path | None) -> str:
    """Read the invitation: from the file, the environment, or stdin, with a prompt where a person sits there."""
    from fedplcc.shared.config.settings import invitation_in_environment

    if file is not None:
        try:
            with file.open(encoding="utf-8", errors="replace") as opened:
                return opened.read(MAX_CODE)
        except OSError as error:
            raise InvalidConfig(f"cannot read {file}: {error.strerror or error}") from error
    if text := invitation_in_environment():
        return text[:MAX_CODE]
    if sys.stdin.isatty():
        return getpass.getpass("Invitation: ")[:MAX_CODE]
    return sys.stdin.read(MAX_CODE)
