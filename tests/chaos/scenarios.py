"""Scenarios: people steer a federation over REST while its processes die, each ending in hashes that no death may change."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fedplcc.shared.methods import METHODS
from tests.support.federation import tiny_federation
from tests.support.records.method_settings import public_of

PATIENCE_S = 240.0
"""How long a scenario may take on a busy machine, deaths included."""
LOOK_S = 0.05
"""How often a run is looked at, and a request sent again that was not answered."""
MAY_PASS = (408, 429, 502, 503, 504)
"""Answers that say: ask again."""
IS_GONE = (404, 410)
"""Answers that say of what was to be deleted that an earlier request has done it."""

Outcome = Mapping[str, str]
"""What must be the same whatever died: hashes by what they are of."""


class Operator:
    """A person's hand on the gateway, who asks again, under the same key, until there is an answer. Close it afterwards."""

    def __init__(self, url: str, name: str, key: str = "") -> None:
        """Prepare; `key` is the one that the gateway asks for, if it asks for keys."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client, self.name = httpx.Client(base_url=url, timeout=20, headers=headers), name
        self._deadline = time.monotonic() + PATIENCE_S

    def ask(self, method: str, path: str, data: bytes | None = None, key: str = "") -> bytes:
        """The body of a successful answer."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = f"{self.name}-{key}"
        while True:
            try:
                answer = self._client.request(method, path, content=data, headers=headers)
            except httpx.TransportError as error:
                trouble = repr(error)
            else:
                if answer.is_success or (method == "DELETE" and answer.status_code in IS_GONE):
                    return answer.content
                assert answer.status_code in MAY_PASS, f"{method} {path}: {answer.status_code} {answer.text}"
                trouble = answer.text
            self.bide(f"{method} {path} is answered; last: {trouble}")

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def bide(self, what: str) -> None:
        """Wait a moment for something."""
        assert time.monotonic() < self._deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(LOOK_S)

    def create(self, document: Mapping[str, Any], key: str = "create") -> str:
        """Create a run; its id."""
        return str(json.loads(self.ask("POST", "/v1/runs", json.dumps(document).encode(), key))["run_id"])

    def train(self, document: Mapping[str, Any], key: str = "create") -> Outcome:
        """Create a run and wait for its end."""
        run_id = self.create(document, key)
        self.wait(run_id, "completed")
        return self.ending(run_id)

    def steer(self, run_id: str, action: str, key: str) -> None:
        self.ask("POST", f"/v1/runs/{run_id}/{action}", b"", key)

    def wait(self, run_id: str, status: str) -> None:
        """Until a run has this status."""
        while (run := self.get(f"/v1/runs/{run_id}"))["status"] != status:
            assert run["status"] not in ("completed", "failed", "stopped"), f"{run['status']}: {run['reason']}"
            self.bide(f"run {run_id} is {status}, not {run['status']} in round {run['round']}, {run['phase']}")

    def wait_round(self, run_id: str, number: int) -> None:
        """Until a run has come to a round."""
        while (run := self.get(f"/v1/runs/{run_id}"))["round"] < number:
            self.bide(f"run {run_id} comes to round {number}, not {run['status']} in round {run['round']}")

    def ending(self, run_id: str) -> Outcome:
        """SHA-256 of what a person downloads of a run."""
        return {
            name: hashlib.sha256(self.ask("GET", f"/v1/runs/{run_id}/{name}")).hexdigest()
            for name in ("model", "prototypes", "metrics.jsonl")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that people do.

    Attributes:
        name: For people.
        perform: Does it, and says what it came to. The folder holds the clients' data.
        is_new: Whether the aggregator makes its authority in it; the trainers are of another federation then.
    """

    name: str
    is_new: bool = False
    perform: Callable[[Operator, Path], Outcome]


FIRST_MODEL = "first.safetensors"
"""The model that runs begin with, beside the clients' data."""


def prepare(operator: Operator, folder: Path) -> None:
    """Make what scenarios need, with a run of its own."""
    run_id = operator.create(_document(folder, "fedavg", rounds=1))
    operator.wait(run_id, "completed")
    (folder / FIRST_MODEL).write_bytes(operator.ask("GET", f"/v1/runs/{run_id}/model"))


def _document(folder: Path, method: str, **run: Any) -> dict[str, Any]:
    local_steps = run.pop("local_steps", 2)
    values = tiny_federation.document(folder, method, run={"rounds": 2, **run}, training={"local_steps": local_steps})
    return tiny_federation.run_document(values)


def _train(method: str, **hyper: Any) -> Callable[[Operator, Path], Outcome]:
    more = {**({"method": hyper} if hyper else {}), **public_of(method, hyper)}
    return lambda operator, folder: operator.train({**_document(folder, method), **more})


def _train_and_look(operator: Operator, folder: Path) -> Outcome:
    """Train, and look at the prototypes on their plane."""
    run_id = operator.create(_document(folder, "fedplcc"))
    operator.wait(run_id, "completed")
    operator.get(f"/v1/runs/{run_id}/prototype-map")
    return operator.ending(run_id)


def _train_again(operator: Operator, folder: Path) -> Outcome:
    """Train, and train the same again: the updates that the aggregator still has need not be sent."""
    document = _document(folder, "fedavg")
    first, second = operator.train(document), operator.train(document, "create-again")
    assert second == first, f"the same run came out as {second} after {first}"
    return second


def _operate(operator: Operator, folder: Path) -> Outcome:
    """Create, look at everything, pause, resume, pause at once, resume."""
    run_id = operator.create(_document(folder, "fedavg", rounds=5, local_steps=20))
    operator.wait_round(run_id, 1)
    operator.steer(run_id, "pause", "pause")
    operator.wait(run_id, "paused")
    for path in (
        "clients",
        "runs",
        *(f"runs/{run_id}/{what}" for what in ("rounds", "evaluations?round=1", "manifest")),
    ):
        operator.get(f"/v1/{path}")
    operator.ask("GET", f"/v1/runs/{run_id}/timings.jsonl")
    operator.steer(run_id, "resume", "resume")
    operator.steer(run_id, "pause?now=true", "pause-now")
    operator.wait(run_id, "paused")
    operator.steer(run_id, "resume", "resume-again")
    operator.wait(run_id, "completed")
    types = [event["type"] for event in operator.get(f"/v1/runs/{run_id}/events?after=0")["events"]]
    assert types[-1] == "run_completed", types
    return operator.ending(run_id)


def _stop(operator: Operator, folder: Path) -> Outcome:
    """Create, and stop in the middle of training; what was committed stays."""
    run_id = operator.create(_document(folder, "fedavg", rounds=3, local_steps=100_000))
    operator.wait_round(run_id, 1)
    operator.steer(run_id, "stop", "stop")
    operator.wait(run_id, "stopped")
    return operator.ending(run_id)


def _quarantine(operator: Operator, folder: Path) -> Outcome:
    """Pause a run of one client, leave another out of it, let that one back, and go on: nothing comes of it but history."""
    document = _document(folder, "fedavg", rounds=5, local_steps=20)
    document["run"]["clients"] = ["left"]
    while "right" not in {client["client_id"] for client in operator.get("/v1/clients")["clients"]}:
        operator.bide("the other client joins")
    run_id = operator.create(document)
    operator.wait_round(run_id, 1)
    operator.steer(run_id, "pause?now=true", "pause-now")
    operator.wait(run_id, "paused")
    operator.steer(run_id, "clients/right/quarantine", "quarantine")
    assert [entry["client_id"] for entry in operator.get(f"/v1/runs/{run_id}")["quarantined"]] == ["right"]
    operator.steer(run_id, "clients/right/release", "release")
    operator.steer(run_id, "resume", "resume")
    operator.wait(run_id, "completed")
    return operator.ending(run_id)


def _clean_up(operator: Operator, folder: Path) -> Outcome:
    """Train, note something, archive and delete the run, forget a client, and train the same again."""
    document = _document(folder, "fedavg")
    run_id = operator.create(document)
    operator.wait(run_id, "completed")
    first, path = operator.ending(run_id), f"/v1/runs/{run_id}"
    operator.ask("PATCH", path, b'{"tags": ["kept", "a=1"], "notes": "a note"}', "note")
    operator.ask("PATCH", path, b'{"is_archived": true}', "archive")
    (line,) = operator.get("/v1/runs?show=archived&tag=kept")["runs"]
    assert line["run_id"] == run_id
    operator.ask("DELETE", path)
    (line,) = operator.get("/v1/runs?show=deleted")["runs"]
    assert (line["run_id"], line["tags"]) == (run_id, ["a=1", "kept"])
    operator.ask("DELETE", "/v1/clients/right")
    second = operator.train(document, "create-again")
    assert second == first, f"the same run came out as {second} after {first}"
    return second


def _train_in_stages(operator: Operator, folder: Path) -> Outcome:
    """Train three stages twice, with data that are read anew, and with a client that comes and goes by plan."""
    document = _document(folder, "fedmlp")
    del document["run"]["rounds"]
    classes = [["thin"], ["wide", "plain"], ["plain"]]
    document["stream"] = {"stages": 3, "rounds_per_stage": 1, "passes": 2, "classes": classes, "reload": "stage"}
    document["membership"] = {"right": "2-4"}
    return operator.train(document)


def _come_go_and_end_stages(operator: Operator, folder: Path) -> Outcome:
    """Admit a client, end a stage, retire the client, and stop: what was asked for is there, once."""
    document = _document(folder, "fedavg", rounds=3, local_steps=100_000)
    document["run"]["clients"] = ["left"]
    document["stream"] = {"stages": 3, "advance": "manual"}
    while "right" not in {client["client_id"] for client in operator.get("/v1/clients")["clients"]}:
        operator.bide("the other client joins")
    run_id = operator.create(document)
    operator.wait_round(run_id, 1)
    member = f"/v1/runs/{run_id}/clients/right"
    operator.ask("PUT", member, b"", "admit")
    operator.steer(run_id, "stages", "advance")
    operator.ask("DELETE", member, key="retire")
    operator.steer(run_id, "stop", "stop")
    operator.wait(run_id, "stopped")
    events = operator.get(f"/v1/runs/{run_id}/events?after=0")["events"]
    counts = Counter(event["type"] for event in events)
    return {name: str(counts[name]) for name in ("client_admitted", "stage_ended", "client_retired")}


def _begin(operator: Operator, folder: Path) -> Outcome:
    """Upload a model, and train from it."""
    data = (folder / FIRST_MODEL).read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    operator.ask("PUT", f"/v1/models/{sha256}?name=first", data)
    return operator.train(_document(folder, "fedavg", rounds=1, initial_model=f"sha256:{sha256}"))


def _train_with_slots(operator: Operator, folder: Path) -> Outcome:
    """Train for three rounds: the last model depends on the slots that the two before it left."""
    return operator.train(_document(folder, "fedopt", rounds=3))


def _train_with_arrays(operator: Operator, folder: Path) -> Outcome:
    """Train for three rounds: the last head is of features that the two before it left."""
    hyper = {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}
    return operator.train({**_document(folder, "creff", rounds=3), "method": hyper})


def _train_with_averages(operator: Operator, folder: Path) -> Outcome:
    """Train for three rounds: the last results are of models, prototypes and domains of the two before it."""
    hyper = {"global_average": "ema", "proto_window": 3, "averaging": "domain"}
    return operator.train({**_document(folder, "fedplcc", rounds=3), "method": hyper})


WITH_SERVER_STATE = (
    Scenario(name="train with server slots", perform=_train_with_slots),
    Scenario(name="train with server arrays", perform=_train_with_arrays),
    Scenario(name="train with averages over rounds", perform=_train_with_averages),
    Scenario(name="train with public images", perform=_train("fcclplus", public_batch=8)),
)
"""Runs whose server keeps something from round to round."""

SCENARIOS = (
    Scenario(name="train", perform=_train_and_look),
    *((Scenario(name="train with client state", perform=_train("moon")),) if "moon" in METHODS else ()),
    Scenario(name="train with models that stay", perform=_train("fedproto", share_model=False)),
    Scenario(name="train and judge local models too", perform=_train("fedccl")),
    *WITH_SERVER_STATE,
    Scenario(name="train with heads that stay", perform=_train("fedrep", head_epochs=1, upload_head=False)),
    Scenario(name="train with both states", perform=_train("feddyn")),
    Scenario(name="train in stages", perform=_train_in_stages),
    Scenario(name="train the same again", perform=_train_again),
    Scenario(name="pause and resume", perform=_operate),
    Scenario(name="stop", perform=_stop),
    Scenario(name="begin with a model", perform=_begin),
    Scenario(name="quarantine and release", perform=_quarantine),
    Scenario(name="come, go and end stages", perform=_come_go_and_end_stages),
    Scenario(name="note, delete and forget", perform=_clean_up),
)
"""What people do with runs."""
