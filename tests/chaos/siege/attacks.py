"""Every attack, with who carries it out and how fast at most: a new finding is another entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.siege import by_key, by_member, by_stranger
from tests.chaos.siege.foe import Foe


class Who(StrEnum):
    """An attacker; each is a process."""

    MEMBER = "mallory"
    REVOKED = "eve"
    KEY = "key"
    STRANGER = "stranger"


SOURCES = {Who.MEMBER: "127.0.0.3", Who.REVOKED: "127.0.0.4", Who.KEY: "127.0.0.5", Who.STRANGER: "127.0.0.2"}
"""Addresses of the attackers' sockets. Honest parts have 127.0.0.1, as gRPC's channels of all have."""


@dataclass(frozen=True)
class Attack:
    """What one attacker does until the siege is over."""

    who: Who
    act: Callable[[Foe], Iterator[str]]
    """Does it once, yielding the outcome of each call; begins anew when it has ended."""
    per_s: float
    """Most calls a second."""

    @property
    def name(self) -> str:
        return f"{self.who}: {(self.act.__doc__ or '').removesuffix('.')}"


ATTACKS = (
    # Time in what is written
    Attack(Who.MEMBER, by_member.long_run_ids, 20),
    Attack(Who.MEMBER, by_member.longest_run_ids, 2),
    Attack(Who.STRANGER, by_stranger.long_queries, 50),
    # Cost before admission
    Attack(Who.REVOKED, by_member.empty_entries, 100),
    Attack(Who.MEMBER, by_member.empty_entries, 20),
    Attack(Who.MEMBER, by_member.large_commits, 20),
    Attack(Who.STRANGER, by_stranger.empty_entries, 20),
    Attack(Who.STRANGER, by_stranger.without_a_certificate, 20),
    Attack(Who.STRANGER, by_stranger.guessed_keys, 20),
    Attack(Who.KEY, by_key.large_configurations, 5),
    # One pool without a share
    Attack(Who.KEY, by_key.event_streams, 100),
    Attack(Who.KEY, by_key.unread_downloads, 100),
    Attack(Who.KEY, by_key.many_runs, 10),
    Attack(Who.KEY, by_key.prototype_maps, 20),
    Attack(Who.KEY, by_key.initial_models, 1),
    Attack(Who.MEMBER, by_member.unread_downloads, 1000),
    Attack(Who.MEMBER, by_member.task_streams, 1000),
    Attack(Who.MEMBER, by_member.stalled_uploads, 100),
    Attack(Who.MEMBER, by_member.renewals, 50),
    Attack(Who.STRANGER, by_stranger.watches, 1000),
    Attack(Who.STRANGER, by_stranger.silent_connections, 40),
    # Small calls that write much
    Attack(Who.MEMBER, by_member.changed_environments, 20),
    Attack(Who.MEMBER, by_member.many_classes, 2),
    Attack(Who.MEMBER, by_member.problems, 50),
    Attack(Who.MEMBER, by_member.refused_heartbeats, 100),
    Attack(Who.MEMBER, by_member.unknown_methods, 100),
    Attack(Who.MEMBER, by_member.cancelled_downloads, 20),
    Attack(Who.REVOKED, by_member.refused_calls, 200),
    Attack(Who.STRANGER, by_stranger.unknown_methods, 200),
    Attack(Who.STRANGER, by_stranger.used_invitations, 100),
    Attack(Who.KEY, by_key.refused_requests, 100),
    Attack(Who.KEY, by_key.left_downloads, 20),
    Attack(Who.KEY, by_key.long_lists, 20),
    # One member's word
    Attack(Who.MEMBER, by_member.extreme_updates, 20),
    # Below gRPC and HTTP
    Attack(Who.MEMBER, by_member.resets, 100),
    Attack(Who.REVOKED, by_member.resets, 100),
    Attack(Who.STRANGER, by_stranger.resets, 100),
    Attack(Who.MEMBER, by_member.connections, 100),
    Attack(Who.STRANGER, by_stranger.connections, 100),
    Attack(Who.STRANGER, by_stranger.silent_sockets, 200),
    Attack(Who.STRANGER, by_stranger.half_bodies, 50),
    Attack(Who.STRANGER, by_stranger.foreign_origins, 200),
    Attack(Who.STRANGER, by_stranger.probes, 100),
)
