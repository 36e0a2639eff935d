"""A site whose owner is asked: it waits, whoever calls whatever, until the owner approves; a withdrawal ends its part."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from PIL import Image

from fedplcc.aggregator.admin_socket import SOCKET_FILE
from fedplcc.shared.convert.steering import steering_to_proto
from fedplcc.shared.identity.names import Role
from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.steering import AdmitClient, PauseRun, QuarantineClient, ReleaseClient, ResumeRun, RetireClient
from fedplcc.shared.types import TaskKind
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.serving.caller import KEY_METADATA
from fedplcc.shared.wire.tls import ClientTls
from fedplcc.trainer.instance import TOKEN_FILE
from fedplcc.trainer.owner.approval import deciding
from fedplcc.trainer.owner.approval.kept import Kept
from tests.integration.test_policy import RecordingServer, a_task
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import CLASSES
from tests.support.federation.processes import Federation, Process, eventually
from tests.support.identity.every_call import METHODS

pytestmark = pytest.mark.timeout(300)

CALL_S, STREAM_S = 30.0, 1.0
"""Longest time of one call, and of a stream that has nothing to say: it never ends by itself."""
ENDS_EVERYTHING = ("RevokeOwnKey",)
"""Calls after which the caller is nobody; they come last."""
CODE = """
import numpy as np

class Record:
    rng = np.random.default_rng(0)
    y_train = y_test = np.arange(12) % 2
    x_test = (rng.integers(0, 100, (12, 16, 16, 3)) + 100 * y_test[:, None, None, None]).astype(np.uint8)

    @property
    def x_train(self):
        with open({trace!r}, "a") as file:
            file.write("read\\n")
        return self.x_test
"""


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """An aggregator, and trainers of north, whose owner has a policy, and south."""
    trace = tmp_path / "reads"
    (tmp_path / "hospital_code.py").write_text(CODE.format(trace=str(trace)))
    labels = np.arange(12) % 2
    images = np.repeat((100 * labels[:, None, None, None] + 20).astype(np.uint8), 16 * 16 * 3, axis=-1)
    images = images.reshape(12, 16, 16, 3)
    np.savez(tmp_path / "south.npz", x_train=images, y_train=labels, x_test=images, y_test=labels, classes=["0", "1"])
    (tmp_path / "policy.toml").write_text('approve = "each"\n')
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.2")
        flags = ("--policy", str(tmp_path / "policy.toml"), "--owner-port", "0")
        federation.start_trainer("north", "hospital_code:Record", *flags)
        federation.start_trainer("south", f"npz:{tmp_path / 'south.npz'}")
        yield federation


def reads(federation: Federation) -> int:
    """How often north's images were opened."""
    return len((federation.folder / "reads").read_text().splitlines())


