"""A run's model made whole: what the run trained, and the backbone that it names from the store of this host.

Of a run above a backbone only what is trained travels. Other programs want one file, under the names that the model has with
`training.train = "all"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedplcc.models.trained_model import TrainedModel, read_trained_model
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.tensors import to_bytes
from fedplcc.trainer.models import TimmModel
from fedplcc.trainer.models.low_rank import merge_low_rank

_SUFFIX = "-whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsBackbone:
    """A backbone that a run trained.

    Attributes:
        model: The model that it is of, such as timm:NAME.
    """

    file: Path
    model: str
    run_id: str


def backbone_of_run(path: Path) -> RunsBackbone:
    """Return the backbone that a run trained, made whole beside its model.

    Raises:
        InvalidConfig: The run trained a head alone, or no run's configuration is beside the file.
        WeightsMissing, InvalidModel, StoreUnavailable: See `write_whole_model`.
    """
    trained = read_trained_model(path.with_stem(path.stem.removesuffix(_SUFFIX)), device="cpu")
    section = trained.config.model
    if trained.config.training.train == "head":
        raise InvalidConfig(
            f"{trained.title} trained a head alone: its backbone is {section.weights!r}, as it was before; a run with "
            'training.train = "norm", "last:N", "lora" or "all" makes another one'
        )
    return RunsBackbone(file=_written_whole(trained), model=section.name, run_id=str(trained.run_id))


def write_whole_model(path: Path) -> Path:
    """Write a run's model with its backbone beside it; returns the file, which is the model's own where that is whole.

    Raises:
        WeightsMissing: This host has not the backbone; the sentence says its name and SHA-256.
        InvalidModel: There is no model, or it is of another configuration.
        InvalidConfig: No run's configuration is beside it.
        StoreUnavailable: A file cannot be read or written.
    """
    return _written_whole(read_trained_model(path, device="cpu"))


def _written_whole(trained: TrainedModel) -> Path:
    model = trained.model
    if trained.config.training.train == "all" or not isinstance(model, TimmModel):
        return trained.file
    merge_low_rank(model)
    tensors = dict(model.state_dict())
    if model.frozen is not None:
        tensors |= {f"backbone.{name}": value for name, value in model.frozen.tensors().items()}
    whole = trained.file.with_stem(trained.file.stem + _SUFFIX)
    with atomic_file(whole) as file:
        file.write(to_bytes({name: value.contiguous().numpy() for name, value in tensors.items()}))
    return whole
