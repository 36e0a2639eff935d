"""The file of a run's initial model: found, checked and hashed before anything is sent or started."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fedplcc.runs.backbone_digests import doubt_about_pixels, with_digests
from fedplcc.shared.config.doubts import about_single_samples, doubts_about
from fedplcc.shared.config.initial_model import ModelFile, manifest_beside, parse_initial_model, runs_beside
from fedplcc.shared.config.run import FederationFile, RunConfig
from fedplcc.shared.config.trained_input import UNNAMED_CLASSES, names_classes, other_input, other_size, role_fault
from fedplcc.shared.errors import InvalidConfig, MalformedUpdate
from fedplcc.shared.process.disk import open_regular
from fedplcc.shared.tensors import read_header
from fedplcc.shared.types import MODEL, BlobRef
from fedplcc.trainer.data.names import listed

PIECE_BYTES = 1 << 20
"""Piece in which a file is read."""
HOW_TO_WRITE = "write it with safetensors.torch.save_file(model.state_dict(), PATH)"

_KEY = "run.initial_model"
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of files by torch.save and pickle."""


def anchored(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration with the path of its initial model, if that is a file, resolved from `folder`.

    A backbone that is named without its SHA-256 gets the one that this host has under the name.
    """
    document = with_digests(document)
    run = document.get("run")
    text = run.get("initial_model") if isinstance(run, Mapping) else None
    if not isinstance(run, Mapping) or not isinstance(text, str):
        return document
    try:
        model = parse_initial_model(text)
    except ValueError:
        return document  # the check of the whole configuration reports it
    if isinstance(model, ModelFile):
        text = str(ModelFile(str(folder / Path(model.path).expanduser())))
    return {**document, "run": {**run, "initial_model": text}}


def with_model_file(federation: FederationFile) -> FederationFile:
    """The federation with the SHA-256 of its initial model's file in place of the path; unchanged without one.

    Raises:
        InvalidConfig: The file is not there, or no model; or its run divided images in another way, or had classes that
            this one lacks.
    """
    text = federation.config.run.initial_model
    model = None if text is None else parse_initial_model(text)
    if not isinstance(model, ModelFile):
        return federation
    path = Path(model.path)
    classes, given = _classes_of(path), federation.config.run.initial_classes
    if classes is not None and given not in (None, classes):
        raise InvalidConfig(
            f"run.initial_classes: the run.json beside {path} names others, {', '.join(classes)}; leave the key out",
            location="run.initial_classes",
        )
    runs = _trained_by(path, federation.config)
    config = federation.config.with_initial_model(model_blob(path).sha256, classes, runs)
    return federation.model_copy(update={"config": config, "initial_model_file": path})


def _classes_of(path: Path) -> tuple[str, ...] | None:
    """Return the classes of a model file in the order of its outputs, by the run.json beside it; None without one."""
    manifest = manifest_beside(path)
    return None if manifest is None else tuple(map(str, manifest["config"]["data"]["classes"]))


def _trained_by(path: Path, config: RunConfig) -> tuple[str, ...]:
    """Return the runs that trained a model file, the last first: those of the run.json beside it; none without one."""
    runs, manifest = runs_beside(path), manifest_beside(path)
    if runs is None or manifest is None:
        return ()
    theirs = manifest["config"]
    fault = other_input(runs[0], theirs, config) or role_fault(runs[0], theirs, config)
    if fault is not None:
        raise InvalidConfig(fault[1], location=fault[0])
    return runs


def doubts(federation: FederationFile) -> tuple[str, ...]:
    """Return sentences on what is valid and may not be what was meant, the file that a run begins with among them."""
    config, path = federation.config, federation.initial_model_file
    found = [*doubts_about(config), doubt_about_pixels(config), *_same_data(federation)]
    if not federation.clients:  # they are to join
        found.append(about_single_samples(config))
    if path is not None:
        manifest = manifest_beside(path)
        found.append("" if manifest is None else other_size(str(manifest["run_id"]), manifest["config"], config))
        found.append("" if names_classes(config.run.model_dump(mode="json")) else UNNAMED_CLASSES)
    return tuple(filter(None, found))


def _same_data(federation: FederationFile) -> Iterator[str]:
    """Yield a sentence on each data set that several clients have."""
    clients_of: dict[str, list[str]] = {}
    for name, client in federation.clients.items():
        clients_of.setdefault(client.data, []).append(name)
    for data, names in clients_of.items():
        if names[1:]:
            yield (
                f"{listed(names)} have the same data, {data}: its images count once for each of them, in the model and in "
                "the mean over clients"
            )


def require_file(federation: FederationFile) -> None:
    """Check that a local federation begins with a file or a new model.

    Raises:
        InvalidConfig: It names a run or a SHA-256, which only an aggregator that has run before may know.
    """
    text = federation.config.run.initial_model
    if text is not None and federation.initial_model_file is None:
        raise InvalidConfig(
            f"{_KEY} = {text!r}: a federation on this machine begins without other runs and uploads; write file:PATH, "
            "for instance file:fedplcc-runs/NAME/model.safetensors"
        )


def model_blob(path: Path) -> BlobRef:
    """The blob reference of a model file; the file is checked, and no code in it is run.

    Raises:
        InvalidConfig: The file cannot be read, or is no safetensors file of float32 and int64 tensors.
    """
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            try:
                size_bytes = read_header(file).size_bytes
            except MalformedUpdate as error:
                raise InvalidConfig(f"{_KEY}: {path} {_what_is_wrong(file, error)}; {HOW_TO_WRITE}") from error
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InvalidConfig(f"{_KEY}: cannot read {path}: {error.strerror or error}") from error
    return BlobRef(MODEL, digest.hexdigest(), size_bytes)


def _what_is_wrong(file: BinaryIO, error: MalformedUpdate) -> str:
    # Only now: a safetensors file begins with a length, which may look like anything.
    file.seek(0)
    if file.read(4).startswith(_PICKLES):
        return "was written by torch.save or pickle, and opening such a file may run code; load it where you trust it"
    return f"is no safetensors file of float32 and int64 tensors ({error.detail})"
