"""Runs that begin with a model of other classes: where the classes are in it, and which keys fit together."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.shared.config.class_map import ClassMap, class_fault, class_map, is_linear_head
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation.numpy_client import a_document

MODEL = f"sha256:{'ab' * 32}"


def test_rows_go_by_name() -> None:
    assert class_map(["a", "b"], ["a", "b"]) is None
    assert class_map(["b", "new", "a"], ["a", "b", "gone"]) == ClassMap(3, (1, None, 0))
    assert class_map(["a", "b", "c"], ["a", "b"]) == ClassMap(2, (0, 1, None))


def test_a_class_is_lost_only_if_somebody_says_so() -> None:
    assert class_fault(["a", "b", "c"], ["a", "b"], drops=False) is None
    assert class_fault(["a"], ["a", "mug"], drops=True) is None
    expected = "the initial model knows class 'mug', which data.classes does not; add it or set run.drop_classes"
    assert class_fault(["a"], ["a", "mug"], drops=False) == expected
    assert "'mug' and 2 more, which" in str(class_fault(["a"], ["a", "mug", "pen", "cup"], drops=False))


@pytest.mark.parametrize(
    ("shapes", "is_linear"),
    [
        ([(3, 6), (3,)], True),
        ([(3,), (3, 6)], True),
        ([(3, 6)], True),
        ([(6, 3), (3,)], False),
        ([(3, 0), (3,)], False),
        ([(8, 6), (8,), (3, 8), (3,)], False),
        ([(3, 6), (3,), ()], False),
        ([(3,)], False),
        ([], False),
    ],
)
def test_a_linear_head_is_a_weight_and_perhaps_a_bias(shapes: list[tuple[int, ...]], is_linear: bool) -> None:
    assert is_linear_head(shapes, 3) is is_linear


def a_config(**run: Any) -> Any:
    return parse_run_config(a_document(run=run))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"initial_classes": ["a", "b"]}, "'initial_classes' is about the model that a run begins with"),
        ({"initial_prototypes": True}, "set 'initial_model' too"),
        ({"drop_classes": True}, "set 'initial_model' too"),
        ({"initial_model": MODEL, "initial_classes": ["a", "mug"]}, "knows class 'mug', which data.classes does not"),
        ({"initial_model": MODEL, "initial_classes": ["a", "a"]}, "a class is named twice"),
        ({"initial_model": MODEL, "initial_classes": ["a"]}, "initial_classes"),
        ({"initial_model": MODEL, "initial_prototypes": "yes"}, "write true or false"),
        ({"initial_model": MODEL, "initial_prototypes": 1}, "initial_prototypes"),
        ({"initial_model": MODEL, "drop_classes": "yes"}, "drop_classes"),
    ],
)
def test_keys_that_do_not_fit_are_refused_by_name(run: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        a_config(**run)
    assert said in refused.value.detail


def test_equal_classes_need_no_map() -> None:
    plain = a_config(initial_model=MODEL)
    assert a_config(initial_model=MODEL, drop_classes=False, initial_prototypes=False).hash == plain.hash
    assert plain.initial_class_map is None
    assert a_config(initial_model=MODEL, initial_classes=["a", "b", "c"]).initial_class_map is None
    assert a_config(initial_model=MODEL, initial_classes=["c", "a"]).initial_class_map == ClassMap(2, (1, None, 0))
    mapped = plain.with_initial_model("cd" * 32, ("b", "a"))
    assert parse_run_config(mapped.model_dump(mode="json")).hash == mapped.hash
    assert plain.with_initial_model("cd" * 32, ("a", "b", "c")).hash == plain.with_initial_model("cd" * 32).hash
    with pytest.raises(InvalidConfig, match="knows class 'mug'"):
        plain.with_initial_model("cd" * 32, ("a", "mug"))
