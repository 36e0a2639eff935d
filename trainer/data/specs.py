"""Data specifications: from a text such as `npz:PATH` to the opened data set.

A text says all: parts have their rule in it, stages their data, so that demo, simulation and a trainer have the same part
without state between processes, computed from labels and seed alone. A new kind of data is a prefix.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from fedplcc.shared.config.run import FACTORY
from fedplcc.shared.config.tables.partition import LongTail
from fedplcc.shared.config.tables.stream import STAGES_KIND, split_stages_spec
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.parts import PART, Part, balanced_test, long_tailed, part_of, split_part
from fedplcc.trainer.data.sets import digit5, domainnet, office10
from fedplcc.trainer.data.sets.arrays import open_factory, open_npz
from fedplcc.trainer.data.sets.digits import open_digits
from fedplcc.trainer.data.sets.folder import FORM, open_folder, open_unlabelled, split_options
from fedplcc.trainer.data.sets.torchvision_sets import SETS, open_torchvision
from fedplcc.trainer.data.source import Samples, Source, union


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of data set.

    Attributes:
        open: Opens it, given the text after the kind and its colon, and the run's `test_every`.
    """

    form: str
    open: Callable[[str, int], Source]
    places: Callable[[str], Iterable[Path]]


def open_source(spec: str, test_every: int) -> Source:
    """Return the data set that a specification names. Its labels are known; its pixels are not read yet.

    Args:
        spec: One of the forms of `KINDS`, or `package.module:factory`; `~` in a path is the home folder.
        test_every: For folders without a split of their own.

    Raises:
        InvalidData: The specification is unknown, or its data set cannot be opened.
    """
    name, text = _kind_and_text(spec)
    _, _, rest = spec.partition(":")
    if text is not None:
        if not rest:
            raise InvalidData(f"data {spec!r} names nothing after the colon; write {KINDS[name].form}")
        try:
            os.fsencode(spec)
        except UnicodeEncodeError as error:
            raise InvalidData(
                f"data {spec!r} cannot be named in {error.encoding}, the encoding of this system's files; set LC_ALL=C.UTF-8"
            ) from error
        return KINDS[name].open(text, test_every)
    # "digit:mnist" has the form of a factory too, but a name so close to a kind's is a typing error.
    is_factory = FACTORY.match(spec) is not None
    nearest = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.8 if is_factory else 0.6)
    if is_factory and not nearest:
        return open_factory(spec)
    meant = f"{nearest[0]}:{rest}" if nearest and rest else None
    if spec and _path(spec).is_dir():
        meant = f"folder:{spec}"
    elif not meant and spec.endswith(".npz"):
        meant = f"npz:{spec}"
    hint = f"did you mean {meant!r}?" if meant else f"write {FORMS}"
    raise InvalidData(f"unknown data {spec!r}; {hint}")


def places_of(spec: str) -> set[Path]:
    """Return the files and folders that a specification names, and those in it; code of one's own names none.

    Raises:
        InvalidData: It has no form of a specification.
    """
    name, text = _kind_and_text(spec)
    return set() if text is None else set(KINDS[name].places(text))


def _kind_and_text(spec: str) -> tuple[str, str | None]:
    """Return the name before a specification's colon, and the text after it where a built-in kind has this name."""
    head = spec.partition(":")[0]
    name = head.partition("(")[0]
    is_built_in = name in KINDS and (name == head or name == LongTail.name)
    return name, spec[len(name) :].removeprefix(":") if is_built_in else None


def unlabelled_images(spec: str) -> Samples | None:
    """Return the images of `folder:PATH` where the folder has no class folders; None for all other data.

    Raises:
        InvalidData: The folder cannot be read.
    """
    kind, _, text = spec.partition(":")
    if kind != "folder" or not text:
        return None
    path, options = split_options(text)
    return open_unlabelled(_path(path)) if options.labels is None else None


def _folder(text: str, test_every: int) -> Source:
    path, options = split_options(text)
    return open_folder(_path(path), test_every, options=options)


def _folder_places(text: str) -> list[Path]:
    path, options = split_options(text)
    return [_path(path)] if options.labels is None else [_path(path), _path(path) / options.labels]


def _path(text: str) -> Path:
    if "\0" in text:
        raise InvalidData(f"data {text!r}: the name of a file or folder has no character 0")
    return Path(os.path.expanduser(text))  # an unknown home folder stays as it is written


def _at_path(open_path: Callable[[Path], Source], text: str, test_every: int) -> Source:
    return open_path(_path(text))


def _in_domain(
    kind: str, domains: Iterable[str], open_domain: Callable[[str, Path, int], Source], text: str, test_every: int
) -> Source:
    """Open DOMAIN:PATH."""
    domain, colon, path = text.partition(":")
    names = list(domains)
    if domain not in names:
        nearest = difflib.get_close_matches(domain, names, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(names)}"
        raise InvalidData(f"unknown domain of {kind} {domain!r}; {hint}")
    if not colon or not path:
        raise InvalidData(f"data '{kind}:{text}' names no folder; write {kind}:{domain}:PATH")
    return open_domain(domain, _path(path), test_every)


