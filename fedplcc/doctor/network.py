"""Checks of the way to an aggregator and to a gateway, step by step."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from fedplcc.doctor.findings import Finding, Subject, ok, problem, warning
from fedplcc.remote.own_identity import identity_below
from fedplcc.shared.errors import FedplccError, TlsFailed
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.peer_versions import works_with
from fedplcc.shared.wire.trouble.connection_trouble import unknown_name_sentence

TIMEOUT_S = 3.0
"""Longest wait for each step."""
SKEW_S = 30.0
"""Least difference of two hosts' clocks that is reported."""
CHEAP_CALL = "/fedplcc.v1.RunService/ListClients"
"""A call that changes nothing and takes an empty message."""
CALL_OF_ANY_ROLE = "/fedplcc.v1.AdminService/GetCaller"
"""Such a call for who has a certificate."""


def aggregator(subject: Subject) -> Iterator[Finding]:
    """The aggregator's name, port, health and version."""
    if subject.aggregator is None:
        return
    from fedplcc.remote.health import first_serving

    address, identity = subject.aggregator, _identity(subject)
    try:
        host, port = split_address(address, "--aggregator")
        yield from _reached(subject, "aggregator", host, port)
        first_serving([address], timeout_s=TIMEOUT_S, insecure=subject.insecure, identity=identity)
    except _Unreached as unreached:
        yield unreached.finding
    except TlsFailed as error:
        if identity is None:
            yield problem(
                "aggregator",
                f"{address} speaks TLS: join the federation with 'fedplcc join', or give the folder of a member's "
                "identity.pem as --state-dir",
            )
        else:
            yield problem("aggregator", error.detail)
    except FedplccError as error:
        yield problem("aggregator", error.detail)
    else:
        yield _same_version("aggregator", f"{address} serves", _version_of(address, identity))


def gateway(subject: Subject) -> Iterator[Finding]:
    """The gateway's name, port, readiness, version and clock."""
    if subject.gateway is None:
        return
    import httpx

    from fedplcc.gateway_client.gateway_tls import context_for
    from fedplcc.remote.health import READY_PATH, first_serving
    from fedplcc.shared.process.loopback import is_loopback

    url = subject.gateway if "://" in subject.gateway else f"http://{subject.gateway}"
    try:
        parsed = httpx.URL(url)
        if not parsed.host:
            raise httpx.InvalidURL("there is no host in it")
        host, port = parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80)
        yield from _reached(subject, "gateway", host, port)
        verify = context_for(url, _identity(subject))
        first_serving([url], timeout_s=TIMEOUT_S, insecure=subject.insecure, identity=_identity(subject))
        with httpx.Client(timeout=TIMEOUT_S, trust_env=not is_loopback(host), verify=verify) as client:
            answer = client.get(parsed.join(READY_PATH))
            version = answer.json().get("version")
    except _Unreached as unreached:
        yield unreached.finding
    except FedplccError as error:
        yield problem("gateway", error.detail)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError) as error:
        yield problem("gateway", f"{url} is no gateway of fedplcc ({error}); write http://HOST:PORT")
    else:
        yield _same_version("gateway", f"{url} serves", version)
        yield from _clock(subject, answer.headers.get("date"))


class _Unreached(Exception):
    """A step towards a service failed, and with it all later ones."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.sentence)
        self.finding = finding


def _reached(subject: Subject, what: str, host: str, port: int) -> Iterator[Finding]:
    """Resolve a name and open a connection."""
    try:
        found = subject.probes.resolve(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _Unreached(problem(what, unknown_name_sentence(host, error))) from error
    addresses = list(dict.fromkeys(entry[4][0] for entry in found))
    try:
        subject.probes.connect((host, port), TIMEOUT_S).close()
    except TimeoutError as error:
        text = f"{host}:{port} does not answer: a firewall drops what is sent there, or the address is wrong"
        raise _Unreached(problem(what, text)) from error
    except OSError as error:
        text = f"{host}:{port} refuses ({error.strerror or error}): start the service, or listen at 0.0.0.0 with --host"
        raise _Unreached(problem(what, text)) from error
    yield ok(what, f"{host} is {', '.join(addresses)}, port {port} is open")


def _identity(subject: Subject) -> Path | None:
    """Return the file of the certificate in the state directory, or in a member's below it; None if there is none."""
    return None if subject.insecure else identity_below(subject.state)


def _version_of(address: str, identity: Path | None) -> str | None:
    """The aggregator's version, from the metadata of an answer."""
    import grpc

    from fedplcc.shared.identity.credentials import Credentials
    from fedplcc.shared.wire.channels import open_channel
    from fedplcc.shared.wire.serving.interceptor import VERSION_KEY
    from fedplcc.shared.wire.statuses import translate
    from fedplcc.shared.wire.tls import ClientTls

    tls = None if identity is None else ClientTls(lambda: Credentials.load(identity))
    with open_channel(address, tls=tls, insecure=True) as channel:
        method = CHEAP_CALL if identity is None else CALL_OF_ANY_ROLE
        call: Any = channel.unary_unary(method, bytes, bytes)  # an empty message is no byte, the answer's are left
        try:
            _answer, state = call.with_call(b"", timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return translate(error).metadata.get("version")  # of who refuses ours
    return next((value for key, value in state.trailing_metadata() or () if key == VERSION_KEY), None)


def _same_version(what: str, text: str, version: str | None) -> Finding:
    if version is None:
        return warning(
            what, f"{text}, but does not say its version: it is not fedplcc {VERSION}; install the same everywhere"
        )
    if not works_with(version):
        return problem(
            what, f"{text} with fedplcc {version}, which does not work with {VERSION} here: install the same everywhere"
        )
    if version != VERSION:
        return warning(
            what,
            f"{text} with fedplcc {version}, which works with {VERSION} here; install the same everywhere in the end",
        )
    return ok(what, f"{text} with fedplcc {version}, as here")


def _clock(subject: Subject, date: str | None) -> Iterator[Finding]:
    if date is None:
        return
    try:
        skew = subject.probes.wall_clock() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return
    if abs(skew) > SKEW_S:
        yield warning(
            "clock",
            f"the clock here is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the gateway's; turn on NTP",
        )
