"""A client's data: read from a specification and fitted to the run's data contract, as numpy arrays without torch."""

from fedplcc.trainer.data.first_look import first_look
from fedplcc.trainer.data.loading import (
    ClientData,
    ImageSet,
    Split,
    describe,
    load_dataset,
    load_split,
    load_training_images,
)
from fedplcc.trainer.data.sets.arrays import DatasetArrays
from fedplcc.trainer.data.specs import opened_once
from fedplcc.trainer.data.stages import StreamData, read_stream