def _part(text: str, test_every: int) -> Source:
    part = split_part(text)
    return part_of(_to_divide(part, test_every), part)


def open_balanced_test(spec: str, test_every: int) -> Source | None:
    """Return a client's part of the whole test set of the data that are divided; None for other specifications."""
    if not spec.startswith("part:"):
        return None
    part = split_part(spec.removeprefix("part:"))
    return balanced_test(_to_divide(part, test_every), part)


def _to_divide(part: Part, test_every: int) -> Source:
    """Open the data set of a part."""
    opened, key = _opened.get(), (part.data, test_every)
    if opened is None:
        return open_source(part.data, test_every)
    if key not in opened:
        opened.clear()  # one set at a time, to save memory
        opened[key] = open_source(part.data, test_every)
    return opened[key]


def by_stage(spec: str, num_stages: int) -> tuple[str, ...]:
    """Return a client's specification of each stage.

    A list has one for each stage, and a part whose rule deals stages has one task for each. Every other specification is
    that of all stages.

    Raises:
        InvalidData: It has data of another number of stages.
    """
    listed = split_stages_spec(spec)
    if listed is not None:
        if len(listed) != num_stages:
            raise InvalidData(f"data lists {len(listed)} specifications and stream.stages is {num_stages}")
        return listed
    if spec.startswith("part:"):
        part = split_part(spec.removeprefix("part:"))
        if part.rule.stages not in (1, num_stages):
            raise InvalidData(f"data {spec!r} deals {part.rule.stages} stages and stream.stages is {num_stages}")
        if part.rule.stages > 1 and part.stage is None:
            return tuple(replace(part, stage=stage).spec for stage in range(1, num_stages + 1))
    return (spec,) * num_stages


def _stages(text: str, test_every: int) -> Source:
    """Open the data sets of all stages as one."""
    return union([open_source(spec, test_every) for spec in _listed(text)])


def _listed(text: str) -> tuple[str, ...]:
    specs = split_stages_spec(f"{STAGES_KIND}:{text}")
    if specs is None:
        raise InvalidData(f"data '{STAGES_KIND}:{text}' is no list of 2 or more specifications, like {STAGES_FORM}")
    return specs


_opened: ContextVar[dict[tuple[str, int], Source] | None] = ContextVar("_opened", default=None)


@contextmanager
def opened_once() -> Iterator[None]:
    """Within the block, parts of the same data set that are opened one after another share one opened set.

    A simulation of a hundred clients then reads CIFAR-10 once. The content of a part does not depend on it. A block within
    another one shares what that has opened.
    """
    if _opened.get() is not None:
        yield
        return
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


def _long_tail(text: str, test_every: int) -> Source:
    settings, data = _settings_and_data(text)
    return long_tailed(open_source(data, test_every), LongTail.name + settings)


def _settings_and_data(text: str) -> tuple[str, str]:
    settings, _, data = text.partition(":") if text.startswith("(") else ("", "", text)
    return settings, data


def _open_office10(domain: str, root: Path, test_every: int) -> Source:
    return office10.open_office10(domain, root)


STAGES_FORM = f'{STAGES_KIND}:["DATA", "DATA"]'
_open_domainnet10 = partial(domainnet.open_domainnet, classes=domainnet.TEN_CLASSES)


def _at(text: str) -> list[Path]:
    return [_path(text)]


def _of_domain(name: str, domains: Iterable[str], open_domain: Callable[[str, Path, int], Source]) -> tuple[str, Kind]:
    return name, Kind(
        f"{name}:DOMAIN:PATH",
        partial(_in_domain, name, domains, open_domain),
        lambda text: _at(text.partition(":")[2]),
    )


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "digits": Kind("digits:DOMAIN", lambda text, _: open_digits(text), lambda _: ()),
        "folder": Kind(FORM, _folder, _folder_places),
        "npz": Kind("npz:PATH", partial(_at_path, open_npz), _at),
        **{name: Kind(f"{name}:PATH", partial(_at_path, partial(open_torchvision, name)), _at) for name in SETS},
        **dict(
            [
                _of_domain("digit5", digit5.DOMAINS, digit5.open_digit5),
                _of_domain("office10", office10.DOMAINS, _open_office10),
                _of_domain("domainnet", domainnet.DOMAINS, domainnet.open_domainnet),
                _of_domain("domainnet10", domainnet.DOMAINS, _open_domainnet10),
            ]
        ),
        "part": Kind(PART, _part, lambda text: places_of(split_part(text).data)),
        "long_tail": Kind(
            "long_tail(imbalance=IF):DATA", _long_tail, lambda text: places_of(_settings_and_data(text)[1])
        ),
        STAGES_KIND: Kind(
            STAGES_FORM, _stages, lambda text: (place for spec in _listed(text) for place in places_of(spec))
        ),
    }
)
"""Built-in kinds; README.md beside this file gives the layout of each on disk."""

FORMS = ", ".join(kind.form for kind in KINDS.values()) + " or package.module:factory"
