"""Settings for the contract of methods: every method as it is, and settings that lead it through other code.

A method is here because it is in `METHODS`. A setting that matters gets a row in `OTHER_SETTINGS`, no more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from fedplcc.method_contract.settings import OF_THE_ROUND, Setting
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.part import Part
from fedplcc.shared.methods.parts.public import PublicLearning

OTHER_SETTINGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("fedavg", {"averaging": "equal"}),
    ("fedavg", {"averaging": "domain", "global_average": "ema", "average_decay": 0.5}),
    ("fedprox", {"mu": 1.0}),
    ("moon", {"mu": 5.0, "tau": 0.1}),
    ("fedntd", {"beta": 0.3, "tau": 3.0}),
    ("fedopt", {"server_opt": "yogi", "server_lr": 0.1}),
    ("fedopt", {"server_opt": "adagrad", "adaptivity": 0.1}),
    ("fedopt", {"server_opt": "sgdm", "server_lr": 0.5, "averaging": "equal"}),
    ("feddyn", {"evaluate": "sent", "alpha": 1.0}),
    ("feddyn", {"adaptive": False}),
    ("creff", {"num_features": 5, "match_steps": 3, "retrain_epochs": 2, "retrain_lr": 0.1}),
    ("classsums", {"head": "means"}),
    ("classsums", {"head": "ridge", "shrinkage": 0.3, "balanced": True}),
    ("classsums", {"head": "ridge", "balanced": True}),
    ("fcclplus", {"public_batch": 4, "teacher": "global", "kd": 0.5, "isd": 0.0}),
    ("fcclplus", {"public_batch": 5, "share_model": False, "corr": 0.3}),
    ("fcclplus", {"corr": 0.0, "isd": 0.0}),
    ("fedrep", {"head_epochs": 1, "upload_head": False}),
    ("fedrep", {"personal": "batch_norm"}),
    ("fedmlp", {"own_head": False, "minority_share": 1.0, "partition": "last"}),
    ("fedmlp", {"upload_head": False, "scores": "prototype"}),
    ("fedmlp", {"lambda1": 0.0}),
    ("fedproto", {"share_model": False}),
    ("fedproto", {"proto_avg": "counts", "proto_staleness": 3}),
    ("fedproc", {"similarity": "cosine", "anneal_rounds": 5}),
    ("fpl", {"upcr_reduction": "sum", "partition": "first"}),
    ("fpl", {"proto_pass": "last_epoch"}),
    ("fedpcl", {"tau": 0.5, "lambda1": 0.0}),
    ("fedpcl", {"lambda2": 0.0}),
    ("fedplvm", {"corr": "all_protos"}),
    ("fedplvm", {"partition": "first", "min_cluster_size": 3}),
    ("fedplcc", {"ramp_rounds": 20}),
    ("fedplcc", {"merge_mean": "weighted"}),
    ("fedplcc", {"unit_weights": True, "topk_rank": "similarity"}),
    ("fedplcc", {"partition": "index:1", "min_cluster_size": 2, "phi": 1.0, "alpha": 1.0}),
    ("fedplcc", {"proto_window": 2, "global_average": "ema"}),
    ("fedplcc", {"corr_margin": 0.7, "weights_by": "prototypes"}),
    ("fedplcc", {"weights_over": "all", "weights_in": "exponent", "corr_over": "all"}),
    ("fedplcc", {"lambda1": 0.0}),
    ("fedplcc", {"lambda2": 0.0}),
    ("fedccl", {"max_pool_per_class": 1}),
    ("fedccl", {"lambda1": 0.0}),
    ("fedccl", {"lambda2": 0.0}),
)
"""Methods by name, each with hyper-parameters that lead it through other code than its defaults do."""

PUBLIC_DATA = "digits:optdigits"
"""Public images of the tests' runs."""

SETTINGS: tuple[Setting, ...] = (
    *(Setting(method) for method in METHODS.values()),
    *(Setting(METHODS[name], hyper) for name, hyper in OTHER_SETTINGS),
)
"""Every method with its defaults, then the others."""


def public_of(method: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a configuration that a method with these hyper-parameters needs for its public images, if any."""
    record = METHODS.get(method)
    part = None if record is None else record.part(PublicLearning)
    if record is None or part is None:
        return {}
    config = record.config.model_validate(dict(hyper))
    if not part.is_used(config):
        return {}
    return {"public": {"data": PUBLIC_DATA, "num_images": 2 * part.batch_size(config) + 1}}


def with_a_length(method: Method, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters under which a run of the method may go on to more rounds: nothing is stretched over all of them."""
    key = method.config.model_validate(dict(hyper)).length_key
    return {**hyper, **({} if key is None else {key: 4})}


def parts_of(setting: Setting) -> frozenset[str]:
    """Return what a setting is made of besides its loss: its method's parts, and what leads its rounds another way."""
    method, config = setting.method, setting.config
    declared = {f"{type(part).__name__}.{name}" for part in method.parts for name in declared_by(part)}
    ways = {key for key in OF_THE_ROUND if key in setting.hyper}
    chosen = {
        f"shares_model: {method.shares_model(config)}",
        f"personal: {setting.personal_part}",
        f"length_key: {config.length_key}",
    }
    return frozenset(declared | ways | chosen)


def declared_by(part: Part) -> set[str]:
    """Return the attributes by which a part says something: those that it must have, and those that differ from a default.

    A part of another package that is no record says what its hooks say.
    """
    if not dataclasses.is_dataclass(part):
        return {name for name in vars(type(part)) if not name.startswith("_")}
    return {each.name for each in dataclasses.fields(part) if getattr(part, each.name) is not each.default}


def covering(settings: Collection[Setting]) -> tuple[Setting, ...]:
    """Return few of these settings with every part of them all: the project's own method, then those with most new parts."""
    missing = set[str]().union(*(parts_of(setting) for setting in settings))
    chosen = [setting for setting in settings if setting.name == "fedplcc"]
    missing -= set[str]().union(*(parts_of(setting) for setting in chosen))
    while missing:
        chosen.append(max(settings, key=lambda setting: len(parts_of(setting) & missing)))
        missing -= parts_of(chosen[-1])
    return tuple(chosen)


def of_settings(
    claim: Callable[[Setting], bool] = lambda setting: True, *, cover: bool = False
) -> pytest.MarkDecorator:
    """Try a test with every setting of which the claim holds; with `cover` those beyond a covering set are marked `full`."""
    found = [setting for setting in SETTINGS if claim(setting)]
    kept = covering(found) if cover else found
    marked = [pytest.param(setting, marks=() if setting in kept else pytest.mark.full) for setting in found]
    return pytest.mark.parametrize("setting", marked, ids=[setting.name for setting in found])


def of_methods(
    claim: Callable[[Method], bool] = lambda method: True, *, cover: bool = False, kept: Collection[str] | None = None
) -> pytest.MarkDecorator:
    """Try a test with every method of which the claim holds.

    Those beyond a covering set (with `cover`), or beyond the named ones (with `kept`), are marked `full`.
    """
    found = [method for method in METHODS.values() if claim(method)]
    if cover:
        kept = {setting.method.name for setting in covering([Setting(method) for method in found])}
    tried = METHODS.keys() if kept is None else kept
    marked = [pytest.param(method, marks=() if method.name in tried else pytest.mark.full) for method in found]
    return pytest.mark.parametrize("method", marked, ids=[method.name for method in found])
