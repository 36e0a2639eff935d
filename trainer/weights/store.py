"""The store of backbones: a folder at the owner's host, from which a run's model gets the weights that the run names.

    HEX.safetensors   a backbone: float32 and int64 tensors under the model's own names, named by the file's SHA-256
    NAME.json         a name: whose backbone it is, where it came from, under which licence

Equal tensors give equal bytes (shared/tensors.py), so that sites which add the same weights have the same SHA-256. The
tensors come first and the name last, both by rename: after a crash a name stands for a whole file or is not there. The
bytes are hashed at each load, before anything reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from fedplcc.shared.config.initial_model import lineage
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.config.tables.model import WEIGHTS_NAME
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable, WeightsMissing
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import Array, sha256_hex, to_bytes

if TYPE_CHECKING:
    from torch import Tensor

LOCK_FILE = "lock"
Normalised = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""
MAX_NAME_FILE_BYTES = 1 << 16
"""Largest file of a name that is read; one of ours has less than a kilobyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The place that weights came from, and their licence as far as it tells; see `Backbone`."""

    place: str
    licence: str = ""
    licence_text: str = ""
    runs: tuple[str, ...] = ()
    normalised: Normalised | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """A backbone in the store.

    Attributes:
        name: The owner's name of it, which a run's `model.weights` says for people.
        sha256: Its name by content, which a run's `model.weights_sha256` says.
        source: The package, file or address that it came from.
        runs: The runs that trained it, the last first, where it comes from a run's folder.
        licence: Licence of the weights; empty where the source does not tell.
        licence_text: The licence that came with them; empty where none did.
        normalised: Mean and deviation of the pixels that it was trained on; None where the source does not tell.
    """

    name: str
    sha256: str
    model: str
    source: str
    licence: str
    licence_text: str
    num_tensors: int
    size_bytes: int
    runs: tuple[str, ...] = ()
    normalised: Normalised | None = None


_BACKBONE = TypeAdapter(Backbone)


@dataclass(frozen=True, slots=True)
class WeightsStore:
    """Backbones in a folder, which need not be there. Any number of processes may use it."""

    folder: Path

    def load(self, sha256: str, name: str = "") -> dict[str, Tensor]:
        """Return a backbone's tensors under the names that the model has for them.

        Raises:
            WeightsMissing: There is no such backbone, or its file does not hold it; nothing of it was used.
        """
        from safetensors.torch import load  # here, because commands that read names alone do without torch

        try:
            data = self._tensors(sha256).read_bytes()
        except OSError as error:
            raise WeightsMissing(self._why_missing(sha256, name, error)) from error
        if sha256_hex(data) != sha256:
            raise WeightsMissing(
                f"the file of the backbone {_called(name, sha256)} at this site does not have that SHA-256: it is "
                "damaged or another one, and nothing of it was used; add the weights again"
            )
        tensors: dict[str, Tensor] = load(data)
        return tensors

    def require(self, sha256: str, name: str = "") -> None:
        """Refuse a backbone whose file is not there; the file is not read.

        Raises:
            WeightsMissing: It is so.
        """
        if not self._tensors(sha256).is_file():
            raise WeightsMissing(self._why_missing(sha256, name, FileNotFoundError()))

    def backbones(self) -> list[Backbone]:
        """Return all that have names, by name; a file that is no name's is left out."""
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.json")))
        return [backbone for backbone in found if backbone is not None]

    def runs_of(self, sha256: str | None) -> tuple[str, ...]:
        """Return the runs that are known to have trained a backbone."""
        if sha256 is None:
            return ()
        return lineage(*(backbone.runs for backbone in self.backbones() if backbone.sha256 == sha256))

    def find(self, name: str) -> Backbone | None:
        """Return what a name stands for; None where it is not known."""
        if not WEIGHTS_NAME.fullmatch(name):
            return None
        try:
            with self._name(name).open("rb") as file:
                entry = _BACKBONE.validate_json(file.read(MAX_NAME_FILE_BYTES))
        except (OSError, ValidationError):
            return None
        return entry if entry.name == name else None

    def add(self, arrays: Mapping[str, Array], *, name: str, model: str, source: Source) -> Backbone:
        """Keep a backbone under a name; the same one again changes nothing but what is told of it.

        Raises:
            InvalidConfig: The name stands for another backbone.
            StoreUnavailable: The disk refuses.
        """
        data = to_bytes(arrays)
        added = Backbone(
            name=name,
            sha256=sha256_hex(data),
            model=model,
            source=source.place,
            licence=source.licence,
            licence_text=source.licence_text,
            num_tensors=len(arrays),
            size_bytes=len(data),
            runs=source.runs,
            normalised=source.normalised,
        )
        with self._changed():
            known = self.find(name)
            if known is not None and known.sha256 != added.sha256:
                raise InvalidConfig(
                    f"the name {name!r} stands for another backbone, {known.sha256}; choose a name with --name, or "
                    f"remove that one: fedplcc weights remove {name}"
                )
            disk.replace_file(self._tensors(added.sha256), data, "weights.tensors")  # a damaged file is mended so
            disk.replace_file(self._name(name), canonical_json(asdict(added)).encode(), "weights.name")
        return added

    def remove(self, name: str) -> Backbone:
        """Forget a name, and its backbone where no other name stands for it.

        Raises:
            InvalidConfig: The name is not known.
            StoreUnavailable: The disk refuses.
        """
        with self._changed():
            known = self.find(name)
            if known is None:
                names = ", ".join(each.name for each in self.backbones()) or "none"
                raise InvalidConfig(f"there is no backbone named {name!r} in {self.folder}; there are: {names}")
            disk.remove(self._name(name), "weights.name")
            if all(other.sha256 != known.sha256 for other in self.backbones()):
                disk.remove(self._tensors(known.sha256), "weights.tensors")
            disk.fsync_folder(self.folder, "weights")
        return known

    def _tensors(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.safetensors"

    def _name(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Let one process at a time change the folder; the system ends the turn of one that dies."""
        try:
            disk.make_state_folder(self.folder, "weights.folder")
            with disk.locked(self.folder / LOCK_FILE):
                yield
        except OSError as error:
            raise StoreUnavailable(f"cannot keep weights in {self.folder}: {error.strerror or error}") from error

    def _why_missing(self, sha256: str, name: str, error: OSError) -> str:
        known = self.find(name)
        if known is not None and known.sha256 != sha256:
            return (
                f"the run names the backbone {_called(name, sha256)}, and {name!r} at this site is another one, "
                f"{known.sha256}; nothing of it was used"
            )
        why = "" if isinstance(error, FileNotFoundError) else f" that can be read ({error.strerror or error})"
        return f"this site has no backbone {_called(name, sha256)}{why}; nothing was downloaded"


def _called(name: str, sha256: str) -> str:
    return f"{name!r} of SHA-256 {sha256}" if name else f"of SHA-256 {sha256}"
