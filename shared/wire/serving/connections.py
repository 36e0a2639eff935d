"""Connections of a gRPC port: how many there may be, how long each may call nothing, and which ones call in vain.

gRPC counts only those of all callers together, and ends none for what its calls do: who opens calls and resets them at
full speed fills the line in which everybody's calls wait to be taken. Here a connection is seen by its socket, its calls
tell by whom it is, and what costs others ends.

Called in vain is what was cancelled or refused before its request was read, or refused for what its caller is, may or has
used up, or is of no service of ours. Bytes in vain are those that are in no message that a call has read: frames of HTTP/2
that say nothing, heads without an end, what is sent to nobody. gRPC reads them all, before anybody else's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fedplcc.shared.errors import FedplccError, TooManyCalls
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import NOBODY, Principal
from fedplcc.shared.process.address_shares import KEPT, MOST_OF_AN_ADDRESS, is_own, network_of
from fedplcc.shared.process.barred_addresses import bar
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.repeated_lines import RepeatedLines
from fedplcc.shared.process.resources import most_connections, most_files
from fedplcc.shared.process.sockets import Link, OwnSockets, Seen
from fedplcc.shared.wire.addresses import plain_peer
from fedplcc.shared.wire.serving.bars import Bars
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets
from fedplcc.shared.wire.serving.unread_bytes import UnreadBytes

LOOK_S = 1.0
"""Time between two looks at the sockets."""
SOON_S = 0.1
"""The same while connections are to be ended."""
REST = 20.0
"""Rest after a look, in times of what it took: of tens of thousands of connections it takes long."""
LONG_REST = 100.0
"""The same while there is nothing to end."""
FIRST_CALL_S = 20.0
"""Time in which a connection has made a call that its caller may make, its handshake included; without a certificate, the
longest time between two."""
MOST_OF_A_MEMBER, MOST_OF_A_GATEWAY = 6, 16
"""Open connections of a certificate of a trainer or monitor, and of a gateway. A trainer has two, a gateway one to eight;
after a cut line as many more until pings stay without an answer. Each may fill windows of some MiB with what nobody has
read."""
IN_VAIN_PER_S, IN_VAIN_AT_ONCE = 2.0, 24.0
"""Calls in vain of a certificate, or of an address without one. A trainer that was revoked makes a few. At once fewer than
a connection may have open: what is opened and reset beyond those gRPC refuses by itself, and tells nobody."""
REFUSED_PER_S, REFUSED_AT_ONCE = 20.0, 500.0
"""Calls of a certificate that holds which are refused: mostly for being too many."""
OF_A_GATEWAY_PER_S, OF_A_GATEWAY_AT_ONCE = 500.0, 5000.0
"""Calls of a gateway that are given up unread: its callers do that when it is slow. Refusals count for their keys."""

NO_CALL = "no call"
"""Reason of an end that happens to many who mean no harm."""

log = get_logger("fedplcc.shared.wire.serving.connections")

Peer = tuple[str, int]
"""Address and port of the other end."""


@dataclass(slots=True, eq=False)
class Connection:
    """What is known of one connection."""

    peer: Peer
    since: float
    last: float
    """Last time at which a call of it was answered; at first, when it was seen."""
    link: Link | None = None
    """Its socket; None until it was looked for."""
    principal: Principal | None = None
    """Whose certificate it has shown by a call that was admitted; anyone's where none is asked for."""
    num_calls: int = 0
    """Calls of it that are open."""
    read_bytes: int = 0
    """Bytes of the messages that its calls have read."""
    is_ended: bool = False

    @property
    def holder(self) -> str:
        """Who has shown a certificate on it; empty without."""
        return "" if self.principal is None or self.principal.is_anyone else self.principal.caller

    @property
    def of(self) -> str | Peer:
        """Whose share its calls in vain take: of its certificate, else of its address. Where none is asked for, and on this
        machine, of itself.
        """
        is_alone = self.principal is not None or is_own(self.peer[0])
        return self.holder or (self.peer if is_alone else network_of(self.peer[0]))


@dataclass(slots=True)
class _Counts:
    """Connections that were ended in one look, by address, holder and reason."""

    of: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def end(self, connection: Connection, why: str) -> None:
        if not connection.is_ended:
            connection.is_ended = True
            self.of[network_of(connection.peer[0]), connection.holder or NOBODY.caller, why] += 1
        if connection.link is not None:
            connection.link.end()


