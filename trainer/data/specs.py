"""Data specifications: which kind of data set a person's text names."""

from __future__ import annotations

import difflib
from pathlib import Path

from shared.errors import InvalidData
from shared.run_config import FACTORY
from trainer.data.arrays import open_factory, open_npz
from trainer.data.digits import open_digits
from trainer.data.folder import open_folder
from trainer.data.source import Source

KINDS = ("digits", "folder", "npz")
FORMS = "digits:DOMAIN, folder:PATH, npz:PATH or package.module:factory"


def open_source(spec: str, test_every: int) -> Source:
    """Return the data set that a specification names; labels are known, pixels are not read yet.

    Args:
        spec: `digits:DOMAIN`, `folder:PATH`, `npz:PATH` or `package.module:factory`; `~` in a path is the home folder.
        test_every: For folders without `train/` and `test/`.

    Raises:
        InvalidData: The specification is unknown, or its data set cannot be opened.
    """
    kind, colon, rest = spec.partition(":")
    if colon and not rest and kind in KINDS:
        raise InvalidData(f"data {spec!r} names nothing after the colon; write {FORMS}")
    if kind == "digits":
        return open_digits(rest)
    if kind == "folder" and colon:
        return open_folder(Path(rest).expanduser(), test_every)
    if kind == "npz" and colon:
        return open_npz(Path(rest).expanduser())
    nearest = difflib.get_close_matches(kind, KINDS, n=1)
    # "digit:mnist" has the form of a factory too, but nobody's package is called almost like a kind.
    if not FACTORY.match(spec) or nearest:
        hint = f"did you mean {nearest[0] + ':' + rest!r}?" if nearest else f"write {FORMS}"
        raise InvalidData(f"unknown data {spec!r}; {hint}")
    return open_factory(spec)
