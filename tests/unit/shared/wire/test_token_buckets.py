from __future__ import annotations

from fedplcc.shared.wire.serving import token_buckets
from fedplcc.shared.wire.serving.token_buckets import MAX_BUCKETS, TokenBuckets
from tests.support.clock import Clock


def test_a_full_bucket_gives_its_tokens_at_once_and_then_as_many_as_come_back() -> None:
    clock = Clock(0.0)
    buckets = TokenBuckets(per_s=2, most=3, clock=clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    clock.now = 0.5
    assert (buckets.take("a"), buckets.take("a")) == (0, 0.5)
    clock.now = 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_refusal_takes_nothing_and_other_callers_are_not_touched() -> None:
    clock = Clock(0.0)
    buckets = TokenBuckets(per_s=1, most=1, clock=clock)
    assert buckets.take("a") == 0
    assert {buckets.take("a") for _ in range(1000)} == {1}
    assert buckets.take("b") == 0
    clock.now = 1
    assert buckets.take("a") == 0


def test_strangers_do_not_fill_the_memory() -> None:
    buckets = TokenBuckets(per_s=1e-9, most=1, clock=Clock(0.0))
    for caller in range(MAX_BUCKETS + 10):
        buckets.take(caller)
    assert len(buckets._held) == token_buckets.MAX_BUCKETS
    assert buckets.take(MAX_BUCKETS + 9) > 0
    assert buckets.take(0) == 0  # forgotten
