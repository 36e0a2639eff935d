"""Before a run begins, sites hear of classes that they lack, have beyond the run's, or have few images of."""

from __future__ import annotations

from fedplcc.terminal.class_sentences import class_sentences

COUNTS = {
    "ann": {"cat": 30, "dog": 20},
    "bob": {"cat": 10, "owl": 40, "emu": 10},
    "eve": {"o\u0308rn": 2, "cat": 0},
    "ida": {},
    "joe": {"cat": 0, "dog": 0},
}


def test_each_site_is_told_what_its_classes_mean_for_the_run() -> None:
    assert class_sentences({"ann": COUNTS["ann"]}, ("dog", "cat")) == []
    assert class_sentences({"bob": COUNTS["bob"]}, ("cat", "dog")) == [
        "client bob has 'emu', 'owl', which data.classes does not name; its trainer will refuse",
        "client bob has no 'dog'; see that its classes are spelt as the others'",
    ]
    assert class_sentences({"eve": COUNTS["eve"]}, ("cat", "\u00f6rn")) == [
        "client eve has no training image of 'cat'",
        "client eve has fewer than 10 training images of '\u00f6rn' (2)",
    ]
    assert class_sentences({"ida": {}}, ("cat",)) == ["client ida has not said which classes it has"]


def test_a_site_that_evaluates_only_is_not_told_that_it_has_no_training_images() -> None:
    assert class_sentences({"joe": COUNTS["joe"]}, ("cat", "dog")) == []


def test_of_many_sentences_the_first_are_there() -> None:
    counts = {f"site-{number}": {"owl": 10} for number in range(9)}
    said = class_sentences(counts, ("owl", "cat"), key="--classes")
    assert (len(said), said[-1]) == (6, "and 4 more sentences like these")
    said = class_sentences({**counts, "z": {"yak": 3}}, ("owl", "cat"))
    assert said[0] == "client z has 'yak', which data.classes does not name; its trainer will refuse"


def test_of_many_sites_the_one_with_a_class_that_no_other_has_is_named_and_not_the_others() -> None:
    counts = {**{f"site-{number}": {"owl": 30} for number in range(9)}, "z": {"owl": 30, "Owl": 30}}
    assert class_sentences(counts, ("Owl", "owl")) == [
        "client z has 'Owl', which no other client has; see that it is spelt as theirs"
    ]
