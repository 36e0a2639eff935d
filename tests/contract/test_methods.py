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
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.method import Method
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
    package, _, module = method.client_loss.__module__.rpartition(".")
    assert module == method.name
    assert package.startswith("fedplcc.shared.methods")


def test_methods_need_no_torch() -> None:
    code = "import sys, fedplcc.shared.methods; sys.exit('torch' in sys.modules)"
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


class TestConfig:
    @of_settings()
    def test_every_setting_has_a_hash_of_its_own_and_is_read_back_from_its_canonical_json(
        self, setting: Setting
    ) -> None:
        config = parse_run_config(a_document(setting.method.name, setting.hyper))
        again = parse_run_config(json.loads(config.canonical_json))
        assert (again.method, again.hash) == (setting.config, config.hash)
        if setting.hyper:
            assert config.hash != parse_run_config(a_document(setting.method.name, {})).hash
