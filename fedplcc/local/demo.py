"""The demo: a federation of local processes whose run is started, followed and fetched through the gateway."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import aclosing, suppress

from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.local.federation import LocalFederation, unless
from fedplcc.remote.fetch import fetch_run
from fedplcc.runs.artifacts import RunRecord, ending_of
from fedplcc.runs.configuration import local_clients
from fedplcc.runs.kept_roles import bring_roles, keep_roles
from fedplcc.runs.run_folder import REQUEST_ID, RunFolder
from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import FederationFile
from fedplcc.shared.documents import Run
from fedplcc.shared.errors import FailedPrecondition, FedplccError, RoundNotFound, from_reason
from fedplcc.terminal.progress import RunProgress
from fedplcc.trainer.owner.consent import Consent

PROBLEM_POLL_S = 1.0
"""Time between two checks for a client with a fatal problem."""


class Demo:
    """One federation file as a demo in one folder."""

    def __init__(
        self,
        federation: FederationFile,
        folder: RunFolder,
        progress: RunProgress,
        *,
        device: str = "auto",
        gateway_port: int = 0,
    ) -> None:
        """Prepare the demo; nothing starts yet."""
        self._federation, self._folder, self._progress = federation, folder, progress
        self._clients = local_clients(federation)
        self._device, self._gateway_port = device, gateway_port

    async def run(self, *, keep: bool = False) -> RunRecord:
        """Train until the run has ended and write its results; every process has ended when this returns.

        Args:
            keep: Whether the processes stay until this is cancelled; the results are returned all the same.

        Raises:
            FedplccError: A process ended, a client cannot do its task, or the gateway refuses the run.
        """
        self._progress.step("starting the processes")
        local = self._local()
        bring_roles(self._federation.initial_model_file, local.states)
        async with local as federation, AsyncGateway(federation.gateway_url, key=federation.key) as gateway:
            names = ", ".join(process.name for process in federation.processes)
            self._progress.note(f"{len(federation.processes)} processes: {names}; logs in {self._folder.logs}")
            await self._say_how_to_look(federation)
            record = await federation.guard(self._train(gateway))
            keep_roles(federation.states, self._folder.path)
            if keep:
                with suppress(asyncio.CancelledError):  # from the word on
                    self._progress.note("the run has ended; the processes stay until Ctrl-C")
                    await self._say_how_to_look(federation)
                    await federation.guard(asyncio.Event().wait())
        return record

    async def _say_how_to_look(self, federation: LocalFederation) -> None:
        """Say the console's address, which works once, and how commands are let through."""
        where = f"--gateway {federation.gateway_url} --state-dir {shlex.quote(str(federation.aggregator_state))}"
        self._progress.note(f"console: {await federation.console_address()}")
        self._progress.note(f"  it opens once, within 5 minutes; for another: fedplcc console {where}")
        self._progress.note(f"  for commands as 'fedplcc run list': fedplcc login {where}")

    def _local(self) -> LocalFederation:
        return LocalFederation(
            self._clients,
            consent=Consent.to_run(self._federation.config),
            withholds=self._federation.config.withholds,
            state=self._folder.state,
            logs=self._folder.logs,
            threads=self._federation.config.training.threads,
            device=self._device,
            gateway_port=self._gateway_port,
        )

    async def _train(self, gateway: AsyncGateway) -> RunRecord:
        if self._federation.initial_model_file is not None:
            await gateway.upload_model(self._federation.initial_model_file)
        document = json.loads(self._federation.config.canonical_json)
        run = await gateway.create_run(document, request_id=REQUEST_ID)
        self._progress.note(f"run {run.run_id}: {run.method}, {run.total_rounds} rounds, {len(self._clients)} clients")
        self._progress.step("trainers are starting and joining")
        run = await unless(self._follow(gateway, run.run_id), self._blocked(gateway))
        try:
            return await fetch_run(gateway, run.run_id, self._folder.path)
        except RoundNotFound:
            raise FailedPrecondition(ending_of(run.run_id, run.status, run.reason)) from None

    async def _follow(self, gateway: AsyncGateway, run_id: str) -> Run:
        """Show the run's events until it has ended."""
        async with aclosing(gateway.follow(run_id)) as items:
            async for item in items:
                if isinstance(item, Run):
                    return item
                self._progress.event(item)
        raise AssertionError("the events of a run end with the run")

    async def _blocked(self, gateway: AsyncGateway) -> FedplccError:
        """Wait until a client reports a fatal problem, for which the run would wait for ever; returns it as an error."""
        while True:
            for client in await gateway.all_clients():
                problem = client.problem
                if problem is not None and problem.is_fatal:
                    sentence = "; ".join(filter(None, (problem.detail, problem.hint)))
                    detail = f"client {client.client_id}: {sentence}"
                    return from_reason(problem.reason, detail, {}, Code.FAILED_PRECONDITION)
            await asyncio.sleep(PROBLEM_POLL_S)
