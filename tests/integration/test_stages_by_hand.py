"""Stages that people end: REST, the command line, the history, and what clients are refused for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import STAGE_DATA, STREAM_PLACE, RunStatus
from tests.support import commands
from tests.support.federation.served_gateway import ServedGateway

MANUAL = {"stages": 3, "advance": "manual"}


def advanced(served: ServedGateway, run_id: str) -> tuple[int, str, str]:
    return commands.called("run", "resume", run_id, "--next-stage", "--gateway", served.url)


def in_round_1(served: ServedGateway, **sections: Any) -> str:
    run_id = served.create(**sections)
    served.federation.join()
    ann = served.federation.clients["ann"]
    assert served.federation.perform(ann, served.federation.task(ann)), "ann makes the first model"
    return run_id


def test_a_person_ends_stages_and_the_next_round_begins_the_next_one(served: ServedGateway) -> None:
    run_id = in_round_1(served, stream=MANUAL)
    assert served.federation.task(served.federation.clients["ann"]).payload.scalars == {"pass": 1.0, "stage": 1.0}
    code, text, _ = advanced(served, run_id)
    assert (code, f"run {run_id}: fedavg, running" in text) == (0, True)
    answer = served.http.post(f"/v1/runs/{run_id}/stages")
    assert answer.status_code == 200, "the same stage is not ended twice"
    assert served.federation.run_to_end(run_id).status is RunStatus.COMPLETED
    lines = [json.loads(line) for line in served.http.get(f"/v1/runs/{run_id}/metrics.jsonl").text.splitlines()]
    assert [(line["round"], line["stage"]) for line in lines][:2] == [(1, 1), (2, 2)]
    shown = CliRunner().invoke(app, ["run", "status", run_id, "--gateway", served.url])
    assert shown.exit_code == 0
    assert "after  stage  1  stage  2" in shown.stdout
    assert "forgetting: " in shown.stdout
    (event,) = served.federation.events(run_id, "stage_ended")
    assert event.data == {"stage": 1, "first_round": 2}
    code, _, said = advanced(served, run_id)
    assert code != 0
    assert "completed" in said


@pytest.mark.parametrize(
    ("stream", "names", "places"),
    [
        ({"stages": 2, "rounds_per_stage": 1}, ["stage"], [["1"], ["2"]]),
        (
            {"stages": 2, "rounds_per_stage": 1, "passes": 2},
            ["pass", "stage"],
            [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]],
        ),
        (None, [], [[], []]),
    ],
)
def test_a_person_who_watches_a_run_sees_the_stage_of_each_round(
    served: ServedGateway, stream: dict[str, Any] | None, names: list[str], places: list[list[str]]
) -> None:
    sections = {} if stream is None else {"stream": stream, "run": {"rounds": len(places)}}
    run_id = in_round_1(served, **sections)
    served.federation.run_to_end(run_id)
    shown = CliRunner().invoke(app, ["run", "watch", run_id, "--gateway", served.url])
    assert shown.exit_code == 0
    heading, *lines = (line.split() for line in shown.stdout.splitlines()[-len(places) - 2 : -1])
    assert heading[: len(names) + 2] == ["round", *names, "ann-domain"]
    assert [line[: len(names) + 1] for line in lines] == [[str(k), *place] for k, place in enumerate(places, start=1)]


def test_a_run_that_ends_its_stages_itself_is_not_told_to(served: ServedGateway) -> None:
    code, _, said = advanced(served, in_round_1(served))
    assert code != 0
    assert 'only runs with stream.advance = "manual" are told to' in " ".join(said.split())


@pytest.mark.parametrize(
    "lists", [{}, {STREAM_PLACE: (1, 2)}, {STREAM_PLACE: (1, 1), STAGE_DATA: (1, 2)}, {STAGE_DATA: (256,) * 32}]
)
def test_an_update_of_another_stage_is_refused(served: ServedGateway, lists: dict[str, tuple[int, ...]]) -> None:
    federation = served.federation
    in_round_1(served, stream=MANUAL)
    ann = federation.clients["ann"]
    task, update, blobs = federation.work(ann)
    good = dict(update.payload.int_lists)
    wrong = replace(update, payload=replace(update.payload, int_lists={**good, **lists} if lists else {}))
    assert task.run is not None
    with pytest.raises(MalformedUpdate) as refused:
        federation.coordinator.commit_update(
            ann.client_id, ann.token, task.run.run_id, task.round, wrong, list(blobs.values())
        )
    assert refused.value.metadata["check"] == "stage"
