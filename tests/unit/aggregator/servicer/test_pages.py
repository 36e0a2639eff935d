"""Pages of long lists read about as much as they send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from fedplcc.aggregator.servicer.pages import MAX_PAGE, MAX_PAGE_BYTES, cut_page, listing
from fedplcc.shared.types import EventQuery, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.records.builders import a_round, a_run, an_evaluation
from tests.support.records.sql_statements import statements


@pytest.mark.parametrize("entry_bytes", [10, 1000, MAX_PAGE_BYTES // 8, MAX_PAGE_BYTES // 2, 2 * MAX_PAGE_BYTES])
def test_a_page_reads_at_most_three_times_the_records_that_it_sends(entry_bytes: int) -> None:
    asked: list[int] = []

    def read(last: int, most: int) -> list[int]:
        asked.append(most)
        return list(range(last + 1, last + 1 + most))

    entries = (BytesValue(value=bytes(entry_bytes)) for _ in listing(read, -1, lambda number: number))
    page, is_cut = cut_page(entries, MAX_PAGE)
    assert is_cut
    assert sum(asked) <= 3 * len(page) + 3
    assert len(asked) <= 16


def test_listing_a_run_that_has_ended_reads_nothing_else_of_it(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, [], None, None)
    run = a_run(RunStatus.COMPLETED, run_id="ended", roster=("ann",), total_rounds=3)
    with federation.store.transaction() as transaction:
        transaction.add_run(run, request_id="ended", request_hash="")
        for number in range(4):
            transaction.save_run(replace(run, current_round=a_round(number, cohort=("ann",))))
        transaction.add_evaluation("ended", 3, an_evaluation("ann"))
    coordinator = federation.coordinator
    with statements(federation.store) as asked:
        assert coordinator.has_ended("ended")
        assert len(coordinator.list_rounds("ended")) == 4
        assert coordinator.list_events(EventQuery(run_id="ended")) == []
    assert not [statement for statement in asked if "FROM evaluations" in statement or "FROM updates" in statement]
    with statements(federation.store) as asked:
        assert len(coordinator.list_evaluations("ended", 3)) == 1
    assert len([statement for statement in asked if "FROM evaluations" in statement]) == 1
    federation.store.close()
