"""Members that are revoked while they upload and download: their calls end, they end, and nobody else's bytes change."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.wire.enrolling.enrolment import join
from fedplcc.shared.wire.enrolling.renewal import keep, next_key
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Process, eventually
from tests.support.identity.keyed_federation import Keyed

HEARTBEAT_S = 10.0
"""Within this time all calls of a revoked member end; so long that a busy machine cannot be the reason."""
SLOW_BYTES_PER_S = 8_000
BEGUN_BYTES = 40_000
"""More than a trainer says besides a model: if so much has passed, the model is under way."""
STAYING = tiny_federation.CLIENTS
UPLOADER, DOWNLOADER = "sender", "taker"
WAIT_S = 300.0


@pytest.fixture
def all_data(data: Path, tmp_path: Path) -> Path:
    for name, like in zip((UPLOADER, DOWNLOADER), STAYING, strict=True):
        shutil.copy(data / f"{like}.npz", data / f"{name}.npz")
    return data


def configuration(data: Path, **sections: Any) -> dict[str, Any]:
    names = [*STAYING, UPLOADER, DOWNLOADER]
    clients = {name: {"data": f"npz:{data / name}.npz"} for name in names}
    # Larger than what gRPC and kernels hold of a stream: a download is in progress until its reader has read.
    model = {"name": "cnn5"}
    return tiny_federation.document(
        data, model=model, data={"image_size": 64}, run={"rounds": 2, "clients": names}, clients=clients, **sections
    )


class Sites:
    """Trainers that have joined by invitation, each a process."""

    def __init__(self, keyed: Keyed, data: Path) -> None:
        self.keyed, self._data = keyed, data

    def start(self, name: str, address: str) -> Process:
        folder = self.keyed.folder / f"trainer-{name}"
        folder.mkdir(mode=0o700)
        code = InvitationCode.parse(self.keyed.owner("invite", name, "--domain", name))
        keep(join(code, next_key(folder)), folder)
        data = f"npz:{self._data}/{name}.npz"
        process = self.keyed.trainer(f"trainer-{name}", name, data, state_dir=folder)
        process.arguments[process.arguments.index("--aggregator") + 1] = address
        process.start()
        return process


def lines_of(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log().splitlines() if line.startswith("{")]


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_revocation_ends_a_members_streams_and_its_process_and_changes_no_other_byte(
    all_data: Path, tmp_path: Path
) -> None:
    left_out = {"quarantined": [UPLOADER, DOWNLOADER]}
    reference = tiny_federation.simulated(tmp_path / "reference", configuration(all_data, admission=left_out))
    with Keyed(tmp_path) as keyed, ExitStack() as links:
        keyed.begin("--heartbeat-interval-s", str(HEARTBEAT_S), "--max-inline-bytes", "0")
        _, headers = keyed.new_key("run")
        http = links.enter_context(httpx.Client(base_url=keyed.gateway_url, headers=headers, timeout=None))
        sites = Sites(keyed, all_data)
        up, down = (links.enter_context(FaultProxy(keyed.address)) for _ in range(2))
        up.up.bytes_per_s = down.down.bytes_per_s = SLOW_BYTES_PER_S
        for name in STAYING:
            sites.start(name, keyed.address)
        revoked = {UPLOADER: sites.start(UPLOADER, up.address), DOWNLOADER: sites.start(DOWNLOADER, down.address)}
        run_id = http.post("/v1/runs", json=tiny_federation.run_document(configuration(all_data))).json()["run_id"]
        eventually(lambda: min(up.up.num_bytes, down.down.num_bytes) > BEGUN_BYTES, "both are under way", WAIT_S)
        for name in revoked:
            keyed.owner("client", "revoke", name)
        for name, process in revoked.items():
            eventually(lambda process=process: process.exit_code is not None, f"{name} ends", WAIT_S)  # type: ignore[misc]
            assert process.exit_code == 3, process.log()
            (last,) = [line for line in lines_of(process) if line["event"] == "cannot_go_on"]
            assert last["reason"] == "CERTIFICATE_REVOKED"
            assert "was revoked" in last["detail"]
        _require_ended_streams(keyed.processes["aggregator"])
        for process in revoked.values():
            process.start()
            eventually(lambda process=process: process.exit_code is not None, "it ends again", WAIT_S)  # type: ignore[misc]
            assert process.exit_code == 3
        for name in revoked:
            assert http.post(f"/v1/runs/{run_id}/clients/{name}/quarantine", json={}).status_code == 200
        eventually(lambda: http.get(f"/v1/runs/{run_id}").json()["status"] == "completed", "the run ends", WAIT_S)
        rounds = http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"]
        assert rounds[-1]["metrics"]["model_sha256"] == reference[-1]["model_sha256"]


def _require_ended_streams(aggregator: Process) -> None:
    lines = lines_of(aggregator)
    for name, transfer in ((UPLOADER, "UploadModel"), (DOWNLOADER, "DownloadBlob")):
        (begin,) = [line for line in lines if line["event"] == "holder_revoked" and line["name"] == name]
        ended = {
            line["method"].rpartition("/")[2]: at(line) - at(begin)
            for line in lines
            if line["event"] == "rpc" and line.get("client_id") == name and line.get("reason") == "CERTIFICATE_REVOKED"
        }
        assert {"SyncRound", transfer} <= set(ended), ended
        assert max(ended["SyncRound"], ended[transfer]) <= HEARTBEAT_S, ended
