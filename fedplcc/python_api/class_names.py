"""Names of the classes of a data set in Python: each label is read by the names of the data set that it comes from."""

from __future__ import annotations

import bisect
import numbers
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any, TypeGuard

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.names import composed, decoded, listed, nearest

Names = tuple[str, ...]
NamesAt = Callable[[int], "Names | None"]
"""Returns the names that the label of a numbered image counts in; None where nobody names them."""

_NUM_COMPARED = 8
"""Labels of a wrapper that are compared with those of the data set in it."""
_DEPTH = 16
"""Most data sets that are wrapped in one another."""


def names_of(data: Any, depth: int = _DEPTH) -> NamesAt:
    """Return the names of a data set's classes by the number of an image.

    They are its own (`classes` or `class_to_idx`), else those of the data sets in it: of a `Subset` and a `ConcatDataset`,
    image by image; of any other wrapper, those that all data sets in it share.

    Raises:
        InvalidData: A wrapper holds data sets of other names than one another, or labels are changed on the way.
    """
    own = own_names(data)
    if own is not None:
        if getattr(data, "target_transform", None) is not None:
            raise InvalidData(
                f"its target_transform changes labels, so that they may not be those of its classes {listed(own)}; "
                "name the classes with classes="
            )
        return lambda number: own
    inner = _inner(data) if depth else []
    if getattr(data, "target_transform", None) is not None and inner:
        raise InvalidData(
            "its target_transform changes the labels of the data set in it; name the classes with classes="
        )
    if len(inner) == 1 and is_sequence(getattr(data, "indices", None)) and len(data) == len(data.indices):
        of_whole, indices, count = names_of(inner[0], depth - 1), data.indices, max(1, len(inner[0]))
        if any(_all(of_whole, len(inner[0])) - {None}):
            _check_kept(data, inner[0], lambda number: int(indices[number]))
        return lambda number: of_whole(int(indices[number]) % count)  # -1 is the last one
    parts = [names_of(each, depth - 1) for each in inner]
    if len(inner) > 1 and hasattr(data, "cumulative_sizes") and sum(map(len, inner)) == len(data):
        ends = list(accumulate(map(len, inner)))

        def in_part(number: int) -> Names | None:
            part = bisect.bisect_right(ends, number)
            return parts[part](number - (ends[part - 1] if part else 0))

        return in_part
    known = {names for each, of_each in zip(inner, parts, strict=True) for names in _all(of_each, len(each))}
    if len(known) > 1:
        lists = " and ".join(f"[{listed(names)}]" if names else "none" for names in sorted(known, key=str))
        raise InvalidData(f"the data sets in it name their classes differently, {lists}; name them with classes=")
    if len(inner) == 1 and known - {None}:
        if len(data) != len(inner[0]):
            raise InvalidData(
                f"it has {len(data)} images and a data set of {len(inner[0])} in it, whose classes need not be those of its "
                "labels; name them with classes="
            )
        _check_kept(data, inner[0], int)
    return lambda number: next(iter(known), None)


def _check_kept(data: Any, inner: Any, number_in: Callable[[int], int]) -> None:
    """Refuse a wrapper whose labels are others than those of the data set in it, whose names they would have.

    Raises:
        InvalidData: It is so.
    """
    for number in np.unique(np.linspace(0, max(0, len(data) - 1), min(len(data), _NUM_COMPARED)).astype(int)).tolist():
        try:
            own, there = (label_of(each[i][1], None) for each, i in ((data, number), (inner, number_in(number))))
        # A data set is anyone's code; what cannot be had, and what is no label, is refused where it is read.
        except Exception:
            return
        if own != there:
            raise InvalidData(
                f"its label of image {number} is {own}, and {there} in the data set in it, whose classes are named: "
                "labels are changed on the way; name them with classes="
            )


def own_names(data: Any) -> Names | None:
    """Return the names that a data set itself gives its labels; None without any."""
    classes, by_number = getattr(data, "classes", None), _by_number(data) or ()
    if not (is_sequence(classes) and len(classes)):
        return by_number or None
    names = tuple(
        composed(", ".join(map(str, each)) if isinstance(each, tuple | list) else str(each)) for each in classes
    )
    if len(set(names)) < len(names):
        raise InvalidData(f"its classes name one twice, {listed(names)}; name the labels with classes=")
    places = {name: number for number, name in enumerate(names)}
    if any(places.get(name, number) != number for number, name in enumerate(by_number)):
        raise InvalidData(
            f"its classes are {listed(names)}, and its class_to_idx counts {listed(by_number)}; name them with classes="
        )
    return names


