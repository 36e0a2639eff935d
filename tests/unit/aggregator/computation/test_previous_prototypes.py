"""docs/algorithms.md, rule 1.16: the global set of the round before; test_kept_between_rounds.py disturbs such runs."""

from __future__ import annotations

from pathlib import Path

from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import Run
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document
from tests.unit.aggregator.computation.test_proto_staleness import NAMES, by_hand, one_of_each, pooled

ROUNDS = 8


def whole_run(federation: LocalFederation, method: str) -> Run:
    """A run that draws one of three clients for each round; each has a class of its own."""
    federation.join()
    document = a_document(method, NAMES, run={"rounds": ROUNDS, "cohort_size": 1, "seed": 4})
    return federation.run_to_end(federation.coordinator.create_run("the run", document).run_id)


def test_a_class_that_nobody_reports_keeps_its_prototype_from_round_to_round(folder: Path) -> None:
    with LocalFederation(folder, one_of_each()) as federation:
        run = whole_run(federation, "fedproc")
        found = [pooled(federation, run, number) for number in range(1, ROUNDS + 1)]
        assert found == [by_hand(run, number, ROUNDS) for number in range(1, ROUNDS + 1)]
        assert found[0] == {"bob": 1}
        assert found[-1] == {"bob": 1, "ann": 5, "zoe": 8}


def test_a_method_that_does_not_use_them_keeps_none(folder: Path) -> None:
    with LocalFederation(folder, one_of_each()) as federation:
        run = whole_run(federation, "fpl")
        _blob, path = federation.coordinator.artifact(run.run_id, ROUNDS, "prototypes")
        assert prototypes_from_bytes(path.read_bytes()).class_ids.tolist() == [NAMES.index("zoe")]
