"""A client's data by stage: what is trained on and tested in each place, read once or anew."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.config.tables.stream import Place, StreamSection, stages_spec
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.specs import by_stage, open_source
from fedplcc.trainer.data.stages import StreamData, read_stream

CLASSES = ("cat", "dog", "owl", "yak")
CONTRACT = DataSection(classes=CLASSES, image_size=16)


def write_npz(path: Path, labels: Sequence[int], first: int = 0, classes: Sequence[str] = CLASSES) -> str:
    """Images whose shade is their number; the test images are 100 later."""
    count = len(labels)
    shades = np.arange(first, first + count, dtype=np.uint8)
    images = np.broadcast_to(shades[:, None, None, None], (count, 16, 16, 3))
    np.savez(
        path, x_train=images, y_train=np.array(labels), x_test=images + 100, y_test=np.array(labels), classes=classes
    )
    return f"npz:{path}"


@pytest.fixture
def whole(tmp_path: Path) -> str:
    return write_npz(tmp_path / "whole.npz", [0, 1, 2, 3] * 5)


def read(spec: str, **stream: Any) -> StreamData:
    section = StreamSection(**{"stages": 2, "rounds_per_stage": 1, **stream})
    return read_stream(spec, range(1, section.stages + 1), stream=section, contract=CONTRACT, client_id="ann", seed=0)


def shades(images: Any) -> list[int]:
    return [int(shade) for shade in images.images_NSS3[:, 0, 0, 0]]


def test_stages_have_the_images_of_their_classes(whole: str) -> None:
    data = read(whole, classes=[["cat", "dog"], ["owl"]])
    first, second = data.at(Place(1, 1)), data.at(Place(1, 2))
    assert set(first.train.labels_N) == {0, 1}
    assert set(second.train.labels_N) == {2}
    assert len(first.train) == 10
    assert first.ends == (10,)
    assert second.ends == (10, 15)  # what was seen is tested on
    assert data.class_counts() == (5, 5, 5, 0)
    assert data.at(Place(2, 1)).ends == (10, 15)  # in a later pass all has been seen


def test_a_share_is_drawn_from_each_class_and_so_of_each_stage(whole: str) -> None:
    stream = StreamSection(stages=2, rounds_per_stage=1, classes=(("cat", "dog"), ("owl", "yak")))
    data = read_stream(
        whole, [1, 2], stream=stream, contract=CONTRACT, fraction=0.4, validation_per_class=1, client_id="ann", seed=0
    )
    assert data.class_counts() == (2, 2, 2, 2)
    assert [len(data.at(Place(1, stage)).train) for stage in (1, 2)] == [4, 4]
    assert len(data.at(Place(1, 2)).validation) == 4


def test_cumulative_training_has_each_image_once(whole: str) -> None:
    stream = {"stages": 3, "train_on": "cumulative", "classes": [["cat", "dog"], ["dog", "owl"], ["yak"]]}
    data = read(whole, **stream)
    assert sorted(shades(data.at(Place(1, 3)).train)) == list(range(20))
    assert sorted(shades(data.at(Place(1, 2)).train)) == sorted(i for i in range(20) if i % 4 < 3)
    assert sorted(shades(data.at(Place(1, 1)).train)) == sorted(i for i in range(20) if i % 4 < 2)


def test_each_stage_may_have_data_of_its_own(tmp_path: Path) -> None:
    left = write_npz(tmp_path / "left.npz", [0, 0, 1], classes=("owl", "cat"))
    right = write_npz(tmp_path / "right.npz", [0, 1], first=50, classes=("yak", "owl"))
    data = read(stages_spec([left, right]))
    assert data.at(Place(1, 1)).train.labels_N.tolist() == [2, 2, 0]
    assert shades(data.at(Place(1, 2)).train) == [50, 51]
    assert data.at(Place(1, 2)).train.labels_N.tolist() == [3, 2]
    assert data.class_counts() == (1, 0, 3, 1)
    together = open_source(stages_spec([left, right]), 5)
    assert together.class_names == ("owl", "cat", "yak")
    assert together.train.labels_N.tolist() == [0, 0, 1, 2, 0]
    pixels = together.train.read(3)
    assert pixels is not None
    assert pixels[0, 0, 0] == 50


@pytest.mark.parametrize(
    "rule", ["sharding(shards=2,stages=3)", "dirichlet(alpha=1.0,min_size=1,stages=3)", "domain(stages=3)"]
)
def test_tasks_of_a_part_are_the_part(whole: str, rule: str) -> None:
    for number in range(2):
        spec = f"part:{number}/2:{rule}:{whole}"
        data = read(spec, stages=3)
        own = [shades(data.stages[stage].train) for stage in (1, 2, 3)]
        part = open_source(spec, 5)
        assert sorted(itertools.chain(*own)) == sorted(_shade(part, i) for i in range(len(part.train)))
        assert by_stage(spec, 3)[1].startswith(f"part:{number}.2/2:")
        assert len(data.balanced_test) == 10  # half of the whole test set, whatever the labels of the part


def test_all_tasks_of_sharding_are_dealt_at_once(whole: str) -> None:
    dealt = [open_source(f"part:{k}/6:sharding(shards=2):{whole}", 5) for k in range(6)]
    tasks = [
        open_source(spec, 5)
        for k in range(2)
        for spec in by_stage(f"part:{k}/2:sharding(shards=2,stages=3):{whole}", 3)
    ]
    for one, other in zip(dealt, tasks, strict=True):
        assert [_shade(one, i) for i in range(len(one.train))] == [_shade(other, i) for i in range(len(other.train))]


def _shade(source: Any, number: int) -> int:
    return int(source.train.read(number)[0, 0, 0])


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("part:0/2:sharding(shards=2,stages=4):{}", "deals 4 stages and stream.stages is 2"),
        ('stages:["{}", "{}", "{}"]', "lists 3 specifications and stream.stages is 2"),
        ("part:0.3/2:sharding(shards=2,stages=2):{}", "there is no stage 3"),
        ('stages:["{}"]', "no list of 2 or more"),
        ("part:0/2:domain(stages=65):{}", "at most 64"),
    ],
)
def test_data_of_another_number_of_stages_are_refused(whole: str, spec: str, part: str) -> None:
    with pytest.raises(InvalidData) as refused:
        read(spec.replace("{}", whole))
    assert part in refused.value.detail


def test_a_stage_may_be_empty_but_not_all(tmp_path: Path) -> None:
    few = write_npz(tmp_path / "few.npz", [0, 0])
    data = read(few, classes=[["cat"], ["dog"]])
    assert len(data.at(Place(1, 2)).train) == 0
    with pytest.raises(InvalidData, match="no training image in any stage"):
        read(few, classes=[["yak"], ["dog"]])


def test_the_digest_is_that_of_the_images_and_labels(whole: str) -> None:
    data = read(whole, classes=[["cat"], ["dog"]])
    one, other = data.at(Place(1, 1)).sha256, data.at(Place(1, 2)).sha256
    assert one != other
    assert read(whole, classes=[["cat"], ["dog"]]).at(Place(1, 1)).sha256 == one
