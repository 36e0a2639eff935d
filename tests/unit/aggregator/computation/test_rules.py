"""Rules in whole rounds: what is committed is the rule of what clients sent, by numpy, and replay makes the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.computation.fold import WeightedModel, fold_models
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.folds.rules import Rule, with_rule
from fedplcc.shared.tensors import from_bytes, read_header, sha256_hex, to_bytes
from fedplcc.shared.types import MODEL, Run
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

Model = dict[str, np.ndarray]
NAMES = ("ann", "bob", "cyd", "zoe")
RULES: tuple[dict[str, Any], ...] = (
    {"rule": "clipped_mean"},
    {"rule": "clipped_mean", "clip_to": 0.5, "max_weight_share": 0.3},
    {"rule": "trimmed_mean"},
    {"rule": "median"},
    {"rule": "mean", "max_weight_share": 0.3},
)


class Kept(LocalFederation):
    """Keeps every update and model."""

    keep = Keep(models=None, updates=9)


def a_run(folder: Path, method: str, hyper: dict[str, Any], aggregation: dict[str, Any]) -> tuple[Run, Kept]:
    clients = [NumpyClient(name) for name in NAMES[:-1]] + [NumpyClient("zoe", counts=(900, 2, 1))]
    with Kept(folder, clients) as federation:
        federation.join()
        document = {**a_document(method, NAMES, run={"rounds": 2}, aggregation=aggregation), "method": hyper}
        run = federation.run_to_end(federation.coordinator.create_run("the run", document).run_id)
        return run, federation


def models_of(folder: Path, federation: Kept, run_id: str, number: int) -> tuple[Model, list[Model], list[int], Model]:
    """The model that a round started from, those of its clients with their samples, and its result."""
    store, blobs = federation.store, BlobStore(folder)
    before, current = store.find_round(run_id, number - 1), store.find_round(run_id, number)
    assert before is not None
    assert current is not None

    def read(blob: Any) -> Model:
        return dict(from_bytes(blobs.verified_path(blob.sha256).read_bytes()))

    updates = [current.updates[name] for name in NAMES]
    sent = [read(update.payload.tensor_group(MODEL)) for update in updates]
    return read(before.model), sent, [update.num_examples for update in updates], read(current.model)


def norm(model: Model, start: Model) -> float:
    return float(
        np.sqrt(sum(((model[n].astype(float) - start[n]) ** 2).sum() for n in model if model[n].dtype == np.float32))
    )


@pytest.mark.parametrize("aggregation", RULES, ids=lambda each: "-".join(map(str, each.values())))
def test_a_round_is_the_rule_of_its_updates(tmp_path: Path, aggregation: dict[str, Any]) -> None:
    run, federation = a_run(tmp_path, "fedavg", {}, aggregation)
    with Kept(tmp_path, list(federation.clients.values())) as again:
        start, sent, samples, made = models_of(tmp_path, again, run.run_id, 2)
    weights = (
        np.array([12.0, 12.0, 12.0, 36 * 3 / 7]) if "max_weight_share" in aggregation else np.array(samples, float)
    )
    norms = [norm(each, start) for each in sent]
    clip = aggregation.get("clip_to", sorted(norms)[1])
    for name, value in made.items():
        stack = np.stack([each[name].astype(np.float64) for each in sent])
        shape = (4, *[1] * (stack.ndim - 1))
        ascending = np.sort(stack, axis=0)
        if value.dtype == np.int64:
            assert value == (ascending[-1] if aggregation["rule"] == "mean" else ascending[1])
            continue
        scales = np.array([min(1.0, clip / each) for each in norms]).reshape(shape)
        expected = {
            "mean": (stack * weights.reshape(shape)).sum(0) / weights.sum(),
            "clipped_mean": start[name]
            + ((stack - start[name]) * scales * weights.reshape(shape)).sum(0) / weights.sum(),
            "trimmed_mean": ascending[1:3].mean(0),
            "median": np.median(stack, axis=0),
        }[aggregation["rule"]]
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    assert replay(tmp_path, run.run_id, 2).is_equal


@pytest.mark.parametrize(
    ("method", "hyper"),
    [("fedopt", {}), ("fedplcc", {}), ("classsums", {"shrinkage": 0.3}), ("fedrep", {"upload_head": False})],
)
def test_methods_with_slots_prototypes_sums_and_own_heads_have_rules(tmp_path: Path, method: str, hyper: Any) -> None:
    found = {}
    for rule in ("mean", "median"):
        folder = tmp_path / rule
        folder.mkdir()
        run, _ = a_run(folder, method, hyper, {"rule": rule})
        assert run.model is not None
        found[rule] = run.model.sha256
        assert replay(folder, run.run_id, 2).is_equal
    assert found["mean"] != found["median"]


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "clipped_mean"])
def test_no_size_of_blocks_changes_a_byte(tmp_path: Path, name: Any) -> None:
    rng, paths = np.random.default_rng(0), []
    for _ in range(5):
        data = to_bytes(
            {"w": rng.normal(size=(31, 7)).astype(np.float32), "n": rng.integers(0, 9, 3), "b": np.ones(5, "f4")}
        )
        paths.append(tmp_path / sha256_hex(data))
        paths[-1].write_bytes(data)
    with paths[0].open("rb") as file:
        table = read_header(file)
    rule = Rule(name=name, scales=(1.0, 0.5, 0.1, 1.0))
    method = with_rule(METHODS["fedavg"], rule)
    updates = [WeightedModel(path, 2.0 + place) for place, path in enumerate(paths[1:])]
    made = {
        size: b"".join(fold_models(table, paths[0], updates, method, method.config(), size))
        for size in (1, 8, 100, 1 << 18)
    }
    assert len(set(made.values())) == 1
    if name != "clipped_mean":
        others = fold_models(table, paths[0], updates[::-1], method, method.config())
        assert b"".join(others) == made[8]


def share_warning(federation: LocalFederation, run_id: str) -> RunWarning | None:
    found = federation.coordinator.warnings(federation.coordinator.get_run(run_id))
    return next((each for each in found if each.kind is RunWarningKind.SHARE_CAPPED), None)


def test_a_capped_share_is_said(tmp_path: Path) -> None:
    clients = [*map(NumpyClient, NAMES[:-1]), NumpyClient("zoe", counts=(900, 2, 1))]
    with LocalFederation(tmp_path, clients) as federation:
        federation.join()
        for method, share, said in (
            ("fedavg", 0.3, "zoe says that it has 96.2% of all samples in round 2"),
            ("fedplcc", 0.99, None),
            ("fedplcc", 0.97, "zoe says that it has 98.4% of class a in round 2"),
        ):
            document = a_document(method, NAMES, run={"rounds": 2}, aggregation={"max_weight_share": share})
            run = federation.run_to_end(federation.coordinator.create_run(f"{method}-{share}", document).run_id)
            found = share_warning(federation, run.run_id)
            assert (None if found is None else found.sentence.split(":")[0]) == said
