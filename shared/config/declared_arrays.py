"""Groups of arrays that updates and the server of a run have: those of its method, and of public images."""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods.arrays import GroupSchema
from fedplcc.shared.methods.parts.public import PUBLIC, PublicLearning


def declared_uploads(config: RunConfig, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return the schema of each group that an update has beside its model; D is `feature_dim`."""
    own = config.algorithm.uploads(config.method, len(config.data.classes), feature_dim)
    return {**own, **_of_public_images(config)}


def declared_arrays(config: RunConfig, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return the schema of each group of server arrays; D is `feature_dim`."""
    own = config.algorithm.server_arrays(config.method, len(config.data.classes), feature_dim)
    return {**own, **_of_public_images(config)}


def sent_groups(config: RunConfig) -> tuple[str, ...]:
    """Return the groups of server arrays that go to clients with the task of training."""
    return (*config.algorithm.sends(config.method), *_of_public_images(config))


def _of_public_images(config: RunConfig) -> dict[str, GroupSchema]:
    public = config.algorithm.part(PublicLearning)
    if public is None or not public.is_used(config.method):
        return {}
    size = public.batch_size(config.method)
    num_images = config.public.num_images // size * size
    return {PUBLIC: public.schema(config.method, len(config.data.classes), num_images)}
