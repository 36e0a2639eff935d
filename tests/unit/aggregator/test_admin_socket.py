"""The socket of the state directory's owner."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.admin_socket import MAX_PATH_BYTES, AdminSocket
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.serving.caller import Callers


def nothing(_servicer: Any, _server: Any) -> None:
    """Serve no method."""


@pytest.mark.parametrize("is_long", [False, True])
def test_only_the_owner_may_open_it_and_nothing_is_left(folder: Path, is_long: bool) -> None:
    state = folder / ("x" * MAX_PATH_BYTES if is_long else "s")
    state.mkdir()

    async def serve() -> Path:
        socket = AdminSocket(state, nothing, None)
        path = await socket.start(Callers(None), CallObserver())
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        if is_long:
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (path.parent != state) == is_long
        await socket.stop(0.0)
        return path

    path = asyncio.run(serve())
    assert not path.exists()
    assert path.parent.exists() == (not is_long)
