"""A variable or a table that nothing reads is said, with the one that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.shared.config.settings import AggregatorSettings, GatewaySettings, TrainerSettings, load
from fedplcc.shared.config.settings.variables import unknown_variables
from fedplcc.shared.errors import InvalidConfig


def test_a_misspelt_variable_is_said_with_the_nearest() -> None:
    found = unknown_variables(["FEDPLCC_AGREGATOR", "FEDPLCC_PORT", "PATH", "FEDPLCC"])
    assert found == ["unknown variable 'FEDPLCC_AGREGATOR'; did you mean 'FEDPLCC_AGGREGATOR'?"]
    assert unknown_variables(["FEDPLCC_QQQQ", "FEDPLCC_AGREGATOR"], misspelt=True) == found


def test_variables_of_every_service_and_of_the_commands_are_known() -> None:
    names = {
        name.upper() for kind in (AggregatorSettings, GatewaySettings, TrainerSettings) for name in kind.model_fields
    }
    commands = ("JOIN", "GATEWAY", "GATEWAY_CA", "INVITE_ADDRESS", "DATABASE_URL", "FAILPOINTS", "ADDRESS")
    assert unknown_variables(f"FEDPLCC_{name}" for name in {*names, *commands}) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[agregator]\nport = 1\n", "unknown table 'agregator'; did you mean 'aggregator'?"),
        ("[gateway]\nprot = 1\n", "unknown key 'gateway.prot'; did you mean 'gateway.port'?"),
        ("port = 1\n", "'port' stands in no table; write it below [gateway]"),
        ('[run]\nmethod = "fedavg"\n', "is the configuration of a run, for `fedplcc run start --config`"),
    ],
)
def test_a_settings_file_with_what_nothing_reads_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "fedplcc.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as refused:
        load(GatewaySettings, file=file)
    assert sentence in refused.value.detail


def test_one_file_may_have_the_tables_of_all_services(tmp_path: Path) -> None:
    file = tmp_path / "fedplcc.toml"
    file.write_text('[aggregator]\nport = 1\n[gateway]\nport = 2\n[trainer]\ndata = "folder:x"\n')
    assert load(GatewaySettings, file=file).port == 2
