"""Labels of data sets in Python go by the names of the data set that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, random_split

import fedplcc
from fedplcc.shared.errors import InvalidData

NAMES = ["cat", "dog", "owl"]


class Pairs(Dataset[Any]):
    """Images of one shade each, and labels that count in `classes`."""

    def __init__(self, labels: list[Any], classes: list[str] | None = None, first: int = 0) -> None:
        self.labels, self.first = labels, first
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return np.full((4, 4, 3), self.first + number, np.uint8), self.labels[number]


class Wrapper(Dataset[Any]):
    """Images of another data set, augmented, say."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, number: int) -> Any:
        return self.base[number]


def taken(folder: Path, run: list[str] = NAMES, **data: Any) -> tuple[dict[int, str], dict[int, str]]:
    """The class of each training and test image, by its shade."""
    spec = fedplcc.Client(**data).table(run, folder)["data"]
    stored = np.load(spec.removeprefix("npz:"))
    return tuple(  # type: ignore[return-value]
        {int(x[0, 0, 0]): str(stored["classes"][y]) for x, y in zip(stored[f"x_{s}"], stored[f"y_{s}"], strict=True)}
        for s in ("train", "test")
    )


@given(data=st.data())
@pytest.mark.parametrize(
    "shape",
    ["plain", "subset", "range", "negative of concat", "split", "concat", "wrapper", "subset of concat", "nested"],
)
def test_every_label_keeps_its_name_in_every_wrapping_and_order(
    shape: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts: list[Pairs] = []
    expected: dict[int, str] = {}
    for number in range(2 if "concat" in shape else 1):
        own = data.draw(st.permutations(NAMES))
        labels = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=8))
        parts.append(Pairs(labels, list(own), first=100 * number))
        expected |= {100 * number + i: own[label] for i, label in enumerate(labels)}
    whole: Any = ConcatDataset(parts) if "concat" in shape else parts[0]
    chosen = data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, unique=True))
    wrapped = {
        "plain": lambda: whole,
        "concat": lambda: whole,
        "wrapper": lambda: Wrapper(whole),
        "subset": lambda: Subset(whole, chosen),
        "range": lambda: Subset(whole, range(len(whole))),
        "negative of concat": lambda: Subset(whole, [number - len(whole) for number in chosen]),
        "subset of concat": lambda: Subset(whole, cast(Any, torch.tensor(chosen))),
        "split": lambda: random_split(whole, [1, len(whole) - 1])[1],  # type: ignore[no-untyped-call]
        "nested": lambda: Wrapper(Subset(Wrapper(whole), chosen)),
    }[shape]()
    found, _ = taken(tmp_path_factory.mktemp("d"), list(data.draw(st.permutations(NAMES))), train=wrapped)
    assert found.items() <= expected.items()
    assert len(found) == len(wrapped)


def test_training_and_test_data_go_each_by_their_own_names(tmp_path: Path) -> None:
    found = taken(tmp_path, train=Pairs([0, 1, 2], NAMES), test=Pairs([0, 1, 1], ["cat", "owl"]))
    assert found == ({0: "cat", 1: "dog", 2: "owl"}, {0: "cat", 1: "owl", 2: "owl"})


def test_the_numbers_of_a_folder_data_set_count_too(tmp_path: Path) -> None:
    pairs: Any = Pairs([1, 0])
    pairs.class_to_idx = {"owl": 1, "cat": 0}
    assert taken(tmp_path, train=pairs)[0] == {0: "owl", 1: "cat"}
    pairs.class_to_idx = {"owl": 3, "cat": 0}
    with pytest.raises(InvalidData, match="does not count the classes from 0"):
        taken(tmp_path / "x", train=pairs)


