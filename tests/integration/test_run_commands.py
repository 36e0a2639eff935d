"""`fedplcc run ...` against a real gateway and aggregator: what a person and a script get."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.command import gateway_calls
from fedplcc.command.all_commands import app
from fedplcc.doctor import network
from fedplcc.doctor.findings import Status, Subject
from fedplcc.runs.artifacts import FILES
from fedplcc.shared.version import VERSION
from fedplcc.terminal.progress import RunProgress
from tests.support import commands
from tests.support.federation.numpy_client import CLASSES
from tests.support.federation.served_gateway import ServedGateway

CONFIG = f"""
[run]
name = "shops"
method = "fedplcc"
rounds = 3
[method]
min_cluster_size = 2
[data]
classes = {list(CLASSES)}
[clients.ann]
data = "digits:mnist"
[clients.bob]
data = "digits:synth"
samples_per_class = 3
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    state = tmp_path / "state"
    state.mkdir()
    with ServedGateway(state) as gateway:
        yield gateway


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    return path


def called(gateway: ServedGateway, *arguments: object) -> tuple[int, str, str]:
    command = ["run", *map(str, arguments), "--gateway", gateway.url]
    return commands.called(*command)


def answered(gateway: ServedGateway, *arguments: object) -> Any:
    code, text, error = called(gateway, *arguments, "--json")
    assert (code, error) == (0, ""), error
    return json.loads(text)


def test_a_run_is_started_without_its_clients_tables_and_with_the_roster_that_they_make(
    served: ServedGateway, config: Path
) -> None:
    run = answered(served, "start", "--config", config)
    assert run["status"] == "pending"
    assert run["roster"] == ["ann", "bob"]
    assert "clients" not in run["config"]
    assert served.federation.coordinator.get_run(run["run_id"]).method == "fedplcc"


def test_a_run_is_started_with_other_values_than_the_files(served: ServedGateway, config: Path) -> None:
    words = ("--set", "run.rounds=7", "--set", "training.learning_rate=0.003", "--json")
    code, out, _ = called(served, "start", "--config", config, *words)
    assert code == 0
    found = json.loads(out)["config"]
    assert (found["run"]["rounds"], found["training"]["learning_rate"]) == (7, 0.003)
    refused, _, error = called(served, "start", "--config", config, "--set", "run.round=7")
    assert (refused, "run.rounds" in error) == (2, True)


def test_starting_twice_with_one_request_id_starts_one_run(served: ServedGateway, config: Path, tmp_path: Path) -> None:
    first = answered(served, "start", "--config", config, "--request-id", "once")
    assert answered(served, "start", "--config", config, "--request-id", "once")["run_id"] == first["run_id"]
    assert answered(served, "start", "--config", config)["run_id"] != first["run_id"]
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.replace("rounds = 3", "rounds = 4"))
    code, _, error = called(served, "start", "--config", other, "--request-id", "once")
    assert code == 1
    assert first["run_id"] in error


def test_the_status_shows_what_the_server_keeps_for_the_next_round(served: ServedGateway) -> None:
    run_id = served.create_and_finish(method="fedopt", run={"rounds": 1})
    size = served.federation.coordinator.get_run(run_id).server_state["m"].size_bytes
    assert answered(served, "status", run_id)["server_state"] == {"m": size, "v": size}
    assert f"the server keeps m ({size} bytes), v ({size} bytes)" in called(served, "status", run_id)[1]
    ahead = served.create_and_finish(method="feddyn", run={"rounds": 1})
    assert answered(served, "status", ahead)["server_state"].keys() == {"h", "start"}
    plain = served.create_and_finish(method="fedavg", run={"rounds": 1})
    assert answered(served, "status", plain)["server_state"] == {}
    assert "the server keeps" not in called(served, "status", plain)[1]


