"""A gateway as an object: every operation, and what several of them make together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar

from fedplcc.gateway_client import transfers
from fedplcc.gateway_client.calls import SentFile, waited
from fedplcc.gateway_client.operations import AsyncOperations, Operations
from fedplcc.gateway_client.transport import Transport
from fedplcc.runs.artifacts import blob_file
from fedplcc.runs.initial_model import model_blob
from fedplcc.shared.documents import Client, Event, Round, Run, RunPage, RunSummary
from fedplcc.shared.errors import RoundNotFound
from fedplcc.shared.types import BlobRef, RoundPhase

File = Literal["model", "prototypes"]
RoundChoice = int | Literal["best"] | None
"""A round, the best one by validation, or the last committed one."""
PAGE_SIZE, CLIENTS_PAGE_SIZE = 200, 1000


class _Page(Protocol):
    @property
    def next_page_token(self) -> str | None: ...


Page = TypeVar("Page", bound=_Page)


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
        transport: Transport | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: `https://HOST:PORT` or `http://HOST:PORT`; the scheme may be left out.
            key: A key of the gateway; the one that `fedplcc login` keeps for it if None.
            ca: File with the certificates that an https gateway is checked against; those of `fedplcc login` if None.
            insecure: Whether plain text is accepted off loopback.
            transport: The connections, where they are others than these.

        Raises:
            InvalidConfig: It is no such URL, or off loopback without TLS and `insecure`.
        """
        super().__init__(transport or Transport(url, key=key, ca=ca, insecure=insecure))

    @property
    def url(self) -> str:
        """The gateway's URL, with its scheme."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._transport.close()

    async def follow(
        self, run_id: str, *, after: int = 0, on_trouble: Callable[[str], None] = lambda why: None
    ) -> AsyncGenerator[Event | Run, None]:
        """Yield a run's events after a sequence, each once and in order, then the run when it has ended.

        Lost connections are opened again.

        Args:
            run_id: The run.
            after: The last event that is known already.
            on_trouble: Called with the reason at each attempt to reconnect, and with "" when events may come again.

        Raises:
            FedplccError: The gateway refuses; or it was not there at first, or was away for five minutes.
        """
        async with aclosing(
            transfers.follow(self._transport, self._path(run_id, "events"), after, on_trouble)
        ) as items:
            async for item in items:
                yield item

    async def wait(self, run_id: str) -> Run:
        """Wait for the end of a run and return it; see `follow`."""
        async for item in self.follow(run_id):
            if isinstance(item, Run):
                return item
        return await self.get_run(run_id)

    async def download(
        self,
        run_id: str,
        kind: File,
        file: Path,
        *,
        round_number: RoundChoice = None,
        on_bytes: Callable[[int, int], None] = lambda count, size_bytes: None,
    ) -> None:
        """Write a round's model or prototypes into a file, which takes its name when all of it is there.

        Args:
            run_id: The run.
            kind: Which of the two.
            file: Where to write.
            round_number: Of which round.
            on_bytes: Called with the number of bytes of each piece, and of the whole.

        Raises:
            RoundNotFound, BlobNotFound: There is no such round, or its file was collected.
            PayloadCorrupt: What came does not have its SHA-256.
        """
        number = await self._number(run_id, round_number)
        blob = (await self.results(run_id, number))[kind == "prototypes"]
        with blob_file(file, blob) as written:
            path = self._path(run_id, kind)
            async for piece in transfers.download(self._transport, path, number, blob):
                written.write(piece)
                on_bytes(len(piece), blob.size_bytes)

    async def upload_model(self, file: Path, *, on_bytes: Callable[[int], None] = lambda count: None) -> str:
        """Upload a model that runs can begin with; returns `run.initial_model` for it.

        Args:
            file: A safetensors file.
            on_bytes: Called with the number of bytes of each sent piece; a second attempt counts again.

        Raises:
            InvalidConfig: The file cannot be read, or is no safetensors file.
            InvalidModel, BlobTooLarge, BlobCorrupt: The gateway refuses it.
        """
        blob = model_blob(file)
        name = "".join(each if each.isprintable() else "?" for each in file.name)  # as the history takes it
        stored = await self.put_model(blob.sha256, SentFile(file, blob.size_bytes, on_bytes), name=name)
        return f"sha256:{stored.sha256}"

    async def first_runs(self, limit: int, **filters: str | Sequence[str]) -> RunPage:
        """Return the first runs that match as one page; see `list_runs`."""
        runs: list[RunSummary] = []
        asked: dict[str, Any] = {name: value for name, value in filters.items() if value}
        async for page in pages(self.list_runs, page_size=min(PAGE_SIZE, limit), **asked):
            runs += page.runs
            if len(runs) >= limit:
                break
        return page.model_copy(update={"runs": runs[:limit]})

    async def all_clients(self) -> list[Client]:
        """Return every client that ever joined, with its activity."""
        found = pages(self.list_clients, page_size=CLIENTS_PAGE_SIZE)
        return [client async for page in found for client in page.clients]

    async def last_rounds(self, run: Run) -> list[Round]:
        """Return a run's open round, if one is open, and the one before it."""
        return (await self.list_rounds(run.run_id, after=max(run.round - 2, -1))).rounds

    async def results(self, run_id: str, number: int) -> tuple[BlobRef, BlobRef]:
        """Return the names of the global model and the global prototypes of a committed round.

        Raises:
            RoundNotFound: It has not committed.
        """
        page = await self.list_rounds(run_id, after=number - 1, page_size=1)
        found = next((current for current in page.rounds if current.round == number), None)
        if found is None or found.phase is not RoundPhase.COMMITTED or not (found.model and found.prototypes):
            raise RoundNotFound(f"run {run_id} has not committed round {number} yet", run_id=run_id, round=number)
        return (
            BlobRef("model", found.model.sha256, found.model.size_bytes),
            BlobRef("prototypes", found.prototypes.sha256, found.prototypes.size_bytes),
        )

    async def _number(self, run_id: str, choice: RoundChoice) -> int:
        if isinstance(choice, int):
            return choice
        run = await self.get_run(run_id)
        number = run.best_round if choice == "best" else run.round if run.phase == "committed" else run.round - 1
        if number is None or number < 0:
            raise RoundNotFound(f"run {run_id} has no such round yet", run_id=run_id)
        return number

    def _path(self, run_id: str, part: str) -> str:
        return f"/v1/runs/{self.quoted(run_id)}/{part}"


class Gateway(Operations):
    """A gateway, for plain code: `with Gateway("http://127.0.0.1:8080") as gateway: ...`; see `AsyncGateway`."""

    def __init__(self, url: str, *, key: str | None = None, ca: Path | None = None, insecure: bool = False) -> None:
        """Prepare a client; see `AsyncGateway` for the arguments."""
        self._async = AsyncGateway(url, key=key, ca=ca, insecure=insecure)
        super().__init__(self._async)

    wait = waited(AsyncGateway.wait)
    download = waited(AsyncGateway.download)
    upload_model = waited(AsyncGateway.upload_model)

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
            self.wait_for(items.aclose())


async def pages(list_page: Callable[..., Awaitable[Page]], **asked: Any) -> AsyncIterator[Page]:
    """Yield the pages of a list, the first one in any case."""
    while True:
        page = await list_page(**asked)
        yield page
        if page.next_page_token is None:
            return
        asked["page_token"] = page.next_page_token


async def _next(items: AsyncIterator[Event | Run]) -> Event | Run:
    return await anext(items)
