"""A fetched model made whole: what the run trained, and the backbone that it names from the store of this host.

Of a run above a backbone only what is trained travels. Other programs want one file, under the names that the model has with
`training.train = "all"`.
"""

from __future__ import annotations

from pathlib import Path

from fedplcc.models.trained_model import read_trained_model
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.shared.tensors import to_bytes
from fedplcc.trainer.models import TimmModel
from fedplcc.trainer.models.low_rank import merge_low_rank

WHOLE = "model-whole.safetensors"


def write_whole_model(folder: Path) -> Path | None:
    """Write a run's model with its backbone into the run's folder; returns the file, or None where the model is whole.

    Raises:
        WeightsMissing: This host has not the backbone; the sentence says its name and SHA-256.
        InvalidModel: There is no model, or it is of another configuration.
        StoreUnavailable: A file cannot be read or written.
    """
    trained = read_trained_model(folder, device="cpu")
    model = trained.model
    if trained.config.training.train == "all" or not isinstance(model, TimmModel):
        return None
    merge_low_rank(model)
    tensors = dict(model.state_dict())
    if model.frozen is not None:
        tensors |= {f"backbone.{name}": value for name, value in model.frozen.tensors().items()}
    path = folder / WHOLE
    with atomic_file(path) as file:
        file.write(to_bytes({name: value.contiguous().numpy() for name, value in tensors.items()}))
    return path