class Connections:
    """The connections of one server; all methods run on the event loop's thread."""

    def __init__(
        self,
        *,
        first_call_s: float = FIRST_CALL_S,
        most: int | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with none.

        Args:
            first_call_s: Time in which a connection makes a call that its caller may make.
            most: Connections that may be open; by the limit of open files if None.
            steady: The steady clock, in seconds.
        """
        self._first_call_s, self._steady = first_call_s, steady
        self.most = most_connections() if most is None else most
        self._open: dict[Peer, Connection] = {}
        self._in_vain = TokenBuckets(IN_VAIN_PER_S, IN_VAIN_AT_ONCE, steady)
        self._refused = TokenBuckets(REFUSED_PER_S, REFUSED_AT_ONCE, steady)
        self._of_gateways = TokenBuckets(OF_A_GATEWAY_PER_S, OF_A_GATEWAY_AT_ONCE, steady)
        self._unread = UnreadBytes(steady)
        self._barred_certificates, self._barred_addresses = Bars(steady), Bars(steady)
        self._told: tuple[str, ...] = ()
        """Addresses that the kernel drops."""
        self._repeated = RepeatedLines(log, steady)
        self._seen: Seen | None = None
        self._looking: threading.Thread | None = None
        self._is_due, self._is_over = threading.Event(), threading.Event()

    def start(self, port: int) -> None:
        """Begin to look at the connections of a port of this process."""
        given = asyncio.get_running_loop(), OwnSockets(port)
        self._looking = threading.Thread(target=self._look_at_times, args=given, name="connections", daemon=True)
        self._looking.start()

    def stop(self) -> None:
        """End looking."""
        self._is_over.set()
        self._is_due.set()

    def called(self, peer: str) -> Connection:
        """Return the connection of a call that begins.

        Args:
            peer: HOST:PORT of the other end.
        """
        where, now = plain_peer(peer), self._steady()
        connection = self._open.get(where)
        if connection is None:
            connection = self._open[where] = Connection(where, now, now)
        connection.num_calls += 1
        return connection

    def admitted(self, connection: Connection, principal: Principal) -> None:
        """Note that the caller of a connection may make a call.

        Raises:
            TooManyCalls: It called in vain too often and has come back too early; the connection ends.
        """
        if principal.role is None and not principal.is_anyone:
            return
        # The certificate's, whosever key a call passes on.
        has_key = bool(principal.key_id or principal.scopes)
        connection.principal = replace(principal, key_id="", scopes=frozenset()) if has_key else principal
        wait_s = self._barred_certificates.wait_s(connection.holder)
        if wait_s:
            self._end([connection], "came back too early")
            wait = math.ceil(wait_s)
            raise TooManyCalls(f"{connection.holder} may connect again in {wait} s", retry_after_s=wait)

    def refused(self, connection: Connection) -> None:
        """Note that the certificate of a connection does not hold any more."""
        connection.principal = None

    def ended(
        self, connection: Connection, *, is_unread: bool = False, is_refused: bool = False
    ) -> FedplccError | None:
        """Note the end of a call; returns why its connection ends, if there were too many in vain.

        Args:
            is_unread: Whether the call failed before its request was read.
            is_refused: Whether it was refused for what its caller is, may or has used up.
        """
        connection.num_calls -= 1
        if self._looking is None:  # nothing can be ended, and nobody forgets a connection but this
            if not connection.num_calls:
                self._open.pop(connection.peer, None)
            return None
        if not (is_unread or is_refused):
            connection.last = self._steady()
            return None
        budget = self._budget(connection.principal, is_refused=is_refused)
        if connection.is_ended or budget is None or not budget.take(connection.of):
            return None
        return self._cut_off(connection, "calls in vain")

    def read(self, peer: Peer, num_bytes: int) -> None:
        """Note that a call of a connection has read a message."""
        connection = self._open.get(peer)
        if connection is not None:
            connection.read_bytes += num_bytes

    def _cut_off(self, connection: Connection, why: str) -> TooManyCalls:
        """End all connections of a caller, and bar it for some time."""
        # Those of a barred address, too, that have shown nothing yet: the caller has as many as it likes.
        who, where = connection.of, network_of(connection.peer[0])
        seconds = self._bar(connection)
        is_barred = self._barred_addresses.wait_s(where) > 0
        its = [
            each
            for each in self._open.values()
            if each.of == who or (is_barred and each.principal is None and network_of(each.peer[0]) == where)
        ]
        self._end(its, why)
        return TooManyCalls(f"too many {why}: its connections were ended", retry_after_s=math.ceil(seconds))

    def _budget(self, principal: Principal | None, *, is_refused: bool) -> TokenBuckets | None:
        if principal is None:
            return self._in_vain
        if principal.role is Role.GATEWAY:
            return None if is_refused else self._of_gateways
        if is_refused:
            return None if principal.is_anyone else self._refused
        return self._in_vain

    def principal_of(self, connection: Connection, current: Principal) -> Principal:
        """Return whose calls were in vain."""
        known = connection.principal or current
        return replace(NOBODY, address=connection.peer[0]) if known.is_anyone else known

    def look(self, seen: Seen, unread: Iterable[Peer] = ()) -> None:
        """Take in what is open, and end what may not be; over `unread` came too much that nobody has read."""
        now, ended = self._steady(), _Counts()
        self._seen = seen
        self._take_in(seen, now)
        for peer in unread:
            if not self._open[peer].is_ended:
                self._cut_off(self._open[peer], "bytes in vain")
        linked = [each for each in self._open.values() if each.link is not None]
        strangers = [each for each in linked if each.principal is None]
        strangers.sort(key=lambda each: each.since)
        for each in linked:
            if each.is_ended:
                ended.end(each, "")
            elif each.principal is None and not each.num_calls and now - each.last >= self._first_call_s:
                ended.end(each, NO_CALL)
        for of_one in _by(strangers, lambda each: "" if is_own(each.peer[0]) else network_of(each.peer[0])):
            for each in of_one[:-MOST_OF_AN_ADDRESS]:
                ended.end(each, "too many connections of an address")
        for of_one in _by(linked, lambda each: each.holder):
            of_one.sort(key=lambda each: (each.num_calls > 0, each.last))
            for each in of_one[: -_most_of(of_one[0])]:
                ended.end(each, "too many connections of a certificate")
        left = [each for each in strangers if not each.is_ended]
        left.sort(key=lambda each: is_own(each.peer[0]))
        for each in left[: self._num_too_many(seen, len(linked))]:
            ended.end(each, "too many connections")
        self._say(ended)
        self._tell_kernel()

    def _num_too_many(self, seen: Seen, num_open: int) -> int:
        """Return how many connections must go, so that some are left for members, and files for what they send."""
        files = most_files()
        return max(0, num_open - (self.most - self.most // KEPT), seen.num_files - (files - files // KEPT))

    def _take_in(self, seen: Seen, now: float) -> None:
        for peer, link in seen.links.items():
            known = self._open.get(peer)
            if known is None or (known.link is not None and known.link.inode != link.inode):
                read_bytes = 0 if known is None else known.read_bytes  # of calls that have begun since the last look
                self._open[peer] = known = Connection(peer, now, now, read_bytes=read_bytes)
            known.link = link
        for peer, known in list(self._open.items()):
            if peer not in seen.links and (known.link is not None or now - known.since > 2 * LOOK_S):
                known.link = None
                if not known.num_calls:
                    del self._open[peer]

    def _end(self, connections: Iterable[Connection], why: str) -> None:
        ended = _Counts()
        for connection in connections:
            ended.end(connection, why)
        self._say(ended)
        self._is_due.set()  # for those whose sockets are not known yet, and those that come while this is done

    def _say(self, ended: _Counts) -> None:
        for (network, caller, why), count in ended.of.items():
            level = logging.DEBUG if why == NO_CALL else logging.WARNING
            level = self._repeated.level(level, network, caller, why)
            named = {"peer": network, "caller": caller, "reason": why, "count": count}
            log.log(level, "connections_ended", **named, open=len(self._open))

    def _bar(self, connection: Connection) -> float:
        """Keep a certificate and its address from connecting for some time; returns it in seconds, 0 if nobody is.

        An address by which others are connected too is that of a network or a proxy. Neither it nor this machine's own is
        barred: others could not come either.
        """
        host, holder, who = connection.peer[0], connection.holder, connection.of
        network, seconds = network_of(host), 0.0
        if holder:
            seconds = self._barred_certificates.begin(holder)
        is_shared = is_own(host) or any(
            each.principal is not None and each.of != who and network_of(each.peer[0]) == network
            for each in self._open.values()
        )
        if not is_shared:
            seconds = max(seconds, self._barred_addresses.begin(network))
            self._tell_kernel()
        return seconds

    def _tell_kernel(self) -> None:
        networks = self._barred_addresses.current()
        if networks == self._told or self._seen is None:
            return
        self._told = networks
        for listening in self._seen.listening:
            with listening.opened() as found:
                if found is not None:
                    bar(found, networks)

    def _look_at_times(self, loop: asyncio.AbstractEventLoop, sockets: OwnSockets) -> None:
        """Look in a thread: gRPC keeps the event loop from its turn while it reads what a flood has sent."""
        next_s = 0.0
        while not self._is_over.is_set():
            begin = self._steady()
            try:
                seen = sockets.look()
                unread = self._unread.ended(seen, self._open)
                if unread or self._is_due.is_set() or begin >= next_s:
                    self._is_due.clear()
                    next_s = begin + LOOK_S
                    loop.call_soon_threadsafe(self._look, seen, unread)
            except OSError as error:
                log.warning("connections_not_seen", detail=error.strerror or str(error))
                self._looking = None
                return  # the system will not show them later
            except RuntimeError:  # the loop has ended
                return
            took_s = self._steady() - begin
            if not self._is_over.wait(max(SOON_S, REST * took_s)):
                self._is_due.wait(min(LOOK_S, LONG_REST * took_s))

    def _look(self, seen: Seen, unread: Iterable[Peer]) -> None:
        try:
            self.look(seen, unread)
        except Exception:
            log.exception("connections_crashed")


def _most_of(connection: Connection) -> int:
    """Return how many connections its certificate may have."""
    is_member = connection.principal is not None and connection.principal.role in {Role.CLIENT, Role.MONITOR}
    return MOST_OF_A_MEMBER if is_member else MOST_OF_A_GATEWAY


def _by(connections: Iterable[Connection], group: Callable[[Connection], str]) -> list[list[Connection]]:
    """Return those of each group in a list, without the group of an empty name."""
    groups = defaultdict[str, list[Connection]](list)
    for connection in connections:
        groups[group(connection)].append(connection)
    groups.pop("", None)
    return list(groups.values())
