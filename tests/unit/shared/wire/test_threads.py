"""Threads of many callers: one takes all it can, another is served; who gives up keeps its place while a thread works."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fedplcc.aggregator.servicer import calls
from fedplcc.aggregator.servicer.enrol_service import EnrolServicer
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.errors import Overloaded
from fedplcc.shared.identity.principals import ANYONE, Principal, current_principal
from fedplcc.shared.wire.serving.threads import Threads

DEADLINE_S = 30.0
GREEDY = 1000


def runs(name: str) -> Threads:
    found: Threads = getattr(RunServicer(None, None), name)  # type: ignore[arg-type]
    return found


POOLS: dict[str, Callable[[], Threads]] = {
    "trainers' calls": lambda: calls._calls,
    "control calls": lambda: calls._control,
    "enrolment": lambda: EnrolServicer(None, "")._thread,  # type: ignore[arg-type]
    "creations": lambda: runs("_creating"),
    "prototype maps": lambda: runs("_drawing"),
    "deletions": lambda: runs("_deleting"),
}


async def other_is_served(call: Callable[[str, Callable[[], str]], Any]) -> tuple[int, list[str]]:
    """Have one caller take all it can, then another ask; returns how much waits for good, and who was served in what order.

    A piece of the greedy caller's work takes until a permit is given: one is enough for the other to be next.
    """
    permits, served = threading.Semaphore(0), queue.SimpleQueue[str]()

    def slow() -> str:
        assert permits.acquire(timeout=DEADLINE_S)
        served.put("greedy")
        return "greedy"

    def quick() -> str:
        served.put("other")
        return "other"

    greedy = [asyncio.create_task(call("greedy", slow)) for _ in range(GREEDY)]
    try:
        await asyncio.sleep(0.1)
        refused = [task for task in greedy if task.done() and isinstance(task.exception(), Overloaded)]
        other = asyncio.create_task(call("other", quick))
        await asyncio.sleep(0.1)
        permits.release()
        async with asyncio.timeout(DEADLINE_S):
            assert await other == "other"
        return len(greedy) - len(refused), [served.get(timeout=DEADLINE_S) for _ in range(served.qsize())]
    finally:
        permits.release(GREEDY)
        await asyncio.gather(*greedy, return_exceptions=True)


def taken(threads: Threads) -> tuple[int, list[str]]:
    async def take() -> tuple[int, list[str]]:
        return await other_is_served(lambda caller, work: threads.call_for(caller, work))

    return asyncio.run(take())


@pytest.mark.parametrize("name", POOLS)
def test_one_caller_takes_all_it_can_and_another_is_served(name: str, covered: Callable[[str], None]) -> None:
    threads = POOLS[name]()
    held, served = taken(threads)
    covered(f"{name}: {held} of {GREEDY} calls")
    assert held < GREEDY, "one caller's line ends"
    assert served in (["other"], ["greedy", "other"])
    assert not threads._places._lines


def test_threads_without_shares_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEADLINE_S", 0.2)
    with pytest.raises(TimeoutError):
        taken(Threads(1, "planted", at_once=GREEDY, waiting=0))


def test_one_key_leaves_the_gateways_thread_to_another() -> None:
    turns = Services(metrics=GatewayMetrics()).turns

    async def call(caller: str, work: Callable[[], str]) -> str:
        caller_key.set(caller)  # of this task alone
        return await turns.take(work)

    held, served = asyncio.run(other_is_served(call))
    assert held <= 8
    assert served == ["greedy", "other"]


def test_a_call_counts_for_who_makes_it_and_for_nobody_where_anyone_may() -> None:
    async def take(principal: Principal) -> int:
        threads = Threads(1, "test", at_once=1, waiting=2)
        current_principal.set(principal)
        may_end = threading.Event()
        tasks = [asyncio.create_task(threads.call(may_end.wait, DEADLINE_S)) for _ in range(10)]
        await asyncio.sleep(0.1)
        may_end.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(answer, Overloaded) for answer in answers)

    assert asyncio.run(take(Principal(key_id="k1"))) == 7
    assert asyncio.run(take(ANYONE)) == 0


def test_who_gives_up_keeps_its_threads_until_they_have_ended() -> None:
    async def give_up_often() -> tuple[int, int]:
        threads, may_end = Threads(4, "test", at_once=2, waiting=8), threading.Event()
        begun = queue.SimpleQueue[int]()

        def slow(number: int) -> None:
            begun.put(number)
            assert may_end.wait(DEADLINE_S)

        for number in range(20):
            task = asyncio.create_task(threads.call_for("greedy", slow, number))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait((task,))
        at_work = begun.qsize()
        async with asyncio.timeout(DEADLINE_S):
            assert await threads.call_for("other", lambda: "served") == "served"
            may_end.set()
            while threads._places._lines:
                await asyncio.sleep(0.01)
        return at_work, begun.qsize()

    assert asyncio.run(give_up_often()) == (2, 2)
