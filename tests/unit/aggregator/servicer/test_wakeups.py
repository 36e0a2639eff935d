"""Streams of events wait for their own run's history alone, and for every run's under no name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.reasons import IdleReason
from fedplcc.shared.steering import PauseRun, ResumeRun
from fedplcc.shared.types import Task, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient


def test_a_change_wakes_those_who_read_its_run_and_those_who_read_all() -> None:
    async def woken() -> list[bool]:
        wakeups = Wakeups(asyncio.get_running_loop())
        waiting = [wakeups.events(run_id) for run_id in ("a", "b", "")]
        wakeups.notify((), ("a",))
        await asyncio.wait_for(waiting[0].wait(), 5.0)
        again = wakeups.events("a")
        wakeups.notify(("ann",), ())
        await asyncio.sleep(0)
        return [event.is_set() for event in (*waiting, again)]

    assert asyncio.run(woken()) == [True, False, True, False]


def test_the_end_wakes_everybody() -> None:
    async def woken() -> list[bool]:
        wakeups = Wakeups(asyncio.get_running_loop())
        waiting = [wakeups.events(run_id) for run_id in ("a", "b", "")]
        wakeups.close()
        return [event.is_set() for event in waiting]

    assert asyncio.run(woken()) == [True, True, True]


def test_a_stream_has_two_tasks_a_round_without_a_thread_and_says_what_its_client_waits_for_beside_the_others(
    tmp_path: Path,
) -> None:
    federation = LocalFederation.small(tmp_path / "state")
    ann, bob = federation.clients.values()
    coordinator, asked = federation.coordinator, list[tuple[TaskKind, int]]()

    async def follow() -> None:
        wakeups = Wakeups(asyncio.get_running_loop())
        coordinator.subscribe(wakeups.notify)
        servicer = RoundServicer(coordinator, wakeups, lease_check_s=60.0)
        request = round_pb2.SyncRoundRequest(client_id="ann", instance_token=ann.token)
        stream: Any = servicer.SyncRound(request, cast("Any", None))

        async def heard(*steps: Callable[[], object]) -> Task:
            """Let the stream look after each step, and return what it says after the last."""
            said = asyncio.ensure_future(anext(stream))
            for step in steps:
                step()
                for _ in range(20):
                    await asyncio.sleep(0)
            task = task_from_proto((await said).task)
            asked.append((task.kind, task.round))
            if task.kind is TaskKind.EVALUATE:
                assert coordinator.small_blobs.kept(task.payload.moved) is not None, "no thread is asked for it"
            return task

        def does(client: NumpyClient) -> Callable[[], object]:
            return lambda: federation.perform(client, federation.task(client))

        await heard()
        await heard(does(ann), coordinator.work)
        for _ in range(2):
            await heard(does(ann), does(bob), coordinator.work)
            paused, resumed = (
                partial(coordinator.steer, run.run_id, verb) for verb in (PauseRun(now=True), ResumeRun())
            )
            waits = await heard(does(ann), paused)
            assert waits.idle_reasons == {run.run_id: IdleReason.PAUSED}
            await heard(resumed, does(bob))
        await stream.aclose()

    federation.join()
    run = federation.create()
    asyncio.run(follow())
    federation.close()
    begun = [(TaskKind.INIT, 0)]
    rounds = [[(TaskKind.TRAIN, number), (TaskKind.EVALUATE, number), (TaskKind.WAIT, 0)] for number in (1, 2)]
    assert asked == [*begun, *chain(*rounds), (TaskKind.WAIT, 0)]
