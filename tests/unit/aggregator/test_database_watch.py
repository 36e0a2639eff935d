"""The aggregator is not ready while its database is away, and says so to whoever asks the gateway."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from fedplcc.aggregator.database_watch import DatabaseWatch
from fedplcc.shared.errors import StoreUnavailable
from tests.support.federation.served_gateway import ServedGateway


def test_a_gateway_is_ready_only_while_the_aggregators_database_answers(tmp_path: Path) -> None:
    with ServedGateway(tmp_path) as served:
        store = served.federation.store
        away: list[bool] = []

        def ask() -> object:
            if away[-1]:
                raise StoreUnavailable("the database is away")
            return store.audit_head()

        watch = DatabaseWatch(ask, served.report)
        answers = []
        for is_away in (False, True, True, False):
            away.append(is_away)
            served.run(watch.look())
            answers.append(served.http.get("/readyz").status_code)
        assert answers == [200, 503, 503, 200]


def test_a_database_that_hangs_is_away_and_is_not_asked_twice_at_once() -> None:
    going_on = threading.Event()
    asked: list[str] = []
    told: list[bool] = []

    def ask() -> None:
        asked.append("asked")
        going_on.wait()

    async def report(answers: bool) -> None:
        told.append(answers)

    async def look() -> None:
        watch = DatabaseWatch(ask, report, answer_s=0.01)
        await watch.look()
        await watch.look()
        assert (asked, told) == (["asked"], [False])
        going_on.set()
        while told != [False, True]:
            await watch.look()

    asyncio.run(look())
