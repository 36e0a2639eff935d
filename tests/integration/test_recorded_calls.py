"""Every RPC's recorded bytes, sent again: refused from every other certificate, answered as the first time to their owner.

A small run with all that surrounds it is recorded call by call at a real aggregator over TLS. Each call is sent again at
once: a replay that changed anything would show in the calls that follow, and in the run's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.message_factory import GetMessageClass

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.shared.convert.payloads import blob_to_proto
from fedplcc.shared.convert.steering import steering_to_proto
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.identity.certificates import (
    identity_of,
    key_from_pem,
    key_to_pem,
    load_certificate,
    new_key,
    request_for,
)
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.recovery import sign_recovery
from fedplcc.shared.steering import (
    AdmitClient,
    AdvanceStage,
    ExtendRun,
    PauseRun,
    QuarantineClient,
    ReleaseClient,
    ResumeRun,
    RetireClient,
    StopRun,
)
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, TaskKind
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.serving.caller import KEY_METADATA
from fedplcc.shared.wire.tls import ClientTls
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation, eventually
from tests.support.identity.enrolled import enrolled
from tests.support.identity.every_call import METHODS
from tests.support.identity.recorded_calls import Metadata, RecordedCall, RecordingChannel

OF_NOW: Mapping[str, tuple[str, ...]] = {
    "Join": ("audit_head",),
    "GetTime": ("time",),
    "BeginRecovery": ("challenge",),
    "CreateInvitation": ("invitation_id", "secret", "expires_at"),
    "CreateKey": ("key", "text"),
    "CreateConsoleCode": ("code",),
    "RevokeHolder": ("revoked",),
    "ListClients": ("clients.held_bytes", "clients.last_seen_time"),
}
"""Fields of answers that are of the moment or made anew, by method; everything else is answered as the first time."""
ANSWERED_ONCE = {
    "DeleteRun": "RUN_DELETED",
    "ForgetClient": "CLIENT_NOT_FOUND",
    "RedeemConsoleCode": "KEY_INVALID",
    "RevokeOwnKey": "KEY_INVALID",
    "RotateAuthority": "FAILED_PRECONDITION",
}
"""Reason by method of the calls that are refused the second time, also from their owner."""
WORK = (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE)
CLIENTS = [NumpyClient("ann"), NumpyClient("bob", counts=(2, 0, 1))]


class Members:
    """Certificates of a running aggregator, and connections with them."""

    def __init__(self, federation: Federation, authority: Authority, stack: ExitStack) -> None:
        self._federation, self.authority, self._stack = federation, authority, stack
        self.state = federation.state
        self.held = {
            name: enrolled(federation.state, role, name)
            for role, name in (
                (Role.CLIENT, "cat"),
                (Role.GATEWAY, "gate"),
                (Role.GATEWAY, "other-gate"),
                (Role.MONITOR, "watch"),
            )
        }
        self._channels: dict[str, grpc.Channel] = {}

    def channel(self, name: str) -> grpc.Channel:
        """The connection of this member."""
        if name not in self._channels:
            tls = ClientTls(lambda: self.held[name])
            self._channels[name] = self._stack.enter_context(open_channel(self._federation.address, tls=tls))
        return self._channels[name]

    def stranger(self, port: int) -> grpc.Channel:
        """A connection without a certificate to the port of admission."""
        tls = ClientTls(lambda: Credentials(None, None, self.authority.roots_pem))  # type: ignore[arg-type]
        return self._stack.enter_context(open_channel(f"127.0.0.1:{port}", tls=tls))


class Replays:
    """Sends each recorded call again, and counts the methods."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.seen: set[str] = set()

    def of(self, sender: str, *, key: str = "") -> RecordingChannel:
        """The connection of a member whose calls are recorded and sent again by others and by itself."""
        metadata = ((KEY_METADATA, key),) if key else ()
        channel = self._members.channel(sender)

        def ended(call: RecordedCall) -> None:
            self._by_others(call, sender, metadata)
            self._by_owner(call, channel, metadata)

        return RecordingChannel(channel, ended, metadata=metadata)

    def of_stranger(self, channel: grpc.Channel) -> RecordingChannel:
        """A connection without a certificate: whoever sends the same bytes gets the same answer, whose key it lacks."""
        return RecordingChannel(channel, lambda call: self._by_owner(call, channel, ()))

    def _by_others(self, call: RecordedCall, sender: str, metadata: Metadata) -> None:
        service, _, name = call.method[1:].rpartition("/")
        if name in ("GetCaller", "RenewCertificate"):
            self._about_whom_it_sends(call, sender)
            return
        if service.endswith("RoundService"):
            others: dict[str, tuple[Metadata, str]] = {
                ("bob" if sender == "ann" else "ann"): ((), "IDENTITY_MISMATCH"),
                "cat": ((), "IDENTITY_MISMATCH"),
                "gate": ((), "ROLE_FORBIDDEN"),
                "watch": ((), "ROLE_FORBIDDEN"),
            }
        else:
            # The key is no part of the recorded messages: whoever has it is its holder, over any gateway.
            others = {
                "other-gate": ((), "KEY_INVALID"),
                "cat": (metadata, "ROLE_FORBIDDEN"),
                "watch": (metadata, "ROLE_FORBIDDEN"),
            }
            if name == "RevokeOwnKey":  # its key has ended with it
                others["cat"] = ((), "ROLE_FORBIDDEN")
            if name == "RedeemConsoleCode":
                others["gate"] = ((), "KEY_INVALID")
            if name == "RevokeOwnKey":  # the key has ended, whoever shows it
                others = {other: (metadata, "KEY_INVALID") for other in others}
            if name in ("ReportRefusals", "SignOn"):  # a gateway's word about itself, and a person's who has no key yet
                others["other-gate"] = ((), "OK")
        for other, (shown, expected) in others.items():
            if other in self._members.held:
                assert refusal(call, self._members.channel(other), shown) == expected, (call.method, other)

    def _about_whom_it_sends(self, call: RecordedCall, sender: str) -> None:
        """These two calls name nobody: an answer is about whoever sends the bytes, and never about the first sender."""
        (answer,) = call.send_again(self._members.channel("cat"))
        said = parsed(call.method, answer)
        if call.method.endswith("GetCaller"):
            assert said.caller == "client:cat"
        else:
            assert identity_of(load_certificate(said.issued.chain_pem.encode())).name == "cat" != sender

    def _by_owner(self, call: RecordedCall, channel: grpc.Channel, metadata: Metadata) -> None:
        name = call.method.rpartition("/")[2]
        self.seen.add(call.method)
        if name in ANSWERED_ONCE:
            assert refusal(call, channel, metadata) == ANSWERED_ONCE[name]
            return
        again = call.send_again(channel, metadata)
        if name == "UploadInitialModel":  # its first answer says whether the bytes are wanted: not the second time
            assert again == call.answers[-1:]
            return
        assert [lasting(call.method, answer) for answer in again] == [
            lasting(call.method, answer) for answer in call.answers
        ], call.method


