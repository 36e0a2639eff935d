"""The limit of calls a minute for each address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.servicer import call_rate
from fedplcc.aggregator.servicer.call_rate import CallRate, address_of
from fedplcc.shared.errors import TooManyCalls
from tests.support.clock import Clock


def test_an_address_over_the_limit_may_call_again_when_it_is_told() -> None:
    clock = Clock(0.0)
    rate = CallRate(10, 60.0, clock)
    for _ in range(10):
        rate.count("192.0.2.1")
    with pytest.raises(TooManyCalls) as refused:
        rate.count("192.0.2.1")
    rate.count("192.0.2.2")
    clock.now += float(refused.value.metadata["retry_after_s"])
    rate.count("192.0.2.1")


def test_a_call_that_is_given_back_is_not_counted_and_never_gives_more_than_the_limit() -> None:
    rate = CallRate(2, 60.0, Clock(0.0))
    for _ in range(5):
        rate.count("192.0.2.1")
        rate.give_back("192.0.2.1")
    rate.give_back("192.0.2.1")
    rate.give_back("192.0.2.2")
    for _ in range(2):
        rate.count("192.0.2.1")
    with pytest.raises(TooManyCalls):
        rate.count("192.0.2.1")


@given(st.lists(st.floats(0, 30), max_size=80))
def test_no_minute_has_more_than_twice_the_calls_and_refusals_cost_nothing(waits: list[float]) -> None:
    clock, allowed = Clock(0.0), list[float]()
    rate = CallRate(10, 60.0, clock)
    for wait in waits:
        clock.now += wait
        try:
            rate.count("a")
        except TooManyCalls:
            continue
        allowed.append(clock.now)
    for begin in allowed:
        assert sum(begin <= time < begin + 60 for time in allowed) <= 20


def test_the_memory_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_rate, "MAX_ADDRESSES", 3)
    rate = CallRate(1, 60.0, Clock(0.0))
    for number in range(9):
        rate.count(str(number))
    with pytest.raises(TooManyCalls):
        rate.count("8")
    rate.count("0")


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:5000", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff::1]:5000", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:192.0.2.1]:5000", "192.0.2.1"),
        ("ipv6:[fe80::1%25eth0]:5000", "fe80::/64"),
        ("unix:/run/admin.sock", "unix:/run/admin.sock"),
        ("ipv4:nonsense", ""),
    ],
)
def test_an_address_is_an_ipv4_address_or_an_ipv6_network(peer: str, address: str) -> None:
    assert address_of(peer) == address
