"""Making of pictures from models and images, and writing of their files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from fedplcc.models.trained_model import TrainedModel
from fedplcc.pictures.feature_map import FeatureMap, Panel, Projection, mapped
from fedplcc.pictures.image_sample import read_sample
from fedplcc.pictures.map_drawing import draw_map
from fedplcc.pictures.models import points_of
from fedplcc.pictures.shown_clients import ShownClient
from fedplcc.runs.atomic_file import atomic_file, write_text

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
    projection: Projection | None = None,
    on_step: OnStep = lambda what: None,
) -> FeatureMap:
    """Return the map of a model, with another one for comparison.

    Args:
        before: Another model of the same data contract; None for a map of one panel.
        clients: Clients whose test images are shown, and whose training images give the local prototypes.
        per_class: Test images of each class and domain.
        on_step: Callback for progress.

    Raises:
        InvalidData, InvalidModel: As `read_sample`, `points_of` and `project`.
    """
    projection = projection or Projection()
    on_step("reading test images")
    sample = read_sample(clients, trained.config.data, per_class=per_class)
    models = {"model": trained} if before is None else {"before": before, "after": trained}
    titles = _titles(list(models.values()))

    def panel(name: str, model: TrainedModel, title: str) -> Panel:
        on_step(f"{title}: features")
        shown = points_of(model, sample, clients)
        on_step(f"{title}: placing {len(shown)} points")
        return mapped(name, title, {**model.facts, "method": model.config.run.method}, shown, projection)

    return FeatureMap(
        panels=tuple(panel(name, model, title) for (name, model), title in zip(models.items(), titles, strict=True)),
        classes=trained.config.data.classes,
        domains=sample.domains,
        per_class=sample.per_class,
        projection=projection,
    )


def write_map(feature_map: FeatureMap, out: Path) -> list[Path]:
    """Write a map as a picture, its points as CSV and its facts as JSON; returns the files.

    Raises:
        StoreUnavailable: They cannot be written.
        ImportError: matplotlib is not installed.
    """
    picture = draw_map(feature_map, out.suffix)
    files = [out, companion(out, "points", ".csv"), companion(out, "facts", ".json")]
    with atomic_file(files[0]) as file:
        file.write(picture)
    write_text(files[1], feature_map.table())
    write_text(files[2], json.dumps(feature_map.as_json(), indent=2, allow_nan=False) + "\n")
    return files


def companion(out: Path, content: str, suffix: str) -> Path:
    """Return the path of a file that goes with a picture: map.png has map-points.csv."""
    return out.with_name(f"{out.stem}-{content}{suffix}")


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
