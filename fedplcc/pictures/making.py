"""Making of maps from models and images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedplcc.models.trained_model import TrainedModel
from fedplcc.pictures.feature_map import FeatureMap, Panel
from fedplcc.pictures.image_sample import read_sample
from fedplcc.pictures.models import points_of
from fedplcc.pictures.projection import project
from fedplcc.pictures.shown_clients import ShownClient

OnStep = Callable[[str], None]
"""Takes the name of a step that may take a while, when it begins."""
PER_CLASS = 40
"""Default number of test images of each class and domain."""


def make_map(
    trained: TrainedModel,
    before: TrainedModel | None,
    clients: Sequence[ShownClient],
    *,
    per_class: int = PER_CLASS,
    on_step: OnStep = lambda what: None,
) -> FeatureMap:
    """Return the map of a model, with another one for comparison.

    Args:
        before: Another model of the same data contract; None for a map of one panel.
        clients: Clients whose test images are shown, and whose training images give the local prototypes.
        per_class: Test images of each class and domain.

    Raises:
        InvalidData, InvalidModel: As `read_sample`, `points_of` and `project`.
    """
    on_step("reading test images")
    sample = read_sample(clients, trained.config.data, per_class=per_class)
    models = [trained] if before is None else [before, trained]

    def panel(model: TrainedModel, title: str) -> Panel:
        on_step(f"{title}: features")
        shown = points_of(model, sample, clients)
        on_step(f"{title}: placing {len(shown)} points")
        return Panel(title=title, points=shown, xy_N2=project(shown.features_ND))

    return FeatureMap(
        panels=tuple(panel(model, title) for model, title in zip(models, _titles(models), strict=True)),
        classes=trained.config.data.classes,
        domains=sample.domains,
    )


def _titles(models: Sequence[TrainedModel]) -> list[str]:
    """Return a short, distinct name for each model."""
    configs = [model.config for model in models]
    names = []
    for model in models:
        run = model.config.run
        name = run.method
        if len({config.run.seed for config in configs}) > 1:
            name += f", seed {run.seed}"
        names.append(name if model.round is None else f"{name}, round {model.round}")
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({model.file.parent.name or model.file.name})" for name, model in zip(names, models, strict=True)]
