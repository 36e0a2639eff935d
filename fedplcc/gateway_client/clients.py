"""A gateway as an object: every operation, and what several of them make together."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fedplcc.gateway_client.operations import AsyncOperations, Operations
from fedplcc.remote.rest_client import Gateway as Rest
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.shared.documents import Event, Run
from fedplcc.shared.errors import PayloadCorrupt, RoundNotFound
from fedplcc.shared.types import BlobRef

File = Literal["model", "prototypes"]
RoundChoice = int | Literal["best"] | None
"""A round, the best one by validation, or the last committed one."""


class AsyncGateway(AsyncOperations):
    """A gateway, for coroutines: `async with AsyncGateway("http://127.0.0.1:8080") as gateway: ...`.

    Each operation of the API is a method with its name; failed requests are sent again where that is safe.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: Path | None = None,
        insecure: bool = False,
        rest: Rest | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: `https://HOST:PORT` or `http://HOST:PORT`; the scheme may be left out.
            key: A key of the gateway; the one that `fedplcc login` keeps for it if None.
            ca: File with the certificates that an https gateway is checked against; those of `fedplcc login` if None.
            insecure: Whether plain text is accepted off loopback.
            rest: The connection, for tests.

        Raises:
            InvalidConfig: It is no such URL, or off loopback without TLS and `insecure`.
        """
        super().__init__(rest or Rest(url, key=key, ca=ca, insecure=insecure))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._rest.__aexit__(kind, error, trace)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event | Run]:
        """Yield a run's events after a sequence, each once and in order, then the run when it has ended.

        Lost connections are opened again.

        Raises:
            FedplccError: The gateway refuses, or was away for five minutes.
        """
        async with aclosing(self._rest.follow(run_id, after=after)) as items:
            async for item in items:
                yield item

    async def wait(self, run_id: str) -> Run:
        """Wait for the end of a run and return it; see `follow`."""
        async for item in self.follow(run_id):
            if isinstance(item, Run):
                return item
        return await self.get_run(run_id)

    async def download(self, run_id: str, kind: File, file: Path, *, round_number: RoundChoice = None) -> None:
        """Write a round's model or prototypes into a file, which takes its name when all of it is there.

        Args:
            run_id: The run.
            kind: Which of the two.
            file: Where to write.
            round_number: Of which round.

        Raises:
            RoundNotFound, BlobNotFound: There is no such round, or its file was collected.
            PayloadCorrupt: What came does not have its SHA-256.
        """
        number = await self._number(run_id, round_number)
        found = await self.get_round(run_id, number)
        blob = found.model if kind == "model" else found.prototypes
        if blob is None:
            raise RoundNotFound(f"run {run_id} has not committed round {number} yet", run_id=run_id, round=number)
        with atomic_file(file) as written:
            reference = BlobRef(kind, blob.sha256, blob.size_bytes)
            await self._rest.download(run_id, reference, written, round_number=number)
            written.flush()
            with Path(written.name).open("rb") as read:
                if hashlib.file_digest(read, "sha256").hexdigest() != blob.sha256:
                    raise PayloadCorrupt(f"{file}: what came does not have its SHA-256", sha256=blob.sha256)

    async def upload_model(self, file: Path) -> str:
        """Upload a model that runs can begin with; returns `run.initial_model` for it."""
        return f"sha256:{(await self._rest.store_model(file)).sha256}"

    async def _number(self, run_id: str, choice: RoundChoice) -> int:
        if isinstance(choice, int):
            return choice
        run = await self.get_run(run_id)
        number = run.best_round if choice == "best" else run.round if run.phase == "committed" else run.round - 1
        if number is None or number < 0:
            raise RoundNotFound(f"run {run_id} has no such round yet", run_id=run_id)
        return number


class Gateway(Operations):
    """A gateway, for plain code: `with Gateway("http://127.0.0.1:8080") as gateway: ...`; see `AsyncGateway`."""

    def __init__(self, url: str, *, key: str | None = None, ca: Path | None = None, insecure: bool = False) -> None:
        """Prepare a client; see `AsyncGateway` for the arguments."""
        self._async = AsyncGateway(url, key=key, ca=ca, insecure=insecure)
        super().__init__(self._async)

    def follow(self, run_id: str, *, after: int = 0) -> Iterator[Event | Run]:
        """Yield a run's events; see `AsyncGateway.follow`."""
        items = self._async.follow(run_id, after=after)
        try:
            while True:
                try:
                    yield self.wait_for(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.wait_for(_closed(items))

    def wait(self, run_id: str) -> Run:
        """Wait for the end of a run and return it."""
        return self.wait_for(self._async.wait(run_id))

    def download(self, run_id: str, kind: File, file: Path, *, round_number: RoundChoice = None) -> None:
        """Write a round's model or prototypes into a file; see `AsyncGateway.download`."""
        self.wait_for(self._async.download(run_id, kind, file, round_number=round_number))

    def upload_model(self, file: Path) -> str:
        """Upload a model that runs can begin with; returns `run.initial_model` for it."""
        return self.wait_for(self._async.upload_model(file))

    def start(self, config: Mapping[str, Any], *, request_id: str | None = None) -> Run:
        """Create a run; the same as `create_run`."""
        return self.create_run(config, request_id=request_id)


async def _next(items: AsyncIterator[Event | Run]) -> Event | Run:
    return await anext(items)


async def _closed(items: Any) -> None:
    await items.aclose()
