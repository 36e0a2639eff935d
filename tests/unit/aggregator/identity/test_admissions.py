"""Invitations, certificates, renewal, recovery and revocation."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.aggregator.identity.admissions import CERTIFICATE_S, DAY_S, MOST_HELD, RECOVERY_S, Admissions
from fedplcc.aggregator.identity.challenges import CHALLENGE_BYTES, CHALLENGE_S
from fedplcc.aggregator.identity.issuing import Admitted
from fedplcc.aggregator.store.base import Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared import errors
from fedplcc.shared.identity.certificates import identity_of, new_key, request_for, serial_of
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.identity.recovery import sign_recovery
from fedplcc.shared.identity.standing import Standing
from tests.support.clock import Clock
from tests.support.identity.memory_authority import FEDERATION, MemoryAuthority
from tests.unit.aggregator.identity.conftest import Restart

KEY, OTHER_KEY = new_key(), new_key()
NORTH = Identity(FEDERATION, Role.CLIENT, "north")


def leaf(admitted: Admitted) -> x509.Certificate:
    return x509.load_pem_x509_certificate(admitted.chain_pem.encode())


def serial(admitted: Admitted) -> str:
    return serial_of(leaf(admitted))


def join(
    admissions: Admissions, key: ec.EllipticCurvePrivateKey = KEY, name: str = "north", *, replaces: bool = False
) -> Admitted:
    invitation, secret = admissions.invite(Role.CLIENT, name, domain="hospital", replaces=replaces)
    return admissions.enrol(invitation.invitation_id, secret, request_for(key))


def recover(
    admissions: Admissions, old: Admitted, *, signer: ec.EllipticCurvePrivateKey = KEY, new: bytes | None = None
) -> Admitted:
    certificate, request = leaf(old).public_bytes(Encoding.DER), new or request_for(OTHER_KEY)
    challenge = admissions.begin_recovery(certificate)
    return admissions.finish_recovery(certificate, challenge, sign_recovery(signer, challenge, request), request)


# Invitations


def test_an_invitation_admits_one_key_as_whom_it_names(admissions: Admissions, store: SqlStore) -> None:
    admitted = join(admissions)
    assert admitted.identity == identity_of(leaf(admitted)) == NORTH
    assert admitted.domain == "hospital"
    assert leaf(admitted).public_key() == KEY.public_key()
    (held,) = store.certificates_of("client", "north")
    assert (held.serial, held.pem) == (serial(admitted), admitted.chain_pem)


def test_a_domain_binds_for_as_long_as_its_holder_renews(admissions: Admissions, store: SqlStore, clock: Clock) -> None:
    admitted = join(admissions)
    for _ in range(8):
        clock.now += CERTIFICATE_S / 2
        admitted = admissions.renew(Role.CLIENT, "north", serial(admitted), request_for(new_key()))
    assert store.invited_domain("north") == "hospital"
    assert store.invited_domain("south") == ""


def test_the_store_has_no_secret(admissions: Admissions, store: SqlStore) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north")
    kept = str(store.find_invitation(invitation.invitation_id))
    assert secret.hex() not in kept
    assert repr(secret)[2:-1] not in kept


def test_the_same_key_again_gets_the_same_certificate_also_after_a_restart(
    admissions: Admissions, restart: Restart, clock: Clock
) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north", valid_s=60)
    first = admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    assert admissions.enrol(invitation.invitation_id, secret, request_for(KEY)) == first
    clock.now += 61
    assert restart().enrol(invitation.invitation_id, secret, request_for(KEY)) == first, "the answer came late"


def test_another_key_is_refused_with_a_warning(admissions: Admissions, caplog: pytest.LogCaptureFixture) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north")
    admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    with caplog.at_level("WARNING"), pytest.raises(errors.InvitationUsed):
        admissions.enrol(invitation.invitation_id, secret, request_for(OTHER_KEY))
    assert "invitation_used_again" in caplog.text


def test_unknown_wrong_and_ended_invitations_get_one_answer(admissions: Admissions, clock: Clock) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north", valid_s=60)
    answers = set()
    for invitation_id, given in (("unknown", secret), (invitation.invitation_id, bytes(32))):
        with pytest.raises(errors.InvitationInvalid) as refused:
            admissions.enrol(invitation_id, given, request_for(KEY))
        answers.add(refused.value.detail)
    clock.now += 60
    with pytest.raises(errors.InvitationInvalid) as refused:
        admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    answers.add(refused.value.detail)
    assert len(answers) == 1


def test_a_second_invitation_takes_the_place_of_the_open_one(admissions: Admissions) -> None:
    first, first_secret = admissions.invite(Role.CLIENT, "north")
    second, second_secret = admissions.invite(Role.CLIENT, "north")
    with pytest.raises(errors.InvitationInvalid):
        admissions.enrol(first.invitation_id, first_secret, request_for(KEY))
    assert admissions.enrol(second.invitation_id, second_secret, request_for(KEY)).identity == NORTH


@pytest.mark.parametrize("valid_s", [59.0, 30 * DAY_S + 1, float("nan"), float("inf")])
def test_an_invitation_holds_from_a_minute_to_thirty_days(admissions: Admissions, valid_s: float) -> None:
    with pytest.raises(errors.MalformedRequest, match="valid_s"):
        admissions.invite(Role.CLIENT, "north", valid_s=valid_s)


def test_nobody_is_invited_as_the_aggregator(admissions: Admissions) -> None:
    with pytest.raises(errors.MalformedRequest, match="role"):
        admissions.invite(Role.AGGREGATOR, "north")


def test_a_name_with_a_holder_is_given_away_only_on_purpose(admissions: Admissions) -> None:
    join(admissions)
    with pytest.raises(errors.AlreadyExists, match="--replace"):
        admissions.invite(Role.CLIENT, "north")
    admissions.invite(Role.GATEWAY, "north")


def test_the_name_of_who_was_revoked_is_free(admissions: Admissions) -> None:
    join(admissions)
    admissions.revoke(Role.CLIENT, "north")
    assert join(admissions, OTHER_KEY).identity == NORTH


def test_a_replacement_revokes_the_holder_when_it_enrols_and_not_before(admissions: Admissions) -> None:
    old, told, ended = join(admissions), list[set[str]](), list[tuple[Role, str]]()
    admissions.on_revoked(lambda serials: told.append(set(serials)))
    admissions.on_holder_ended(lambda role, name: ended.append((role, name)))
    invitation, secret = admissions.invite(Role.CLIENT, "north", replaces=True)
    assert admissions.standing(serial(old)) is Standing.LISTED
    new = admissions.enrol(invitation.invitation_id, secret, request_for(OTHER_KEY))
    assert admissions.standing(serial(old)) is Standing.REVOKED
    assert admissions.standing(serial(new)) is Standing.LISTED
    assert (told, ended) == ([{serial(old)}], [(Role.CLIENT, "north")])


def test_a_renewal_gives_a_new_key_the_same_name_and_the_old_one_goes_on(admissions: Admissions) -> None:
    old = join(admissions)
    new = admissions.renew(Role.CLIENT, "north", serial(old), request_for(OTHER_KEY))
    assert new.identity == NORTH
    assert leaf(new).public_key() == OTHER_KEY.public_key()
    assert admissions.standing(serial(old)) is Standing.LISTED


# Renewal


def test_a_renewal_refuses_the_present_key(admissions: Admissions) -> None:
    old = join(admissions)
    with pytest.raises(errors.MalformedRequest, match="new key"):
        admissions.renew(Role.CLIENT, "north", serial(old), request_for(KEY))


def test_a_key_whose_certificate_has_ended_gets_another(admissions: Admissions, clock: Clock) -> None:
    old = join(admissions)
    clock.now += CERTIFICATE_S + 1
    again = admissions.renew(Role.CLIENT, "north", serial(old), request_for(KEY))
    assert serial(again) != serial(old)


def test_who_renews_in_a_loop_is_stopped(admissions: Admissions, store: SqlStore, clock: Clock) -> None:
    old = join(admissions)
    for _ in range(MOST_HELD - 1):
        admissions.renew(Role.CLIENT, "north", serial(old), request_for(new_key()))
    with pytest.raises(errors.ResourceExhausted):
        admissions.renew(Role.CLIENT, "north", serial(old), request_for(new_key()))
    assert len(store.certificates_of("client", "north")) == MOST_HELD


def test_what_is_no_request_is_refused(admissions: Admissions) -> None:
    old = join(admissions)
    with pytest.raises(errors.MalformedRequest):
        admissions.renew(Role.CLIENT, "north", serial(old), b"\x30\x03abc")


# Recovery


def test_who_slept_through_a_holiday_comes_back_with_the_old_key(admissions: Admissions, clock: Clock) -> None:
    old = join(admissions)
    clock.now += CERTIFICATE_S + RECOVERY_S - 1
    new = recover(admissions, old)
    assert new.identity == NORTH
    assert leaf(new).public_key() == OTHER_KEY.public_key()
    assert leaf(new).not_valid_after_utc.timestamp() > clock.now


def test_who_slept_too_long_needs_an_invitation(admissions: Admissions, clock: Clock) -> None:
    old = join(admissions)
    clock.now += CERTIFICATE_S + RECOVERY_S + 1
    with pytest.raises(errors.CertificateExpired, match="invitation"):
        recover(admissions, old)
    join(admissions, OTHER_KEY, "south")  # its transaction forgets what is too old
    with pytest.raises(errors.CertificateExpired):
        recover(admissions, old)
    assert admissions.invite(Role.CLIENT, "north"), "the name is free"


def test_another_key_recovers_nothing(admissions: Admissions) -> None:
    old = join(admissions)
    with pytest.raises(errors.Unauthenticated, match="signed"):
        recover(admissions, old, signer=OTHER_KEY)


def test_a_signature_is_good_for_one_request(admissions: Admissions) -> None:
    old = join(admissions)
    certificate, mine, theirs = leaf(old).public_bytes(Encoding.DER), request_for(OTHER_KEY), request_for(new_key())
    challenge = admissions.begin_recovery(certificate)
    signature = sign_recovery(KEY, challenge, mine)
    with pytest.raises(errors.Unauthenticated):
        admissions.finish_recovery(certificate, challenge, signature, theirs)
    first = admissions.finish_recovery(certificate, challenge, signature, mine)
    assert admissions.finish_recovery(certificate, challenge, signature, mine) == first


def test_a_challenge_holds_a_minute_for_one_certificate_in_one_process(
    admissions: Admissions, restart: Restart, clock: Clock
) -> None:
    north, south = join(admissions), join(admissions, name="south")
    of_north, of_south = (leaf(held).public_bytes(Encoding.DER) for held in (north, south))
    challenge, request = admissions.begin_recovery(of_north), request_for(OTHER_KEY)
    assert len(challenge) == CHALLENGE_BYTES
    signature = sign_recovery(KEY, challenge, request)
    for asked, certificate, given in (
        (admissions, of_south, challenge),
        (restart(), of_north, challenge),
        (admissions, of_north, challenge[:-1]),
        (admissions, of_north, b""),
        (admissions, of_north, b"\xff" + challenge[1:]),
    ):
        with pytest.raises(errors.FailedPrecondition, match="begin again"):
            asked.finish_recovery(certificate, given, signature, request)
    clock.now += CHALLENGE_S + 1
    with pytest.raises(errors.FailedPrecondition, match="begin again"):
        admissions.finish_recovery(of_north, challenge, signature, request)


def test_a_forged_certificate_with_a_known_serial_recovers_nothing(admissions: Admissions, clock: Clock) -> None:
    genuine = leaf(join(admissions))
    forger = new_key()
    forged = (
        x509.CertificateBuilder()
        .subject_name(genuine.subject)
        .issuer_name(genuine.issuer)
        .serial_number(genuine.serial_number)
        .public_key(forger.public_key())
        .not_valid_before(genuine.not_valid_before_utc)
        .not_valid_after(genuine.not_valid_after_utc)
        .sign(forger, genuine.signature_hash_algorithm)  # type: ignore[arg-type]
    )
    with pytest.raises(errors.CertificateExpired, match="no such certificate"):
        admissions.begin_recovery(forged.public_bytes(Encoding.DER))


def test_bytes_that_are_no_certificate_are_refused(admissions: Admissions) -> None:
    with pytest.raises(errors.MalformedRequest, match="certificate"):
        admissions.begin_recovery(b"no certificate")


# Revocation


def test_a_revoked_holder_neither_renews_nor_recovers_nor_gets_its_certificate_again(
    admissions: Admissions, restart: Restart
) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north")
    old = admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    new = admissions.renew(Role.CLIENT, "north", serial(old), request_for(OTHER_KEY))
    told = list[set[str]]()
    admissions.on_revoked(lambda serials: told.append(set(serials)))
    assert admissions.revoke(Role.CLIENT, "north") == 2
    assert told == [{serial(old), serial(new)}]
    for asked in (admissions, restart()):
        assert asked.standing(serial(old)) is Standing.REVOKED
        assert asked.standing(serial(new)) is Standing.REVOKED
        with pytest.raises(errors.CertificateRevoked):
            asked.renew(Role.CLIENT, "north", serial(new), request_for(new_key()))
        with pytest.raises(errors.CertificateRevoked):
            recover(asked, old)
        with pytest.raises(errors.CertificateRevoked):
            asked.enrol(invitation.invitation_id, secret, request_for(KEY))


def test_a_revocation_is_told_after_the_renewal_that_it_ends(admissions: Admissions) -> None:
    invitation, secret = admissions.invite(Role.CLIENT, "north")
    old = admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    is_waiting = list[bool]()
    admissions.on_issued(lambda _certificate: is_waiting.append(admissions._lock.locked()))
    admissions.renew(Role.CLIENT, "north", serial(old), request_for(OTHER_KEY))
    assert is_waiting == [True], "a revocation between would be undone: a certificate that has no end"


def test_revoking_again_changes_and_tells_nothing(admissions: Admissions) -> None:
    join(admissions)
    admissions.revoke(Role.CLIENT, "north")
    told = list[object]()
    admissions.on_revoked(told.append)
    assert admissions.revoke(Role.CLIENT, "north") == 0
    assert not told


def test_revoking_ends_the_open_invitation_too(admissions: Admissions) -> None:
    join(admissions)
    invitation, secret = admissions.invite(Role.CLIENT, "north", replaces=True)
    admissions.revoke(Role.CLIENT, "north")
    with pytest.raises(errors.InvitationInvalid):
        admissions.enrol(invitation.invitation_id, secret, request_for(OTHER_KEY))


def test_who_never_had_a_certificate_cannot_be_revoked(admissions: Admissions) -> None:
    admissions.invite(Role.CLIENT, "north")
    with pytest.raises(errors.ClientNotFound):
        admissions.revoke(Role.CLIENT, "north")


def test_a_listener_that_crashes_keeps_nobody_else_from_hearing(admissions: Admissions) -> None:
    join(admissions)
    told = list[object]()

    def crash(_serials: object) -> None:
        raise RuntimeError

    admissions.on_revoked(crash)
    admissions.on_revoked(told.append)
    admissions.revoke(Role.CLIENT, "north")
    assert len(told) == 1


def test_there_is_a_gateway_from_its_enrolment_to_its_revocation(admissions: Admissions) -> None:
    invitation, secret = admissions.invite(Role.GATEWAY, "gateway")
    assert not admissions.has_gateway()
    assert admissions.open_invitations() == 1
    admissions.enrol(invitation.invitation_id, secret, request_for(KEY))
    assert admissions.has_gateway()
    assert admissions.open_invitations() == 0
    admissions.revoke(Role.GATEWAY, "gateway")
    assert not admissions.has_gateway()


# The gateway, the list, the audit


def test_the_list_has_what_has_not_ended_also_what_was_revoked(admissions: Admissions, clock: Clock) -> None:
    join(admissions)
    clock.now += CERTIFICATE_S / 2
    south = join(admissions, name="south")
    admissions.revoke(Role.CLIENT, "south")
    assert [held.name for held in admissions.list_certificates()] == ["north", "south"]
    clock.now += CERTIFICATE_S / 2 + 1
    (held,) = admissions.list_certificates()
    assert (held.serial, held.revoked_at is not None) == (serial(south), True)


def test_each_change_is_recorded_in_its_own_transaction(
    store: SqlStore, authority: MemoryAuthority, clock: Clock
) -> None:
    recorded = list[tuple[str, str]]()

    def record(transaction: Transaction, method: str, target: str) -> None:
        transaction.forget_ended(0)  # fails outside of a transaction
        recorded.append((method, target))

    admissions = Admissions(store, authority, clock=clock, record=record)
    old = join(admissions)
    admissions.renew(Role.CLIENT, "north", serial(old), request_for(OTHER_KEY))
    recover(admissions, old, new=request_for(new_key()))
    admissions.revoke(Role.CLIENT, "north")
    admissions.begin_rotation()
    assert recorded == [
        ("CreateInvitation", "client:north"),
        ("Enrol", "client:north"),
        ("RenewCertificate", "client:north"),
        ("FinishRecovery", "client:north"),
        ("RevokeHolder", "client:north"),
        ("RotateAuthority", "begin"),
    ]


# Rotation of the root


def test_the_second_root_travels_with_a_renewal_and_the_first_is_dropped_once_nobody_needs_it(
    admissions: Admissions,
) -> None:
    old = join(admissions)
    admissions.revoke(Role.CLIENT, join(admissions, name="south").identity.name)
    assert len(admissions.begin_rotation()) == 2
    with pytest.raises(errors.FailedPrecondition, match="client north") as refused:
        admissions.finish_rotation()
    assert refused.value.metadata == {"holders": "client north"}, "who is revoked needs nothing"
    new = admissions.renew(Role.CLIENT, "north", serial(old), request_for(OTHER_KEY))
    assert len(x509.load_pem_x509_certificates(new.roots_pem.encode())) == 2
    assert len(admissions.finish_rotation()) == 1


def test_who_may_still_recover_keeps_the_first_root(admissions: Admissions, clock: Clock) -> None:
    join(admissions)
    admissions.begin_rotation()
    clock.now += CERTIFICATE_S + RECOVERY_S - 1
    with pytest.raises(errors.FailedPrecondition):
        admissions.finish_rotation()
    clock.now += 2
    assert len(admissions.finish_rotation()) == 1


def test_the_list_of_serial_numbers_forgets_what_ended_long_ago_and_knows_no_other(
    admissions: Admissions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admissions.standing("5e") is Standing.UNKNOWN
    old = join(admissions, new_key(), "old")
    monkeypatch.setattr(admissions, "_read_again_at", 1)
    clock.now += CERTIFICATE_S + RECOVERY_S + 1
    held = [join(admissions, new_key(), f"site-{number}") for number in range(3)]
    assert admissions.standing(serial(old)) is Standing.LISTED, "it is forgotten in the transaction that reads the list"
    monkeypatch.setattr(admissions, "_read_again_at", 1)
    held.append(join(admissions, new_key(), "last"))
    assert admissions.standing(serial(old)) is Standing.UNKNOWN
    assert {admissions.standing(serial(each)) for each in held} == {Standing.LISTED}
