"""A client's data: read from a specification and fitted to the run's data contract, as numpy arrays without torch."""

from trainer.data.first_look import first_look
from trainer.data.loading import ClientData, ImageSet, Split, describe, load_dataset, load_split, load_training_images
from trainer.data.sets.arrays import DatasetArrays
from trainer.data.specs import opened_once
from trainer.data.stages import StreamData, read_stream

__all__ = [
    "ClientData",
    "DatasetArrays",
    "ImageSet",
    "Split",
    "StreamData",
    "describe",
    "first_look",
    "load_dataset",
    "load_split",
    "load_training_images",
    "opened_once",
    "read_stream",
]
