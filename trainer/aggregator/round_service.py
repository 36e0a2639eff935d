"""RoundService as one trainer calls it: channels, log lines, errors of shared/errors.py, Join and Heartbeat."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from fedplcc.shared.convert.clients import heartbeat_to_proto
from fedplcc.shared.convert.membership import client_to_join, membership_from_proto
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FailedPrecondition,
    FedplccError,
    MalformedRequest,
    Unavailable,
)
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from fedplcc.shared.identity.audit_chain import AuditHead
from fedplcc.shared.types import Client, CommittedRelease, Heartbeat, Membership
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.call_logs import OutgoingCalls
from fedplcc.shared.wire.channels import KEEPALIVE_S, open_channel
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.tls import ClientTls
from fedplcc.shared.wire.trouble.connection_trouble import ConnectionTrouble
from fedplcc.trainer.aggregator.egress_gate import EgressGate
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.readings.metrics import TrainerMetrics

CHUNK_BYTES = (1 << 20) - 64
"""Largest chunk of an upload, if the aggregator takes it. With the message around it, it fits into a power of two, to which
the encoder rounds its buffer."""
INLINE_BYTES = 1 << 20
"""Most bytes of blobs inside one message, a commit or a task, if the aggregator takes or sends them."""
ANSWER_S = 30.0
"""Deadline of unary calls. On a link with a delay of one second each way an answer takes two, and more where other traffic
fills the link. A dead connection is noticed by its keepalive (shared/wire/channels.py), not by this."""
LEAVING_S = 1.0
"""Deadline of the last heartbeat, for which the end of a trainer waits."""
FOLLOWING = "SyncRound"
"""The method by which tasks are followed."""

_Directive = round_service_pb2.HeartbeatResponse.Directive


class Link:
    """Two connections to the aggregator with the certificate of one moment, and how many calls use them.

    Attributes:
        stub: Methods for short messages.
        transfers: Methods for blobs. They have a connection of their own: on a slow link a heartbeat would wait behind the
            bytes that are on their way for many seconds, longer than a lease.
    """

    def __init__(self, open_one: Callable[[], Any]) -> None:
        """Prepare the channels; they connect when they are first used."""
        self._channels = [open_one() for _ in range(2)]
        self.stub: Any
        self.transfers: Any
        self.stub, self.transfers = map(round_service_pb2_grpc.RoundServiceStub, self._channels)
        self.num_calls = 0

    def close(self) -> None:
        """End every call and close the channels."""
        for channel in self._channels:
            channel.close()


class RoundServiceCalls:
    """Calls of one trainer to its aggregator, from any number of threads.

    They raise errors of shared/errors.py, and `Cancelled` once the channels are closed.

    Attributes:
        address: HOST:PORT of the aggregator.
        instance_token: Names the trainer over its restarts.
        metrics: Where bytes and retries are counted.
        poll_hold_s: Longest time that a poll for tasks is held; None where tasks come over one stream.
        rng: Source of the jitter of retries.
        chunk_bytes: Largest chunk that the aggregator takes.
        max_inline_bytes: Most bytes of blobs that a commit may carry.
        egress: Writes down what leaves before it does; None where nothing is written down.
        saw_audit_head: Called, by any thread, with the head of the aggregator's audit in each answer to Join.
        saw_release: Called likewise with the client's last release that was committed.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        instance_token: str,
        metrics: TrainerMetrics,
        *,
        tls: ClientTls | None = None,
        insecure: bool = False,
        http_proxy: str = "",
        poll_hold_s: float | None = None,
        keepalive_s: float = KEEPALIVE_S,
        egress: EgressGate | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare the channels; they connect when they are first used.

        Args:
            address: See the class; so are the other arguments of the same names.
            tls: The client's certificate; plain text if None.
            insecure: Whether plain text is accepted off loopback.
            http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
            keepalive_s: Silence after which the aggregator is asked for a sign of life.
            rng: As above; one with a random seed if None.

        Raises:
            InvalidConfig: The address is malformed, or off loopback without `insecure`.
        """
        self.address, self.client_id, self.instance_token, self.metrics = address, client_id, instance_token, metrics
        self.chunk_bytes, self.poll_hold_s = CHUNK_BYTES, poll_hold_s
        self.max_inline_bytes, self.egress = 0, egress
        self.rng = rng or random.Random()  # nosec B311 # no secret

        def open_one() -> Any:
            channel = open_channel(
                address,
                tls=tls,
                insecure=insecure,
                http_proxy=http_proxy,
                failpoints="trainer.rpc",
                keepalive_s=keepalive_s,
            )
            return channel if egress is None else egress.around(channel)

        self._open_one = open_one
        self._trouble = ConnectionTrouble(address, None if tls is None else tls.held, http_proxy=http_proxy)
        self._lock = threading.Lock()
        self._link = Link(self._open_one)
        self._draining: list[Link] = []
        self._made = OutgoingCalls(address, quiet=("Join", FOLLOWING, "Heartbeat"))
        self.is_closed = False
        self.saw_audit_head: Callable[[AuditHead | None], None] = lambda _head: None
        self.saw_release: Callable[[CommittedRelease | None], None] = lambda _release: None
        self._prepare()

    def _prepare(self) -> None:
        """Prepare what a subclass adds to the calls."""

    def join(self, client: Client) -> Membership:
        """Become the instance that acts for the client.

        Raises:
            ClientIdTaken: Another instance acts for it.
        """
        request = client_to_join(client, instance_token=self.instance_token, version=VERSION)
        with self.calling("Join") as link:
            membership = membership_from_proto(link.stub.Join(request, timeout=ANSWER_S))
        self.chunk_bytes = min(CHUNK_BYTES, membership.max_chunk_bytes)
        self.max_inline_bytes = min(INLINE_BYTES, membership.max_inline_bytes)
        self.saw_audit_head(membership.audit_head)
        self.saw_release(membership.last_release)
        if self.egress is not None:
            self.egress.joined(membership)
        return membership

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Send a heartbeat; returns whether the work that it names is still wanted."""
        request = heartbeat_to_proto(heartbeat, instance_token=self.instance_token)
        with self.calling("Heartbeat") as link:
            response = link.stub.Heartbeat(request, timeout=LEAVING_S if heartbeat.is_leaving else ANSWER_S)
        return bool(response.directive != _Directive.DIRECTIVE_STOP)

    def reconnect(self) -> None:
        """Open new channels, with the credentials of now; calls in progress end over the old ones, which then close."""
        with self._lock:
            if self.is_closed:
                return
            old, self._link = self._link, Link(self._open_one)
            self._draining.append(old)
        self._close_drained()

    def close(self) -> None:
        """End every call and close the channels."""
        with self._lock:
            self.is_closed = True
            links, self._draining = [self._link, *self._draining], []
        for link in links:
            link.close()

    @contextmanager
    def calling(self, method: str, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[Link]:
        """Within the block, which calls a method, translate gRPC's errors to ours, and to `Cancelled` after `close`.

        Yields the connections for this call, which stay open until the block ends.

        Args:
            method: Name of the method, for the log.
            is_wanted: Whether the call is still wanted when it fails; only then is the failure logged.
        """
        with self._lock:
            link = self._link
            link.num_calls += 1
        try:
            with self._made.logged(method, is_wanted), self._explained():
                yield link
        finally:
            with self._lock:
                link.num_calls -= 1
            self._close_drained()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with translated(self.address):
                try:
                    yield
                except MalformedRequest as error:  # an answer, of an aggregator of another version perhaps: it may pass
                    why = f"the aggregator at {self.address} says what this version does not understand: {error.detail}"
                    raise FailedPrecondition(why) from error
        except grpc.FutureCancelledError as error:
            if self.is_closed:
                raise Cancelled from error
            raise Unavailable("the call was cancelled") from error
        except (FedplccError, ValueError) as error:  # a closed channel answers new calls with ValueError
            if self.is_closed:
                raise Cancelled from error
            if type(error) is AggregatorUnavailable:
                raise self._trouble.explained(error) from error
            raise

    def _close_drained(self) -> None:
        with self._lock:
            drained = [link for link in self._draining if not link.num_calls]
            self._draining = [link for link in self._draining if link.num_calls]
        for link in drained:
            link.close()
