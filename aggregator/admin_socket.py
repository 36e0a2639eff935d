"""The Unix socket through which the owner of the state directory administers: who may open it is the administrator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.disk import why_unusable
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.channels import SERVER_OPTIONS
from fedplcc.shared.wire.serving.caller import Callers
from fedplcc.shared.wire.serving.interceptor import ErrorInterceptor

SOCKET_FILE = "admin.sock"
"""Name of the socket in the state directory."""
MAX_PATH_BYTES = 100
"""Longest path of a socket in its folder; the systems' limit is 104 to 108 bytes with a zero at the end."""
MAX_CALLS = 32
"""Calls that are answered at the same time; more are refused."""
_OTHERS = 0o177
"""Rights that a new socket lacks: it is made 0600, so that nobody else can open it for a moment either."""


class AdminSocket:
    """A gRPC server at a Unix socket that only its owner may open."""

    def __init__(self, state_dir: Path, register: Callable[[Any, Any], None], servicer: object) -> None:
        """Prepare; nothing listens before `start`.

        Args:
            register: The generated `add_AdminServiceServicer_to_server`.
        """
        self._state_dir, self._register, self._servicer = state_dir, register, servicer
        self._server: grpc.aio.Server | None = None
        self._private_folder: Path | None = None
        self.path: Path | None = None
        """Where it listens."""

    async def start(self, callers: Callers, observer: CallObserver) -> Path:
        """Listen and serve; returns the path of the socket, which is in a private folder if it would be too long.

        Raises:
            StoreUnavailable: The socket cannot be made.
        """
        server = grpc.aio.server(
            interceptors=[ErrorInterceptor(observer=observer, callers=callers)],
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        self._register(self._servicer, server)
        path = self._place()
        before = os.umask(_OTHERS)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise StoreUnavailable(f"cannot make the socket {path}: {error}") from error
        finally:
            os.umask(before)
        await server.start()
        self._server, self.path = server, path
        return path

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give running calls `grace_s` seconds, and remove the socket."""
        if self._server is not None:
            await self._server.stop(grace_s)
        if self.path is not None:
            disk.remove(self.path, "admin_socket")
        if self._private_folder is not None:
            disk.remove_tree(self._private_folder, "admin_socket")

    def _place(self) -> Path:
        path = (self._state_dir / SOCKET_FILE).absolute()
        try:
            if len(os.fsencode(path)) > MAX_PATH_BYTES:
                self._private_folder = Path(tempfile.mkdtemp(prefix="fedplcc-"))  # made 0700
                path = self._private_folder / SOCKET_FILE
            disk.remove(path, "admin_socket")  # of a process that was killed
        except OSError as error:
            raise StoreUnavailable(why_unusable(self._state_dir, error)) from error
        return path