def refusal(call: RecordedCall, channel: grpc.Channel, metadata: Metadata) -> str:
    try:
        call.send_again(channel, metadata)
    except FedplccError as error:
        return error.reason
    return "OK"


def parsed(method: str, answer: bytes) -> Any:
    return GetMessageClass(METHODS[method].output_type).FromString(answer)


def lasting(method: str, answer: bytes) -> str:
    """An answer without what is of the moment, as text."""
    message = parsed(method, answer)
    for field in OF_NOW.get(method.rpartition("/")[2], ()):
        entries, _, name = field.rpartition(".")
        for part in getattr(message, entries) if entries else [message]:
            part.ClearField(name)
    return str(message)


@pytest.fixture
def members(federation: Federation) -> Iterator[Members]:
    # Nobody sends heartbeats while calls are repeated.
    federation.start_aggregator("--heartbeat-interval-s", "600")
    with ExitStack() as stack:
        yield Members(federation, federation.authority, stack)


def test_every_rpcs_recorded_bytes_are_refused_from_others_and_answered_to_their_owner(
    federation: Federation, members: Members, tmp_path: Path
) -> None:
    replays = Replays(members)
    endpoint = json.loads((federation.folder / "aggregator" / "endpoint.json").read_text())
    with grpc.insecure_channel(f"unix:{endpoint['admin_socket']}") as socket:
        owner: Any = admin_grpc.AdminServiceStub(socket)
        key = owner.CreateKey(admin_pb2.CreateKeyRequest(label="all", scopes=["admin"], valid_s=3600.0)).text
        strangers: Any = replays.of_stranger(members.stranger(endpoint["enrol_port"]))
        _admission(members, owner, enrol_grpc.EnrolServiceStub(strangers))
    gate: Any = replays.of("gate", key=key)
    admin: Any = admin_grpc.AdminServiceStub(gate)
    _administration(members, replays, admin)
    runs: Any = run_grpc.RunServiceStub(gate)
    # What moves while it is read is not asked for twice.
    quiet: Any = RecordingChannel(members.channel("gate"), lambda call: None, metadata=((KEY_METADATA, key),))
    run_id = _a_whole_run(members, replays, runs, run_grpc.RunServiceStub(quiet))
    rounds = runs.ListRounds(run_pb2.ListRoundsRequest(run_id=run_id, after_round=0)).rounds
    assert [current.metrics_json for current in rounds] == undisturbed(tmp_path / "reference")
    _results(runs, run_id)
    _steering(runs)
    runs.SteerRun(steering_to_proto(run_id, ExtendRun(5), "extend"))
    admin.RotateAuthority(admin_pb2.RotateAuthorityRequest())
    assert replays.seen == set(METHODS), "each RPC is recorded"
    assert len(METHODS) >= 40


