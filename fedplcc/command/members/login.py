"""`fedplcc login` and `fedplcc console`: what lets this user, or a browser, through a gateway."""

from __future__ import annotations

import asyncio
import getpass
import html
import socket
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway
from fedplcc.command.members.key import ScopeName
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import FedplccError, KeyInvalid, Unavailable
from fedplcc.shared.identity.api_keys import parse_api_key
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway

LOGIN_EXAMPLES = examples(
    "fedplcc login --scope read --valid 7d",
    "fedplcc login --stdin --gateway fl.example.org:8080",
    "fedplcc login --sign-on --gateway https://fl.example.org:8080",
)
CONSOLE_EXAMPLES = examples("fedplcc console", "fedplcc console --no-browser")
CONSOLE_FILE = "console.html"
_MAX_LINE = 256


@explains_errors
def login(
    *,
    scope: Annotated[
        list[ScopeName] | None, typer.Option(help="What the key may do; admin and metrics if not given.")
    ] = None,
    valid: Annotated[str, typer.Option(help="How long the key holds: 30m, 24h or 90d.")] = "90d",
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Keep the key that stands in the first line of stdin; make none.")
    ] = False,
    sign_on: Annotated[
        bool,
        typer.Option("--sign-on", help="Sign on at the federation's provider, in any browser, and keep the session."),
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Revoke the key that is kept here for the gateway, and remove it.")
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    way: Way,
) -> None:
    """Keep a key for a gateway, so that commands as 'fedplcc run list' are let through.

    On the aggregator's host the owner of its state directory needs no key to make one, and the federation's roots are
    kept with it, by which an https gateway is checked. Elsewhere use --sign-on or --stdin, and --gateway-ca. A session
    of --sign-on ends as the provider says, within twelve hours. With --forget a gateway
    that does not answer leaves the key valid; it is removed here all the same, and its id is said.
    """
    from fedplcc.command.members.durations import seconds_of
    from fedplcc.gateway_client.gateway_tls import given_roots, roots_to_keep
    from fedplcc.gateway_client.own_keys import keep_key
    from fedplcc.gateway_client.transport import checked_url
    from fedplcc.remote.admin_calls import admin_calls

    if forget:
        return _forget(way)
    url = checked_url(way.url, way.insecure)
    roots = "" if way.ca is None else given_roots(way.ca)
    if sign_on:
        text = ask_gateway(way, _signed_on)
        key_id, _ = parse_api_key(text)
    elif stdin:
        text = sys.stdin.readline(_MAX_LINE).strip()
        key_id, _ = parse_api_key(text)
    else:
        scopes = [name.value for name in scope or (ScopeName.ADMIN, ScopeName.METRICS)]
        label = f"login of {getpass.getuser()} on {socket.gethostname()}"[:64]
        with admin_calls(state_dir) as calls:
            key, text = calls.create_key(label, scopes, seconds_of(valid, "--valid"))
            roots = roots or roots_to_keep(url, calls.roots_pem())
        key_id = key.key_id
    file = keep_key(url, text, roots)
    say(f"the key {key_id} for {url} is kept in {file}")


async def _signed_on(there: AsyncGateway) -> str:
    """Return the text of the session of a person who signs on in a browser, here or elsewhere."""
    begun = await there.begin_terminal_sign_on()
    say(f"open {printable(begun.url)} and type the code {printable(begun.user_code)}")
    while datetime.now(UTC) < begun.expires_at:
        await asyncio.sleep(min(60.0, max(1.0, begun.interval_s)))
        found = await there.poll_terminal_sign_on(handle=begun.handle)
        if found.key:
            return found.key
    raise Unavailable("nobody has signed on in time; try again")


def _forget(way: Way) -> None:
    """Revoke the key that is kept for a gateway, and remove it here whatever the gateway says."""
    from fedplcc.gateway_client.own_keys import forget_key, key_for
    from fedplcc.gateway_client.transport import checked_url

    url = checked_url(way.url, way.insecure)
    text = key_for(url)
    if not text:
        say(f"there is no key for {url}")
        return
    key_id, _ = parse_api_key(text)
    try:
        ask_gateway(way, lambda there: there.end_session())
    except KeyInvalid:
        pass  # it has ended already
    except FedplccError as error:
        forget_key(url)
        raise Unavailable(
            f"the key {key_id} was removed here, and still holds: {error.detail}. On the aggregator's host: "
            f"fedplcc key revoke {key_id}"
        ) from error
    forget_key(url)
    say(f"the key {key_id} for {url} is revoked and removed")


@explains_errors
def console(
    *,
    no_browser: Annotated[
        bool,
        typer.Option("--no-browser", help="Print the address instead of opening it, for another machine's browser."),
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    way: Way,
) -> None:
    """Open the console in a browser: with a code that works once, within five minutes, for twelve hours."""
    import webbrowser

    from fedplcc.gateway_client.own_keys import write_private
    from fedplcc.gateway_client.transport import checked_url
    from fedplcc.remote.admin_calls import admin_calls

    url = checked_url(way.url, way.insecure)
    with admin_calls(state_dir) as calls:
        address = f"{url}/#code={calls.console_code()}"
    if not no_browser:
        # The browser gets the name of a private file: everybody on this machine sees the arguments of a process.
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n'
        if webbrowser.open(write_private(CONSOLE_FILE, page.encode()).as_uri()):
            say(f"the console opens in a browser: {url}")
            return
    print(address)
