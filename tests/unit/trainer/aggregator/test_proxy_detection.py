"""When breaking streams are a proxy's doing, and when they are not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from trainer.aggregator.proxy_detection import Cuts


def told(ages_s: Iterable[float | None], cuts: Cuts | None = None) -> list[float]:
    """What is said of streams that break after so many idle seconds; None is an aggregator that does not answer."""
    cuts, now, said = cuts or Cuts(), 1000.0, []
    for age_s in ages_s:
        idle_s = None if age_s is None else cuts.joined()
        if idle_s is not None:
            said.append(idle_s)
        if age_s is not None:
            cuts.spoke(now)
            now += age_s
        cuts.broke(now)
        now += 0.2
    idle_s = cuts.joined()
    return [*said, *([] if idle_s is None else [idle_s])]


@pytest.mark.parametrize("ages_s", [[60.0, 60.1, 60.0], [1000.0, 3.0, 60.0, 55.0, 62.0], [1.0, 1.2, 1.0]])
def test_streams_that_break_at_about_the_same_idle_age_are_cut(ages_s: list[float]) -> None:
    assert told(ages_s) == [pytest.approx(max(ages_s[-3:]))]


@pytest.mark.parametrize(
    "ages_s",
    [
        pytest.param([60.0, 60.0], id="twice may be chance"),
        pytest.param([60.0, 5.0, 200.0, 60.0], id="each at another age"),
        pytest.param([60.0, 60.0, None, 60.0, 60.0], id="the aggregator was away"),
        pytest.param([0.01, 0.01, 0.01, 0.01], id="refused as soon as opened"),
        pytest.param([None, None, None, None], id="never there"),
    ],
)
def test_other_breaks_are_not(ages_s: list[float | None]) -> None:
    assert told(ages_s) == []


def test_it_is_said_once() -> None:
    assert told([60.0] * 10) == [60.0]


def test_an_end_with_a_reason_begins_the_count_anew() -> None:
    cuts = Cuts()
    assert told([60.0, 60.0], cuts) == []
    cuts.spoke(0.0)
    cuts.ended()
    assert told([60.0], cuts) == []
    assert told([60.0, 60.0], cuts) == [60.0]


def test_a_message_begins_the_idle_time_anew() -> None:
    cuts = Cuts()
    for begin in (0.0, 1000.0, 2000.0):
        for second in range(0, 500, 50 + int(begin) // 100):
            cuts.spoke(begin + second)
        last = begin + second
        cuts.broke(last + 60.0)
    assert cuts.joined() == 60.0