def undisturbed(folder: Path) -> list[str]:
    folder.mkdir()
    with LocalFederation(folder, CLIENTS) as local:
        return local.metrics_lines(local.whole_run().run_id)


def _admission(members: Members, owner: Any, enrol: Any) -> None:
    """Clients join by invitations, and one recovers."""
    enrol.GetTime(enrol_pb2.GetTimeRequest())
    for client in CLIENTS:
        key = new_key()
        invited = owner.CreateInvitation(
            admin_pb2.CreateInvitationRequest(role="client", name=client.client_id, valid_s=3600.0)
        )
        joined = enrol.Enrol(
            enrol_pb2.EnrolRequest(
                invitation_id=invited.invitation_id, secret=invited.secret, certificate_request=request_for(key)
            )
        ).issued
        members.held[client.client_id] = held(key, joined)
    name, key = CLIENTS[0].client_id, new_key()
    before = members.held[name]
    certificate = x509.load_pem_x509_certificate(before.chain_pem).public_bytes(Encoding.DER)
    challenge = enrol.BeginRecovery(enrol_pb2.BeginRecoveryRequest(certificate=certificate)).challenge
    request = request_for(key)
    recovered = enrol.FinishRecovery(
        enrol_pb2.FinishRecoveryRequest(
            certificate=certificate,
            challenge=challenge,
            signature=sign_recovery(key_from_pem(before.key_pem), challenge, request),
            certificate_request=request,
        )
    ).issued
    members.held[name] = held(key, recovered)


def held(key: ec.EllipticCurvePrivateKey, issued: enrol_pb2.IssuedCertificate) -> Credentials:
    return Credentials(key_to_pem(key), issued.chain_pem.encode(), issued.roots_pem.encode())


def _administration(members: Members, replays: Replays, admin: Any) -> None:
    watch: Any = admin_grpc.AdminServiceStub(replays.of("watch"))
    watch.RenewCertificate(admin_pb2.RenewCertificateRequest(certificate_request=request_for(new_key())))
    watch.GetCaller(admin_pb2.GetCallerRequest())
    admin.CreateInvitation(admin_pb2.CreateInvitationRequest(role="client", name="spare", valid_s=3600.0))
    admin.ListCertificates(admin_pb2.ListCertificatesRequest())
    enrolled(members.state, Role.MONITOR, "gone")
    admin.RevokeHolder(admin_pb2.RevokeHolderRequest(role="monitor", name="gone"))
    made = admin.CreateKey(admin_pb2.CreateKeyRequest(label="spare", scopes=["read"], valid_s=3600.0))
    admin.ListKeys(admin_pb2.ListKeysRequest())
    spare: Any = admin_grpc.AdminServiceStub(replays.of("gate", key=made.text))
    spare.RevokeOwnKey(admin_pb2.RevokeOwnKeyRequest())
    admin.RevokeKey(admin_pb2.RevokeKeyRequest(key_id=made.key.key_id))
    refused = admin_pb2.RefusedRequests(reason="TOO_MANY_REQUESTS", limit="key", address="192.0.2.7", count=3)
    admin.ReportRefusals(admin_pb2.ReportRefusalsRequest(refusals=[refused]))
    code = admin.CreateConsoleCode(admin_pb2.CreateConsoleCodeRequest()).code
    admin.RedeemConsoleCode(admin_pb2.RedeemConsoleCodeRequest(code=code))
    admin.SignOn(admin_pb2.SignOnRequest())
    own = admin.CreateKey(admin_pb2.CreateKeyRequest(label="own", scopes=["read"], valid_s=3600.0)).text
    leaving: Any = replays.of("gate", key=own)
    admin_grpc.AdminServiceStub(leaving).RevokeOwnKey(admin_pb2.RevokeOwnKeyRequest())
    admin.ListAudit(admin_pb2.ListAuditRequest(after=0, page_size=3))


