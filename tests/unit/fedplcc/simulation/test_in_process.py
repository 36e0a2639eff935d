"""What a client of a simulation tells of its images: all, but in a run that says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.shared.config.run import ClientSection
from fedplcc.simulation.engine import Site
from fedplcc.simulation.in_process import task_runner
from fedplcc.trainer.owner.consent import NO_CONSENT
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.models.latest_model import LatestModel


@pytest.mark.parametrize("withholds", [False, True])
def test_a_client_tells_its_class_counts_but_where_the_run_covers_them(withholds: bool, tmp_path: Path) -> None:
    site = Site(
        client_id="ann",
        domain="ann",
        section=ClientSection(data="digits:synth", samples_per_class=2),
        withholds=withholds,
        device="cpu",
        states=tmp_path / "trainers" / "ann",
        consent=NO_CONSENT,
    )
    announced = task_runner(site, ClientStates(site.states), LatestModel()).announce()
    assert bool(announced.class_counts) is not withholds
    assert announced.num_examples == 20
