import ast
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.python_api.client import Client
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.record import digest_of
from fedplcc.trainer.data.specs import open_source
from tests.unit.trainer.builders import a_contract

CONTRACT = a_contract()
RNG = np.random.default_rng(0)


def arrays(
    num_train: int = 6, num_test: int = 3, side: int = 16, channels: int = 3, **changes: Any
) -> dict[str, np.ndarray]:
    """Arrays of an npz file whose labels 0, 1, 2 are cat, dog, owl."""
    values: dict[str, Any] = {
        "x_train": RNG.integers(256, size=(num_train, side, side, channels), dtype=np.uint8),
        "y_train": np.arange(num_train, dtype=np.uint8) % 3,
        "x_test": RNG.integers(256, size=(num_test, side, side, channels), dtype=np.uint8),
        "y_test": np.arange(num_test) % 3,
        "classes": np.array(["cat", "dog", "owl"]),
    }
    values.update(changes)
    return {name: value for name, value in values.items() if value is not None}


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    def write(**values: Any) -> str:
        path = tmp_path / "data.npz"
        np.savez_compressed(path, **values)
        return f"npz:{path}"

    return write


def test_images_of_the_right_size_arrive_unchanged_and_in_order(save: Callable[..., str]) -> None:
    values = arrays()
    data = load_dataset(save(**values), contract=CONTRACT)
    assert np.array_equal(data.train.images_NSS3, values["x_train"])
    assert np.array_equal(data.test.images_NSS3, values["x_test"])
    assert data.train.labels_N.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.train.labels_N.dtype == np.int64
    assert data.unreadable == ()


def test_labels_follow_the_contracts_order_of_names(save: Callable[..., str]) -> None:
    data = load_dataset(save(**arrays(classes=np.array(["owl", "cat", "dog"]))), contract=CONTRACT)
    assert data.train.labels_N.tolist() == [2, 0, 1, 2, 0, 1]


def test_names_may_be_bytes(save: Callable[..., str]) -> None:
    spec = save(**arrays(classes=np.array([b"owl", b"cat", b"dog"])))
    assert describe(spec) == {"owl": 2, "cat": 2, "dog": 2}


def test_without_names_label_i_is_named_i(save: Callable[..., str]) -> None:
    spec = save(**arrays(classes=None, y_train=np.array([7, 7, 2, 2, 2, 9]), y_test=np.array([9, 2, 4])))
    assert describe(spec) == {"2": 3, "4": 0, "7": 2, "9": 1}
    data = load_dataset(spec, contract=a_contract(classes=("9", "7", "4", "2")))
    assert data.train.labels_N.tolist() == [1, 1, 3, 3, 3, 0]
    assert data.test.labels_N.tolist() == [0, 3, 2]


def test_grey_is_repeated_and_other_sizes_are_resized_bilinearly(save: Callable[..., str]) -> None:
    values = arrays(side=28, channels=1)
    data = load_dataset(save(**values), contract=CONTRACT)
    expected = Image.fromarray(values["x_train"][0, :, :, 0]).resize((16, 16), Image.Resampling.BILINEAR)
    for channel in range(3):
        assert np.array_equal(data.train.images_NSS3[0, :, :, channel], np.asarray(expected))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x_test": None}, "has no array x_test; it holds"),
        ({"x_train": np.zeros((6, 16, 16, 3))}, "x_train of .* must be uint8 .*, not float64"),
        ({"x_train": np.zeros((6, 16, 16), np.uint8)}, r"\[N, height, width, 1 or 3\], not \[6, 16, 16\]"),
        ({"x_test": np.zeros((3, 16, 16, 4), np.uint8)}, r"x_test of .* not \[3, 16, 16, 4\]"),
        ({"y_train": np.zeros(5, np.int64)}, r"y_train of .* must have the shape \[6\], one label an image, not \[5\]"),
        ({"y_test": np.zeros(3)}, "y_test of .* must hold whole numbers or names of classes, not float64"),
        ({"y_train": np.full(6, -1)}, "y_train of .* holds the label -1"),
        ({"y_train": np.full(6, 2**63, np.uint64)}, "y_train of .* holds the label 9223372036854775808"),
        ({"y_train": np.full(6, "0.5")}, "the label 0.5 is a fraction"),
        ({"y_train": np.full(6, "a\nb")}, "is not one line of text"),
        ({"y_train": np.full(6, b"\xff")}, "is no text in UTF-8"),
        ({"classes": np.array(["a", "", "c"])}, "have an empty name"),
        ({"classes": np.array([b"a", b"\xff", b"c"])}, "is no text in UTF-8"),
        ({"y_train": np.full(6, 3)}, "has label 3, but classes names only 3"),
        ({"classes": np.array(["cat", "cat", "owl"])}, "name a class twice"),
        (
            {"classes": np.array(["cat", "dog", "bird"])},
            "has the class 'bird', but the run's classes are cat, dog, owl",
        ),
        ({"num_train": 0}, "has no training image; a client needs at least one"),
    ],
)
def test_wrong_arrays_are_named_with_what_is_wrong(
    save: Callable[..., str], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidData, match=sentence):
        load_dataset(save(**arrays(**changes)), contract=CONTRACT)


