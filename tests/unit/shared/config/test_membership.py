"""Rounds in which clients take part, by plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.config.tables.membership import NO_PLAN, MembershipSection, Span
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation.numpy_client import a_document

PLAN = MembershipSection.model_validate({"ann": "2-", "bob": "-3", "cat": "2-3"})


def test_a_plan_says_who_takes_part_and_what_changes() -> None:
    assert PLAN.spans == {"ann": Span(2, None), "bob": Span(1, 3), "cat": Span(2, 3)}
    taking = [[name for name in ("ann", "bob", "cat", "zoe") if PLAN.takes_part(name, number)] for number in range(5)]
    everybody = ["ann", "bob", "cat", "zoe"]
    assert taking == [["bob", "zoe"], ["bob", "zoe"], everybody, everybody, ["ann", "zoe"]]
    assert [list(PLAN.changes(number)) for number in range(5)] == [
        [],
        [],
        [("ann", True), ("cat", True)],
        [],
        [("bob", False), ("cat", False)],
    ]


@given(first=st.integers(1, 40), length=st.integers(0, 40), has_end=st.booleans())
def test_changes_lead_from_round_to_round(first: int, length: int, has_end: bool) -> None:
    plan = MembershipSection.model_validate({"ann": f"{first}-{first + length if has_end else ''}"})
    takes_part = plan.takes_part("ann", 1)
    for number in range(2, 90):
        for _, comes in plan.changes(number):
            assert takes_part is not comes
            takes_part = comes
        assert takes_part is plan.takes_part("ann", number)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"ann": "x"}, 'membership.ann = "x": write the first and the last round, "11-30", or one of them: "11-", "-30"'),
        ({"ann": "-"}, "write the first and the last round"),
        ({"ann": "5-3"}, "membership.ann = \"5-3\": the last round is before the first"),
        ({"ann": 3}, "membership.ann = 3"),
        ({"zoe": "1-2"}, "membership.zoe: run.clients does not name it"),
        ({"ann": "4-"}, "membership.ann begins in round 4, and the run has 2"),
        ({"ann": "-1", "bob": "-1"}, "membership leaves 0 of the 1 clients that round 2 needs"),
        ({"ann": "2-", "bob": "2-"}, "membership leaves 0 of the 1 clients that round 1 needs"),
        ({"a b": "1-2"}, "'a b': a name is up to 64 letters"),
        ({f"c{number}": "1-2" for number in range(10_001)}, "at most 10000 clients have rounds of their own"),
        ([], "membership is a table of keys"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_kept_is_refused_by_name(plan: Any, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config({**a_document(), "membership": plan})
    assert said in str(refused.value)


def test_a_quorum_counts_in_every_round() -> None:
    quorum = {"min_clients": 2, "deadline_s": 9.0}
    with pytest.raises(InvalidConfig, match="membership leaves 1 of the 2 clients that round 2 needs"):
        parse_run_config(a_document(quorum=quorum, membership={"ann": "-1"}))


def test_a_plan_is_written_by_client() -> None:
    planned = parse_run_config(a_document(membership={"ann": "2-"}))
    assert '"membership":{"ann":"2-"}' in planned.canonical_json
    assert parse_run_config(a_document(membership={})).membership == NO_PLAN