@pytest.mark.parametrize("labels", [["owl", "cat"], [np.str_("owl"), b"cat"], np.array(["owl", "cat"])])
@pytest.mark.parametrize("names", [None, NAMES])
def test_names_of_classes_are_labels(labels: Any, names: list[str] | None, tmp_path: Path) -> None:
    assert taken(tmp_path, train=Pairs(list(labels), names))[0] == {0: "owl", 1: "cat"}
    x = np.arange(2, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    assert taken(tmp_path / "x", train=(x, labels), classes=names)[0] == {0: "owl", 1: "cat"}


@pytest.mark.parametrize("label", [1.0, -1, True, None, torch.tensor(1.5), [0, 1], 3])
def test_what_is_no_label_is_refused(label: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="train image 1: its label"):
        taken(tmp_path, train=Pairs([0, label], NAMES))


@pytest.mark.parametrize("labels", [[0.5, 1.0], [True, False], [0, 7]])
def test_what_is_no_label_is_refused_in_arrays(labels: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="label"):
        taken(tmp_path, train=(np.zeros((2, 4, 4, 3), np.uint8), labels), classes=NAMES)


@pytest.mark.parametrize("label", [1, np.uint8(1), torch.tensor(1), torch.tensor([1]), np.array([1])])
def test_whole_numbers_of_every_type_are_labels(label: Any, tmp_path: Path) -> None:
    assert taken(tmp_path, train=Pairs([0, label], NAMES))[0] == {0: "cat", 1: "dog"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"train": Pairs([0], ["cat", "cow"])},
            "the data's classes are cat, cow, and the run's are cat, dog, owl: 'cow'",
        ),
        (
            {"train": Pairs([0])},
            "labels are numbers, 0, and nothing names them, but the run's classes are cat, dog, owl",
        ),
        ({"train": Pairs([0], NAMES), "test": Pairs([0])}, "the data's classes are cat, dog, owl, 0, and the run's"),
        (
            {"train": Pairs([0], NAMES), "classes": ["dog", "cat", "owl"]},
            "names its classes cat, dog, owl, and classes= names dog",
        ),
        (
            {"train": Subset(Pairs([0], NAMES), [0]), "classes": NAMES[::-1]},
            "cat, dog, owl, and classes= names owl, dog, cat",
        ),
        ({"train": (np.zeros((1, 4, 4, 3), np.uint8), [0])}, "nothing names them"),
        (
            {"train": Pairs([0], ["c\u0430t", "dog"])},
            r"looks alike .* U\+0063 U\+0430 U\+0074, not U\+0063 U\+0061 U\+0074",
        ),
        ({"train": Pairs([0], ["cat\u200b", "dog"])}, r"U\+200B"),
    ],
)
def test_names_that_differ_or_are_missing_are_refused_with_both_lists(
    data: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidData, match=sentence):
        taken(tmp_path, **data)


