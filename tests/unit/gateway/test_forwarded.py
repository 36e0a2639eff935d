from __future__ import annotations

import ipaddress

import pytest

from fedplcc.gateway.http.guards.forwarded import MAX_PROXIES, caller_address, client_of, is_listed
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import InvalidConfig

LISTED = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("127.0.0.1"), ipaddress.ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("", ""),
        ("192.0.2.7", "192.0.2.7"),
        ("203.0.113.9, 192.0.2.7", "192.0.2.7"),  # what stands before it is the client's own word
        ("192.0.2.7, 10.1.1.1", "192.0.2.7"),
        ("192.0.2.7,10.1.1.1 , 127.0.0.1", "192.0.2.7"),
        ("2001:db8::7, fd00::1", "2001:db8::7"),
        ("10.1.1.1", ""),
        ("192.0.2.7, unknown", ""),
        ("192.0.2.7, " + ", ".join(["10.1.1.1"] * MAX_PROXIES), ""),
        (", " * 50_000, ""),
    ],
)
def test_the_last_address_that_is_no_listed_proxy_is_the_client(header: str, client: str) -> None:
    assert client_of(header, LISTED) == client


def test_an_address_is_listed_in_both_ways_of_writing_it() -> None:
    assert is_listed("10.2.3.4", LISTED)
    assert is_listed("::ffff:10.2.3.4", LISTED)
    assert not is_listed("192.0.2.1", LISTED)
    assert not is_listed("testclient", LISTED)


@pytest.mark.parametrize(
    ("host", "caller"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("a" * 100, "a" * 64),
    ],
)
def test_who_has_one_address_of_a_network_has_all_of_them(host: str, caller: str) -> None:
    assert caller_address({"client": (host, 1)}) == caller


def test_without_an_address_all_are_one_caller() -> None:
    assert caller_address({"client": None}) == caller_address({}) == ""


def test_a_proxy_that_is_no_address_is_refused() -> None:
    assert len(GatewaySettings(trusted_proxy=("10.0.0.1", "fd00::/8")).proxies) == 2
    with pytest.raises((InvalidConfig, ValueError), match="write an address"):
        GatewaySettings(trusted_proxy=("proxy.example.org",))
