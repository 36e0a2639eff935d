"""The stages of a run follow from its configuration, and every wrong configuration is refused by its key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.run import parse_federation, parse_run_config
from fedplcc.shared.config.tables.stream import Place, StreamSection, split_stages_spec, stages_spec
from fedplcc.shared.errors import InvalidConfig

CLASSES = ["cat", "dog", "owl", "yak"]


def a_document(stream: dict[str, Any] | None, **run: Any) -> dict[str, Any]:
    document = {"run": {"method": "fedavg", "clients": ["north", "south"], **run}, "data": {"classes": CLASSES}}
    return document if stream is None else {**document, "stream": stream}


def test_rounds_follow_from_the_stream() -> None:
    config = parse_run_config(a_document({"stages": 5, "rounds_per_stage": 10, "passes": 2}))
    assert config.run.rounds == 100


def test_other_rounds_than_the_streams_are_refused() -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(a_document({"stages": 5, "rounds_per_stage": 10}, rounds=60))
    assert refused.value.detail == (
        "run.rounds = 60: stream has 1 pass of 5 stages of 10 rounds, 50 rounds; leave run.rounds out or set 50"
    )


@pytest.mark.parametrize(
    ("stream", "part"),
    [
        ({"stages": 2}, 'set the rounds of a stage, or advance = "manual"'),
        ({"stages": 1, "rounds_per_stage": 3}, "a stream has at least 2 stages"),
        ({"passes": 2}, "a stream has at least 2 stages"),
        ({"stages": 65, "rounds_per_stage": 1}, "stream.stages = 65: it must be at most 64"),
        ({"stages": 2, "advance": "manual", "rounds_per_stage": 3}, "leave rounds_per_stage out"),
        ({"stages": 2, "advance": "manual", "passes": 3}, "goes through the stages once"),
        ({"stages": 2, "rounds_per_stage": 1, "classes": [["cat"]]}, "classes has 1 lists, and stages is 2"),
        ({"stages": 2, "rounds_per_stage": 1, "classes": [["cat"], []]}, "the list of stage 2 in classes is empty"),
        ({"stages": 2, "rounds_per_stage": 1, "classes": [["cat"], ["dgo"]]}, "did you mean 'dog'?"),
        ({"stages": 2, "round_per_stage": 1}, "did you mean 'stream.rounds_per_stage'?"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(stream: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(a_document(stream))
    assert part in refused.value.detail


def test_one_stage_is_no_stream() -> None:
    assert parse_run_config(a_document(None)).hash == parse_run_config(a_document({"stages": 1})).hash


def test_a_list_of_another_length_than_the_stages_is_refused() -> None:
    clients = {"north": {"data": ["npz:a", "npz:b", "npz:c"]}, "south": {"data": "npz:d"}}
    with pytest.raises(InvalidConfig) as refused:
        parse_federation({**a_document({"stages": 5, "rounds_per_stage": 10}), "clients": clients})
    assert refused.value.detail == "clients.north.data lists 3 specifications and stream.stages is 5"
    with pytest.raises(InvalidConfig, match=r"stream\.stages is 1"):
        parse_federation({**a_document(None), "clients": clients})


@pytest.mark.parametrize("data", [[], [1, 2], ["npz:a", ""], 5])
def test_data_that_are_neither_text_nor_texts_are_refused(data: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"clients\.north\.data"):
        parse_federation({**a_document(None), "clients": {"north": {"data": data}, "south": {"data": "npz:d"}}})


def test_the_specifications_of_stages_come_back_as_they_were_written() -> None:
    specs = ['folder:a "b", c', "npz:ü.npz"]
    assert split_stages_spec(stages_spec(specs)) == tuple(specs)
    assert stages_spec(specs[:1]) == specs[0]
    assert all(split_stages_spec(text) is None for text in ("npz:a", "stages:", 'stages:["a"]', "stages:[1, 2]"))


@given(stages=st.integers(2, 6), rounds=st.integers(1, 5), passes=st.integers(1, 4), number=st.integers(0, 130))
def test_places_follow_each_other_round_by_round(stages: int, rounds: int, passes: int, number: int) -> None:
    stream = StreamSection(stages=stages, rounds_per_stage=rounds, passes=passes)
    expected = [Place(1, 1)] + [
        Place(p, s) for p in range(1, passes + 1) for s in range(1, stages + 1) for _ in range(rounds)
    ]
    number %= len(expected)
    place = stream.place(number)
    assert place == expected[number]
    assert place is not None
    if number:
        last = stream.last_round(place)
        assert expected[last] == place
        assert stream.ends_stage(last)
        assert last == len(expected) - 1 or expected[last + 1] != place
        assert stream.ends_stage(number) == (number == last)
        assert expected[stream.first_of_pass(place)] == Place(place.number, 1)


@given(began=st.lists(st.integers(1, 40), unique=True, max_size=4).map(sorted), number=st.integers(0, 50))
def test_people_end_stages_by_hand(began: list[int], number: int) -> None:
    stream = StreamSection(stages=5, advance="manual")
    place = stream.place(number, began)
    assert place == Place(1, 1 + sum(first <= number for first in began))
    assert stream.rounds is None
    assert not stream.ends_stage(number)


def test_the_last_round_of_every_stage_is_evaluated() -> None:
    document = {**a_document({"stages": 2, "rounds_per_stage": 7}), "evaluation": {"every": 5, "last": 1}}
    config = parse_run_config(document)
    assert [number for number in range(1, 15) if config.evaluates(number, 14)] == [5, 7, 10, 14]