def test_the_status_shows_the_bytes_of_a_round_before_round_1_begins(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    assert answered(served, "status", run_id)["round_bytes"] is None, "nobody has made the model"
    federation = served.federation
    federation.join()
    while federation.coordinator.get_run(run_id).round_number < 1:
        assert federation.step()
    status = answered(served, "status", run_id)
    assert (status["round"], status["metrics"], status["measured_bytes"]) == (1, None, None)
    size = federation.coordinator.get_run(run_id).model
    assert size is not None
    assert (status["round_bytes"]["up"], status["round_bytes"]["clients"]) == (size.size_bytes, 2)
    assert "a round: each of 2 clients receives" in called(served, "status", run_id)[1]


def test_the_status_shows_the_last_rounds_accuracy_by_domain(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    assert answered(served, "status", run_id)["metrics"] is None
    text = called(served, "status", run_id)[1]
    assert "pending" in text
    assert "time" not in text, "no round has committed"
    assert "waits for client ann: has not joined yet" in text
    served.federation.join()
    served.federation.run_to_end(run_id)
    code, text, _ = called(served, "status", run_id)
    assert code == 0
    assert "completed" in text
    assert "ann-domain" in text
    heading, line = text.splitlines()[-2:]
    (timings,) = (
        json.loads(each)
        for each in served.http.get(f"/v1/runs/{run_id}/timings.jsonl").text.splitlines()
        if json.loads(each)["round"] == 3
    )
    assert heading.split()[-1] == "time"
    assert line.endswith(f"  {timings['seconds']['total']:.1f} s")
    last = json.loads(served.federation.metrics_lines(run_id)[-1])
    metrics = answered(served, "status", run_id)["metrics"]
    assert (metrics["round"], metrics["accuracy"]) == (3, last["accuracy"])


def test_a_script_may_say_the_same_request_again_at_any_later_time(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()
    pause = ("pause", "--now", run_id, "--request-id", "nightly-pause")
    assert answered(served, *pause)["status"] == "paused"
    assert answered(served, "resume", run_id, "--request-id", "nightly-resume")["status"] == "running"
    assert answered(served, *pause)["status"] == "running"
    code, _, error = called(served, "stop", "--yes", run_id, "--request-id", "nightly-pause")
    assert code == 1
    assert "send this one with a new id" in error
    assert answered(served, "stop", "--yes", run_id, "--request-id", "nightly-stop")["status"] == "stopped"


@pytest.mark.parametrize("command", ["status", "watch", "pause", "resume", "stop", "fetch", "edit"])
def test_an_unknown_run_is_one_sentence_and_exit_code_1(served: ServedGateway, command: str, tmp_path: Path) -> None:
    extra = {"fetch": ("--out", tmp_path / "out"), "stop": ("--yes",), "edit": ("--tag", "a")}.get(command, ())
    code, out, error = called(served, command, "nothing-1234", *extra)
    assert (code, out) == (1, "")
    assert error == "fedplcc: there is no run 'nothing-1234'\n"
    assert not (tmp_path / "out").exists()


def test_watching_a_live_run_prints_a_line_per_round_and_ends_with_it(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]

    def train() -> None:
        served.federation.join()
        served.federation.run_to_end(run_id)

    training = threading.Thread(target=train)
    training.start()
    code, text, _ = called(served, "watch", run_id)
    training.join()
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines if line[0].isdigit()] == ["1", "2", "3"]
    assert next(line for line in lines if line[0] == "round")[1:3] == ["ann-domain", "bob-domain"]
    assert lines[-1] == ["run", run_id, "has", "completed"]


def test_watching_a_round_that_waits_says_now_and_then_for_whom(
    served: ServedGateway, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()
    served.federation.perform(ann := served.federation.clients["ann"], served.federation.task(ann))
    served.federation.perform(ann, served.federation.task(ann))
    is_told = threading.Event()

    class Told(RunProgress):
        def note(self, text: str) -> None:
            super().note(text)
            if "waits for bob" in text:
                is_told.set()

    def go_on() -> None:
        is_told.wait(20)
        served.federation.run_to_end(run_id)

    monkeypatch.setattr("fedplcc.terminal.line_watch.MINUTE_S", 0.05)
    monkeypatch.setattr("fedplcc.terminal.progress.RunProgress", Told)
    going_on = threading.Thread(target=go_on)
    going_on.start()
    code, text, _ = called(served, "watch", run_id)
    going_on.join()
    assert code == 0
    assert any(
        "round 1: training" in line and "1 of 2 clients done; waits for bob (idle)" in line
        for line in text.splitlines()
    )


def test_watching_for_a_script_prints_every_event_and_then_the_run(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()
    served.federation.run_to_end(run_id)
    code, text, error = called(served, "watch", run_id, "--json")
    *events, run = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert "completed" in error
    assert [event["sequence"] for event in events] == sorted({event["sequence"] for event in events})
    committed = [event["data"]["metrics"] for event in events if event["type"] == "round_committed" and event["round"]]
    assert committed == [json.loads(line) for line in served.federation.metrics_lines(run_id)]
    assert run["status"] == "completed"


def test_watching_a_run_that_was_stopped_fails_with_the_reason(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    called(served, "stop", "--yes", run_id, "--reason", "the data were wrong")
    code, _, error = called(served, "watch", run_id)
    assert code == 1
    assert error == f"fedplcc: run {run_id} was stopped: the data were wrong\n"


def test_what_is_fetched_is_what_the_run_committed(served: ServedGateway, config: Path, tmp_path: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()
    served.federation.run_to_end(run_id)
    out = tmp_path / "deep" / "out"
    summary = answered_with_progress(served, "fetch", run_id, "--out", out)
    assert {path.name for path in out.iterdir()} == set(FILES)
    lines = served.federation.metrics_lines(run_id)
    assert (out / "metrics.jsonl").read_text() == "".join(f"{line}\n" for line in lines)
    last = json.loads(lines[-1])
    for name in ("model", "prototypes"):
        digest = hashlib.sha256((out / f"{name}.safetensors").read_bytes()).hexdigest()
        assert digest == last[f"{name}_sha256"] == summary[f"{name}_sha256"]
    assert summary == {**last, "run_id": run_id, "rounds": 3, "status": "completed", "directory": str(out)}
    manifest = json.loads((out / "run.json").read_text())
    assert manifest == served.federation.coordinator.manifest(served.federation.coordinator.get_run(run_id))
    timings = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    assert [line["round"] for line in timings] == [1, 2, 3]
    code, _, error = called(served, "fetch", run_id, "--out", out, "--whole")
    assert (code, "model.safetensors is no model of this run" in error) == (2, True), "numpy's model is no torch model"


def answered_with_progress(gateway: ServedGateway, *arguments: object) -> dict[str, Any]:
    code, text, error = called(gateway, *arguments, "--json")
    assert code == 0, error
    document: dict[str, Any] = json.loads(text)
    return document


def test_fetching_from_a_run_that_goes_on_takes_what_has_committed_so_far(
    served: ServedGateway, config: Path, tmp_path: Path
) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    code, _, error = called(served, "fetch", run_id, "--out", tmp_path / "early")
    assert code == 1
    assert "has not committed" in error
    served.federation.join()
    while served.federation.coordinator.get_run(run_id).round_number < 2:
        served.federation.step()
    assert called(served, "fetch", run_id, "--out", tmp_path / "out")[0] == 0
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 1
    served.federation.run_to_end(run_id)
    assert called(served, "fetch", run_id, "--out", tmp_path / "out")[0] == 0
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 3


# Keeping the list in order


def ended(served: ServedGateway, config: Path) -> str:
    run_id = str(answered(served, "start", "--config", config)["run_id"])
    served.federation.join()
    served.federation.run_to_end(run_id)
    return run_id


def test_runs_are_found_by_what_is_asked_for(served: ServedGateway, config: Path) -> None:
    over = ended(served, config)
    served.federation.clock.now += 1
    opened = answered(served, "start", "--config", config)["run_id"]
    called(served, "edit", over, "--tag", "paper", "--tag", "seed=1")

    def found(*arguments: str) -> list[str]:
        lines = called(served, "list", "--json", *arguments)[1].splitlines()
        return [json.loads(line)["run_id"] for line in lines]

    assert found() == [opened, over]
    assert found("--order", "oldest") == [over, opened]
    assert found("--status", "completed") == found("--tag", "paper", "--tag", "seed=1") == [over]
    assert found("--status", "completed", "--status", "running") == [opened, over]
    assert found("--name", "SHOP") == [opened, over]
    assert found("--name", over[-8:]) == [over]
    assert found("--since", "2100-01-01") == found("--method", "fedavg") == found("--show", "archived") == []
    code, text, _ = called(served, "list", "--tag", "paper")
    assert code == 0
    assert "paper seed=1" in text
    assert text.splitlines()[-1] == "1 of 1 run; 1 completed"
    assert called(served, "list", "--tag", "other")[1] == "no run is like this\n"
    code, _, error = called(served, "list", "--tag", "two words")
    assert code == 2
    assert "tag" in error


def test_tags_and_notes_of_a_run(served: ServedGateway, config: Path) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    text = called(served, "edit", run_id, "--tag", "b", "--tag", "a")[1]
    assert text == f"run {run_id} has the tags a b, no notes\n"
    assert answered(served, "edit", run_id, "--tag", "c", "--untag", "a")["tags"] == ["b", "c"]
    assert called(served, "edit", run_id, "--notes", "two\nlines")[1] == f"run {run_id} has the tags b c, notes\n"
    assert called(served, "status", run_id)[1].splitlines()[1:4] == ["tags: b c", "two", "lines"]
    assert called(served, "edit", run_id, "--notes", "", "--untag", "b", "--untag", "c")[1] == (
        f"run {run_id} has no tags, no notes\n"
    )
    code, _, error = called(served, "edit", run_id)
    assert (code, "--untag" in error) == (2, True)
    code, _, error = called(served, "edit", run_id, "--notes", "x" * 4001)
    assert code == 2
    assert "notes" in error


def test_a_run_is_archived_and_comes_back(served: ServedGateway, config: Path) -> None:
    opened = answered(served, "start", "--config", config)["run_id"]
    code, _, error = called(served, "edit", opened, "--archive")
    assert code == 1
    assert "only a run that has ended" in error
    served.federation.join()
    served.federation.run_to_end(opened)
    assert called(served, "edit", opened, "--archive")[1] == f"run {opened} has no tags, no notes, is archived\n"
    assert "there are no runs" in called(served, "list")[1]
    assert opened in called(served, "list", "--show", "archived")[1]
    assert called(served, "edit", opened, "--unarchive")[1] == f"run {opened} has no tags, no notes\n"
    assert opened in called(served, "list")[1]


def test_a_run_is_deleted_and_says_what_is_free_again(served: ServedGateway, config: Path) -> None:
    opened = answered(served, "start", "--config", config)["run_id"]
    code, _, error = called(served, "edit", "--delete", "--yes", opened)
    assert code == 1
    assert "stop it first" in error
    served.federation.join()
    served.federation.run_to_end(opened)
    deleted = answered(served, "edit", "--delete", "--yes", opened)
    assert deleted["run_id"] == opened
    assert deleted["freed_bytes"] > 0
    assert f"run {opened} was deleted" in called(served, "status", opened)[2]
    assert opened in called(served, "list", "--show", "deleted")[1]
    code, _, error = called(served, "edit", "--delete", "--tag", "a", opened)
    assert code == 2
    assert "--delete leaves nothing to change" in error


def test_a_client_is_forgotten(served: ServedGateway, config: Path) -> None:
    opened = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()

    def forget(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["client", "forget", *arguments, "--gateway", served.url])
        return result.exit_code, result.stdout, result.stderr

    code, _, error = forget("ann", "--yes")
    assert code == 1
    assert opened in error
    called(served, "stop", "--yes", opened)
    served.federation.run_to_end(opened)
    assert forget("ann", "--yes")[:2] == (0, "client ann is forgotten; if it joins again, it is new\n")
    assert forget("ann", "--yes")[0] == 1


# Questions before what cannot be undone

FINAL = [("run", "stop"), ("run", "edit", "--delete"), ("client", "forget")]


@pytest.mark.parametrize("command", FINAL)
def test_without_a_terminal_and_without_yes_nothing_is_done(served: ServedGateway, command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "x", "--gateway", served.url])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "add --yes" in result.stderr


@pytest.mark.parametrize(
    ("answer", "is_done"), [("y", True), ("yes", True), ("", False), ("n", False), ("what", False)]
)
def test_on_a_terminal_it_is_asked_first(
    served: ServedGateway, config: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_done: bool
) -> None:
    run_id = answered(served, "start", "--config", config)["run_id"]
    monkeypatch.setattr(gateway_calls, "is_terminal", lambda: True)
    result = CliRunner().invoke(app, ["run", "stop", run_id, "--gateway", served.url], input=f"{answer}\n")
    assert result.exit_code == (0 if is_done else 1)
    assert f"Stop run {run_id} for good?" in result.stderr
    assert ("nothing was changed" in result.stderr) is not is_done
    assert answered(served, "status", run_id)["status"].startswith("stop") is is_done


# What is taken where nothing is said


def test_without_an_id_the_newest_run_is_meant(
    served: ServedGateway, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = answered(served, "start", "--config", config)["run_id"]
    called(served, "stop", "--yes", old)
    served.federation.clock.now += 1
    newest = answered(served, "start", "--config", config)["run_id"]
    served.federation.join()
    served.federation.run_to_end(newest)
    assert answered(served, "status")["run_id"] == newest
    code, text, _ = called(served, "watch")
    assert code == 0
    assert text.splitlines()[-1] == f"run {newest} has completed"
    code, text, _ = called(served, "fetch")
    assert code == 0
    assert f"results in fedplcc-runs/{newest}" in text
    assert [line.split(",")[0] for line in text.splitlines() if line.startswith("fetching")] == [
        "fetching model.safetensors",
        "fetching prototypes.safetensors",
    ]
    assert {path.name for path in (tmp_path / "fedplcc-runs" / newest).iterdir()} == set(FILES)


@pytest.mark.parametrize("command", ["status", "watch", "fetch"])
def test_without_any_run_the_first_step_is_named(served: ServedGateway, command: str) -> None:
    code, out, error = called(served, command)
    assert (code, out) == (1, "")
    assert error == "fedplcc: there are no runs; start one with: fedplcc run start --config FILE\n"


@pytest.mark.parametrize("command", ["pause", "resume", "stop"])
def test_what_changes_a_run_wants_its_id(served: ServedGateway, command: str) -> None:
    assert called(served, command)[0] == 2


# The doctor on the way to them


def test_the_doctor_reaches_a_gateway_and_an_aggregator_of_its_own_version(served: ServedGateway) -> None:
    subject = Subject(state=Path(), aggregator=served.settings.aggregator, gateway=served.url)
    findings = [*network.aggregator(subject), *network.gateway(subject)]
    assert [finding.status for finding in findings] == [Status.OK] * 4, findings
    assert f"{served.settings.aggregator} serves with fedplcc {VERSION}, as here" == findings[1].sentence
    assert f"{served.url} serves with fedplcc {VERSION}, as here" == findings[3].sentence


def test_the_doctor_tells_a_gateway_from_an_aggregator(served: ServedGateway) -> None:
    port = served.url.rpartition(":")[2]
    swapped = Subject(state=Path(), aggregator=f"127.0.0.1:{port}", gateway=f"http://{served.settings.aggregator}")
    (_, aggregator), (_, gateway) = network.aggregator(swapped), network.gateway(swapped)
    assert aggregator.status is gateway.status is Status.PROBLEM
    served.stop_aggregator()
    (_, away) = network.gateway(Subject(state=Path(), gateway=served.url))
    assert away.status is Status.PROBLEM
    assert "does not serve now" in away.sentence
    served.start_aggregator()
