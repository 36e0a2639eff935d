"""Prototypes that a run takes over: those of its own classes, with its own class ids."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.computation.carried_prototypes import carried_prototypes
from fedplcc.shared.types import PrototypeSet

NAMES = [f"class {number}" for number in range(8)]


@given(
    known=st.lists(st.sampled_from(NAMES), min_size=2, unique=True),
    classes=st.lists(st.sampled_from(NAMES), min_size=2, unique=True),
    data=st.data(),
)
def test_each_row_of_a_class_that_stays_is_carried_by_its_name(
    known: list[str], classes: list[str], data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, len(known) - 1), max_size=12))
    rows = np.arange(2 * len(ids), dtype=np.float32).reshape(len(ids), 2)
    before = PrototypeSet(rows, np.array(ids, np.int64), rows[:, 0] + 1, np.arange(len(ids)) % 3)
    after = carried_prototypes(before, classes, known)
    expected = sorted(
        (classes.index(known[class_id]), place) for place, class_id in enumerate(ids) if known[class_id] in classes
    )
    assert list(zip(after.class_ids.tolist(), (after.vectors[:, 0] / 2).tolist(), strict=True)) == expected
    assert after.vectors.shape[1:] == before.vectors.shape[1:]
    assert after.weights.tolist() == (after.vectors[:, 0] + 1).tolist()
    assert after.group_ids.tolist() == [place % 3 for _, place in expected]
    assert [array.dtype.name for array in (after.vectors, after.class_ids)] == ["float32", "int64"]
