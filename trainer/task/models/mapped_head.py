"""The head of a run whose classes are not those of its initial model: known rows stay, new ones are drawn by the seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy.typing as npt
from torch import nn

from fedplcc.shared.config.class_map import LINEAR_HEAD_NEEDED, ClassMap, is_linear_head
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import Arrays, FeatureModel, head_names
from fedplcc.trainer.reproducibility.determinism import seeded
from fedplcc.trainer.reproducibility.randomness import derive_seed


def map_head(model: nn.Module, arrays: Arrays, classes: ClassMap, seed: int) -> None:
    """Replace the head among `arrays` by one of the run's classes: known classes keep their rows, new ones are drawn.

    Args:
        model: A model of the run's specification, whatever its values.
        arrays: State of the initial model.

    Raises:
        InvalidModel: A head is not one linear layer of its classes.
    """
    state, names = model.state_dict(), head_names(model)
    given = [name for name in names if name in arrays]
    if not is_linear_head([tuple(state[name].shape) for name in names], len(classes.rows)):
        raise InvalidModel(LINEAR_HEAD_NEEDED)
    if not is_linear_head([arrays[name].shape for name in given], classes.known):
        raise InvalidModel(f"its head is no linear layer of the {classes.known} classes that run.initial_classes names")
    kept = {place: row for place, row in enumerate(classes.rows) if row is not None}
    drawn = _drawn_head(model, classes, seed)
    for name in given:
        head = (drawn.weight if state[name].dim() == 2 else drawn.bias).detach().numpy()
        if head[0].shape == arrays[name][0].shape:
            head[list(kept)] = arrays[name][list(kept.values())]
            arrays[name] = head


def _drawn_head(model: nn.Module, classes: ClassMap, seed: int) -> nn.Linear:
    """Return a head of the run's classes as the seed draws it."""
    with seeded(derive_seed("new classes", seed)):
        return nn.Linear(cast(FeatureModel, model).feature_dim, len(classes.rows))


def new_rows(
    model: nn.Module, received: Mapping[str, npt.NDArray[Any]], classes: ClassMap, seed: int
) -> tuple[Arrays, Arrays]:
    """Return the rows of a first model's head that no initial model gave, and the same as the seed draws them, by name.

    Args:
        model: A model of the run's specification, whatever its values.
        received: State of the first model.
    """
    drawn = _drawn_head(model, classes, seed)
    places = [place for place, row in enumerate(classes.rows) if row is None]
    found = {name: received[name] for name in head_names(model) if name in received}
    made = {name: (drawn.weight if array.ndim == 2 else drawn.bias).detach().numpy() for name, array in found.items()}
    return {name: array[places] for name, array in found.items()}, {name: array[places] for name, array in made.items()}