def test_pickled_objects_are_never_loaded(save: Callable[..., str]) -> None:
    spec = save(**arrays(classes=np.array(["cat", "dog", None], dtype=object)))
    with pytest.raises(InvalidData, match="as an npz file of plain arrays: Object arrays cannot be loaded"):
        load_dataset(spec, contract=CONTRACT)


def test_a_file_that_is_not_there_or_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"there is no file .*absent\.npz"):
        load_dataset(f"npz:{tmp_path}/absent.npz", contract=CONTRACT)
    for content in (b"", b"hello", bytes(200), b"\x80\x04K\x01."):
        (tmp_path / "text.npz").write_bytes(content)
        with pytest.raises(InvalidData, match=r"text\.npz as an npz file of plain arrays; write it with numpy\.savez$"):
            load_dataset(f"npz:{tmp_path}/text.npz", contract=CONTRACT)
    with pytest.raises(InvalidData, match=r"is a folder; name the npz file in it, or write folder:PATH"):
        load_dataset(f"npz:{tmp_path}", contract=CONTRACT)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InvalidData, match="holds one array"):
        load_dataset(f"npz:{tmp_path}/one.npy", contract=CONTRACT)


def test_a_truncated_archive_is_named(save: Callable[..., str], tmp_path: Path) -> None:
    save(**arrays())
    path = tmp_path / "data.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidData, match=r"cannot read .*data\.npz as an npz file"):
        load_dataset(f"npz:{path}", contract=CONTRACT)