def _a_whole_run(members: Members, replays: Replays, runs: Any, looking_at_runs: Any) -> str:
    """A run of two clients whose every call is repeated; returns its id."""
    dialled = {client.client_id: GrpcClient("", client, channel=replays.of(client.client_id)) for client in CLIENTS}
    for client in dialled.values():
        client.join()
        client.heartbeat()
    request = run_pb2.CreateRunRequest(request_id="a run", config_json=json.dumps(a_document("fedplcc")))
    run_id = str(runs.CreateRun(request).run.run_id)
    looking: Any = {name: round_grpc.RoundServiceStub(members.channel(name)) for name in dialled}

    def step() -> bool:
        for name, client in dialled.items():
            ask = round_pb2.SyncRoundRequest(client_id=name, instance_token=client.token, poll=round_pb2.Poll())
            if task_from_proto(first(looking[name].SyncRound(ask)).task).kind in WORK:
                # Nobody else changes a task of work before it is done: it is the same when it is asked for again.
                asked = list(client.stub.SyncRound(ask))
                client.perform(task_from_proto(asked[0].task))
        now = looking_at_runs.GetRun(run_pb2.GetRunRequest(run_id=run_id)).run.status
        return bool(now == types_pb2.RUN_STATUS_COMPLETED)

    eventually(step, "the run ends", timeout_s=600)
    return run_id


def first(stream: Any) -> Any:
    answers = list(stream)
    return answers[0]


def _results(runs: Any, run_id: str) -> None:
    """What people read of a run that has ended."""
    runs.GetRun(run_pb2.GetRunRequest(run_id=run_id))
    runs.ListRuns(run_pb2.ListRunsRequest())
    runs.ListEvaluations(run_pb2.ListEvaluationsRequest(run_id=run_id, round=-1))
    runs.ListClients(run_pb2.ListClientsRequest())
    runs.GetPrototypeMap(run_pb2.GetPrototypeMapRequest(run_id=run_id, round=1))
    list(runs.WatchRun(run_pb2.WatchRunRequest(run_id=run_id)))
    list(runs.FetchArtifact(run_pb2.FetchArtifactRequest(run_id=run_id, round=2, kind=run_pb2.ARTIFACT_KIND_MODEL)))
    tags = run_pb2.RunTags(tags=["paper"])
    runs.UpdateRun(run_pb2.UpdateRunRequest(run_id=run_id, tags=tags, notes="a note", request_id="update"))
    runs.ListRuns(run_pb2.ListRunsRequest(wants_summaries=True, tags=["paper"]))


def _steering(runs: Any) -> None:
    """A run that begins with a stored model, is steered to its end while nobody trains, and is deleted."""
    model = to_bytes(CLIENTS[0].first_model())
    header = run_pb2.InitialModelHeader(blob=blob_to_proto(blob_ref(MODEL, model)), name="model")
    parts = [run_pb2.UploadInitialModelRequest(header=header), run_pb2.UploadInitialModelRequest(data=model)]
    assert list(runs.UploadInitialModel(iter(parts)))[-1].is_stored
    request = run_pb2.CreateRunRequest(
        request_id="another", config_json=json.dumps(a_document(stream={"stages": 3, "advance": "manual"}))
    )
    run_id = runs.CreateRun(request).run.run_id
    verbs = (PauseRun(now=True), ResumeRun(), QuarantineClient("bob"), ReleaseClient("bob"), RetireClient("bob"))
    for verb in (*verbs, AdmitClient("bob"), AdvanceStage(), StopRun()):
        runs.SteerRun(steering_to_proto(run_id, verb, type(verb).__name__))
    runs.DeleteRun(run_pb2.DeleteRunRequest(run_id=run_id))
    runs.ForgetClient(run_pb2.ForgetClientRequest(client_id="bob"))
