"""RunService, which the gateway calls: decode, call the coordinator, encode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.rounds.events import FINAL_EVENTS
from fedplcc.aggregator.rounds.machine import round_waits
from fedplcc.aggregator.servicer.blob_pieces import whole_pieces_of
from fedplcc.aggregator.servicer.calls import Context, in_time
from fedplcc.aggregator.servicer.calls import control_call as call
from fedplcc.aggregator.servicer.pages import MAX_PAGE, cut_page, listing, page_size, report_cursor
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.convert.clients import client_to_proto
from fedplcc.shared.convert.evaluations import evaluation_to_proto
from fedplcc.shared.convert.events import event_to_proto
from fedplcc.shared.convert.payloads import blob_to_proto
from fedplcc.shared.convert.prototype_maps import prototype_map_to_proto
from fedplcc.shared.convert.reading.enums import LOG_LEVEL
from fedplcc.shared.convert.reading.json_text import parse_json_object
from fedplcc.shared.convert.rounds import round_to_proto
from fedplcc.shared.convert.run_lists import (
    change_from_proto,
    counts_to_proto,
    page_token,
    query_from_proto,
    summary_to_proto,
)
from fedplcc.shared.convert.runs import run_to_proto
from fedplcc.shared.convert.site_logs import log_to_proto
from fedplcc.shared.convert.steering import verb_from_proto
from fedplcc.shared.convert.uploads import initial_model_from_proto
from fedplcc.shared.errors import MalformedRequest, Overloaded
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.types import EventQuery, Run
from fedplcc.shared.wire.channels import IDLE_S
from fedplcc.shared.wire.serving.caller import require_scope
from fedplcc.shared.wire.serving.places import Places
from fedplcc.shared.wire.serving.threads import Threads

MAX_MODEL_UPLOADS, MAX_MODEL_UPLOADS_OF_A_CALLER = 4, 2
"""Initial models that are received at the same time, of all callers and of one; each may take as much disk as the largest
blob."""
MAX_MAPS_ASKED = 32
"""Requests for prototype maps at the same time: one map is computed, the other requests wait."""
MAX_CREATIONS = 16
"""Requests to create runs at the same time: one configuration is read and checked, the others wait."""
MAX_RUNS = 200
"""Most runs of a page."""
MAX_DELETIONS = 32
"""Requests to delete runs at the same time: one run is deleted, the others wait."""
WAITING_OF_A_CALLER = 15
"""Requests of one caller to create or delete runs or for maps that may wait, of each kind; callers take turns."""
MAX_CONFIG_CHARACTERS = 3 << 20
"""Longest configuration: a body of 1 MiB at the gateway, whose characters of two bytes are six in canonical JSON."""


BETWEEN_READS_S = 0.05
"""Shortest time between two looks of a follower into the history."""


class RunServicer(run_grpc.RunServiceServicer):
    """Servicer of the RPCs that the gateway calls."""

    def __init__(self, coordinator: Coordinator, wakeups: Wakeups, *, idle_s: float = IDLE_S) -> None:
        self._coordinator, self._wakeups, self._idle_s = coordinator, wakeups, idle_s
        self._model_uploads = self._maps_asked = self._creations = self._deletions = 0
        # One run or map at a time, and one of each caller in turn: a large one keeps no thread from other calls.
        self._creating = Threads(1, "creations", at_once=1, waiting=WAITING_OF_A_CALLER)
        self._drawing = Threads(1, "prototype-maps", at_once=1, waiting=WAITING_OF_A_CALLER)
        self._deleting = Threads(1, "deletions", at_once=1, waiting=WAITING_OF_A_CALLER)
        self._uploading = Places(MAX_MODEL_UPLOADS_OF_A_CALLER, 0, "uploads of initial models")

    async def CreateRun(self, request: run_pb2.CreateRunRequest, context: Context) -> run_pb2.CreateRunResponse:
        if len(request.config_json) > MAX_CONFIG_CHARACTERS:
            raise MalformedRequest(f"config_json has more than {MAX_CONFIG_CHARACTERS} characters")
        if self._creations >= MAX_CREATIONS:
            raise Overloaded(f"{MAX_CREATIONS} runs are being created; try again in a moment")
        self._creations += 1
        try:
            run = await self._creating.call(self._created, request)
        finally:
            self._creations -= 1
        return run_pb2.CreateRunResponse(run=await self._encode(run))

    async def UploadInitialModel(
        self, request_iterator: AsyncIterator[run_pb2.UploadInitialModelRequest], context: Context
    ) -> AsyncIterator[run_pb2.UploadInitialModelResponse]:
        stream = aiter(request_iterator)
        first = await in_time(anext(stream, None), "the caller sends", self._idle_s)
        if first is None or first.WhichOneof("part") != "header":
            raise MalformedRequest("an upload begins with its header")
        blob, name = initial_model_from_proto(first.header)
        receiver = await call(self._coordinator.initial_models.begin_upload, blob, name)
        if receiver is None:
            yield run_pb2.UploadInitialModelResponse(is_stored=True)
            return
        try:
            async with self._place_for_model():
                yield run_pb2.UploadInitialModelResponse(is_stored=False)
                while (part := await in_time(anext(stream, None), "the caller sends", self._idle_s)) is not None:
                    if part.WhichOneof("part") != "data" or not part.data:
                        raise MalformedRequest("an upload has one header, and then bytes")
                    await call(receiver.write, part.data)
                await call(receiver.finish)
        finally:
            receiver.close()
        yield run_pb2.UploadInitialModelResponse(is_stored=True)

    def _created(self, request: run_pb2.CreateRunRequest) -> Run:
        return self._coordinator.create_run(request.request_id, parse_json_object(request.config_json, "config_json"))

    @asynccontextmanager
    async def _place_for_model(self) -> AsyncIterator[None]:
        if self._model_uploads >= MAX_MODEL_UPLOADS:
            raise Overloaded(f"{MAX_MODEL_UPLOADS} initial models are being uploaded; try again when one has arrived")
        self._model_uploads += 1
        try:
            async with self._uploading.place(current_principal.get().share):
                yield
        finally:
            self._model_uploads -= 1

    async def GetRun(self, request: run_pb2.GetRunRequest, context: Context) -> run_pb2.GetRunResponse:
        return run_pb2.GetRunResponse(run=await self._encode(await call(self._coordinator.get_run, request.run_id)))

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Context) -> run_pb2.ListRunsResponse:
        limit = page_size(request.page_size, default=50, most=MAX_RUNS)
        if request.wants_summaries:
            query = query_from_proto(request, limit=limit + 1)
            found = await call(self._coordinator.labels.find_runs, query)
            summaries, is_cut = cut_page(map(summary_to_proto, found.runs), limit)
            return run_pb2.ListRunsResponse(
                summaries=summaries,
                next_page_token=page_token(found.runs[len(summaries) - 1], query) if is_cut else "",
                total=found.total,
                totals=counts_to_proto(found),
            )
        runs = listing(
            lambda last, most: self._coordinator.list_runs(before=last, limit=most),
            request.page_token,
            lambda run: run.run_id,
        )
        page, is_cut = await call(cut_page, map(run_to_proto, runs), limit)
        return run_pb2.ListRunsResponse(runs=page, next_page_token=page[-1].run_id if is_cut else "")

    async def ListRounds(self, request: run_pb2.ListRoundsRequest, context: Context) -> run_pb2.ListRoundsResponse:
        limit = page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        rounds = listing(
            lambda last, most: self._coordinator.list_rounds(request.run_id, after=last, limit=most),
            request.after_round,
            lambda current: current.number,
        )
        page, is_cut = await call(cut_page, map(round_to_proto, rounds), limit)
        return run_pb2.ListRoundsResponse(rounds=page, has_more=is_cut)

    async def ListEvaluations(
        self, request: run_pb2.ListEvaluationsRequest, context: Context
    ) -> run_pb2.ListEvaluationsResponse:
        limit = page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        number = None if request.round < 0 else request.round
        reports = listing(
            lambda last, most: self._coordinator.list_evaluations(request.run_id, number, after=last, limit=most),
            report_cursor(request.page_token),
            lambda entry: (entry[0], entry[1].client_id),
        )
        page, is_cut = await call(cut_page, (evaluation_to_proto(*entry) for entry in reports), limit)
        token = f"{page[-1].round}:{page[-1].client_id}" if is_cut else ""
        return run_pb2.ListEvaluationsResponse(evaluations=page, next_page_token=token)

    async def SteerRun(self, request: run_pb2.SteerRunRequest, context: Context) -> run_pb2.SteerRunResponse:
        verb = verb_from_proto(request)
        run = await call(self._coordinator.steer, request.run_id, verb, request_id=request.request_id)
        return run_pb2.SteerRunResponse(run=await self._encode(run))

    async def UpdateRun(self, request: run_pb2.UpdateRunRequest, context: Context) -> run_pb2.UpdateRunResponse:
        change = change_from_proto(request)
        run = await call(self._coordinator.labels.change, request.run_id, change, request_id=request.request_id)
        return run_pb2.UpdateRunResponse(run=await self._encode(run))

    async def DeleteRun(self, request: run_pb2.DeleteRunRequest, context: Context) -> run_pb2.DeleteRunResponse:
        if self._deletions >= MAX_DELETIONS:
            raise Overloaded(f"{MAX_DELETIONS} runs are being deleted; try again in a moment")
        self._deletions += 1
        try:
            freed_bytes = await self._deleting.call(self._coordinator.delete_run, request.run_id)
        finally:
            self._deletions -= 1
        return run_pb2.DeleteRunResponse(freed_bytes=freed_bytes)

    async def ForgetClient(
        self, request: run_pb2.ForgetClientRequest, context: Context
    ) -> run_pb2.ForgetClientResponse:
        client = await call(self._coordinator.forget_client, request.client_id)
        return run_pb2.ForgetClientResponse(client=client_to_proto(client))

    async def WatchRun(
        self, request: run_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[run_pb2.WatchRunResponse]:
        if request.follow and (request.before_sequence or request.newest_first):
            raise MalformedRequest(
                "before_sequence, newest_first: not with follow, which gives events in order and without an end"
            )
        cursor, run_id = request.after_sequence, request.run_id
        limit = MAX_PAGE if request.follow else page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        while True:
            changed, read_at = self._wakeups.events(run_id), time.monotonic()
            has_ended = bool(run_id) and await call(self._coordinator.has_ended, run_id)
            events = await call(
                self._coordinator.list_events,
                EventQuery(
                    run_id=run_id,
                    after=cursor,
                    before=request.before_sequence,
                    types=tuple(request.types),
                    client_id=request.client_id,
                    newest_first=request.newest_first,
                    limit=limit,
                ),
            )
            for event in events:
                cursor = event.sequence
                yield run_pb2.WatchRunResponse(event=event_to_proto(event))
            is_last = bool(run_id) and bool(events) and events[-1].type in FINAL_EVENTS
            if not request.follow or is_last or (has_ended and not events) or self._wakeups.is_closing:
                return
            if len(events) < limit and not has_ended:
                await changed.wait()
                # Told once for changes that follow each other closely.
                await asyncio.sleep(max(0.0, read_at + BETWEEN_READS_S - time.monotonic()))

    async def ListClients(self, request: run_pb2.ListClientsRequest, context: Context) -> run_pb2.ListClientsResponse:
        if request.HasField("log"):
            require_scope(Scope.RUN, current_principal.get())
            after, level = request.log.after, LOG_LEVEL.member(request.log.level, "log.level")
            found = await call(self._coordinator.client_log, request.log.client_id, after=after, level=level)
            return run_pb2.ListClientsResponse(log=log_to_proto(found))
        limit = page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        clients = listing(
            lambda last, most: self._coordinator.list_clients(after=last, limit=most),
            request.page_token,
            lambda client: client.client_id,
        )
        page, is_cut = await call(cut_page, map(client_to_proto, clients), limit)
        return run_pb2.ListClientsResponse(clients=page, next_page_token=page[-1].client_id if is_cut else "")

    async def FetchArtifact(
        self, request: run_pb2.FetchArtifactRequest, context: Context
    ) -> AsyncIterator[run_pb2.FetchArtifactResponse]:
        kinds = {run_pb2.ARTIFACT_KIND_MODEL: "model", run_pb2.ARTIFACT_KIND_PROTOTYPES: "prototypes"}
        kind = kinds.get(request.kind)
        if kind is None:
            raise MalformedRequest("kind: model or prototypes")
        blob, _path = await call(self._coordinator.artifact, request.run_id, request.round, kind)
        if not 0 <= request.offset_bytes <= blob.size_bytes:
            raise MalformedRequest(f"offset_bytes = {request.offset_bytes}: the blob has {blob.size_bytes} bytes")
        yield run_pb2.FetchArtifactResponse(blob=blob_to_proto(blob))
        async with aclosing(whole_pieces_of(self._coordinator, blob, request.offset_bytes)) as pieces:
            async for data in pieces:
                yield run_pb2.FetchArtifactResponse(data=data)

    async def GetPrototypeMap(
        self, request: run_pb2.GetPrototypeMapRequest, context: Context
    ) -> run_pb2.GetPrototypeMapResponse:
        if self._maps_asked >= MAX_MAPS_ASKED:
            raise Overloaded(f"{MAX_MAPS_ASKED} prototype maps are being asked for; try again in a moment")
        self._maps_asked += 1
        try:
            found = await self._drawing.call(self._coordinator.prototype_maps.of, request.run_id, request.round)
            return await call(prototype_map_to_proto, found)
        finally:
            self._maps_asked -= 1

    async def _encode(self, run: Run) -> Any:
        manifest = await call(self._coordinator.manifest, run)
        best_round = await call(self._coordinator.best_round, run)
        labels = await call(self._coordinator.labels.of, run.run_id)
        warnings = await call(self._coordinator.warnings, run)
        current = run.current_round
        shown = None if current is None else replace(current, cohort=round_waits.asked_of(run))
        run = replace(run, current_round=shown)
        return run_to_proto(
            run, manifest_json=canonical_json(manifest), best_round=best_round, labels=labels, warnings=warnings
        )
