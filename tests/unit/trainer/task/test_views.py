"""Changed copies of training images whose features are computed once: what a run trains on, and which runs have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.types import MODEL, RunSpec
from fedplcc.trainer.owner.consent import Consent
from tests.support import present
from tests.unit.trainer.task.test_private_sums import NET, Site, consent, data_of
from tests.unit.trainer.tasks import a_run

__all__ = ["consent"]


def head_run(consent: Consent, method: str = "fedavg", **training: Any) -> RunSpec:
    known = present(consent.weights.find("tiny"))
    model = {"name": NET, "weights": "tiny", "weights_sha256": known.sha256}
    return a_run(method, model=model, training={"train": "head", "local_steps": 9, **training})


def test_a_run_trains_on_its_own_copies_and_on_no_other_run_s(tmp_path: Path, consent: Consent) -> None:
    site = Site(tmp_path, data_of(tmp_path, 1, [0] * 9 + [1] * 5), consent, epsilon=None)
    trained = []
    for number, augment in enumerate((None, ["crop"], ["flip"], None, ["crop"])):
        copies: dict[str, Any] = {} if augment is None else {"augment": augment, "views": 2}
        run = head_run(consent, **copies)
        site.do(RunSpec(run_id=f"run-{number}", config_json=run.config_json, config_hash=run.config_hash))
        _, update = site.aggregator.updates[-1]
        assert update.num_examples == 14
        blob = present(update.payload.tensor_group(MODEL))
        trained.append(blob.sha256)
    assert trained[:2] == trained[3:]
    assert len(set(trained)) == 3


def test_copies_that_nothing_would_see_or_change_are_refused(consent: Consent) -> None:
    with pytest.raises(InvalidConfig, match=r"set training\.augment"):
        head_run(consent, views=1)
    with pytest.raises(InvalidConfig, match="of sums over the images as they are"):
        head_run(consent, "classsums", views=1, augment=["flip"])
