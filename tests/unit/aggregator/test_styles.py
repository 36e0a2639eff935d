"""Styles in whole runs: uploaded beside each update, pooled after the fold, sent with the next task; refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.computation.upload_checks import check_style_norm
from fedplcc.state.replay import replay
from shared.errors import MalformedUpdate, UpdateNormExceeded
from shared.methods import creff, fedopt
from shared.methods.public import PUBLIC
from shared.methods.styles import PLACES, STYLES
from shared.tensors import blob_ref, from_bytes, to_bytes
from shared.types import MODEL, Payload, Run, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

FEDERATED: dict[str, Any] = {"training": {"mix_style": {"statistics": "federation"}}}
KEPT = {
    "fedavg": {STYLES},
    "fedopt": {STYLES, *fedopt.METHOD.server_slots(fedopt.METHOD.config())},
    "creff": {STYLES, creff.FEATURES, creff.HEAD},
    "fcclplus": {STYLES, PUBLIC},
}
"""Methods whose server keeps nothing, slots, arrays of its own, and arrays about public images; and what it keeps here."""


def a_federation(folder: Path) -> LocalFederation:
    folder.mkdir(exist_ok=True)
    clients = [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]
    return LocalFederation(folder, clients)


def begin(federation: LocalFederation, method: str = "fedavg", rounds: int = 2, **sections: Any) -> Run:
    federation.join()
    document = a_document(method, run={"rounds": rounds}, **{**FEDERATED, **sections})
    if method == "creff":
        document["method"] = {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}
    return federation.coordinator.create_run("the run", document)


def arrays_of(folder: Path, sha256: str) -> dict[str, np.ndarray]:
    return from_bytes((folder / "blobs" / sha256[:2] / sha256).read_bytes())


@pytest.mark.parametrize("method", KEPT)
def test_every_method_may_have_styles_beside_what_its_server_keeps(folder: Path, method: str) -> None:
    with a_federation(folder) as federation:
        run = federation.run_to_end(begin(federation, method).run_id)
        last = federation.coordinator.list_rounds(run.run_id)[-1]
        assert last.server_state.keys() == KEPT[method]
        whole = federation.store.find_round(run.run_id, last.number)
        assert whole is not None
        sent = []
        for name in ("ann", "bob"):
            blob = whole.updates[name].payload.tensor_group(STYLES)
            assert blob is not None
            sent.append(arrays_of(folder, blob.sha256))
        made = arrays_of(folder, last.server_state[STYLES].sha256)
        for place in PLACES:
            values = np.stack([each[place].astype(np.float64) for each in sent])
            np.testing.assert_allclose(made[place][:, 0], values[:, :, 0].mean(0), rtol=1e-6)
            variance = values[:, :, 1].mean(0) + values[:, :, 0].var(0)
            np.testing.assert_allclose(made[place][:, 1], variance, rtol=1e-6)
        again = replay(folder, run.run_id, last.number)
        assert again.is_equal
        assert again.computed[STYLES] == last.server_state[STYLES]


def test_they_go_with_the_next_task_and_change_no_byte_of_the_model(folder: Path) -> None:
    results = []
    plain: dict[str, Any] = {"training": {}}
    for number, sections in enumerate((FEDERATED, plain)):
        with a_federation(folder / str(number)) as federation:
            run_id = begin(federation, rounds=3, **sections).run_id
            ann, roles = federation.clients["ann"], []
            while federation.coordinator.get_run(run_id).current_round is not None:
                task = federation.task(ann)
                if task.kind is TaskKind.TRAIN:
                    roles.append([blob.role for blob in task.payload.blobs])
                federation.coordinator.garbage_collection.collect()
                federation.restart()
                if not federation.step():
                    break
            results.append([each.model for each in federation.coordinator.list_rounds(run_id)])
        has_styles = sections is FEDERATED
        assert [MODEL] in roles
        assert ([MODEL, STYLES] in roles) == has_styles
    assert results[0] == results[1]


def with_value(value: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda group: group.update(stem=value(group["stem"]))


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda group: group.pop("stage1"), "keys"),
        (lambda group: group.update(stage3=group["stem"]), "keys"),
        (with_value(lambda array: array.astype(np.int64)), "dtype"),
        (with_value(lambda array: array[:, :, 1:]), "shape"),
        (with_value(lambda array: array * np.float32("nan")), "finite"),
        (with_value(lambda array: array * np.float32(1e9)), "upload"),
        (with_value(lambda array: -array), "upload"),
    ],
)
def test_styles_that_are_not_as_declared_are_refused_by_name(
    folder: Path, change: Callable[[dict[str, np.ndarray]], None], check: str
) -> None:
    with a_federation(folder) as federation:
        begin(federation)
        ann = federation.clients["ann"]
        while (task := federation.task(ann)).kind is not TaskKind.TRAIN:
            federation.step()
        update, blobs = ann.work(task, federation.fetch(ann, task))
        (styles,) = (blob for blob in blobs if blob.role == STYLES)
        group = dict(from_bytes(blobs[styles]))
        change(group)
        data = to_bytes(group)
        blobs = {blob: content for blob, content in blobs.items() if blob != styles} | {blob_ref(STYLES, data): data}
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(ann, task, replace(update, payload=Payload(tensor_groups=tuple(blobs))), blobs)
        assert (refused.value.metadata["check"], refused.value.metadata["group"]) == (check, STYLES)
        del blobs[blob_ref(STYLES, data)]
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(ann, task, replace(update, payload=Payload(tensor_groups=tuple(blobs))), blobs)
        assert refused.value.metadata["check"] == "roles"


def test_styles_beyond_the_runs_norm_are_refused(folder: Path) -> None:
    for most in (1e9, 1e-9):
        with a_federation(folder / str(most)) as federation:
            run = begin(federation, rounds=1, admission={"max_style_norm": most})
            if most == 1e9:
                federation.run_to_end(run.run_id)
                continue
            with pytest.raises(UpdateNormExceeded) as refused:
                federation.run_to_end(run.run_id)
        assert refused.value.detail.endswith("the run takes up to 1e-09 (admission.max_style_norm)")
        assert refused.value.metadata["check"] == "style_norm"


def test_the_norm_of_styles_is_that_of_all_their_numbers() -> None:
    styles = {place: np.full((2, 2, width), 3e37, np.float32) for place, width in PLACES.items()}
    norm = float(np.float32(3e37)) * np.sqrt(4 * sum(PLACES.values()))
    check_style_norm(styles, norm * (1 + 1e-12))
    with pytest.raises(UpdateNormExceeded):
        check_style_norm(styles, norm * (1 - 1e-12))
