"""The follower of a run behind a gateway: the same callbacks as a simulation's, from the same events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, closing

from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.remote.fetch import manifest_of
from fedplcc.shared.documents import Run
from fedplcc.tracking.callbacks import Callback, RunEnd, RunStart
from fedplcc.tracking.observation import Observation
from fedplcc.tracking.round_events import RoundEvents


async def follow_run(
    gateway: AsyncGateway,
    run: Run,
    callbacks: Sequence[Callback],
    *,
    on_note: Callable[[str], None] = lambda text: None,
) -> Run:
    """Tell callbacks of a run from its first round to its end, through restarts of gateway and aggregator.

    A tracker's calls block this event loop; nothing else runs in it.

    Args:
        on_note: Takes sentences for people.

    Returns:
        The run when it has ended.

    Raises:
        Unavailable: The gateway is away for too long, or a tracker lacks rounds at the end.
    """
    with closing(Observation(callbacks, on_note)) as observation:
        return await _follow(gateway, run, observation, on_note)


async def _follow(gateway: AsyncGateway, run: Run, observation: Observation, on_note: Callable[[str], None]) -> Run:
    manifest, rounds = await manifest_of(gateway, run.run_id), RoundEvents()
    observation.start(
        RunStart(
            run_id=run.run_id,
            label=run.run_id,
            total_rounds=run.total_rounds,
            config=manifest["config"],
            config_hash=run.config_hash,
            tags=tuple(run.model_dump().get("tags", ())),
        )
    )
    async with aclosing(gateway.follow(run.run_id, on_trouble=lambda why: on_note(why) if why else None)) as items:
        async for item in items:
            if isinstance(item, Run):
                run = item
            elif (result := rounds.take(item)) is not None:
                observation.round(result)
    observation.end(RunEnd(status=run.status.value, reason=run.reason))
    return run
