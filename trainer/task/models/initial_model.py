"""The initial model of a run: a client makes it from the specification and the seed, or checks the one it is given."""

from __future__ import annotations

import io
from typing import cast

from torch import nn

from fedplcc.shared.codes import Code
from fedplcc.shared.errors import FedplccError, InvalidModel
from fedplcc.shared.tensors import blob_ref, read_header, to_bytes
from fedplcc.shared.types import FEATURE_DIM, MODEL, ClientActivity, Payload, Update
from fedplcc.trainer.learning.phases import planned_phases
from fedplcc.trainer.learning.site_statistics import check_layers
from fedplcc.trainer.models import FeatureModel, load_arrays, personal_names, state_arrays, tensor_lists
from fedplcc.trainer.task.delivery import Finished
from fedplcc.trainer.task.inputs import TaskInputs
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.models.mapped_head import map_head


class UnfitInitialModel(FedplccError):
    """The run's initial model does not fit its model specification; no client can begin with it."""

    code = Code.INVALID_ARGUMENT
    reason = "UNFIT_INITIAL_MODEL"


def initial_update(job: Job, inputs: TaskInputs, identity: str) -> Finished:
    """Return the update that holds the run's first model.

    Raises:
        UnfitInitialModel: The task comes with a model of another specification.
        InvalidModel: The method cannot train the model.
    """
    if job.task.payload.tensor_group(MODEL) is None:
        job.begin(ClientActivity.INITIALISING)
        with job.timed("build_seconds"):
            model: nn.Module = job.site.new_model(job.config, with_weights=True)
    else:
        model = _given_model(job, inputs)
    # A model that the method cannot train is refused here, not by every client in round 1.
    method, hyper = job.config.algorithm, job.config.method
    personal_names(model, method.personal_part(hyper), job.config.model.name)
    planned_phases(model, job.config, num_examples=1)
    check_layers(model, job.config.model.name, job.config.site_statistics_key)
    data = to_bytes(state_arrays(model))
    group = blob_ref(MODEL, data)
    inputs.made_first_model(job, group)
    dim = cast(FeatureModel, model).feature_dim
    names = [entry.name for entry in read_header(io.BytesIO(data)).entries]
    lists = {FEATURE_DIM: (dim,), **tensor_lists(model, names), **inputs.public_lists(job.config)}
    payload = Payload(tensor_groups=(group,), int_lists=lists)
    update = Update(client_id=job.site.client_id, payload=payload, num_examples=0)
    return Finished.of(job, identity, update, {group.sha256: data})


def _given_model(job: Job, inputs: TaskInputs) -> nn.Module:
    arrays = dict(inputs.received_model(job))
    model: nn.Module = job.site.new_model(job.config, with_weights=False)
    try:
        classes = job.config.initial_class_map
        if classes is not None:
            map_head(model, arrays, classes, job.config.run.seed)
        load_arrays(model, arrays)
    except InvalidModel as error:
        raise UnfitInitialModel(
            f"the run's initial_model does not fit its model {job.config.model.name!r} with "
            f"{len(job.config.data.classes)} classes: {error.detail}"
        ) from error
    return model
