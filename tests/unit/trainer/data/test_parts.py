"""Parts of data sets for simulated clients, and long tails."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, opened_once, specs
from fedplcc.trainer.data.sets import arrays
from fedplcc.trainer.data.source import Samples, Source
from fedplcc.trainer.data.specs import open_source

CLASSES = ("a", "b", "c", "d")


@pytest.fixture
def whole(tmp_path: Path) -> str:
    """80 training and 22 test images, each of its own shade."""
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {"classes": np.array(CLASSES)}
    for split, count in (("train", 80), ("test", 22)):
        content[f"x_{split}"] = np.arange(count, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 8, 8, 1), np.uint8)
        content[f"y_{split}"] = rng.permutation(np.arange(count) % 4)
    np.savez(tmp_path / "whole.npz", **content)
    return f"npz:{tmp_path}/whole.npz"


def numbers(samples: Samples) -> list[int]:
    """Which images of the whole set they are, by their shade."""
    images = [samples.read(i) for i in range(len(samples))]
    return [int(image[0, 0, 0]) for image in images if image is not None]


def joined(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def parts(rule: str, of: int, whole: str) -> tuple[list[list[int]], list[list[int]]]:
    sources = [open_source(f"part:{k}/{of}:{rule}:{whole}", 5) for k in range(of)]
    return [numbers(source.train) for source in sources], [numbers(source.test) for source in sources]


@pytest.mark.parametrize("rule", ["dirichlet(alpha=0.5,min_size=3,seed=1)", "domain", "sharding(shards=2,seed=1)"])
def test_the_parts_of_a_set_are_the_whole_set_once(rule: str, whole: str) -> None:
    train, test = parts(rule, 4, whole)
    assert sorted(joined(train)) == list(range(80))
    assert sorted(joined(test)) == list(range(22))
    assert all(part == sorted(part) for part in (*train, *test))


def test_labels_stay_with_their_images(whole: str) -> None:
    full = open_source(whole, 5)
    part = open_source(f"part:2/4:dirichlet(min_size=2):{whole}", 5)
    assert part.class_names == CLASSES
    for side, all_of_it in ((part.train, full.train), (part.test, full.test)):
        assert side.labels_N.tolist() == [int(all_of_it.labels_N[i]) for i in numbers(side)]
        assert side.name(0) == all_of_it.name(numbers(side)[0])


def test_shards_deal_test_images_by_the_labels_of_the_training_images(whole: str) -> None:
    for k in range(4):
        part = open_source(f"part:{k}/4:sharding(shards=1):{whole}", 5)
        assert len(set(part.train.labels_N)) == 1
        assert set(part.test.labels_N) == set(part.train.labels_N)


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ("fraction=0.1", [8, 8, 8]),
        ("fraction=[0.5,0.25,0.01]", [40, 20, 1]),
        ("count=[7,1,72]", [7, 1, 72]),
        ("", [27, 27, 26]),
    ],
)
def test_a_domain_is_drawn_in_the_sizes_asked_for(settings: str, sizes: list[int], whole: str) -> None:
    train, test = parts(f"domain({settings})", 3, whole)
    assert [len(part) for part in train] == sizes
    assert len(set(joined(train))) == sum(sizes)
    assert [len(part) for part in test] == [8, 7, 7]


def test_another_seed_gives_other_parts_and_the_same_seed_the_same(whole: str) -> None:
    drawn = [parts(f"domain(seed={seed})", 3, whole) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_long_tail_thins_training_images_before_they_are_divided(whole: str) -> None:
    tail = f"long_tail(imbalance=0.1,seed=3):{whole}"
    assert describe(tail) == {"a": 20, "b": 9, "c": 4, "d": 2}  # floor(20 * 0.1^(m / 3))
    assert len(open_source(tail, 5).test) == 22
    train, _ = parts("domain", 2, tail)
    assert sorted(joined(train)) == numbers(open_source(tail, 5).train)


def test_parts_that_are_asked_for_one_after_another_may_share_one_opened_set(
    whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def noted(text: str, _test_every: int) -> Source:
        opened.append(text)
        return arrays.open_npz(Path(text))

    monkeypatch.setattr(specs, "KINDS", {**specs.KINDS, "npz": replace(specs.KINDS["npz"], open=noted)})
    apart = parts("dirichlet(min_size=2)", 4, whole)
    assert len(opened) == 4
    with opened_once():
        assert parts("dirichlet(min_size=2)", 4, whole) == apart
        assert len(opened) == 5
        describe(f"part:0/2:domain:long_tail(imbalance=0.5):{whole}")
        describe(f"part:0/2:domain:{whole}")  # room for one set at a time
        assert len(opened) == 7
    parts("domain", 1, whole)
    assert len(opened) == 8


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "part:3:{}",
            r"write part:K/N:RULE\(KEY=VALUE,...\):DATA, for instance part:3/10:dirichlet\(alpha=0.5,seed=0\):",
        ),
        ("part:1/2:dirichlet", "write part:K/N:RULE"),
        ("part:2/2:domain:{}", "there is no part 2; 2 parts are numbered 0 to 1"),
        ("part:0/0:domain:{}", "the number of parts is 1 to 100000, not 0"),
        ("part:0/2:dirichelt:{}", r"unknown rule 'dirichelt'; did you mean 'dirichlet'\?"),
        (
            "part:0/2:long_tail(imbalance=0.1):{}",
            r"a long tail goes before the data that is divided: part:0/10:dirichlet:long",
        ),
        ("part:0/2:dirichlet(alpa=1):{}", r"unknown key 'dirichlet.alpa'; did you mean 'dirichlet.alpha'\?"),
        ("part:0/2:dirichlet(alpha=0):{}", "dirichlet.alpha = 0: it must be more than 0"),
        ("part:0/2:dirichlet(alpha):{}", "write settings as KEY=VALUE with a comma between two"),
        ("part:0/2:dirichlet(0.5:{}", r"write NAME\(KEY=VALUE,...\)"),
        ("part:0/2:domain(fraction=0.1,count=3):{}", "set at most one of 'fraction' and 'count'"),
        ("part:0/2:domain(count=[]):{}", "give one number, or a list with one for each client"),
        ("part:0/3:domain(count=[1,2]):{}", "count lists 2 numbers for 3 clients"),
        (
            "part:0/3:domain(fraction=0.5):{}",
            r"domain\(fraction=0.5,seed=0\): 3 clients ask for 120 of 80 training images",
        ),
        ("part:0/9:dirichlet:{}", r"dirichlet\(.*\): 80 training images are too few for 9 clients of 10 or more"),
        ("part:0/9:sharding(shards=20):{}", "the smallest class has 20 training images, too few for 45 shards of it"),
        ("part:0/2:domain:npz:/nowhere.npz", "there is no file /nowhere.npz"),
        ("long_tail:{}", r"long_tail.imbalance is missing; write long_tail\(imbalance=0.1,seed=0\):DATA"),
        ("long_tail(imbalance=2):{}", "long_tail.imbalance = 2: it must be at most 1"),
        ("long_tail(imbalance=0.5)", r"names nothing after the colon; write long_tail\(imbalance=IF\):DATA"),
    ],
)
def test_slips_are_answered_with_one_sentence(spec: str, sentence: str, whole: str) -> None:
    with pytest.raises(InvalidData, match=sentence) as raised:
        describe(spec.format(whole))
    assert "\n" not in raised.value.detail
