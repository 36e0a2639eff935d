"""Refusals that wait: one record a minute for each caller and reason, and bounded memory."""

from __future__ import annotations

from dataclasses import replace

from fedplcc.aggregator.identity.refusals import BETWEEN_S, MOST_CALLERS, OTHERS, Refusals
from fedplcc.shared.identity.audit_chain import REFUSED, AuditRecord
from tests.support.clock import Clock


def refusal(caller: str = "nobody", reason: str = "KEY_INVALID", time: float = 1.0) -> AuditRecord:
    return AuditRecord(time=time, caller=caller, method="GetRun", outcome=REFUSED, reason=reason)


def test_the_first_is_due_at_once_and_the_others_together_a_minute_later() -> None:
    clock = Clock(0.0)
    refusals = Refusals(clock)
    refusals.add(refusal())
    assert refusals.take_due() == [refusal()]
    for at in (1.0, 2.0, 59.0):
        clock.now = at
        refusals.add(refusal(time=1.0 + at))
        assert refusals.take_due() == []
    clock.now = BETWEEN_S
    assert refusals.take_due() == [replace(refusal(time=2.0), count=3)]
    assert refusals.take_due() == []


def test_callers_and_reasons_are_told_apart() -> None:
    refusals = Refusals(Clock(0.0))
    each = [refusal("a"), refusal("b"), refusal("a", "SCOPE_MISSING")]
    for record in each:
        refusals.add(record)
    assert set(refusals.take_due()) == set(each)


def test_callers_beyond_the_bound_are_counted_together() -> None:
    clock = Clock(0.0)
    refusals = Refusals(clock)
    for number in range(10 * MOST_CALLERS):
        refusals.add(refusal(f"client:{number}"))
    records = refusals.take_due()
    assert len(records) == MOST_CALLERS + 1
    assert [record.count for record in records if record.caller == OTHERS] == [9 * MOST_CALLERS]
    assert sum(record.count for record in records) == 10 * MOST_CALLERS
    clock.now = BETWEEN_S
    assert refusals.take_due() == []
    refusals.add(refusal("client:new"))
    assert [record.caller for record in refusals.take_due()] == ["client:new"]


def test_records_that_could_not_be_written_wait_with_their_counts() -> None:
    clock = Clock(0.0)
    refusals = Refusals(clock)
    refusals.add(refusal(time=1.0))
    taken = refusals.take_due()
    refusals.add(refusal(time=5.0))
    refusals.put_back(taken)
    assert refusals.take_due() == [replace(refusal(time=1.0), count=2)]


def test_all_that_waits_is_taken_at_the_end() -> None:
    refusals = Refusals(Clock(0.0))
    refusals.add(refusal())
    refusals.take_due()
    refusals.add(refusal())
    assert refusals.take_due(all_of_them=True) == [refusal()]


def test_strangers_are_told_apart_by_their_addresses_and_leave_room_to_others() -> None:
    refusals = Refusals(Clock(0.0))
    for number in range(2 * MOST_CALLERS):
        for _ in range(2):
            refusals.add(replace(refusal("nobody"), address=f"2001:db8:0:{number:x}::1"))
    refusals.add(refusal("client:mallory"))
    records = refusals.take_due()
    assert len(records) == MOST_CALLERS // 2 + 2
    assert [record.count for record in records if record.caller == "client:mallory"] == [1]
    assert sum(record.count for record in records) == 4 * MOST_CALLERS + 1
