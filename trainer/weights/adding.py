"""Weights into a site's store, by its owner's own command: from a file, a package, or timm's hub."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import nn

from fedplcc.shared.config.initial_model import lineage, manifest_beside, runs_beside
from fedplcc.shared.config.tables.model import TIMM
from fedplcc.shared.errors import InvalidConfig, InvalidModel
from fedplcc.shared.tensors import Array
from fedplcc.trainer.models.timm_backbone import made_by_timm
from fedplcc.trainer.weights.matching import backbone_arrays
from fedplcc.trainer.weights.packages import PACKAGES, installed_weights
from fedplcc.trainer.weights.reading import plain_arrays, read_weights
from fedplcc.trainer.weights.store import Backbone, Normalised, Source, WeightsStore

BACKBONE = "backbone."
"""Prefix of a backbone's tensors in a run's model (`fedplcc.trainer.models.TimmModel`)."""


def add_weights(store: WeightsStore, source: str, *, model: str | None = None, name: str | None = None) -> Backbone:
    """Keep a backbone in the store, and return it.

    Args:
        source: timm:NAME, which timm downloads; a package of `PACKAGES`; or a file.
        model: The model that the weights are of; only a file's does not follow from its name.
        name: The owner's name of it; the model's if None.

    Raises:
        InvalidConfig: The model is not said, or the name stands for another backbone.
        InvalidModel: The weights cannot be had, or are of another model.
        StoreUnavailable: The disk refuses.
    """
    if TIMM.fullmatch(source):
        model = model or source
        arrays, origin = plain_arrays(_downloaded(source).state_dict(), source), _of_timm(source)
    elif source in PACKAGES:
        path, package, origin = installed_weights(source)
        model = model or package.model
        arrays = read_weights(path)
    elif model is None and not Path(source).is_file():
        raise InvalidConfig(
            f"{source!r} is no file, no folder of a run, no timm:NAME and none of the packages that bring weights: "
            f"{', '.join(PACKAGES)}"
        )
    elif model is None:
        raise InvalidConfig("a file does not say whose weights it has: give --model timm:NAME, resnet10 or resnet18")
    else:
        arrays = _without_head(read_weights(Path(source)))
        runs, manifest = runs_beside(Path(source)) or (), manifest_beside(Path(source))
        model_table = None if manifest is None else manifest["config"].get("model")
        before = model_table.get("weights_sha256") if isinstance(model_table, dict) else None
        origin = Source(
            place=f"{Path(source).name}, SHA-256 {_sha256_of(Path(source))}",
            runs=lineage(runs, store.runs_of(before)),
            normalised=None if manifest is None else _normalised(manifest["config"]["data"]),
        )
    kept = backbone_arrays(model, arrays, source)
    return store.add(kept, name=name or model.removeprefix("timm:"), model=model, source=origin)


def _downloaded(model: str) -> nn.Module:
    """Return timm's model with the weights that its hub has."""
    try:
        return made_by_timm(model.removeprefix("timm:"), pretrained=True)
    except InvalidModel as error:
        raise InvalidModel(
            f"{error.detail}; where timm's hub cannot be reached, bring its file of weights to this host: "
            f"fedplcc weights add FILE --model {model}"
        ) from error


def _without_head(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the backbone of a run's model above one of timm's, under timm's names; other files' tensors as they are."""
    backbone = {name.removeprefix(BACKBONE): array for name, array in arrays.items() if name.startswith(BACKBONE)}
    return backbone or arrays


def _normalised(data: Mapping[str, Any]) -> Normalised | None:
    """Return the mean and the deviation of a run's pixels; None where its file does not say numbers."""
    try:
        return TypeAdapter(Normalised).validate_python((data["mean"], data["std"]))
    except (LookupError, TypeError, ValidationError):
        return None


def _of_timm(model: str) -> Source:
    import timm  # of an extra, which the download has needed before

    known = timm.get_pretrained_cfg(model.removeprefix("timm:"))
    if known is None:
        return Source(place=model)
    return Source(place=model, licence=known.license or "", normalised=(tuple(known.mean), tuple(known.std)))


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
