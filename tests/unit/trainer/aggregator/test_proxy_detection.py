"""Detection of a proxy that breaks streams, and of streams that break for other reasons."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fedplcc.trainer.aggregator.proxy_detection import ProxyDetector


def told(ages_s: Iterable[float | None], detector: ProxyDetector | None = None) -> list[float]:
    """What is said of streams that break after so many idle seconds; None is an aggregator that does not answer."""
    detector, now, said = detector or ProxyDetector(), 1000.0, []
    for age_s in ages_s:
        idle_s = None if age_s is None else detector.joined()
        if idle_s is not None:
            said.append(idle_s)
        if age_s is not None:
            detector.received(now)
            now += age_s
        detector.broke(now)
        now += 0.2
    idle_s = detector.joined()
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
    detector = ProxyDetector()
    assert told([60.0, 60.0], detector) == []
    detector.received(0.0)
    detector.ended()
    assert told([60.0], detector) == []
    assert told([60.0, 60.0], detector) == [60.0]


def test_a_message_begins_the_idle_time_anew() -> None:
    detector = ProxyDetector()
    for begin in (0.0, 1000.0, 2000.0):
        for second in range(0, 500, 50 + int(begin) // 100):
            detector.received(begin + second)
        last = begin + second
        detector.broke(last + 60.0)
    assert detector.joined() == 60.0
