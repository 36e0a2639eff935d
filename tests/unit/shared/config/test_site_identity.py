"""What a trainer knows from its identity."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fedplcc.shared.config.settings import TrainerSettings, load
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.certificates import key_to_pem, new_key
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Identity, Role
from tests.support.identity.memory_authority import FEDERATION, MemoryAuthority


def an_identity(folder: Path, role: Role = Role.CLIENT, *, domain: str = "photo") -> None:
    authority, key = MemoryAuthority(time.time), new_key()
    issued = authority.issue_client(Identity(FEDERATION, role, "north"), key.public_key(), 3600)
    held = Credentials(
        key_to_pem(key),
        issued.chain_pem,
        authority.roots_pem,
        domain=domain,
        address="127.0.0.9:5",
        enrolment="127.0.0.9:6",
    )
    folder.mkdir(parents=True, exist_ok=True)
    held.save(folder / IDENTITY_FILE)
    assert Credentials.load(folder / IDENTITY_FILE) == held


def test_a_trainer_that_joined_needs_only_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    an_identity(Path("fedplcc-state/trainer"))
    settings = load(TrainerSettings, {"data": "folder:images"})
    assert (settings.aggregator, settings.client, settings.domain) == ("127.0.0.9:5", "north", "photo")
    assert settings.state_dir == Path("fedplcc-state/trainer")


def test_what_is_given_counts_more(tmp_path: Path) -> None:
    an_identity(tmp_path)
    given = {"data": "folder:images", "state_dir": tmp_path, "aggregator": "127.0.0.1:7", "domain": "sketch"}
    settings = load(TrainerSettings, given)
    assert (settings.aggregator, settings.domain, settings.client) == ("127.0.0.1:7", "sketch", "north")


def test_without_a_domain_in_the_invitation_it_is_the_client(tmp_path: Path) -> None:
    an_identity(tmp_path, domain="")
    assert load(TrainerSettings, {"data": "folder:images", "state_dir": tmp_path}).domain == "north"


def test_another_client_than_the_identitys_is_refused(tmp_path: Path) -> None:
    an_identity(tmp_path)
    with pytest.raises(InvalidConfig, match="identity of client north"):
        load(TrainerSettings, {"data": "folder:images", "state_dir": tmp_path, "client": "south"})


def test_a_gateways_identity_makes_no_trainer(tmp_path: Path) -> None:
    an_identity(tmp_path, Role.GATEWAY)
    with pytest.raises(InvalidConfig, match="identity of a gateway"):
        load(TrainerSettings, {"data": "folder:images", "state_dir": tmp_path})


def test_a_trainer_without_an_identity_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(TrainerSettings, {"data": "folder:images", "client": "north"})
    assert settings.state_dir == Path("fedplcc-state/trainer-north")
    with pytest.raises(InvalidConfig, match="client"):
        load(TrainerSettings, {"data": "folder:images"})


def test_a_named_client_is_found_where_it_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    an_identity(Path("fedplcc-state/trainer"))
    settings = load(TrainerSettings, {"data": "folder:images", "client": "north"})
    assert (settings.state_dir, settings.domain) == (Path("fedplcc-state/trainer"), "photo")


def test_a_named_client_is_told_who_joined_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    an_identity(Path("fedplcc-state/trainer"))
    with pytest.raises(InvalidConfig) as refused:
        load(TrainerSettings, {"data": "folder:images", "client": "south"})
    assert "fedplcc-state/trainer has the identity of client north" in refused.value.detail
    assert "fedplcc join --state-dir fedplcc-state/trainer-south" in refused.value.detail


def test_a_client_with_an_identity_of_its_own_asks_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    an_identity(Path("fedplcc-state/trainer-north"))
    an_identity(Path("fedplcc-state/trainer"), Role.GATEWAY)
    settings = load(TrainerSettings, {"data": "folder:images", "client": "north"})
    assert settings.state_dir == Path("fedplcc-state/trainer-north")


@pytest.mark.parametrize("insecure", [True, "1", "true"])
def test_in_plain_text_a_named_client_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, insecure: object
) -> None:
    monkeypatch.chdir(tmp_path)
    an_identity(Path("fedplcc-state/trainer"))
    settings = load(TrainerSettings, {"data": "folder:images", "client": "south", "insecure": insecure})
    assert settings.state_dir == Path("fedplcc-state/trainer-south")


def test_without_client_and_identity_it_says_how_to_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="give --client or set FEDPLCC_CLIENT, or join with `fedplcc join`"):
        load(TrainerSettings, {"data": "folder:images"})
