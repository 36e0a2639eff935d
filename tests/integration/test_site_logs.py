"""Log lines of sites in whole processes: out of the one whose owner lets them out, of no other, and to who may read them.

And rsyslog with the file of deploy/, which ships the lines of all services.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedplcc.shared.errors import IdentityMismatch, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, types_pb2
from fedplcc.shared.wire.statuses import translated
from fedplcc.trainer.owner.egress.log import lines_in
from tests.support import ROOT
from tests.support.federation.class_folders import write_class_folders
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.processes import eventually
from tests.support.identity.keyed_federation import Keyed

LETS_OUT = 'approve = "always"\nleaves.logs = "info"\n'
POLICIES = {"north": LETS_OUT, "south": 'approve = "always"\n', "west": LETS_OUT}
FLAGS = {"west": ("--privacy-epsilon", "3")}
WAIT_S = 120.0


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.begin("--heartbeat-interval-s", "0.2")
        yield federation


class Reader:
    """Who reads logs over REST with a key of one scope."""

    def __init__(self, keyed: Keyed, scope: str) -> None:
        self._url, self._headers = keyed.gateway_url, keyed.new_key(scope)[1]

    def ask(self, method: str, path: str, **what: Any) -> httpx.Response:
        return httpx.request(method, f"{self._url}{path}", headers=self._headers, timeout=None, trust_env=False, **what)

    def log(self, client: str, query: str = "") -> dict[str, Any]:
        answer = self.ask("GET", f"/v1/clients/{client}/log{query}")
        return {"status": answer.status_code, **answer.json()}


@pytest.fixture(scope="module")
def run_id(keyed: Keyed) -> str:
    """A run of two rounds, of north, whose owner lets lines out, and south, whose owner does not; it has ended.

    West's owner lets lines out too, but keeps everything that is made of images to the claim `site`.
    """
    for name, policy in POLICIES.items():
        (keyed.folder / f"{name}.toml").write_text(policy)
        images = write_class_folders(keyed.folder / "Mueller_Anna" / name)
        (images / "train" / CLASSES[0] / "Mueller.png").write_bytes(b"no image")
        keyed.start_trainer(
            name, f"folder:{images}", "--policy", str(keyed.folder / f"{name}.toml"), *FLAGS.get(name, ())
        )
    steering = Reader(keyed, "run")
    run = {"name": "scans", "method": "fedavg", "rounds": 2, "clients": ["north", "south"]}
    document = {"run": run, "model": {"name": "cnn4"}, "data": {"classes": list(CLASSES), "image_size": 16}}
    document["training"] = {"local_steps": 1, "batch_size": 4}
    run_id: str = steering.ask("POST", "/v1/runs", json=document).raise_for_status().json()["run_id"]

    def ended() -> bool:
        lines = steering.log("north").get("lines", [])
        done = [line for line in lines if line["event"] == "task_ended" and line["round"] == 2]
        return len(done) == 2  # trained and evaluated

    eventually(ended, "north's lines of the last round are there", WAIT_S)
    return run_id


@pytest.mark.timeout(300)
def test_lines_leave_the_site_whose_owner_lets_them_out_and_no_other(keyed: Keyed, run_id: str) -> None:
    steering, reading = Reader(keyed, "run"), Reader(keyed, "read")
    told = steering.log("north")
    assert (told["level"], told["left_out"]) == ("info", 0)
    last = [line for line in told["lines"] if line["event"] == "task_ended"][-1]
    assert (last["level"], last["run_id"], last["facts"]) == ("info", run_id, {"task": "evaluate", "outcome": "done"})
    warnings = {line["event"] for line in steering.log("north", "?level=warning")["lines"]}
    assert "unreadable_files" in warnings
    assert {line["level"] for line in steering.log("north", "?level=warning")["lines"]} <= {"warning", "error"}
    assert steering.log("north", f"?after={told['lines'][-2]['number']}")["lines"][0] == told["lines"][-1]
    assert "Mueller" not in json.dumps(told)
    assert "Mueller.png" in keyed.processes["trainer-north"].log(), "the site's own log names the file"

    eventually(lambda: steering.log("west").get("level") is not None, "west is there too", WAIT_S)
    for name in ("south", "west"):
        assert (steering.log(name)["level"], steering.log(name)["lines"]) == ("none", []), name
    whats = {name: {line.what for line in lines_in(keyed.folder / f"trainer-{name}") if line} for name in POLICIES}
    assert "log" in whats["north"]
    assert "log" not in whats["south"] | whats["west"]

    assert (reading.log("north")["status"], reading.log("north")["code"]) == (403, "SCOPE_MISSING")
    assert (steering.log("nobody")["status"], steering.log("nobody")["code"]) == (404, "CLIENT_NOT_FOUND")
    keyed.owner("login", "--gateway", keyed.gateway_url)
    done = keyed.command("run", "client", "log", run_id, "north", "south", "--gateway", keyed.gateway_url)
    assert done.returncode == 0, done.stderr
    assert "north  info     round 2  task_ended  outcome done, task evaluate" in done.stdout
    assert done.stderr.strip() == "fedplcc: south's owner lets no log lines out"
    slip = keyed.command("run", "client", "log", f"{run_id}0", "north", "--gateway", keyed.gateway_url)
    assert (slip.returncode, slip.stdout) == (1, "")


@pytest.mark.timeout(120)
def test_a_hostile_member_writes_no_other_log_and_no_word_of_its_own(keyed: Keyed) -> None:
    member = GrpcClient(keyed.address, NumpyClient("east"), tls=keyed.client_tls("east"))
    member.join()
    reader = Reader(keyed, "run")

    def send(*lines: types_pb2.LogLine, client: str = "east") -> None:
        heartbeat = round_service_pb2.HeartbeatRequest(client_id=client, instance_token=member.token, log_lines=lines)
        heartbeat.activity, heartbeat.log_level = types_pb2.CLIENT_ACTIVITY_IDLE, types_pb2.LOG_LEVEL_INFO
        with translated():
            member.stub.Heartbeat(heartbeat)

    def line(number: int, event: str = "task_failed", **facts: str) -> types_pb2.LogLine:
        found = types_pb2.LogLine(event=event, level=types_pb2.LOG_LEVEL_ERROR, facts=facts)
        found.time.FromMilliseconds(number)
        return found

    markup = "<img src=x onerror=alert(1)>"
    send(line(1, task="train", reason=markup, name=markup), line(2, event=markup))
    assert [each["facts"] for each in reader.log("east")["lines"]] == [{"task": "train"}]
    with pytest.raises(IdentityMismatch):
        send(line(3), client="north")
    with pytest.raises(MalformedRequest, match="1024 bytes"):
        send(line(3, reason="x" * 100_000))
    with pytest.raises(MalformedRequest, match="at most 262144 bytes"):
        send(line(3, reason="x" * 2**20))
    with pytest.raises(MalformedRequest, match="more than 20"):
        send(*(line(number) for number in range(100, 121)))
    for number in range(100, 120):
        send(*(line(1000 * number + each) for each in range(20)))
    flooded = reader.log("east")
    assert len(flooded["lines"]) <= 200
    assert flooded["left_out"] >= 200
    assert markup not in json.dumps(flooded)
    assert keyed.processes["aggregator"].log().count("reading_left_out") == 1
    member.close()


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="rsyslog is not installed")
@pytest.mark.timeout(300)
def test_rsyslog_ships_the_lines_of_all_services_and_no_sentence(keyed: Keyed, run_id: str, tmp_path: Path) -> None:
    places = {"/var/spool/rsyslog": "state", "/var/log/fedplcc-shipped": "shipped", "/var/log/fedplcc": "lines"}
    text = (ROOT / "deploy" / "rsyslog.conf").read_text()
    for place, name in places.items():
        assert place in text
        text = text.replace(place, str(tmp_path / name))
    (tmp_path / "state").mkdir()
    (tmp_path / "lines").mkdir()
    for name, process in keyed.processes.items():
        shutil.copy(process.log_file, tmp_path / "lines" / f"{name}.jsonl")
    config = tmp_path / "rsyslog.conf"
    config.write_text(text)
    checked = subprocess.run(["rsyslogd", "-N1", "-f", str(config)], capture_output=True, text=True, check=False)
    assert (checked.returncode, "error" in checked.stderr.lower()) == (0, False), checked.stderr
    texts = [path.read_text() for path in sorted((tmp_path / "lines").iterdir())]
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    wanted = [line for line in lines if line["level"] != "debug"]
    shipped = tmp_path / "shipped" / "lines.jsonl"
    running = subprocess.Popen(["rsyslogd", "-n", "-f", str(config), "-i", str(tmp_path / "pid")])
    try:
        eventually(
            lambda: shipped.exists() and shipped.read_bytes().count(b"\n") >= len(wanted), "all are shipped", WAIT_S
        )
    finally:
        running.terminate()
        running.wait()
    found = [json.loads(line) for line in shipped.read_text().splitlines()]
    assert Counter(line["event"] for line in found) == Counter(line["event"] for line in wanted)
    assert {line["run_id"] for line in found if line["event"] == "task_ended"} == {run_id}
    ended = [line for line in found if line["event"] == "round_committed"]
    assert [line["round"] for line in ended] == [0, 1, 2]
    assert "Mueller" not in shipped.read_text()
