"""A run's model and prototypes, read from its files.

The configuration in run.json says which model it is; model.safetensors holds its weights, prototypes.safetensors the global
prototypes. A model file away from its run.json is read with the run's configuration file. So is a model of a user's own
code: a run's folder comes from anywhere, and must not choose what code runs here. The description beside an adapted model
(description.py) takes the place of its run.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from fedplcc.models.description import Description, description_file, read_description
from fedplcc.runs.artifacts import BEST_MODEL, BEST_PROTOTYPES, MANIFEST, METRICS, MODEL, PROTOTYPES
from fedplcc.runs.configuration import read_as_it_stands
from fedplcc.runs.readiness import with_command
from fedplcc.runs.run_folder import FEDERATION, RUNS
from fedplcc.shared.config.initial_model import manifest_beside
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.trained_input import other_input, other_size
from fedplcc.shared.errors import InvalidConfig, InvalidModel, MalformedUpdate, StoreUnavailable, WeightsMissing
from fedplcc.shared.methods import refusal
from fedplcc.shared.process.disk import read_regular
from fedplcc.shared.tensors import Array, from_bytes, prototypes_from_bytes, sha256_hex
from fedplcc.shared.types import GLOBAL_MODEL, PrototypeSet
from fedplcc.trainer.models import FeatureModel, build_model, load_arrays
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.reproducibility.environment import resolve_device

UNNAMED = (
    "nobody names the classes of {}: its outputs are taken in the order of data.classes, and images at the size, of {}; "
    "keep the run.json of its run beside it"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A model with its configuration and prototypes.

    Attributes:
        model: Keeps `fedplcc.trainer.models.FeatureModel`; in eval mode, on `device`.
        config: The run's configuration: class names, image size, normalisation and the rest.
        prototypes: The global prototypes beside the model; empty where the method has none.
        run_id: The run; None where no run.json is beside the file.
        round: The round that the model is of; None where no metrics.jsonl beside the file says so.
        description: That of a model that was adapted to a site; None for a run's own.
        clients: Names of the run's clients; empty where neither its roster nor run.json tells them.
        doubt: What nobody says of the model; empty where its run or its description does.
    """

    model: nn.Module
    config: RunConfig
    prototypes: PrototypeSet
    device: torch.device
    file: Path
    sha256: str
    run_id: str | None
    round: int | None
    description: Description | None = None
    clients: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def title(self) -> str:
        """The model's run and round as text."""
        name = f"run {self.run_id}" if self.run_id else str(self.file)
        name = name if self.round is None else f"{name}, round {self.round}"
        return name if self.description is None else f"{name}, {self.description.sentence}"

    @property
    def temperature(self) -> float:
        """What logits are divided by before probabilities are made of them."""
        found = None if self.description is None else self.description.temperature
        return 1.0 if found is None else found

    @property
    def facts(self) -> dict[str, Any]:
        """The model's run, round and SHA-256, and what an adapted one was adapted to."""
        found = {"run_id": self.run_id, "round": self.round, "model_sha256": self.sha256}
        return found if self.description is None else {**found, **self.description.facts}


def read_trained_model(
    path: Path, *, config_file: Path | None = None, device: str = "auto", trusted_factory: str | None = None
) -> TrainedModel:
    """Read a model with its configuration and prototypes.

    Args:
        config_file: The run's configuration file, instead of the run.json beside the model.
        device: auto, cpu, cuda or cuda:N.
        trusted_factory: A model of a user's own code that run.json may name, because the user has named it too.

    Raises:
        InvalidModel: There is no model, it is none, it is of another configuration, clients of its run keep theirs, or
            run.json alone names the code that it is made by; or its description is another model's.
        InvalidConfig: The configuration is missing or wrong, or there is no such device.
        StoreUnavailable: A file cannot be read.
    """
    target = resolve_device(device)
    file = _model_file(path)
    description = read_description(file)
    manifest: Mapping[str, Any]
    if description is not None:
        source, manifest = description_file(file), description.model_dump()
    else:
        source = file.with_name(MANIFEST)
        manifest = {} if config_file is not None else _manifest(file)
    known = None if config_file is None else read_as_it_stands(config_file).config
    config = known or _config(manifest, source, trusted_factory)
    beside = manifest if description is not None else manifest_beside(file)
    if known is not None and beside is not None:
        _check_beside(file, known, beside)
    if GLOBAL_MODEL not in config.evaluated_models:
        is_part = config.algorithm.shares_model(config.method)
        raise InvalidModel(
            f"{file} is {'in part ' if is_part else ''}what the run began with: its method, {config.run.method}, shares "
            f"no {'whole ' if is_part else ''}model as the run is configured, and what each client "
            f"{'kept' if is_part else 'trained'} never left it"
        )
    data = _read(file)
    try:
        model = build_model(
            config.model,
            len(config.data.classes),
            config.data.image_size,
            config.run.seed,
            with_weights=False,
            consent=Consent.to(config.model),
            train=config.training.train,
        )
    except WeightsMissing as error:
        raise with_command(error, config.model) from error
    try:
        load_arrays(model, _finite(from_bytes(data)))
    except MalformedUpdate as error:
        raise InvalidModel(f"{file} is no safetensors file of a run's model: {error.detail}") from error
    except InvalidModel as error:
        raise InvalidModel(f"{file} is no model of this run: {error.detail}") from error
    digest = sha256_hex(data)
    if description is not None and description.model_sha256 != digest:
        raise InvalidModel(f"{source} describes another model than the one beside it; adapt the run's model again")
    return TrainedModel(
        model=model.to(target).eval(),
        config=config,
        prototypes=_prototypes(_prototypes_file(file, description), cast(FeatureModel, model).feature_dim, config),
        device=target,
        file=file,
        sha256=digest,
        run_id=manifest.get("run_id"),
        round=_round_of(digest, file.with_name(METRICS)) if description is None else description.round,
        description=description,
        clients=config.run.clients or _admitted(manifest),
        doubt="" if known is None or beside is not None else UNNAMED.format(file, config_file),
    )