def site(federation: Federation, *arguments: str) -> str:
    """What `fedplcc site` prints at north."""
    line = [
        sys.executable,
        "-m",
        "fedplcc",
        "site",
        *arguments,
        "--state-dir",
        str(federation.folder / "trainer-north"),
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def newest_commit(federation: Federation, run_id: str) -> int:
    """Last round that north has committed an update in."""
    lines = map(json.loads, site(federation, "log", "--run", run_id, "--json").splitlines())
    return max((int(line["round"]) for line in lines if line["what"] == "commit"), default=-1)


def create(control: RunControl) -> str:
    document = {
        "run": {"method": "fedavg", "rounds": 100_000, "clients": ["north", "south"]},
        "model": {"name": "cnn4"},
        "data": {"classes": ["0", "1"], "image_size": 16},
        "training": {"local_steps": 1, "batch_size": 4},
    }
    return str(control.create(document).run_id)


def wait_pending(control: RunControl, run_id: str) -> None:
    eventually(lambda: control.get(run_id).reason == "waits for north's approval", "the run waits for north", 60)


def test_a_run_waits_for_north_until_it_is_approved_there_and_a_withdrawal_ends_its_part(
    federation: Federation, control: RunControl
) -> None:
    run_id = create(control)
    wait_pending(control, run_id)
    before = reads(federation)
    (problem,) = [
        client.problem for client in control.clients() if client.client_id == "north" and client.HasField("problem")
    ]
    assert (problem.reason, problem.detail) == (
        OwnersWord.AWAITED.value,
        "the owner of this site has not approved the run",
    )
    federation.processes["trainer-north"].kill()
    federation.start_trainer("north", "")
    eventually(lambda: reads(federation) > before, "north looks at its folder again", 60)
    wait_pending(control, run_id)
    (facts,) = json.loads(site(federation, "pending", "--json"))["pending"]
    assert (facts["run_id"], facts["method"], facts["claim"]) == (run_id, "fedavg", "none")
    assert facts["started_by"].endswith("(admin)")
    at_rest = reads(federation)
    assert control.get(run_id).reason == "waits for north's approval"
    address = (federation.folder / "trainer-north" / "approval" / "page").read_text().strip()
    with urllib.request.urlopen(address, timeout=10) as page:
        assert facts["document_sha256"] in page.read().decode()
    assert reads(federation) == at_rest, "nothing was read for the run"

    yes = ("approve", run_id, "--document", facts["document_sha256"])
    assert facts["document_sha256"] in site(federation, *yes)
    federation.processes["trainer-north"].kill()
    federation.start_trainer("north", "")
    eventually(lambda: control.get(run_id).round >= 2, "rounds go on with north", 120)
    assert "was approved already" in site(federation, *yes)

    site(federation, "reject", run_id, "--reason", "enough")
    eventually(lambda: [each.client_id for each in control.get(run_id).retired] == ["north"], "north has left", 20)
    eventually(lambda: control.get(run_id).round > 3 and True, "the run goes on with south", 60)
    (problem,) = [client.problem for client in control.clients() if client.client_id == "north"]
    assert (problem.reason, problem.detail[-6:]) == (OwnersWord.WITHDRAWN.value, "enough")
    line = [sys.executable, "-m", "fedplcc", "state", "audit", str(federation.state), "--last", "20"]
    audit = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert audit.count("ApproveRun") == audit.count("WithdrawRun") == 1
    assert "client:north" in audit

    said = site(federation, *yes)
    assert f"fedplcc run client admit {run_id} north" in said
    eventually(lambda: not control.get(run_id).retired, "the owner's new yes is enough", 20)
    number = control.get(run_id).round
    eventually(lambda: newest_commit(federation, run_id) > number, "north takes part again", 60)


@pytest.mark.parametrize("kind", [TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE])
def test_a_server_sees_of_a_run_that_waits_a_join_heartbeats_and_that_it_waits(kind: TaskKind, tmp_path: Path) -> None:
    """The server takes the images away once the site has joined: who reads them for the run says so."""
    images = tmp_path / "images"
    for split in ("train", "test"):
        for label, name in enumerate(CLASSES):
            (images / split / name).mkdir(parents=True)
            Image.new("RGB", (16, 16), (60 * label, 0, 0)).save(images / split / name / "0.png")
    (tmp_path / "policy.toml").write_text("")
    with RecordingServer(a_task(kind), images) as server:
        arguments = ["trainer", "--insecure", "--aggregator", f"127.0.0.1:{server.port}", "--client", "ann"]
        arguments += ["--data", f"folder:{images}", "--state-dir", str(tmp_path / "ann"), "--device", "cpu"]
        trainer = Process("ann", tmp_path, [*arguments, "--policy", str(tmp_path / "policy.toml")])
        trainer.start()
        try:

            def problems() -> list[Any]:
                return [beat.problem for beat in server.of("Heartbeat") if beat.HasField("problem")]

            eventually(problems, "it says that it waits")
            before = len(server.requests)
            eventually(lambda: len(server.requests) > before + 3, "it goes on to say that it is there")
            assert {problem.reason for problem in problems()} == {OwnersWord.AWAITED}
            deciding.refuse(Kept(tmp_path / "ann"), "run-1", "not for this study")
            eventually(lambda: problems()[-1].reason == OwnersWord.REJECTED, "it says that its owner has decided")
            assert problems()[-1].detail.endswith("not for this study")
        finally:
            trainer.end()
    assert {name for name, _ in server.requests} == {"Join", "SyncRound", "Heartbeat"}


def filled(message: Any, values: dict[str, Any], depth: int = 0) -> Any:
    """The message with each field set: text by its name, numbers to 1."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth > 3:
                continue
            part = getattr(message, field.name)
            filled(part.add() if field.is_repeated else part, values, depth + 1)
            continue
        value = values.get(
            field.name, {FieldDescriptor.TYPE_STRING: "north", FieldDescriptor.TYPE_BYTES: b"x"}.get(field.type, 1)
        )
        value = bool(value) if field.type == FieldDescriptor.TYPE_BOOL else value
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def call(channel: grpc.Channel, name: str, request: Any, metadata: Any) -> str:
    """Make a call of any kind; returns OK or the code of its refusal."""
    method = METHODS[name]
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    answer = GetMessageClass(method.output_type)
    made = getattr(channel, kind)(
        name, request_serializer=lambda sent: sent.SerializeToString(), response_deserializer=answer.FromString
    )
    sent = iter([request]) if method.client_streaming else request
    try:
        answered = made(sent, timeout=STREAM_S if method.server_streaming else CALL_S, metadata=metadata)
        if method.server_streaming:
            next(answered, None)
            answered.cancel()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def test_no_call_of_any_member_key_or_owner_gives_the_approval(federation: Federation, control: RunControl) -> None:
    run_id = create(control)
    wait_pending(control, run_id)
    before = reads(federation)
    values = {
        "run_id": run_id,
        "client_id": "north",
        "instance_token": (federation.folder / "trainer-north" / TOKEN_FILE).read_text().strip(),
        "reason": OwnersWord.APPROVED.value,
        "is_fatal": False,
        "role": "client",
        "name": "nobody",
        "key_id": "nothing",
        "config_json": json.dumps({"approve": "always"}),
        "rounds": 3,
        "is_leaving": False,
    }
    outcomes: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:

        def channel(role: Role, name: str) -> grpc.Channel:
            tls = ClientTls(lambda: federation.credentials(role, name))
            return stack.enter_context(open_channel(federation.address, tls=tls))

        key = ((KEY_METADATA, federation.key),)
        gateway = channel(Role.GATEWAY, "tests")
        socket = stack.enter_context(grpc.insecure_channel(f"unix:{federation.state / SOCKET_FILE}"))
        senders = {
            "a gateway without a key": (gateway, ()),
            "a monitor": (channel(Role.MONITOR, "watch"), key),
            "another client": (channel(Role.CLIENT, "bob"), key),
            "who stole the site's own certificate and token": (channel(Role.CLIENT, "north"), key),
            "the owner of the aggregator": (socket, ()),
            "an administrator": (gateway, key),
        }
        for verb in (
            PauseRun(now=True),
            ResumeRun(),
            QuarantineClient("north", reason="RUN_APPROVED"),
            ReleaseClient("north"),
            RetireClient("north", forgets=False),
            AdmitClient("north"),
        ):
            name = "/fedplcc.v1.RunService/SteerRun"
            outcomes.setdefault("steering", {})[type(verb).__name__] = call(
                gateway, name, steering_to_proto(run_id, verb, ""), key
            )
        names = sorted(METHODS, key=lambda name: (name.rpartition("/")[2] in ENDS_EVERYTHING, name))
        for sender, (there, metadata) in senders.items():
            for name in names:
                if name.endswith("/SteerRun"):
                    continue
                request = filled(GetMessageClass(METHODS[name].input_type)(), values)
                outcomes.setdefault(sender, {})[name] = call(there, name, request, metadata)
    assert len(outcomes["an administrator"]) == len(METHODS) - 1
    assert sum("OK" in done.values() for done in outcomes.values()) >= 4, outcomes
    assert outcomes["who stole the site's own certificate and token"]["/fedplcc.v1.RoundService/Heartbeat"] == "OK"
    kept = federation.folder / "trainer-north" / "approval"
    assert not (kept / "decisions.jsonl").exists()
    assert reads(federation) == before
    found = json.loads(site(federation, "pending", "--json"))
    assert (found["approve"], found["approved"], [each["run_id"] for each in found["pending"]]) == (
        "each",
        [],
        [run_id],
    )
    site(federation, "approve", run_id, "--document", found["pending"][0]["document_sha256"])
    eventually(lambda: reads(federation) > before, "its owner's yes is what it waited for", 60)
