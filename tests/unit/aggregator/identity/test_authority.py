from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.authority import AUTHORITY_FILE, FOLDER, Authority
from fedplcc.shared.errors import FailedPrecondition, StoreUnavailable
from fedplcc.shared.identity.certificates import (
    check_chain,
    federation_of,
    identity_of,
    key_to_pem,
    load_certificate,
    new_key,
)
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Identity, Role
from tests.support.clock import Clock
from tests.support.failpoints import hooked, killed_at

DAY = 86400.0


def opened(folder: Path, clock: Clock) -> Authority:
    return Authority.open(folder, clock=clock)


def certified(authority: Authority, name: str = "north") -> bytes:
    identity = Identity(authority.federation, Role.CLIENT, name)
    return authority.issue_client(identity, new_key().public_key(), 30 * DAY).chain_pem


def test_a_federation_is_made_once_and_found_again(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    first = opened(tmp_path, clock)
    again = opened(tmp_path, clock)
    assert again.federation == first.federation == federation_of(load_certificate(first.roots_pem))
    assert again.roots_pem == first.roots_pem
    assert again.server_credentials() == first.server_credentials()
    assert again.enrolment_credentials() == first.enrolment_credentials()
    check_chain(certified(again), first.roots_pem, clock.now)
    assert opened(make(tmp_path / "other"), clock).federation != first.federation


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_only_the_owner_may_look_at_the_keys(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        opened(tmp_path, Clock(1_795_000_000.0))
    finally:
        os.umask(before)
    folder = tmp_path / FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        AUTHORITY_FILE: 0o600,
        IDENTITY_FILE: 0o600,
    }
    os.chmod(folder / AUTHORITY_FILE, 0o644)
    with pytest.raises(StoreUnavailable, match=r"others may read the keys .* chmod 600"):
        opened(tmp_path, Clock(1_795_000_000.0))
    os.chmod(folder, 0o755)
    with pytest.raises(StoreUnavailable, match=r"others may look into .* chmod 700"):
        opened(tmp_path, Clock(1_795_000_000.0))


def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path) -> None:
    opened(tmp_path, Clock(1_795_000_000.0))
    file = tmp_path / FOLDER / AUTHORITY_FILE
    whole = file.read_bytes()
    document = json.loads(whole)
    swapped = {**document, "roots": [{**document["roots"][0], "key": document["enrolment"]["key"]}]}
    for data in (b"", whole[:-10], b"[]", json.dumps(swapped).encode(), whole.replace(b"f", b"g", 3), b"x" * 100_000):
        file.write_bytes(data)
        with pytest.raises(StoreUnavailable, match=r"is damaged.* put it back from a backup"):
            opened(tmp_path, Clock(1_795_000_000.0))
        assert file.read_bytes() == data