PLUGIN = """
import numpy as np
from types import SimpleNamespace
from fedplcc.trainer.data import DatasetArrays

x = np.full((4, 16, 16, 1), 9, np.uint8)
y = np.array([0, 1, 1, 0])

def record():
    return DatasetArrays(x, y, x[:1], y[:1], ["owl", "cat"])

def plain():
    return SimpleNamespace(x_train=x, y_train=y, x_test=x[:0], y_test=y[:0], classes=("cat", "dog"))

def lacking():
    return SimpleNamespace(x_train=x)

def wrong():
    return DatasetArrays(x / 255, y, x, y)

def pictures():
    from PIL import Image
    return DatasetArrays([Image.new("P", (4, 4))], [0], x, y)

def broken():
    raise OSError("disk gone")

def leaving():
    raise SystemExit(0)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_data.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    yield "my_data"
    sys.modules.pop("my_data", None)


def test_a_factory_returns_arrays_under_the_same_names(plugin: str) -> None:
    data = load_dataset(f"{plugin}:record", contract=CONTRACT)
    assert data.train.labels_N.tolist() == [2, 0, 0, 2]
    assert data.train.images_NSS3.shape == (4, 16, 16, 3)
    assert data.train.images_NSS3.min() == data.train.images_NSS3.max() == 9
    assert describe(f"{plugin}:plain") == {"cat": 2, "dog": 2}


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (
            "lacking",
            "must return a fedplcc.trainer.data.DatasetArrays .* SimpleNamespace has no y_train, x_test, y_test",
        ),
        ("wrong", "x_train of my_data:wrong must be uint8"),
        ("pictures", "images are pictures of Pillow"),
        ("broken", "cannot be made: OSError: disk gone"),
        ("leaving", "cannot be made: SystemExit: 0"),
        ("absent", "has no callable 'absent'"),
    ],
)
def test_a_factory_that_gives_no_data_is_told_what_to_do(plugin: str, factory: str, sentence: str) -> None:
    with pytest.raises(InvalidData, match=sentence):
        load_dataset(f"{plugin}:{factory}", contract=CONTRACT)


def test_a_module_that_exits_while_it_is_imported_ends_no_command(plugin: str) -> None:
    Path(f"{plugin}.py").write_text("raise SystemExit(0)")
    with pytest.raises(InvalidData, match="cannot import 'my_data' of 'my_data:record': SystemExit: 0"):
        load_dataset(f"{plugin}:record", contract=CONTRACT)


def test_threads_that_read_at_once_parse_one_at_a_time(
    save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, parse, parsing = save(**arrays()), ast.parse, threading.Lock()

    def slow_parse(*args: Any, **options: Any) -> Any:
        assert parsing.acquire(blocking=False), "two threads parse at once, which CPython before 3.11.8 cannot do"
        try:
            time.sleep(0.02)  # long enough that another thread would come in
            return parse(*args, **options)
        finally:
            parsing.release()

    monkeypatch.setattr(ast, "parse", slow_parse)
    with ThreadPoolExecutor(4) as threads:
        sources = list(threads.map(lambda _: load_dataset(data, contract=CONTRACT), range(4)))
    assert all(len(source.train.labels_N) == 6 for source in sources)


def test_images_of_a_group_are_all_for_validation_or_none_by_the_groups_name(save: Callable[..., str]) -> None:
    names = [f"patient-{number}" for number in range(10)]
    groups = np.repeat(names, 3)
    contract = a_contract(validation_every=5)

    def validated(of: np.ndarray) -> set[str]:
        values = arrays(len(of), groups_train=of, groups_test=np.array(["x", "x", "y"]))
        aside = load_dataset(save(**values), contract=contract).validation
        digests = {digest_of(image): name for image, name in zip(values["x_train"], of.tolist(), strict=True)}
        found = [digests[digest] for _, digest in aside.marks]
        assert all(found.count(name) == of.tolist().count(name) for name in found)
        return set(found)

    chosen = validated(groups)
    assert len(chosen) == 2
    assert validated(groups[3:]) == chosen - {names[0]}
    assert validated(RNG.permutation(groups)) == chosen


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"groups_train": np.array(["p"] * 6), "groups_test": np.array(["q", "p", "q"])},
            "the group 'p' has images for",
        ),
        (
            {"groups_train": np.array(["p"] * 5), "groups_test": np.array(["q"] * 3)},
            r"group of each of 6 images, not \[5\]",
        ),
        ({"groups_train": np.array(["p"] * 6)}, r"groups_test of .* each of 3 images, not \[0\]"),
        ({"groups_train": np.arange(6) / 2, "groups_test": np.array(["q"] * 3)}, "texts or whole numbers, not float64"),
        ({"groups_train": np.array(["p" * 257] * 6), "groups_test": np.array(["q"] * 3)}, "of 1 to 256 characters"),
        ({"groups_train": np.array([""] * 6), "groups_test": np.array(["q"] * 3)}, "of 1 to 256 characters"),
    ],
)
def test_groups_that_say_nothing_or_are_on_both_sides_are_refused(
    save: Callable[..., str], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidData, match=said):
        load_dataset(save(**arrays(**changes)), contract=CONTRACT)


def test_groups_come_from_python_too(tmp_path: Path) -> None:
    values = arrays()
    train, test = (values["x_train"], values["y_train"]), (values["x_test"], values["y_test"])
    given = Client(train=train, test=test, groups=[1, 1, 2, 2, 3, 3], test_groups=["a", "b", "c"])
    spec = given.table(("0", "1", "2"), tmp_path)["data"]
    with np.load(spec.removeprefix("npz:")) as kept:
        assert kept["groups_train"].tolist() == ["1", "1", "2", "2", "3", "3"]
    with pytest.raises(InvalidData, match="the group '1' has images for train and for test"):
        Client(train=train, test=test, groups=[1] * 6, test_groups=[1, 2, 3]).table(("0", "1", "2"), tmp_path)
    alone = Client(train=train, groups=[1] * 6).table(("0", "1", "2"), tmp_path)["data"]
    assert len(load_dataset(alone, contract=a_contract(classes=["0", "1", "2"])).train) == 6


@pytest.mark.parametrize("spec", ["npz:{}.npz", "folder:{}", "mnist:{}"])
def test_a_path_that_this_system_cannot_name_is_told_with_the_cause(tmp_path: Path, spec: str) -> None:
    with pytest.raises(
        InvalidData, match=r"cannot be named in utf-8, the encoding of this system's files; set LC_ALL=C\.UTF-8"
    ):
        load_dataset(spec.format(tmp_path / "\ud800"), contract=CONTRACT)


def test_names_that_look_like_one_are_said(save: Callable[..., str]) -> None:
    (said,) = open_source(save(**arrays(classes=np.array(["cat", "Cat ", "owl"]))), 5).remarks
    assert said.startswith("classes whose names look like one name: 'cat' and 'Cat '")


def test_other_arrays_are_said(save: Callable[..., str]) -> None:
    source = open_source(save(**arrays(x_val=np.zeros(1), y_val=np.zeros(1))), 5)
    assert source.remarks[-1] == "other arrays are left alone: x_val, y_val"


def test_the_test_set_may_be_empty(save: Callable[..., str]) -> None:
    data = load_dataset(save(**arrays(num_test=0)), contract=CONTRACT)
    assert data.test.images_NSS3.shape == (0, 16, 16, 3)
    assert data.test.labels_N.shape == (0,)


def test_a_damaged_archive_is_named(save: Callable[..., str], tmp_path: Path) -> None:
    save(**arrays())
    path = tmp_path / "data.npz"
    content = bytearray(path.read_bytes())
    content[500:600] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"cannot read .*data\.npz as an npz file"):
        load_dataset(f"npz:{path}", contract=CONTRACT)
