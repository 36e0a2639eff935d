"""Services that have an invitation and no identity: they join by themselves when they start, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.gateway.joining import join_by_file
from fedplcc.shared.config.settings import INVITATION, GatewaySettings, TrainerSettings, load
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address, split_address
from fedplcc.trainer.joining import join_if_invited
from tests.support.identity.enrol_port import EnrolPort
from tests.support.identity.memory_authority import MemoryAuthority


@pytest.fixture
def port(folder: Path) -> Iterator[EnrolPort]:
    authority = MemoryAuthority(time.time)
    with closing(SqlStore.in_folder(folder)) as store, EnrolPort(Admissions(store, authority), authority) as served:
        yield served


@pytest.fixture
def site(tmp_path: Path) -> dict[str, object]:
    """Flags of a trainer whose state directory is not there yet."""
    return {"data": "folder:images", "state_dir": tmp_path / "state"}


def started(flags: dict[str, object]) -> TrainerSettings:
    return load(TrainerSettings, flags, first=join_if_invited)


def test_a_trainer_joins_by_its_environment_and_then_needs_it_no_more(
    port: EnrolPort, site: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INVITATION, port.invite("north").text)
    settings = started(site)
    assert (settings.client, settings.domain, settings.aggregator) == ("north", "hospital", "127.0.0.1:50051")
    first = Credentials.load(settings.state_dir / IDENTITY_FILE)
    assert started(site) == settings, "a spent invitation beside an identity is no error"
    monkeypatch.delenv(INVITATION)
    assert started(site) == settings
    assert Credentials.load(settings.state_dir / IDENTITY_FILE) == first


def test_a_trainer_joins_by_a_file_that_may_be_gone_afterwards(
    port: EnrolPort, site: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "north.join"
    file.write_text(f"{port.invite('north').text}\n")
    assert started(site | {"join_file": str(file)}).client == "north"
    file.unlink()
    assert started(site | {"join_file": str(file)}).client == "north"


def test_a_trainer_that_may_not_join_says_why_and_keeps_no_identity(
    port: EnrolPort, site: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = port.invite("north").text
    monkeypatch.setenv(INVITATION, text)
    started(site | {"state_dir": tmp_path / "another site"})
    with pytest.raises(InvalidConfig, match=f"cannot join by {INVITATION}: another key was certified") as caught:
        started(site)
    assert text not in caught.value.detail
    assert not (tmp_path / "state" / IDENTITY_FILE).exists()
    monkeypatch.setenv(INVITATION, "none")
    with pytest.raises(InvalidConfig, match="this is no invitation"):
        started(site)


def test_a_trainer_of_plain_text_uses_no_invitation(
    port: EnrolPort, site: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INVITATION, port.invite("north").text)
    assert started(site | {"insecure": "true", "client": "south"}).client == "south"
    assert not (tmp_path / "state" / IDENTITY_FILE).exists()


def test_a_gateway_finds_the_aggregator_where_its_own_settings_say(port: EnrolPort, tmp_path: Path) -> None:
    """The aggregator that wrote the file may know itself as 127.0.0.1, which in another container is another."""
    host, number = split_address(port.address)
    file = tmp_path / "gateway.join"
    file.write_text(port.invite("gateway", Role.GATEWAY, through=join_address("192.0.2.77", number)).text)
    settings = GatewaySettings(aggregator=f"{host}:50051", state_dir=tmp_path / "gateway", join_file=file)
    join_by_file(settings)
    held = Credentials.load(tmp_path / "gateway" / IDENTITY_FILE)
    assert (held.identity.role, held.address, held.enrolment) == (Role.GATEWAY, "127.0.0.1:50051", port.address)
    join_by_file(settings)
    assert Credentials.load(tmp_path / "gateway" / IDENTITY_FILE) == held
