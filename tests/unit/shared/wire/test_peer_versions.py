"""The rule of versions: one minor version apart is served, more is refused by name, and who says nothing is served."""

from __future__ import annotations

import pytest

from fedplcc.shared.errors import VersionRefused
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.channels import CHANNEL_OPTIONS
from fedplcc.shared.wire.peer_versions import USER_AGENT, check_version, works_with


@pytest.mark.parametrize(
    ("other", "own", "works"),
    [
        ("0.2.0", "0.2.9", True),
        ("0.2.0", "0.3.0", True),
        ("0.4.1", "0.3.0", True),
        ("0.10.0", "0.9.0", True),
        ("0.3.0rc1", "0.2.0", True),
        ("0.1.0", "0.3.0", False),
        ("0.9.0", "0.2.0", False),
        ("1.2.0", "0.2.0", False),
        ("0", "0.2.0", False),
        ("", "0.2.0", False),
        ("0.3" + "0" * 40, "0.3.0", False),
    ],
)
def test_versions_that_are_one_minor_apart_work_together(other: str, own: str, works: bool) -> None:
    assert works_with(other, own) is works
    assert works_with(VERSION)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Mozilla/5.0",
        "grpc-python/1.70 grpc-c/44",
        "curl/8 fedplcc/9.9.9",
        USER_AGENT,
        f"{USER_AGENT} grpc-python/1.7",
    ],
)
def test_who_is_of_this_version_or_no_fedplcc_is_served(said: str) -> None:
    check_version(said)


@pytest.mark.parametrize("said", ["fedplcc/9.9.9", "fedplcc/9.9.9 grpc-python/1.70", "fedplcc/9.9rc1"])
def test_who_is_too_far_away_is_refused_with_both_versions(said: str) -> None:
    with pytest.raises(VersionRefused, match=r"this is fedplcc \S+, and the caller's is 9\.9") as refused:
        check_version(said)
    assert refused.value.metadata["version"] == VERSION
    assert refused.value.metadata["caller_version"] == said.split()[0].removeprefix("fedplcc/")


def test_every_channel_says_the_version() -> None:
    assert ("grpc.primary_user_agent", USER_AGENT) in CHANNEL_OPTIONS
