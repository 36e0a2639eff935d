"""gRPC channels, and the options that both ends of a connection agree on."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio

from fedplcc.shared.identity.certificates import AGGREGATOR_DNS
from fedplcc.shared.process.failpoints import is_armed
from fedplcc.shared.wire.addresses import join_address, require_secure, split_address
from fedplcc.shared.wire.call_failpoints import CallFailpoints
from fedplcc.shared.wire.peer_versions import USER_AGENT
from fedplcc.shared.wire.tls import ClientTls

IDLE_S = 60.0
"""Longest time in which the other end of a transfer, or of an open stream, may send or read nothing."""
MAX_MESSAGE_BYTES = 5 << 20
"""Largest message: a chunk of up to 4 MiB, or a run's configuration and record, with room for the fields around it."""
KEEPALIVE_S = 30.0
"""Silence of a connection, in seconds, after which one end pings the other. Without an answer for twice as long the
connection counts as dead and its calls fail. On a slow link, ping and answer queue behind other messages.
"""


def _keepalive(seconds: float) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.keepalive_time_ms", round(1000 * seconds)),
        ("grpc.keepalive_timeout_ms", round(2000 * seconds)),
        ("grpc.http2.ping_timeout_ms", round(2000 * seconds)),  # its default of a minute overrides the line above
        # For a server: clients ping also without calls; without this option it answers ENHANCE_YOUR_CALM.
        ("grpc.http2.min_ping_interval_without_data_ms", round(1000 * min(seconds, KEEPALIVE_S) / 3)),
    )


_COMMON_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 32 << 10),
    ("grpc.absolute_max_metadata_size", 64 << 10),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS = (
    *_COMMON_OPTIONS,
    *_keepalive(KEEPALIVE_S),
    # With port reuse, a second server on the same port would start without an error and take half of the calls.
    ("grpc.so_reuseport", 0),
)
CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    *_COMMON_OPTIONS,
    ("grpc.primary_user_agent", USER_AGENT),
    *_keepalive(KEEPALIVE_S),
    ("grpc.enable_http_proxy", 0),
    # One connection per channel: channels to one address would otherwise share a connection and its flow control.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Callers retry, in one place; gRPC does not.
    ("grpc.enable_retries", 0),
)


def with_keepalive(options: Sequence[tuple[str, int | str]], keepalive_s: float) -> list[tuple[str, int | str]]:
    """Return the options with this keepalive in place of theirs."""
    return list({**dict(options), **dict(_keepalive(keepalive_s))}.items())


def open_channel(
    address: str,
    *,
    tls: ClientTls | None = None,
    insecure: bool = False,
    http_proxy: str = "",
    failpoints: str = "",
    keepalive_s: float = KEEPALIVE_S,
) -> grpc.Channel:
    """Return a synchronous channel to HOST:PORT; it connects when first used.

    Args:
        address: HOST:PORT.
        tls: The caller's certificate; plain text if None.
        insecure: Whether plain text is accepted off loopback.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
        failpoints: Prefix of its calls' failpoints in an armed process; no failpoints if empty.
        keepalive_s: Silence after which the server is pinged.

    Raises:
        InvalidConfig: No such address, or plain text off loopback without `insecure`.
    """
    target, options = (
        _target(address, insecure or tls is not None),
        channel_options(tls is not None, http_proxy, keepalive_s),
    )
    channel = (
        grpc.insecure_channel(target, options=options)
        if tls is None
        else grpc.secure_channel(target, tls.credentials(), options=options)
    )
    return grpc.intercept_channel(channel, CallFailpoints(failpoints)) if failpoints and is_armed() else channel


def open_aio_channel(
    address: str,
    *,
    tls: ClientTls | None = None,
    insecure: bool = False,
    http_proxy: str = "",
    keepalive_s: float = KEEPALIVE_S,
) -> grpc.aio.Channel:
    """Return an asyncio channel to HOST:PORT; it connects when first used. See `open_channel` for the arguments.

    Raises:
        InvalidConfig: No such address, or plain text off loopback without `insecure`.
    """
    target, options = (
        _target(address, insecure or tls is not None),
        channel_options(tls is not None, http_proxy, keepalive_s),
    )
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, tls.credentials(), options=options)


def channel_options(
    is_tls: bool, http_proxy: str = "", keepalive_s: float = KEEPALIVE_S
) -> list[tuple[str, int | str]]:
    """Return gRPC's options of a channel; see `open_channel`.

    Raises:
        InvalidConfig: `http_proxy` is no address.
    """
    options = with_keepalive(CHANNEL_OPTIONS, keepalive_s)
    if is_tls:
        # One name whatever address is dialled: network address translation, tunnels and moves need no new certificate.
        options.append(("grpc.ssl_target_name_override", AGGREGATOR_DNS))
    if http_proxy:
        split_address(http_proxy, "http_proxy")
        options = [option for option in options if option[0] != "grpc.enable_http_proxy"]
        options += [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", f"http://{http_proxy}")]
    return options


def _target(address: str, insecure: bool) -> str:
    host, port = split_address(address)
    require_secure(host, insecure=insecure, what=f"the aggregator at {address}")
    return join_address(host, port)