def _model_file(path: Path) -> Path:
    """The model file at a path."""
    if path.is_file():
        return path
    if not path.exists():
        known = RUNS / path
        hint = f"did you mean {known}?" if (known / MODEL).exists() else f"name the folder of a run or its {MODEL}"
        raise InvalidModel(f"there is no {path}; {hint}")
    file = path / MODEL
    is_unfinished = (path / FEDERATION).exists() and not (path / MANIFEST).exists()
    if is_unfinished:
        raise InvalidModel(
            f"the run in {path} has not ended and has left no model yet; wait for it, or begin it again with the same "
            "command, which goes on where it stopped"
        )
    if not file.exists():
        inner = sorted(found.parent for found in path.glob(f"*/{MODEL}"))
        hint = f"did you mean {inner[0]}?" if inner else "name the folder of a run"
        raise InvalidModel(f"{path} holds no {MODEL}; {hint}")
    return file


def _manifest(file: Path) -> Mapping[str, Any]:
    path = file.with_name(MANIFEST)
    if not path.exists():
        raise InvalidConfig(f"there is no {MANIFEST} beside {file}; name the run's configuration with --config FILE")
    try:
        manifest = json.loads(_read(path))
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InvalidConfig(f"{path} is no run's: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
        raise InvalidConfig(f"{path} is no run's: it has no configuration; name the run's with --config FILE")
    return manifest


def _check_beside(file: Path, config: RunConfig, manifest: Mapping[str, Any]) -> None:
    """Refuse a configuration that what lies beside a model file contradicts in what its pixels and outputs mean."""
    run_id, theirs = str(manifest["run_id"]), manifest["config"]
    fault = other_input(run_id, theirs, config)
    said = fault[1] if fault is not None else other_size(run_id, theirs, config)
    if list(theirs["data"]["classes"]) != list(config.data.classes):
        said = f"data.classes are {', '.join(theirs['data']['classes'])} in run {run_id}, in this order"
    if said:
        raise InvalidConfig(f"the configuration is not that of {file}: {said}")


def _admitted(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The clients that entered a run, by the content of its run.json."""
    clients = manifest.get("clients")
    return tuple(clients) if isinstance(clients, Mapping) else ()


def _prototypes_file(file: Path, description: Description | None) -> Path | None:
    """The file of the prototypes that belong to a model; None where an adapted model's are not beside it."""
    if description is None:
        return file.with_name(BEST_PROTOTYPES if file.name == BEST_MODEL else PROTOTYPES)
    beside = (file.with_name(name) for name in (PROTOTYPES, BEST_PROTOTYPES))
    return next(
        (path for path in beside if path.is_file() and sha256_hex(_read(path)) == description.prototypes_sha256), None
    )


def _config(manifest: Mapping[str, Any], path: Path, trusted_factory: str | None) -> RunConfig:
    method = manifest.get("method")
    if refusal(method) is not None:
        raise InvalidModel(
            f"{path} names the method {method!r}, which is code of another package; if you trust it, name a configuration "
            "file with this method: --config FILE, or config= of load_model"
        )
    try:
        config = parse_run_config(manifest["config"])
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error.detail}") from error
    if config.model.is_factory and config.model.name != trusted_factory:
        module = config.model.name.partition(":")[0]
        raise InvalidModel(
            f"{path} names the model {config.model.name!r}, which would import {module!r} and run its code; if you trust "
            "it, name a configuration file with this model: --config FILE, or config= of load_model"
        )
    return config


def _finite(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Refuse values that are not finite: every output would be meaningless."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidModel(f"tensor {name!r} holds values that are not finite")
    return arrays


def _prototypes(path: Path | None, feature_dim: int, config: RunConfig) -> PrototypeSet:
    if path is None or not path.exists():
        return PrototypeSet.empty(feature_dim)
    try:
        prototypes = prototypes_from_bytes(_read(path))
    except MalformedUpdate as error:
        raise InvalidModel(f"{path} is no file of prototypes: {error.detail}") from error
    ids = prototypes.class_ids
    if len(prototypes) and (
        prototypes.vectors.shape[1] != feature_dim or ids.min() < 0 or ids.max() >= len(config.data.classes)
    ):
        raise InvalidModel(f"{path} is of another run than the model beside it; take both files from one run")
    return prototypes


def _round_of(sha256: str, metrics: Path) -> int | None:
    """The last round whose model has this SHA-256, from the metrics.jsonl beside the model."""
    try:
        lines = [json.loads(line) for line in read_regular(metrics).decode().splitlines()]
        return max((int(line["round"]) for line in lines if line["model_sha256"] == sha256), default=None)
    except (OSError, ValueError, LookupError, TypeError):
        return None  # only information for people, not worth an error


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
