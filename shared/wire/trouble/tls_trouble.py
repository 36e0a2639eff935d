"""Causes of a connection that TLS refuses.

gRPC says "Socket closed" to the caller, and nothing to the server. So the caller looks itself: at its own certificate, at
its clock, and at what answers at the address.
"""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from datetime import UTC, datetime

from cryptography import x509

from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, issuer_of
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.tls import HeldCertificate
from fedplcc.shared.wire.trouble.dialling import ProxyRefused, dialled
from fedplcc.shared.wire.trouble.enrolment_clock import time_at
from fedplcc.shared.wire.trouble.ssl_pairs import load_pair

STEP_S = 3.0
"""Longest wait for each step."""
SKEW_S = 3600.0
"""Least error of the own clock that is named as the cause: certificates begin two hours before they are issued."""


def tls_trouble(address: str, held: HeldCertificate, *, http_proxy: str = "", now: float | None = None) -> str | None:
    """Return a sentence on why TLS with an address fails; None where nobody answers there, or TLS is not why.

    Args:
        address: HOST:PORT.
        http_proxy: HOST:PORT of an HTTP proxy on the way; none if empty.
        now: Seconds since the epoch; the clock's if None.
    """
    now = time.time() if now is None else now
    roots = x509.load_pem_x509_certificates(held.roots_pem)
    clock = _clock_trouble(held.enrolment, roots, http_proxy, now)
    if clock is not None:
        return clock
    own = x509.load_pem_x509_certificates(held.chain_pem)[0]
    if now > own.not_valid_after_utc.timestamp():
        return f"this side's certificate ended at {_at(own.not_valid_after_utc)}; it has to be renewed"
    if now < own.not_valid_before_utc.timestamp():
        return (
            f"this side's certificate begins at {_at(own.not_valid_before_utc)}, and the clock here says "
            f"{_at(datetime.fromtimestamp(now, UTC))}; set the clock"
        )
    try:
        with (
            dialled(address, http_proxy) as connection,
            any_certificate().wrap_socket(connection, server_hostname=AGGREGATOR_DNS) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except ProxyRefused as error:
        return str(error)
    except ssl.SSLError as error:
        return _handshake_trouble(address, error)
    except ConnectionResetError:
        return f"what answers at {address} ends the connection in the TLS handshake; a firewall may look into it"
    except OSError:
        return None
    if shown is None:
        return f"what answers at {address} shows no certificate"
    return _certificate_trouble(address, x509.load_der_x509_certificate(shown), roots, now) or _refusal(
        address, held, http_proxy
    )


def speaks_tls(address: str) -> bool:
    """Whether something at HOST:PORT answers a TLS handshake."""
    try:
        with dialled(address) as connection, any_certificate().wrap_socket(connection, server_hostname=AGGREGATOR_DNS):
            return True
    except OSError:
        return False


def certificate_at(address: str) -> x509.Certificate | None:
    """Return the certificate that is shown at HOST:PORT, unchecked; None where nobody shows one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _ = split_address(address)
    try:
        with dialled(address) as connection, context.wrap_socket(connection, server_hostname=host) as secure:
            shown = secure.getpeercert(binary_form=True)
        return None if shown is None else x509.load_der_x509_certificate(shown)
    except (OSError, ValueError):
        return None


def any_certificate() -> ssl.SSLContext:
    """Return a context of gRPC that takes any certificate: what is shown is looked at afterwards, and nothing is told."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _handshake_trouble(address: str, error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return f"what answers at {address} speaks no TLS: is it another port, or was it started with --insecure?"
    return f"the TLS handshake with {address} fails: {error.reason or type(error).__name__}"


def _certificate_trouble(
    address: str, shown: x509.Certificate, roots: list[x509.Certificate], now: float
) -> str | None:
    if issuer_of(shown, roots) is None:
        issuer = shown.issuer.rfc4514_string()[:200] or "an unnamed issuer"
        return f"TLS is intercepted by {issuer}; ask for an exception for {address}"
    if not shown.not_valid_before_utc.timestamp() <= now <= shown.not_valid_after_utc.timestamp():
        return (
            f"the certificate of {address} is good from {_at(shown.not_valid_before_utc)} to "
            f"{_at(shown.not_valid_after_utc)}, and the clock here says {_at(datetime.fromtimestamp(now, UTC))}; "
            "set the clock that is wrong"
        )
    return None


def _refusal(address: str, held: HeldCertificate, http_proxy: str) -> str | None:
    """Return what the server says to the own certificate; in TLS 1.3 it says it after the handshake."""
    context = any_certificate()
    load_pair(context, held.key_pem, held.chain_pem)
    try:
        with (
            dialled(address, http_proxy) as connection,
            context.wrap_socket(connection, server_hostname=AGGREGATOR_DNS) as secure,
        ):
            # A server of HTTP/2 speaks first: its settings, or an alert.
            if secure.recv(1):
                return None
    except ssl.SSLError as error:
        return _handshake_trouble(address, error)
    except OSError:
        pass
    # gRPC's servers say no reason: they end the connection.
    own = x509.load_pem_x509_certificates(held.chain_pem)[0]
    if issuer_of(own, x509.load_pem_x509_certificates(held.roots_pem)) is None:
        return f"the aggregator at {address} does not take this side's certificate: another federation issued it"
    return (
        f"the aggregator at {address} does not take this side's certificate: its clock is wrong, or it dropped the root "
        "that issued it; join again"
    )


def _clock_trouble(enrolment: str, roots: list[x509.Certificate], http_proxy: str, now: float) -> str | None:
    if not enrolment:
        return None
    with (
        suppress(OSError, ValueError),
        dialled(enrolment, http_proxy) as connection,
        any_certificate().wrap_socket(connection, server_hostname=AGGREGATOR_DNS) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
        if shown is not None and issuer_of(x509.load_der_x509_certificate(shown), roots) is not None:
            ahead_s = now - time_at(secure)
            if abs(ahead_s) >= SKEW_S:
                way = "ahead of" if ahead_s > 0 else "behind"
                return f"the clock here is {abs(ahead_s) / 3600:.1f} h {way} the aggregator's; set it"
    return None


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
