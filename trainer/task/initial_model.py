"""The initial model of a run: a client makes it from the specification and the seed, or checks the one it is given."""

from __future__ import annotations

import io
from typing import Any, cast

import numpy.typing as npt
from torch import nn

from shared.config.class_map import LINEAR_HEAD_NEEDED, ClassMap, is_linear_head
from shared.errors import Code, FedplccError, InvalidModel
from shared.tensors import blob_ref, read_header, to_bytes
from shared.types import FEATURE_DIM, MODEL, ClientActivity, Payload, Update
from trainer.learning.phases import planned_phases
from trainer.learning.site_statistics import check_layers
from trainer.models import FeatureModel, head_names, load_arrays, personal_names, state_arrays, tensor_lists
from trainer.reproducibility.determinism import seeded
from trainer.reproducibility.randomness import derive_seed
from trainer.task.delivery import Finished
from trainer.task.inputs import TaskInputs
from trainer.task.job import Job


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
            _map_head(model, arrays, classes, job.config.run.seed)
        load_arrays(model, arrays)
    except InvalidModel as error:
        raise UnfitInitialModel(
            f"the run's initial_model does not fit its model {job.config.model.name!r} with "
            f"{len(job.config.data.classes)} classes: {error.detail}"
        ) from error
    return model


def _map_head(model: nn.Module, arrays: dict[str, npt.NDArray[Any]], classes: ClassMap, seed: int) -> None:
    """Replace the head among `arrays` by one of the run's classes: known classes keep their rows, new ones are drawn.

    Args:
        model: A model of the run's specification, whatever its values.
        arrays: State of the initial model.
        classes: Where the run's classes are in it.
        seed: The run's seed.

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
    with seeded(derive_seed("new classes", seed)):
        drawn = nn.Linear(cast(FeatureModel, model).feature_dim, len(classes.rows))
    for name in given:
        head = (drawn.weight if state[name].dim() == 2 else drawn.bias).detach().numpy()
        if head[0].shape == arrays[name][0].shape:
            head[list(kept)] = arrays[name][list(kept.values())]
            arrays[name] = head
