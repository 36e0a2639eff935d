"""The SHA-256 of backbones that a configuration names without it, as far as this host has them.

It has those in its store, and those of installed packages: naming such a one in one's own command puts it into the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.settings import weights_folder
from fedplcc.shared.errors import InvalidModel, StoreUnavailable, WeightsMissing
from fedplcc.trainer.weights.packages import PACKAGES, is_installed
from fedplcc.trainer.weights.store import Backbone, WeightsStore

NEAR = 0.01
"""Difference of a mean or deviation that is no other one."""


def with_digests(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration file's content, not yet checked, with the SHA-256 of each backbone that this host has."""
    filled, store = dict(document), WeightsStore(weights_folder())
    if isinstance(model := document.get("model"), Mapping):
        filled["model"] = _with_digest(model, store)
    if isinstance(clients := document.get("clients"), Mapping):
        filled["clients"] = {name: _client(table, store) for name, table in clients.items()}
    return filled


def doubt_about_pixels(config: RunConfig) -> str:
    """Return a sentence on weights that have learnt from pixels of another mean or deviation, where this host knows it."""
    name, data = config.model.weights, config.data
    known = None if name is None else WeightsStore(weights_folder()).find(name)
    if known is None or known.normalised is None or known.sha256 != config.model.weights_sha256:
        return ""
    mean, std = ([round(value, 4) for value in values] for values in known.normalised)
    ours, theirs = (*data.mean, *data.std), (*mean, *std)
    if len(ours) != len(theirs) or all(abs(one - other) <= NEAR for one, other in zip(ours, theirs, strict=True)):
        return ""
    return (
        f"data.mean is {list(data.mean)} and data.std {list(data.std)}, and the weights {name!r} have learnt from pixels of "
        f"mean = {mean} and std = {std}: write those"
    )


def lacks_weights(document: Mapping[str, Any]) -> bool:
    """Whether a configuration with digests begins with weights that this host does not have."""
    model = document.get("model", {})
    try:
        if "weights" in model:
            WeightsStore(weights_folder()).require(model.get("weights_sha256", ""), model["weights"])
    except WeightsMissing:
        return True
    return False


def _client(table: Any, store: WeightsStore) -> Any:
    if not isinstance(table, Mapping) or not isinstance(model := table.get("model"), Mapping):
        return table
    return {**table, "model": _with_digest(model, store)}


def _with_digest(model: Mapping[str, Any], store: WeightsStore) -> Mapping[str, Any]:
    name = model.get("weights")
    known = (store.find(name) or _of_package(name, model.get("name"), store)) if isinstance(name, str) else None
    return (
        model if known is None or model.get("weights_sha256") is not None else {**model, "weights_sha256": known.sha256}
    )


def _of_package(name: str, model: Any, store: WeightsStore) -> Backbone | None:
    """Keep what an installed package brings under that name; None where none does."""
    for package, brought in PACKAGES.items():
        if brought.model == model and brought.default_name == name and is_installed(package):
            from fedplcc.trainer.weights.adding import add_weights  # torch, for a first time alone

            with suppress(InvalidModel, StoreUnavailable):  # a command that needs them says what is missing
                return add_weights(store, package)
    return None