def test_the_own_certificate_is_renewed_at_half_its_life_and_made_anew_where_it_is_missing(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    authority = opened(tmp_path, clock)
    first = authority.server_credentials()
    clock.now += 14.9 * DAY
    assert not authority.renew_if_due()
    clock.now += 0.2 * DAY
    assert authority.renew_if_due()
    assert authority.not_after == clock.now + 30 * DAY
    assert authority.server_credentials() != first
    own = tmp_path / FOLDER / IDENTITY_FILE
    for spoil in (own.unlink, lambda: own.write_bytes(b"x")):
        spoil()
        check_chain(opened(tmp_path, clock).server_credentials()[1], authority.roots_pem, clock.now)
    clock.now += 400 * DAY
    check_chain(opened(tmp_path, clock).server_credentials()[1], authority.roots_pem, clock.now)


def test_a_rotation_leaves_nobody_behind(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    authority = opened(tmp_path, clock)
    old_roots, asleep = authority.roots_pem, certified(authority)
    with pytest.raises(FailedPrecondition, match="begin with"):
        authority.finish_rotation()
    both = authority.begin_rotation()
    assert len(both) == 2
    with pytest.raises(FailedPrecondition, match="--finish"):
        authority.begin_rotation()
    authority = opened(tmp_path, clock)
    assert authority.roots_sha256 == both
    renewed = certified(authority)
    check_chain(authority.server_credentials()[1], old_roots, clock.now)  # who has not renewed yet knows it
    check_chain(asleep, authority.roots_pem, clock.now)
    assert [authority.is_of_oldest_root(each) for each in (asleep, renewed)] == [True, False]
    enrolment = authority.enrolment_sha256
    assert authority.finish_rotation() == both[:1]
    authority = opened(tmp_path, clock)
    assert authority.roots_sha256 == both[:1]
    assert authority.enrolment_sha256 != enrolment
    check_chain(renewed, authority.roots_pem, clock.now)
    check_chain(authority.server_credentials()[1], authority.roots_pem, clock.now)
    assert not authority.is_of_oldest_root(asleep)


def test_a_death_at_any_step_leaves_one_federation(tmp_path: Path) -> None:
    """At the first start, in a renewal, at the beginning and at the end of a rotation."""

    def story(folder: Path, clock: Clock) -> str:
        authority = opened(folder, clock)
        clock.now += 16 * DAY
        authority.renew_if_due()
        if not authority.is_rotating:
            authority.begin_rotation()
        authority.finish_rotation()
        return authority.federation

    for at in itertools.count(1):
        folder, clock = make(tmp_path / str(at)), Clock(1_795_000_000.0)
        with killed_at(at) as passed:
            story(folder, clock)
        if len(passed) < at:
            break
        kept = folder / FOLDER / AUTHORITY_FILE
        before = json.loads(kept.read_text())["federation"] if kept.exists() else None
        authority = opened(folder, clock)
        assert before in (None, authority.federation)
        check_chain(certified(authority), authority.roots_pem, clock.now)
        check_chain(authority.server_credentials()[1], authority.roots_pem, clock.now)
    assert at > 20


def test_a_lost_file_is_told_and_no_other_federation_is_made(tmp_path: Path) -> None:
    opened(tmp_path, Clock(1_795_000_000.0))
    (tmp_path / FOLDER / AUTHORITY_FILE).unlink()
    with pytest.raises(StoreUnavailable, match=r"is missing.* put it back from a backup"):
        opened(tmp_path, Clock(1_795_000_000.0))
    assert not (tmp_path / FOLDER / AUTHORITY_FILE).exists()


def test_parts_of_another_federation_are_refused(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    folders = [make(tmp_path / name) / FOLDER / AUTHORITY_FILE for name in ("one", "two")]
    for file in folders:
        opened(file.parent.parent, clock)
    one, two = (json.loads(file.read_text()) for file in folders)
    for part in ("federation", "enrolment", "roots"):
        folders[0].write_text(json.dumps({**one, part: two[part]}))
        with pytest.raises(StoreUnavailable, match="is damaged"):
            opened(tmp_path / "one", clock)


def test_a_members_certificate_is_not_served_as_the_aggregators(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    authority = opened(tmp_path, clock)
    key = new_key()
    identity = Identity(authority.federation, Role.CLIENT, "north")
    issued = authority.issue_client(identity, key.public_key(), 30 * DAY)
    Credentials(key_to_pem(key), issued.chain_pem, authority.roots_pem).save(tmp_path / FOLDER / IDENTITY_FILE)
    served = identity_of(load_certificate(opened(tmp_path, clock).server_credentials()[1]))
    assert served.role is Role.AGGREGATOR


def test_a_certificate_of_a_clock_that_was_ahead_is_made_anew(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    authority = opened(tmp_path, clock)
    clock.now += 100 * DAY
    authority.renew_if_due()
    clock.now -= 100 * DAY
    assert authority.renew_if_due()
    check_chain(authority.server_credentials()[1], authority.roots_pem, clock.now)


def test_a_disk_that_refuses_the_last_step_of_a_rotation_leaves_the_rest_for_later(tmp_path: Path) -> None:
    clock = Clock(1_795_000_000.0)
    authority = opened(tmp_path, clock)
    authority.begin_rotation()

    def refuse(name: str) -> None:
        if name == "identity.write.before":
            raise OSError(28, "No space left on device")

    with hooked(refuse), pytest.raises(StoreUnavailable):
        authority.finish_rotation()
    assert authority.renew_if_due()
    check_chain(authority.server_credentials()[1], authority.roots_pem, clock.now)
    assert not authority.renew_if_due()