def _by_number(data: Any) -> Names | None:
    numbers_of = getattr(data, "class_to_idx", None)
    if not isinstance(numbers_of, Mapping) or not numbers_of:
        return None
    are_numbers = all(isinstance(number, numbers.Integral) for number in numbers_of.values())
    by_number = {int(number): composed(str(name)) for name, number in numbers_of.items() if are_numbers}
    if not are_numbers or sorted(by_number) != list(range(len(by_number))):
        raise InvalidData("its class_to_idx does not count the classes from 0; name them with classes=")
    return tuple(by_number[number] for number in range(len(by_number)))


def is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether a value has an order: a list, a tuple or an array, and no text, set or mapping."""
    return (isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)) or (
        hasattr(value, "tolist") and hasattr(value, "__len__")
    )


def _inner(data: Any) -> list[Any]:
    """Return the data sets that a data set holds."""
    if isinstance(data, list | tuple | dict):
        return []
    found: list[Any] = []
    for value in vars(data).values() if hasattr(data, "__dict__") else ():
        for each in value if isinstance(value, list | tuple) and len(value) <= 1000 else (value,):
            if _is_data_set(each) and not any(each is known for known in found):
                found.append(each)
    return found


def _is_data_set(value: Any) -> bool:
    plain = isinstance(value, str | bytes | Sequence | Mapping | Set | np.ndarray | np.generic | type)
    plain = plain or hasattr(value, "dtype") or hasattr(value, "iloc")  # of numpy's kin and pandas
    plain = plain or hasattr(value, "forward")  # a list of layers has a length too
    return not plain and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _all(of_each: NamesAt, count: int) -> set[Names | None]:
    return {of_each(number) for number in range(count)}


def label_of(label: Any, names: Names | None) -> str:
    """Return the class of a label: a name as it is, a number by the names, or as itself where there are none.

    Raises:
        InvalidData: It is a fraction, negative, no single value, or beyond the names.
    """
    if isinstance(label, str | bytes):
        return decoded(label, "its label")
    plain = label.detach().cpu().numpy() if hasattr(label, "detach") else label
    if isinstance(plain, np.ndarray):
        if plain.size != 1:
            raise InvalidData(f"its label is {list(plain.shape)}, not one value")
        plain = plain.reshape(())[()]
    if isinstance(plain, str):
        return composed(str(plain))
    if isinstance(plain, bool | np.bool_) or not isinstance(plain, numbers.Integral):
        raise InvalidData(f"its label {plain!r} is no whole number and no name of a class")
    number = int(plain)
    if number < 0:
        raise InvalidData(f"its label {number} is negative; labels are counted from 0")
    if names is None:
        return str(number)
    if number >= len(names):
        raise InvalidData(f"its label is {number}, and only {len(names)} classes are named: {listed(names)}")
    return composed(names[number])


def are_numbers(names: Sequence[str]) -> bool:
    """Whether classes are called by their numbers, as those of labels that nothing names are."""
    return all(name.isascii() and name.isdigit() for name in names)


def check_names(found: Sequence[str], run_classes: Sequence[str], *, are_named: bool) -> None:
    """Refuse classes that the run has not.

    Args:
        found: Names of the classes of the data.
        run_classes: The run's.
        are_named: Whether the data have names; otherwise `found` are numbers.

    Raises:
        InvalidData: A class is not of the run; the message has both lists.
    """
    run_classes = [*map(str, run_classes)]  # a class that is no text is refused with the configuration
    known = {composed(name) for name in run_classes}
    strange = [name for name in found if name not in known]
    if not strange:
        return
    if not are_named:
        raise InvalidData(
            f"labels are numbers, {listed(sorted(found))}, and nothing names them, but the run's classes are "
            f"{listed(run_classes)}; name the labels 0, 1, ... with classes="
        )
    raise InvalidData(
        f"the data's classes are {listed(found)}, and the run's are {listed(run_classes)}: "
        f"{strange[0]!r} is none of them{nearest(strange[0], run_classes)}"
    )
