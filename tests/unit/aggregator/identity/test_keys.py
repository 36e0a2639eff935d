"""Keys, sessions and console codes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from fedplcc.aggregator.identity import keys as keys_module
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.identity.console_codes import CODE_S, MOST_CODES
from fedplcc.aggregator.identity.keys import DAY_S, SESSION_S, Keys
from fedplcc.aggregator.store.base import Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import KeyInvalid, MalformedRequest, NotFound, ResourceExhausted
from fedplcc.shared.identity.api_keys import EVERY_SCOPE, Scope, api_key_text, new_api_key
from fedplcc.shared.identity.principals import OWNER, Principal, current_principal
from tests.support.clock import Clock


@pytest.fixture
def keys(store: SqlStore, clock: Clock) -> Keys:
    return Keys(store, clock=clock, steady=clock)


def test_the_store_keeps_no_secret(keys: Keys, store: SqlStore) -> None:
    key, text = keys.create("dashboard", [Scope.READ])
    secret = text.split("_")[2]
    assert secret not in repr(store.find_key(key.key_id))
    assert secret not in repr(keys.list())


def test_an_unknown_an_expired_a_revoked_and_a_wrong_key_have_one_answer(keys: Keys, clock: Clock) -> None:
    key, text = keys.create("dashboard", [Scope.READ], 60.0)
    revoked, revoked_text = keys.create("other", [Scope.READ])
    keys.revoke(revoked.key_id)
    _, other_secret, unknown = new_api_key()
    clock.now += 60.0
    for each in (unknown, text, revoked_text, api_key_text(key.key_id, other_secret), text[:-1], "", "x" * 1000):
        with pytest.raises(KeyInvalid) as caught:
            keys.principal_of(each)
        assert caught.value.detail.startswith("no such key: it is unknown, expired or revoked")


def test_a_wrong_secret_of_a_key_that_holds_is_refused(keys: Keys) -> None:
    key, _ = keys.create("dashboard", [Scope.READ])
    with pytest.raises(KeyInvalid):
        keys.principal_of(api_key_text(key.key_id, new_api_key()[1]))


def test_a_key_ends_after_90_days(keys: Keys, clock: Clock) -> None:
    key, _ = keys.create("dashboard", [Scope.READ])
    assert key.expires_at - clock.now == 90 * DAY_S


@pytest.mark.parametrize("label", ["", "x" * 65, "two\nlines", "\x00"])
def test_a_label_that_cannot_be_shown_is_refused(keys: Keys, label: str) -> None:
    with pytest.raises(MalformedRequest, match="label"):
        keys.create(label, [Scope.READ])


@pytest.mark.parametrize("valid_s", [0.0, 59.9, 366 * DAY_S, float("nan"), float("inf"), -1.0])
def test_a_life_outside_its_bounds_is_refused(keys: Keys, valid_s: float) -> None:
    with pytest.raises(MalformedRequest, match="valid_s"):
        keys.create("dashboard", [Scope.READ], valid_s)


def test_a_key_without_a_scope_is_refused(keys: Keys) -> None:
    with pytest.raises(MalformedRequest, match="scopes"):
        keys.create("dashboard", [])


def test_a_revocation_is_told_after_the_key_is_refused(keys: Keys) -> None:
    key, text = keys.create("dashboard", [Scope.READ])
    told: list[Collection[str]] = []

    def listen(ids: Collection[str]) -> None:
        with pytest.raises(KeyInvalid):
            keys.principal_of(text)
        told.append(ids)

    keys.on_revoked(listen)
    keys.revoke(key.key_id)
    keys.revoke(key.key_id)
    assert told == [{key.key_id}]


def test_a_revoked_key_stays_revoked_after_a_restart(keys: Keys, store: SqlStore, clock: Clock) -> None:
    key, text = keys.create("dashboard", [Scope.READ])
    keys.revoke(key.key_id)
    with pytest.raises(KeyInvalid):
        Keys(store, clock=clock).principal_of(text)


@pytest.mark.parametrize("key_id", ["0123456789ab", "", "a\x00", "x" * 5000])
def test_an_unknown_key_cannot_be_revoked(keys: Keys, key_id: str) -> None:
    with pytest.raises(NotFound):
        keys.revoke(key_id)


def test_a_code_gives_one_session_of_twelve_hours(keys: Keys, clock: Clock) -> None:
    code = keys.create_console_code(OWNER)
    session, text = keys.redeem_console_code(code)
    assert keys.principal_of(text).scopes == EVERY_SCOPE
    assert (session.kind, session.label, session.expires_at) == ("session", "owner", clock.now + SESSION_S)
    with pytest.raises(KeyInvalid):
        keys.redeem_console_code(code)


def test_a_code_ends_after_five_minutes(keys: Keys, clock: Clock) -> None:
    code = keys.create_console_code(OWNER)
    clock.now += CODE_S
    with pytest.raises(KeyInvalid):
        keys.redeem_console_code(code)


def test_only_the_newest_codes_are_kept(keys: Keys) -> None:
    codes = [keys.create_console_code(OWNER) for _ in range(MOST_CODES + 1)]
    with pytest.raises(KeyInvalid):
        keys.redeem_console_code(codes[0])
    keys.redeem_console_code(codes[1])


def test_a_session_may_do_no_more_and_lasts_no_longer_than_the_key_that_opened_it(keys: Keys) -> None:
    key, text = keys.create("admin", [Scope.ADMIN], 3600.0)
    session, opened = keys.redeem_console_code(keys.create_console_code(keys.principal_of(text)))
    assert keys.principal_of(opened).scopes == {Scope.ADMIN}
    assert session.expires_at == key.expires_at


def test_a_revoked_key_takes_along_what_was_opened_from_its_sessions(keys: Keys, store: SqlStore, clock: Clock) -> None:
    key, text = keys.create("dashboard", [Scope.READ])
    other, other_text = keys.create("other", [Scope.READ])
    chain = [text]
    for _ in range(4):
        _, opened = keys.redeem_console_code(keys.create_console_code(keys.principal_of(chain[-1])))
        chain.append(opened)
    waiting = keys.create_console_code(keys.principal_of(chain[-1]))
    _, of_other = keys.redeem_console_code(keys.create_console_code(keys.principal_of(other_text)))
    told: list[Collection[str]] = []
    keys.on_revoked(told.append)
    keys.revoke(key.key_id)
    assert [len(ids) for ids in told] == [5]
    for each in (keys, Keys(store, clock=clock)):
        for opened in chain:
            with pytest.raises(KeyInvalid):
                each.principal_of(opened)
        assert each.principal_of(of_other)
    with pytest.raises(KeyInvalid):
        keys.redeem_console_code(waiting)
    assert other.key_id in {held.key_id for held in keys.list()}


def test_a_revoked_key_takes_its_sessions_and_codes_along(keys: Keys) -> None:
    key, text = keys.create("admin", [Scope.ADMIN])
    maker = keys.principal_of(text)
    session, opened = keys.redeem_console_code(keys.create_console_code(maker))
    _, of_owner = keys.redeem_console_code(keys.create_console_code(OWNER))
    code = keys.create_console_code(maker)
    told: list[Collection[str]] = []
    keys.on_revoked(told.append)
    keys.revoke(key.key_id)
    assert told == [{key.key_id, session.key_id}]
    for call in (lambda: keys.principal_of(opened), lambda: keys.redeem_console_code(code)):
        with pytest.raises(KeyInvalid):
            call()
    assert keys.principal_of(of_owner).scopes == EVERY_SCOPE


def test_the_number_of_keys_has_a_limit_that_ended_ones_do_not_count_towards(
    keys: Keys, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "MOST_KEYS", 2)
    keys.create("a", [Scope.READ], 60.0)
    keys.create("b", [Scope.READ])
    with pytest.raises(ResourceExhausted):
        keys.create("c", [Scope.READ])
    clock.now += 61.0
    keys.create("c", [Scope.READ])


def test_each_change_is_recorded_in_its_own_transaction(store: SqlStore, clock: Clock) -> None:
    recorded: list[tuple[str, str]] = []

    def record(_transaction: Transaction, method: str, target: str) -> None:
        recorded.append((method, target))

    keys = Keys(store, clock=clock, record=record)
    key, _ = keys.create("dashboard", [Scope.READ])
    session, _ = keys.redeem_console_code(keys.create_console_code(replace(OWNER)))
    keys.revoke(key.key_id)
    assert recorded == [("CreateKey", key.key_id), ("RedeemConsoleCode", session.key_id), ("RevokeKey", key.key_id)]


def test_a_key_shows_its_maker_after_the_makers_own_key_was_revoked(store: SqlStore, clock: Clock) -> None:
    audit = Audit(store, clock=clock)

    def record(transaction: Transaction, method: str, target: str) -> None:
        audit.change(method, target)(transaction)

    keys = Keys(store, clock=clock, steady=clock, record=record)

    def made_by(principal: Principal) -> str:
        token = current_principal.set(principal)
        try:
            return keys.create("some key", [Scope.ADMIN])[0].key_id
        finally:
            current_principal.reset(token)

    first = made_by(OWNER)
    second = made_by(Principal(key_id=first, scopes=EVERY_SCOPE))
    session, _text = keys.redeem_console_code(keys.create_console_code(Principal(key_id=second, scopes=EVERY_SCOPE)))
    assert keys.makers() == {first: "owner", second: f"key:{first}", session.key_id: f"key:{second}"}
    keys.revoke(first)
    assert {key.key_id for key in keys.list()} == {session.key_id, second}
    assert keys.makers()[second] == f"key:{first}"