class Broken(Pairs):
    """A data set whose length is more than it has, or whose images cannot be had."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__([0], NAMES)
        self.error = error

    def __len__(self) -> int:
        return 5

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if self.error is not None:
            raise self.error
        return super().__getitem__(number)


class Stream(IterableDataset[Any]):
    """Images without numbers."""

    def __iter__(self) -> Any:
        yield np.zeros((4, 4, 3), np.uint8), 0


def of_names(classes: list[str] | None, numbers: dict[str, int] | None = None, **more: Any) -> Any:
    data: Any = Pairs([0], classes)
    if numbers is not None:
        data.class_to_idx = numbers
    vars(data).update(more)
    return data


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"train": Broken()}, "train image 1 of 5 cannot be had from the data set: IndexError"),
        ({"train": Broken(KeyError("x"))}, "train image 0 of 5 cannot be had from the data set: KeyError"),
        ({"train": Stream()}, "train is a Stream, no data set with a length and numbers"),
        ({"train": ([np.zeros((4, 4, 3)), np.zeros((8, 8, 3))], [0, 1])}, "images differ in size"),
        ({"train": of_names(["cat", "cat"])}, "its classes name one twice, cat, cat"),
        ({"train": of_names(NAMES, {"cat": 1, "dog": 0, "owl": 2})}, "its class_to_idx counts dog, cat, owl"),
        ({"train": of_names(None, base=of_names(NAMES), target_transform=abs)}, "target_transform changes the labels"),
        ({"train": of_names(None), "classes": ["cat", "cat"]}, "classes= is a list of names, each once"),
        ({"train": of_names(None), "classes": "cat"}, "classes= is a list of names, each once, not 'cat'"),
        ({"train": of_names(None), "classes": {"cat", "dog"}}, "classes= is a list of names"),
        ({"train": of_names(None, {0: "cat"})}, "its class_to_idx does not count"),  # type: ignore[dict-item]
        ({"train": (np.zeros((1, 4, 4, 3), np.uint8), ["\u00b2"])}, "'\u00b2' is none of them"),
        ({"train": "folder:x"}, "give a folder or a specification as data="),
        ({"data": Pairs([0])}, "data= is a specification or a folder, not a Pairs; give train="),
    ],
)
def test_what_is_no_data_set_is_refused_with_what_it_is(data: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=sentence):
        taken(tmp_path, **data)


def test_pictures_on_both_sides_are_warned_of(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)
    with pytest.warns(UserWarning, match="1 of 2 test images are training images too, test image 1 among them"):
        taken(tmp_path, ["0"], train=(x[:2], [0, 0]), test=(x[[2, 0]], [0, 0]))


def test_data_sets_of_other_orders_in_one_wrapper_and_changed_labels_are_refused(tmp_path: Path) -> None:
    two: Any = Wrapper(Pairs([0], NAMES))
    two.other = Pairs([0], NAMES[::-1])
    with pytest.raises(InvalidData, match="name their classes differently"):
        taken(tmp_path, train=two)
    turned: Any = Pairs([0], NAMES)
    turned.target_transform = lambda label: 2 - label
    with pytest.raises(InvalidData, match="target_transform changes labels"):
        taken(tmp_path, train=turned)
    assert taken(tmp_path, train=turned, classes=NAMES[::-1])[0] == {0: "owl"}


def test_a_wrapper_that_changes_labels_gives_no_names_of_the_data_set_in_it(tmp_path: Path) -> None:
    """As one that takes two classes of many and counts them anew; `classes=` says what it counts in."""

    class Turned(Wrapper):
        def __getitem__(self, number: int) -> Any:
            image, label = self.base[number]
            return image, 2 - label

    class TurnedPart(Turned):
        indices = (0, 1, 2)

    class Some(Wrapper):
        def __len__(self) -> int:
            return 2

    base = Pairs([0, 1, 2], NAMES)
    for turned in (Turned(base), TurnedPart(base)):
        with pytest.raises(InvalidData, match="its label of image 0 is 2, and 0 in the data set in it"):
            taken(tmp_path, train=turned)
        assert taken(tmp_path, train=turned, classes=NAMES)[0] == {0: "owl", 1: "dog", 2: "cat"}
    with pytest.raises(InvalidData, match="it has 2 images and a data set of 3 in it"):
        taken(tmp_path, train=Some(base))
    layers: Any = Wrapper(base)
    layers.transform = torch.nn.Sequential(torch.nn.Identity())
    assert taken(tmp_path, train=layers)[0] == {0: "cat", 1: "dog", 2: "owl"}


@pytest.mark.parametrize("indices", [np.array([True, False]), torch.tensor([True, False]), [True, False]])
def test_a_mask_is_no_list_of_numbers(indices: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="its indices are true or false"):
        taken(tmp_path, train=Subset(Pairs([0, 1], NAMES), indices), classes=NAMES)


def test_images_that_change_with_each_reading_are_warned_of(tmp_path: Path) -> None:
    class Augmented(Pairs):
        def __getitem__(self, number: int) -> tuple[Any, Any]:
            self.first += 1
            return super().__getitem__(number)

    for test in (None, (np.full((1, 8, 8, 3), 200, np.uint8), [NAMES[0]])):
        client = fedplcc.Client(train=Augmented([0, 1], NAMES), test=test)
        with pytest.warns(UserWarning, match="train image 0 is another one each time that it is read"):
            first = client.table(NAMES, tmp_path)
        assert client.table(NAMES, tmp_path) == first  # so that a run goes on


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"train": [{"image": 0, "label": 1}]}, "train image 0: it is a dict of image, label, and no pair"),
        ({"train": Pairs([b"\xff"])}, "is no text in UTF-8"),
        ({"train": Pairs([0, 1]), "classes": ["\u00fc", "u\u0308"]}, "a list of names, each once"),
        ({"train": Pairs([0, 1], ["\u00fc", "u\u0308"])}, "its classes name one twice"),
        ({"train": Pairs([0, 1], NAMES), "groups": ["a", None]}, "'None' is no name"),
    ],
)
def test_what_says_too_little_is_refused(data: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=sentence):
        taken(tmp_path, **data)


@pytest.mark.parametrize("is_data_set", [False, True])
def test_images_that_have_changed_are_read_again(is_data_set: bool, tmp_path: Path) -> None:
    x, y = np.full((4, 4, 4, 3), 200, np.uint8), np.array([0, 1, 0, 1])
    pairs = [(torch.from_numpy(image).permute(2, 0, 1), label) for image, label in zip(x, y, strict=True)]
    client = fedplcc.Client(train=pairs if is_data_set else (x, y), classes=NAMES)
    specs = [client.table(NAMES, tmp_path)["data"] for _ in range(2)]
    x[0] = 100
    assert specs[0] == specs[1] != client.table(NAMES, tmp_path)["data"]


def test_numbers_are_the_classes_of_a_run_whose_classes_are_numbers(tmp_path: Path) -> None:
    assert taken(tmp_path, ["2", "0", "1"], train=Pairs([2, 0, 1]))[0] == {0: "2", 1: "0", 2: "1"}


def test_one_name_in_two_forms_of_unicode_is_one_class(tmp_path: Path) -> None:
    found = taken(
        tmp_path, ["\u00e9t\u00e9", "b"], train=Pairs([0], ["e\u0301te\u0301"]), test=Pairs([0], ["\u00e9t\u00e9"])
    )
    assert found == ({0: "\u00e9t\u00e9"}, {0: "\u00e9t\u00e9"})


def picture(mode: str) -> Image.Image:
    colours = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    if mode == "P":
        return Image.fromarray(colours).quantize(8)
    if mode == "LAB":
        return Image.frombytes("LAB", (4, 4), colours.tobytes())
    return Image.fromarray(colours).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "P", "YCbCr", "HSV", "LAB", "CMYK", "1", "RGBX"])
def test_pictures_of_pillow_are_converted(mode: str, tmp_path: Path) -> None:
    class Pictures(Pairs):
        def __getitem__(self, number: int) -> tuple[Any, Any]:
            return picture(mode), 0

    spec = fedplcc.Client(train=Pictures([0], NAMES)).table(NAMES, tmp_path)["data"]
    of_pair = fedplcc.Client(train=([picture(mode)], [0]), classes=NAMES).table(NAMES, tmp_path)["data"]
    for each in (spec, of_pair):
        x = np.load(each.removeprefix("npz:"))["x_train"][0]
        assert np.array_equal(x, np.asarray(picture(mode).convert("RGB")))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_pictures_of_unknown_range_are_refused(mode: str, tmp_path: Path) -> None:
    class Pictures(Pairs):
        def __getitem__(self, number: int) -> tuple[Any, Any]:
            return Image.new(mode, (4, 4), 100), 0

    with pytest.raises(InvalidData, match=f"train image 0: it is a picture of mode {mode} that states no range"):
        fedplcc.Client(train=Pictures([0], NAMES)).table(NAMES, tmp_path)


def test_groups_that_differ_in_writing_alone_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="groups whose names look like one name: '01' and '1'"):
        taken(tmp_path, train=Pairs([0], NAMES), test=Pairs([1], NAMES, 9), groups=[1], test_groups=["01"])


def test_images_of_a_small_range_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no number in the images is above 1 of 255"):
        taken(tmp_path, train=(np.eye(8, dtype=np.uint8)[None], ["cat"]))
