"""Sign-ons at a provider on loopback: what is taken, every token that is not, and sessions that end as the provider says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from fedplcc.aggregator.identity import keys as keys_module
from fedplcc.aggregator.identity.keys import Keys
from fedplcc.aggregator.identity.sign_on import provider as provider_module
from fedplcc.aggregator.identity.sign_on import sign_ons as sign_ons_module
from fedplcc.aggregator.identity.sign_on.id_tokens import MAX_TOKEN
from fedplcc.aggregator.identity.sign_on.pending import MOST_PENDING, MOST_TERMINALS, PENDING_S, SILENT_S
from fedplcc.aggregator.identity.sign_on.provider import KEYS_S, MAX_ANSWER, Provider
from fedplcc.aggregator.identity.sign_on.rules import Rules
from fedplcc.aggregator.identity.sign_on.sign_ons import CHECK_S, COMING_OF_AN_ADDRESS, GOOD_S, Beginning, SignOns
from fedplcc.aggregator.store.base import ApiKey, Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared import errors
from fedplcc.shared.errors import SignOnUnavailable
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal, current_principal
from tests.support.clock import Clock
from tests.support.identity.own_provider import CLIENT, SUBJECT, OwnProvider, new_key

MINUTE_S = 60.0
HERE = "192.0.2.7"
BACK = "https://fl.example.org/v1/sign-on/callback"
RULES = Rules("roles", [("operators", Scope.RUN), ("readers", Scope.READ)], (), "name")
ADA = f"Ada Lovelace <{SUBJECT}>"
_T = TypeVar("_T")


@dataclass
class Setup:
    """A provider, the sign-ons at it, and the sessions that they opened."""

    provider: OwnProvider
    keys: Keys
    steady: Clock
    records: list[tuple[str, str, str]]
    """Caller, method and target of each record of the audit."""
    rules: Rules = RULES

    def run(self, steps: Callable[[SignOns], Awaitable[_T]]) -> _T:
        async def within() -> _T:
            async with self.signing_on() as sign_ons:
                return await steps(sign_ons)

        return asyncio.run(within())

    @asynccontextmanager
    async def signing_on(self) -> AsyncGenerator[SignOns, None]:
        current_principal.set(Principal(role=Role.GATEWAY, name="console"))
        asked = Provider(self.provider.issuer, CLIENT, "a secret", steady=self.steady)
        sign_ons = SignOns(asked, self.rules, self.keys, name="tests", steady=self.steady)
        try:
            yield sign_ons
        finally:
            await sign_ons.close()

    async def sign_on(self, sign_ons: SignOns) -> tuple[ApiKey, str]:
        begun = await sign_ons.begin_in_browser(BACK, HERE)
        code, state = self.provider.code_for(begun.url)
        return await sign_ons.finish(begun.handle, state, code)

    def refusal(self) -> str:
        """The check that refuses a sign-on."""
        with pytest.raises(errors.SignOnRefused) as caught:
            self.run(self.sign_on)
        assert self.keys.of_people() == []
        return caught.value.metadata["check"]


@pytest.fixture
def setup(store: SqlStore) -> Iterator[Setup]:
    records: list[tuple[str, str, str]] = []

    def record(_transaction: Transaction, method: str, target: str) -> None:
        records.append((current_principal.get().caller, method, target))

    steady = Clock(1_800_000_000.0)
    with OwnProvider() as provider:
        yield Setup(provider, Keys(store, steady=steady, record=record), steady, records)


def test_a_person_signs_on_by_name_and_may_what_the_claim_says(setup: Setup) -> None:
    session, text = setup.run(setup.sign_on)
    principal = setup.keys.principal_of(text)
    assert (principal.caller, principal.scopes) == (f"person:{ADA}", frozenset({Scope.RUN}))
    assert setup.records == [(f"person:{ADA}", "SignOn", session.key_id)]
    (form,) = setup.provider.forms
    assert form["redirect_uri"] == BACK


def test_a_session_of_a_person_is_in_no_store(setup: Setup, store: SqlStore) -> None:
    session, text = setup.run(setup.sign_on)
    assert store.find_key(session.key_id) is None
    with pytest.raises(errors.KeyInvalid):
        Keys(store).principal_of(text)


NOW = 1 << 33
WRONG_CLAIMS: dict[str, tuple[str, dict[str, Any]]] = {
    "issuer": ("issuer", {"iss": "https://login.example.org"}),
    "no issuer": ("issuer", {"iss": None}),
    "audience": ("audience", {"aud": "another"}),
    "authorized party": ("audience", {"azp": "another"}),
    "several audiences": ("audience", {"aud": [CLIENT, "another"]}),
    "nonce": ("nonce", {"nonce": "of another sign-on"}),
    "no nonce": ("nonce", {"nonce": None}),
    "expired": ("expired", {"exp": 1_000_000_000}),
    "issued in the future": ("future", {"iat": NOW, "exp": NOW + 1}),
    "begins in the future": ("future", {"nbf": NOW, "exp": NOW + 1}),
    "no end": ("token", {"exp": None}),
    "an end that is no number": ("token", {"exp": "never"}),
    "an endless end": ("token", {"exp": 1e300}),
    "no subject": ("subject", {"sub": None}),
    "a long subject": ("subject", {"sub": "s" * 256}),
}


@pytest.mark.parametrize("name", WRONG_CLAIMS)
def test_a_token_that_differs_in_one_claim_is_refused(setup: Setup, name: str) -> None:
    check, setup.provider.claims = WRONG_CLAIMS[name]
    assert setup.refusal() == check
    setup.provider.claims = {}
    setup.run(setup.sign_on)


def test_tokens_that_are_signed_otherwise_are_refused(setup: Setup) -> None:
    provider, stranger = setup.provider, new_key("one")
    wrong: dict[str, Callable[[dict[str, Any]], str]] = {
        "alg": provider.unsigned,
        "signature": lambda claims: provider.signed(claims, stranger),
        "key": lambda claims: provider.signed(claims, kid="unknown"),
        "token": lambda claims: "x" * MAX_TOKEN,
    }
    for check, sign in wrong.items():
        provider.sign = sign
        assert setup.refusal() == check
    provider.sign = provider.signed_by_the_public_key
    assert setup.refusal() == "alg"
    provider.sign = lambda claims: provider.signed(claims)[:-4] + "AAAA"
    assert setup.refusal() == "signature"
    provider.sign = lambda claims: provider.signed(claims | {"more": "x" * MAX_TOKEN})
    assert setup.refusal() == "token"
    provider.sign = provider.signed
    setup.run(setup.sign_on)


async def test_a_rotated_key_is_found_at_once_and_the_older_one_is_refused_within_a_minute(setup: Setup) -> None:
    older = setup.provider.keys[0]
    async with setup.signing_on() as sign_ons:
        await setup.sign_on(sign_ons)
        setup.provider.keys = [new_key("two")]
        await setup.sign_on(sign_ons)
        assert setup.provider.asked["/keys"] == 2
        setup.provider.sign = lambda claims: setup.provider.signed(claims, older)
        with pytest.raises(errors.SignOnRefused, match="does not publish"):
            await setup.sign_on(sign_ons)
        setup.provider.sign = lambda claims: setup.provider.signed(claims, kid="three")
        for _ in range(3):  # nobody makes the aggregator ask again and again
            with pytest.raises(errors.SignOnRefused, match="does not publish"):
                await setup.sign_on(sign_ons)
        assert setup.provider.asked["/keys"] == 2
        setup.provider.sign = setup.provider.signed
        setup.steady.now += KEYS_S
        await setup.sign_on(sign_ons)
        assert setup.provider.asked["/keys"] == 3


def test_a_key_of_an_unknown_kind_beside_the_others_keeps_nobody_out(setup: Setup) -> None:
    of_one = setup.provider.keys[0].as_dict(private=False)
    unknown: list[dict[str, Any]] = [
        {**of_one, "kid": "new", "crv": "P-999"},
        {**of_one, "kid": "off", "x": of_one["y"]},
        {"kty": ["EC"]},
    ]
    setup.provider.published = unknown
    setup.run(setup.sign_on)
    setup.provider.keys = []
    with pytest.raises(SignOnUnavailable, match="none that is understood"):
        setup.run(lambda sign_ons: sign_ons._provider.keys.get())


async def test_a_code_a_state_and_a_handle_are_good_once_and_together(setup: Setup) -> None:
    async with setup.signing_on() as sign_ons:
        begun, other = [await sign_ons.begin_in_browser(BACK, HERE) for _ in range(2)]
        code, state = setup.provider.code_for(begun.url)
        wrong = [(begun.handle, "state"), (other.handle, state), ("", state), ("x" * 1000, state)]
        for handle, given in wrong:
            with pytest.raises(errors.SignOnRefused) as caught:
                await sign_ons.finish(handle, given, code)
            assert caught.value.metadata["check"] == "state"
        assert setup.provider.forms == []
        await sign_ons.finish(begun.handle, state, code)
        with pytest.raises(errors.SignOnRefused) as caught:  # replayed
            await sign_ons.finish(begun.handle, state, code)
        assert caught.value.metadata["check"] == "state"
        _, other_state = setup.provider.code_for(other.url)
        with pytest.raises(errors.SignOnRefused) as caught:  # a code that was used, in another sign-on
            await sign_ons.finish(other.handle, other_state, code)
        assert caught.value.metadata["check"] == "invalid_grant"


async def test_a_code_is_good_only_with_its_verifier_and_in_time(setup: Setup) -> None:
    async with setup.signing_on() as sign_ons:
        mine, theirs = [await sign_ons.begin_in_browser(BACK, HERE) for _ in range(2)]
        code, _ = setup.provider.code_for(theirs.url)
        _, state = setup.provider.code_for(mine.url)
        with pytest.raises(errors.SignOnRefused) as caught:  # somebody else's code, injected
            await sign_ons.finish(mine.handle, state, code)
        assert caught.value.metadata["check"] == "invalid_grant"
        late = await sign_ons.begin_in_browser(BACK, HERE)
        code, state = setup.provider.code_for(late.url)
        setup.steady.now += PENDING_S
        with pytest.raises(errors.SignOnRefused) as caught:
            await sign_ons.finish(late.handle, state, code)
        assert caught.value.metadata["check"] == "state"


@pytest.mark.parametrize(
    "strangers",
    [
        [f"198.51.100.{number}" for number in range(MOST_PENDING // 32)],
        [f"198.51.{number >> 8}.{number & 255}" for number in range(MOST_PENDING)],
        [f"2001:db8:0:{number:x}::/64" for number in range(MOST_PENDING)],
    ],
    ids=["some addresses", "a thousand addresses", "a thousand networks of one party"],
)
async def test_sign_ons_that_nobody_ends_keep_nobody_out(setup: Setup, strangers: list[str]) -> None:
    async with setup.signing_on() as sign_ons:
        for number in range(MOST_PENDING):
            await sign_ons.begin_in_browser(BACK, strangers[number % len(strangers)])
        begun = await sign_ons.begin_in_browser(BACK, HERE)
        for number in range(MOST_PENDING):
            await sign_ons.begin_in_browser(BACK, strangers[number % len(strangers)])
        code, state = setup.provider.code_for(begun.url)
        session, _ = await sign_ons.finish(begun.handle, state, code)
        assert session.label == ADA
        with pytest.raises(errors.MalformedRequest):
            await sign_ons.begin_in_browser("http://fl.example.org/v1/sign-on/callback", HERE)


async def test_sign_ons_at_terminals_are_bounded_by_address(setup: Setup) -> None:
    async with setup.signing_on() as sign_ons:
        beginnings = [sign_ons.begin_at_terminal(HERE) for _ in range(3 * MOST_TERMINALS)]
        begun = await asyncio.gather(*beginnings, return_exceptions=True)
        waiting = [each for each in begun if isinstance(each, Beginning)]
        assert MOST_TERMINALS <= len(waiting) == setup.provider.asked["/device"] < MOST_TERMINALS + COMING_OF_AN_ADDRESS
        with pytest.raises(errors.Overloaded):
            await sign_ons.begin_at_terminal(HERE)
        await sign_ons.begin_at_terminal("192.0.2.8")
        await sign_ons.begin_in_browser(BACK, HERE)
        setup.steady.now += SILENT_S
        for each in waiting[:MOST_TERMINALS]:
            assert await sign_ons.poll(each.handle) is None
        with pytest.raises(errors.Overloaded):  # those wait
            await sign_ons.begin_at_terminal(HERE)
        setup.steady.now += SILENT_S
        for each in waiting[1:MOST_TERMINALS]:
            assert await sign_ons.poll(each.handle) is None
        setup.steady.now += 1.0
        await sign_ons.begin_at_terminal(HERE)  # in the place of the one that asks no more
        assert await sign_ons.poll(waiting[0].handle) is None


async def test_a_terminal_waits_for_its_person(setup: Setup) -> None:
    setup.provider.claims = {"nonce": None}
    async with setup.signing_on() as sign_ons:
        begun = await sign_ons.begin_at_terminal(HERE)
        assert (begun.user_code, begun.interval_s) == ("WDJB-MJHT", 1.0)
        assert await sign_ons.poll(begun.handle) is None
        assert setup.provider.forms == []  # sooner than the provider allows
        setup.steady.now += 1
        assert await sign_ons.poll(begun.handle) is None
        setup.provider.has_signed_on.set()
        setup.steady.now += 1
        opened = await sign_ons.poll(begun.handle)
        assert opened is not None
        assert setup.keys.principal_of(opened[1]).person == ADA
        with pytest.raises(errors.SignOnRefused):
            await sign_ons.poll(begun.handle)
        browser = await sign_ons.begin_in_browser(BACK, HERE)
        with pytest.raises(errors.SignOnRefused):
            await sign_ons.poll(browser.handle)


def test_who_has_no_role_or_too_weak_a_sign_on_is_refused(setup: Setup) -> None:
    setup.provider.userinfo["roles"] = ["strangers", 7]
    assert setup.refusal() == "role"
    setup.provider.userinfo["roles"] = "readers"
    setup.rules = replace(RULES, acr=("mfa", "hardware"))
    assert setup.refusal() == "acr"
    setup.provider.claims = {"acr": "password"}
    assert setup.refusal() == "acr"
    setup.provider.claims = {"acr": "hardware"}
    session, _ = setup.run(setup.sign_on)
    assert session.scopes == ("read",)


def test_roles_that_could_not_change_are_refused(setup: Setup) -> None:
    del setup.provider.userinfo["roles"]
    setup.provider.claims = {"roles": ["operators"]}
    assert setup.refusal() == "role"


async def test_roles_of_a_token_may_be_those_of_a_fresh_one(setup: Setup) -> None:
    del setup.provider.userinfo["roles"]
    setup.provider.claims = {"roles": ["operators"]}
    setup.provider.refreshes = True
    async with setup.signing_on() as sign_ons:
        _, text = await setup.sign_on(sign_ons)
        setup.provider.claims = {"roles": ["readers"]}
        setup.steady.now += CHECK_S
        await sign_ons.look()
        assert setup.keys.principal_of(text).scopes == {Scope.READ}


def test_userinfo_about_somebody_else_is_refused(setup: Setup) -> None:
    setup.provider.userinfo["sub"] = "another"
    assert setup.refusal() == "subject"


async def test_a_change_of_roles_acts_within_a_minute(setup: Setup) -> None:
    told: list[str] = []
    setup.keys.on_revoked(told.extend)
    async with setup.signing_on() as sign_ons:
        session, text = await setup.sign_on(sign_ons)
        setup.provider.userinfo["roles"] = ["readers"]
        setup.steady.now += CHECK_S
        await sign_ons.look()
        assert setup.keys.principal_of(text).scopes == {Scope.READ}
        assert told == [session.key_id]  # its open streams are looked at again
        setup.provider.userinfo["roles"] = []
        setup.steady.now += CHECK_S
        await sign_ons.look()
        with pytest.raises(errors.SignOnEnded, match="given your roles nothing"):
            setup.keys.principal_of(text)
        with pytest.raises(errors.KeyInvalid) as caught:  # only who has the secret is told why
            setup.keys.principal_of(setup.keys.create("other", [Scope.READ])[1][:-8] + "00000000")
        assert type(caught.value) is errors.KeyInvalid
        assert [method for _, method, _ in setup.records][:3] == ["SignOn", "ChangeSignOn", "EndSignOn"]
    assert CHECK_S < GOOD_S < 60 - sign_ons_module.TICK_S


@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_locked_at_the_provider_is_signed_off(setup: Setup, status: int) -> None:
    async with setup.signing_on() as sign_ons:
        _, text = await setup.sign_on(sign_ons)
        setup.provider.statuses["/userinfo"] = status
        setup.steady.now += CHECK_S
        await sign_ons.look()
        with pytest.raises(errors.SignOnEnded, match="does not take the person's token"):
            setup.keys.principal_of(text)


async def test_a_provider_that_is_away_for_long_ends_sessions_whether_anybody_looks_or_not(setup: Setup) -> None:
    async with setup.signing_on() as sign_ons:
        (first, text), (_, other) = await setup.sign_on(sign_ons), await setup.sign_on(sign_ons)
        setup.provider.statuses["/userinfo"] = 503
        setup.steady.now += CHECK_S
        await sign_ons.look()
        setup.keys.principal_of(text)
        setup.steady.now += GOOD_S - CHECK_S
        with pytest.raises(errors.SignOnEnded, match="has not answered for too long"):
            setup.keys.principal_of(text)
        await sign_ons.look()
        del setup.provider.statuses["/userinfo"]
        await sign_ons.look()
        for each in (text, other):
            with pytest.raises(errors.SignOnEnded, match="has not answered for too long"):
                setup.keys.principal_of(each)
        assert setup.keys.find(first.key_id) is None


@pytest.mark.parametrize("status", [302, 404, 429])
async def test_a_provider_that_is_asked_too_often_signs_nobody_off(setup: Setup, status: int) -> None:
    setup.provider.refreshes, setup.provider.userinfo = True, {}
    setup.provider.claims = {"roles": ["operators"]}
    async with setup.signing_on() as sign_ons:
        _, text = await setup.sign_on(sign_ons)
        setup.provider.statuses["/token"] = status
        setup.steady.now += CHECK_S
        await sign_ons.look()
        setup.keys.principal_of(text)


async def test_strangers_who_wait_at_the_provider_sign_nobody_off(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "ANSWER_S", MINUTE_S)
    async with setup.signing_on() as sign_ons:
        _, text = await setup.sign_on(sign_ons)
        setup.provider.held["/device"] = asked = threading.Event()
        strangers = [asyncio.create_task(sign_ons.begin_at_terminal("198.51.100.1")) for _ in range(150)]
        try:
            while not setup.provider.asked["/device"]:
                await asyncio.sleep(0)
            setup.steady.now += CHECK_S
            await asyncio.wait_for(sign_ons.look(), MINUTE_S / 2)
            assert setup.provider.asked["/userinfo"] == 2
            setup.keys.principal_of(text)
            await asyncio.wait_for(setup.sign_on(sign_ons), MINUTE_S / 2)
        finally:
            for each in strangers:
                each.cancel()
            asked.set()
            await asyncio.gather(*strangers, return_exceptions=True)


async def test_a_session_ends_with_the_token_and_goes_on_with_a_fresh_one(setup: Setup, store: SqlStore) -> None:
    wall = Clock(1_800_000_000.0)
    keys = setup.keys = Keys(store, clock=wall, steady=setup.steady)
    async with setup.signing_on() as sign_ons:
        sign_ons._clock = wall
        setup.provider.claims = {"iat": int(wall.now), "exp": int(wall.now) + 60}
        _, text = await setup.sign_on(sign_ons)
        setup.provider.refreshes = True
        _, lasting = await setup.sign_on(sign_ons)
        wall.now, setup.steady.now = wall.now + 40, setup.steady.now + 40
        setup.provider.claims = {"iat": int(wall.now), "exp": int(wall.now) + 60}
        await sign_ons.look()
        wall.now, setup.steady.now = wall.now + 20, setup.steady.now + 20
        with pytest.raises(errors.SignOnEnded, match="token has ended"):
            keys.principal_of(text)
        await sign_ons.look()
        with pytest.raises(errors.SignOnEnded, match="token has ended"):
            keys.principal_of(text)
        keys.principal_of(lasting)
        assert [form["grant_type"] for form in setup.provider.forms[2:]] == ["refresh_token"]


async def test_a_person_signs_off_and_the_owner_revokes(setup: Setup) -> None:
    async with setup.signing_on() as sign_ons:
        session, text = await setup.sign_on(sign_ons)
        assert [key.label for key in setup.keys.list()] == [ADA]
        setup.keys.revoke(session.key_id)
        with pytest.raises(errors.KeyInvalid):
            setup.keys.principal_of(text)
        setup.steady.now += CHECK_S
        await sign_ons.look()
        assert setup.provider.asked["/userinfo"] == 1  # nobody is asked about it any more
        with pytest.raises(errors.FailedPrecondition):
            setup.keys.create_console_code(replace(current_principal.get(), person=ADA))


async def test_sessions_of_people_are_bounded(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "MOST_OF_A_PERSON", 2)
    monkeypatch.setattr(keys_module, "MOST_PEOPLE", 2)
    async with setup.signing_on() as sign_ons:
        opened = []
        for name in ("Ada", "Ada Lovelace", "Countess of Lovelace"):
            setup.provider.userinfo["name"] = name
            opened.append(await setup.sign_on(sign_ons))
        assert len(setup.keys.of_people()) == 2
        setup.keys.principal_of(opened[2][1])
        setup.provider.claims = {"sub": "another"}
        setup.provider.userinfo["sub"] = "another"
        with pytest.raises(errors.ResourceExhausted):
            await setup.sign_on(sign_ons)


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"issuer": "https://login.example.org"}, "not those of the issuer"),
        ({"jwks_uri": None}, "no jwks_uri"),
        ({"token_endpoint": "http://login.example.org/token"}, "no token_endpoint that is https"),
        ({"more": "x" * MAX_ANSWER}, "more than"),
    ],
)
def test_a_provider_that_is_not_the_owners_is_not_asked(setup: Setup, differs: dict[str, Any], said: str) -> None:
    setup.provider.metadata = differs
    for _ in range(2):
        with pytest.raises(errors.SignOnUnavailable, match=said):
            setup.run(lambda sign_ons: sign_ons.begin_in_browser(BACK, HERE))
    assert set(setup.provider.asked) == {"/.well-known/openid-configuration"}


async def test_an_absent_provider_is_asked_once_for_all(setup: Setup) -> None:
    setup.provider.statuses["/.well-known/openid-configuration"] = 500
    async with setup.signing_on() as sign_ons:
        found = await asyncio.gather(*(sign_ons.begin_in_browser(BACK, HERE) for _ in range(8)), return_exceptions=True)
        assert {type(each) for each in found} == {SignOnUnavailable}
    assert setup.provider.asked["/.well-known/openid-configuration"] == 1
