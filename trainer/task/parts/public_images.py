"""Public images: learning towards the round's targets before a client's training, and the model's outputs after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedplcc.shared.methods.parts.public import PUBLIC
from fedplcc.shared.types import PUBLIC_DATA, ClientActivity
from fedplcc.trainer.learning.divergence import diverged
from fedplcc.trainer.learning.public_images import learn_from_public, public_outputs
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.task.work import Work


def learn(work: Work) -> None:
    """Train the model in place on public images, where the round has targets.

    The round's model is then no longer what training starts from, and stands with the inputs.
    """
    job, public, targets = work.job, work.public, work.inputs.arrays.get(PUBLIC)
    if public is None:
        return
    work.int_lists[PUBLIC_DATA] = tuple(public.sha256)
    if targets is None:
        return
    if work.inputs.received is None:
        work.inputs = replace(work.inputs, received=state_arrays(work.model))
    job.begin(ClientActivity.TRAINING)
    with job.timed("train_seconds"):
        work.losses |= learn_from_public(work.model, public, targets, work.inputs, should_stop=job.should_stop)


def tell(work: Work) -> None:
    """Upload what the trained model makes of public images."""
    job, public = work.job, work.public
    if public is None:
        return
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        outputs = public_outputs(work.model, public, job.config, should_stop=job.should_stop)
    if not all(np.isfinite(array).all() for array in outputs.values()):
        raise diverged(
            "the trained model's outputs for public images are not finite",
            client_id=job.site.client_id,
            round=job.task.round,
        )
    work.upload({PUBLIC: outputs})
