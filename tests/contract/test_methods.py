"""The contract of every method, whatever it computes. Every row of the table is tried, and every setting of method_settings.

The checks are those of `fedplcc doctor --method`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from fedplcc.method_contract.contract import CHECKS
from fedplcc.method_contract.settings import Setting
from shared.config.run import parse_run_config
from shared.methods import METHODS
from shared.methods.base import Method
from tests.support.records.method_settings import SETTINGS, of_methods, of_settings, public_of


@of_settings()
def test_the_contract_holds(setting: Setting) -> None:
    broken = []
    for check in CHECKS:
        if check.applies(setting):
            try:
                check.trial(setting)
            except Exception as error:
                error.add_note(check.name)
                broken.append(error)
    if broken:
        raise ExceptionGroup(f"{setting.name} breaks the contract", broken)


@of_methods()
def test_a_method_is_found_by_its_name_in_a_file_of_that_name(method: Method) -> None:
    assert METHODS[method.name] is method
    assert method.client_loss.__module__ == f"shared.methods.{method.name}"


def test_methods_need_no_torch() -> None:
    code = "import sys, shared.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_every_setting_is_another_one() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert all(setting.config != setting.method.config() for setting in SETTINGS if setting.hyper)


# -- Hyper-parameters ---------------------------------------------------------------------------------------------------


def a_document(method_name: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": {"method": method_name, "clients": ["a", "b"]},
        "data": {"classes": ["x", "y", "z"]},
        "method": dict(hyper),
        **public_of(method_name, hyper),
    }


FIRST_RELEASES: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"averaging": "weighted"},
    "fedprox": {"averaging": "weighted", "mu": 0.01},
    "moon": {"averaging": "weighted", "mu": 1.0, "tau": 0.5},
    "fedntd": {"averaging": "weighted", "beta": 1.0, "tau": 1.0},
    "fedopt": {
        "adaptivity": 0.001,
        "averaging": "weighted",
        "beta1": 0.9,
        "beta2": 0.99,
        "server_lr": None,
        "server_opt": "adam",
    },
    "feddyn": {"adaptive": True, "alpha": 0.01, "averaging": "weighted", "evaluate": "mean"},
    "creff": {
        "averaging": "weighted",
        "match_lr": 0.1,
        "match_steps": 100,
        "num_features": 100,
        "retrain_epochs": 300,
        "retrain_lr": 0.01,
    },
    "fcclplus": {
        "averaging": "weighted",
        "corr": 1.0,
        "isd": 3.0,
        "kd": 1.0,
        "public_batch": 64,
        "public_lr": 0.001,
        "share_model": True,
        "teacher": "previous",
    },
    "fedrep": {"averaging": "weighted", "head_epochs": 10, "personal": "head", "upload_head": True},
    "fedproto": {"averaging": "weighted", "lambda1": 1.0, "proto_avg": "plain", "share_model": True},
    "fedproc": {"anneal_rounds": None, "averaging": "weighted", "similarity": "dot"},
    "fedpcl": {"averaging": "weighted", "lambda1": 1.0, "lambda2": 1.0, "tau": 0.07},
    "fedmlp": {
        "averaging": "weighted",
        "it_temperature": 1.0,
        "lambda1": 1.0,
        "lambda2": 1.0,
        "lambda3": 1.0,
        "memory_rate": 0.5,
        "minority_share": 0.5,
        "own_head": True,
        "partition": "first",
        "scores": "classifier",
        "upload_head": True,
    },
    "fpl": {
        "averaging": "weighted",
        "lambda1": 1.0,
        "lambda2": 1.0,
        "partition": "last",
        "tau": 0.02,
        "upcr_reduction": "mean",
    },
    "fedplvm": {
        "alpha": 0.25,
        "averaging": "weighted",
        "corr": "mean_proto",
        "lambda1": 100.0,
        "min_cluster_size": 1,
        "partition": "last",
        "tau": 0.07,
    },
    "fedplcc": {
        "alpha": 0.5,
        "averaging": "weighted",
        "lambda1": 100.0,
        "lambda2": 1000.0,
        "merge_mean": "plain",
        "min_cluster_size": 1,
        "partition": "last",
        "phi": 0.5,
        "tau": 0.07,
        "topk_rank": "weighted",
    },
    "fedccl": {
        "averaging": "weighted",
        "lambda1": 1.0,
        "lambda2": 1.0,
        "max_pool_per_class": None,
        "min_cluster_size": 1,
        "partition": "last",
        "tau": 0.07,
    },
}
"""Golden: what a run that sets none of a method's keys wrote down when the method first came. Hashes rest on it."""


class TestConfig:
    @of_methods()
    def test_a_key_that_is_younger_than_its_method_changes_no_hash_where_it_is_not_set(self, method: Method) -> None:
        plain = parse_run_config(a_document(method.name, {}))
        written = json.loads(plain.canonical_json)["method"]
        fields = method.config.model_fields
        assert method.config.younger_keys() <= fields.keys()
        for name in method.config.younger_keys():
            assert name not in written
            assert parse_run_config(a_document(method.name, {name: fields[name].default})).hash == plain.hash

    @of_methods(lambda method: method.name in FIRST_RELEASES)
    def test_a_run_that_sets_nothing_writes_down_what_it_did_when_its_method_first_came(self, method: Method) -> None:
        config = parse_run_config(a_document(method.name, {}))
        assert json.loads(config.canonical_json)["method"] == FIRST_RELEASES[method.name]

    @of_settings()
    def test_every_setting_has_a_hash_of_its_own_and_is_read_back_from_its_canonical_json(
        self, setting: Setting
    ) -> None:
        config = parse_run_config(a_document(setting.method.name, setting.hyper))
        again = parse_run_config(json.loads(config.canonical_json))
        assert (again.method, again.hash) == (setting.config, config.hash)
        if setting.hyper:
            assert config.hash != parse_run_config(a_document(setting.method.name, {})).hash
