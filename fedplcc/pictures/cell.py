"""All pictures of one run's folder, for a report over many runs."""

from __future__ import annotations

from pathlib import Path

from fedplcc.models.trained_model import read_trained_model
from fedplcc.pictures import CLUSTERS, MAP
from fedplcc.pictures.making import make_clusters, make_map, write_clusters, write_map
from fedplcc.pictures.models import first_model
from fedplcc.pictures.shown_clients import shown_clients
from fedplcc.runs.atomic_file import make_folder

PER_CLASS = 20
"""Test images of each class and domain: half of what the command shows, because a report has many maps."""


def pictures_for_cell(run_folder: Path, out: Path, *, device: str = "cpu") -> list[Path]:
    """Draw the map of a completed run before and after training and, where its method has prototypes, its clusters' sizes.

    The same folder gives the same bytes on the same machine. Of a Digit-5 run (5 clients, ResNet10) it takes about 20
    seconds of one core. The run's federation.json names the data; relative paths begin at the present folder.

    Args:
        run_folder: Folder of a simulation.
        out: Folder for the files; is made.
        device: Device that computes the features; other devices give other last bits.

    Returns:
        The files written: map.png, map-points.csv, map-facts.json, and likewise clusters.png, clusters-sizes.csv and
        clusters-facts.json. The facts hold `caption` and `alt_text`.

    Raises:
        InvalidModel: The folder holds no completed run, or one that began with a given model.
        InvalidConfig, InvalidData: It does not name its data, or they are missing.
        StoreUnavailable: A file cannot be read or written.
        ImportError: matplotlib or scikit-learn is not installed.
    """
    trained = read_trained_model(run_folder, device=device)
    clients = shown_clients(trained.file, trained.config)
    make_folder(out)
    files = write_map(make_map(trained, first_model(trained), clients, per_class=PER_CLASS), out / MAP)
    if trained.config.algorithm.has_prototypes:
        files += write_clusters(make_clusters(trained, clients), out / CLUSTERS)
    return files
