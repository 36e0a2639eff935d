"""`run client retire --forget` through SIGKILL: a trainer that was away deletes what it keeps of that run alone, unasked."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fedplcc.trainer.task.manifest import MANIFEST, Manifest, manifest_in
from tests.chaos import membership
from tests.chaos.armed_federation import ArmedFederation, Order
from tests.chaos.scenarios import Operator
from tests.integration.test_methods_everywhere import document
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually

STEPS = [Order(f"trainer.state.manifest.rename.{when}") for when in ("before", "after")]


def kept(folder: Path) -> tuple[Manifest, set[str]]:
    """What a trainer keeps, and the names of the files in its folder."""
    return manifest_in(folder), {path.name for path in folder.iterdir()} - {MANIFEST}


@pytest.mark.timeout(300)
def test_a_trainer_that_was_away_deletes_what_it_keeps_of_that_run_alone(tmp_path: Path) -> None:
    with ArmedFederation(tmp_path) as federation, ExitStack() as stack:
        key = membership.new_key(federation.aggregator.state)
        operator = stack.enter_context(closing(Operator(federation.url, "operator", key)))
        values = tiny_federation.run_document(document(tmp_path, "fedrep", {"head_epochs": 1}))

        def begun(name: str, rounds: int) -> str:
            return operator.create({**values, "run": {**values["run"], "name": name, "rounds": rounds}}, name)

        may_go_on = begun("may-go-on", 1)
        operator.wait(may_go_on, "completed")
        runs = []
        for name in ("forgotten", "other"):
            runs.append(begun(name, 100))
            operator.wait_round(runs[-1], 2)
            operator.steer(runs[-1], "pause", f"pause-{name}")
            operator.wait(runs[-1], "paused")
        left, right = (federation.trainers[name].state / "client-state" / name for name in tiny_federation.CLIENTS)
        everything = {may_go_on, *runs}
        eventually(lambda: manifest_in(left).promoted.keys() == everything, "left keeps its heads of all runs", 30)

        federation.trainers["left"].kill()
        operator.ask("DELETE", f"/v1/runs/{runs[0]}/clients/left?forget=true", key="retire")
        federation.aggregator.kill()
        federation.aggregator.start()
        with federation.killing(federation.trainers["left"], STEPS) as deaths:
            eventually(lambda: len(deaths.points) == len(STEPS), "left dies around the deletion", 60)
            eventually(lambda: manifest_in(left).run_ids == everything - {runs[0]}, "the run is deleted", 60)
            eventually(lambda: kept(left)[1] == kept(left)[0].sha256s, "its bytes are deleted", 60)
        assert deaths.trouble == ""
        assert manifest_in(right).run_ids == everything
        log = federation.trainers["left"].log()
        assert "task_begun" not in log[log.rindex("trainer_starting") :], "no task was needed"
