"""Sign-ons of people: begun and ended at the provider, and looked at again while their sessions hold.

A session of a person holds while the provider confirms it: every `CHECK_S` seconds it is asked what the person may do, by
userinfo, or by a refresh token where userinfo does not say. Without an answer for `GOOD_S` the session is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from fedplcc.aggregator.identity.keys import SILENT, Keys
from fedplcc.aggregator.identity.sign_on.id_tokens import UnknownKey, ends_at, refused, verified
from fedplcc.aggregator.identity.sign_on.pending import PENDING_S, Begun, Pending, challenge_of
from fedplcc.aggregator.identity.sign_on.provider import Provider, Tokens
from fedplcc.aggregator.identity.sign_on.rules import Rules
from fedplcc.aggregator.store.base import ApiKey
from fedplcc.shared.errors import FedplccError, MalformedRequest, SignOnRefused, SignOnUnavailable
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.principals import ITSELF, current_principal
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.addresses import is_trustworthy

CHECK_S = 15.0
"""Time between two questions about a person."""
GOOD_S = 45.0
"""Longest time for which an answer holds: with the next look, a change at the provider acts within a minute."""
TICK_S = 1.0
"""Time between two looks at which questions are due."""
CHECKS_AT_ONCE = 16
"""Questions that are open at the provider at a time: of people whose sessions hold, and as many of who would sign on."""
COMING_OF_AN_ADDRESS = 4
"""Of those of who would sign on, the most of one address."""
INTERVALS_S = 1.0, 60.0
"""Least and most time between two questions of a terminal."""
SLOWER_S = 5.0
"""Seconds by which a terminal's questions become rarer where the provider says so (RFC 8628, 3.5)."""
WAITS = frozenset(("authorization_pending", "slow_down"))
MAX_CODE = 2048
"""Most characters of an authorization code, and of a device code."""
MAX_USER_CODE = 64

log = get_logger("fedplcc.aggregator.sign_on")


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a person needs to go on."""

    handle: str
    url: str
    life_s: float
    user_code: str = ""
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Person:
    """A person whose session holds, and how the provider is asked; in memory alone."""

    key_id: str
    subject: str
    tokens: Tokens
    ends_at: float
    """End of the provider's token, in seconds since the epoch."""
    asks_userinfo: bool
    asked_at: float
    """When the provider was asked last, of the steady clock."""
    good_at: float
    """When it was asked to which it answered."""


class SignOns:
    """Use cases of sign-ons; all methods run on one event loop."""

    def __init__(
        self,
        provider: Provider,
        rules: Rules,
        keys: Keys,
        *,
        name: str,
        scopes: str = "openid",
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            rules: What its claims mean here.
            scopes: What the provider is asked for, with spaces between.
            clock: The time in seconds since the epoch.
            steady: A clock in seconds that nobody sets.
        """
        self.name = name
        self._provider, self._rules, self._keys, self._scopes = provider, rules, keys, scopes
        self._clock, self._steady = clock, steady
        self._pending = Pending(steady)
        self._people: dict[str, _Person] = {}
        self._opening, self._asking = asyncio.Lock(), asyncio.Semaphore(CHECKS_AT_ONCE)
        self._coming = asyncio.Semaphore(CHECKS_AT_ONCE)
        # A semaphore stays while a task holds it.
        self._coming_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    # Sign-ons

    async def begin_in_browser(self, redirect_uri: str, address: str) -> Beginning:
        """Begin with the authorization code flow (OpenID Connect Core 1.0, 3.1) and PKCE.

        Raises:
            MalformedRequest: The code would travel back in plain text.
            SignOnUnavailable: See `Provider`.
        """
        if not is_trustworthy(redirect_uri):
            raise MalformedRequest("redirect_uri: it is neither https, nor http on loopback", field="redirect_uri")
        metadata = await self._provider.metadata.get()
        begun = Begun(address, self._steady() + PENDING_S, redirect_uri=redirect_uri)
        handle = self._pending.add(begun)
        asked = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._scopes,
            "state": challenge_of(handle),
            "nonce": begun.nonce,
            "code_challenge": challenge_of(begun.verifier),
            "code_challenge_method": "S256",
            **({"acr_values": " ".join(self._rules.acr)} if self._rules.acr else {}),
        }
        return Beginning(handle, f"{metadata.authorization}?{urlencode(asked)}", PENDING_S)

    async def begin_at_terminal(self, address: str) -> Beginning:
        """Begin with the device authorization grant (RFC 8628).

        Raises:
            Overloaded, SignOnUnavailable: See `Pending` and `Provider`.
        """
        async with self._place_of(address):
            self._pending.require_terminal(address)  # here: of all that come at once, only as many as have places pass
            found = await self._provider.device_code(self._scopes)
        url = found.get("verification_uri")
        user_code, device_code = found.get("user_code"), found.get("device_code")
        if not (isinstance(url, str) and is_trustworthy(url)):
            raise SignOnUnavailable("the provider names no address for terminals that is https")
        if not (isinstance(user_code, str) and 1 <= len(user_code) <= MAX_USER_CODE and user_code.isprintable()):
            raise SignOnUnavailable("the provider gives a terminal no code to show")
        if not (isinstance(device_code, str) and 1 <= len(device_code) <= MAX_CODE):
            raise SignOnUnavailable("the provider gives a terminal no code")
        life_s = min(PENDING_S, _number(found.get("expires_in"), PENDING_S))
        least, most = INTERVALS_S
        interval_s = max(least, min(most, _number(found.get("interval"), SLOWER_S)))
        now = self._steady()
        begun = Begun(address, now + life_s, device_code=device_code, interval_s=interval_s, next_at=now + interval_s)
        return Beginning(self._pending.add(begun), url, life_s, user_code, interval_s)

    async def finish(self, handle: str, state: str, code: str) -> tuple[ApiKey, str]:
        """End a sign-on in a browser; returns the person's session and its text.

        Raises:
            SignOnRefused: It is unknown or was ended, or the provider or the owner's rules refuse it.
            SignOnUnavailable: The provider does not answer as it should.
            ResourceExhausted: Too many are signed on.
        """
        if state != challenge_of(handle):
            raise refused("state", "the provider's answer belongs to no sign-on of this browser; begin again")
        begun = self._pending.take(handle)
        if not begun.redirect_uri or not 1 <= len(code) <= MAX_CODE:
            raise refused("code", "the provider's answer has no code")
        async with self._place_of(begun.address):
            tokens = await self._provider.tokens(
                grant_type="authorization_code",
                code=code,
                redirect_uri=begun.redirect_uri,
                code_verifier=begun.verifier,
            )
            return await self._open(tokens, begun.nonce)

    async def poll(self, handle: str) -> tuple[ApiKey, str] | None:
        """Return the session of a person at a terminal; None while the provider waits for the person.

        Raises:
            SignOnRefused, SignOnUnavailable, ResourceExhausted: As `finish`.
        """
        begun = self._pending.find(handle)
        if not begun.device_code:
            raise refused("state", "this sign-on is none at a terminal")
        if self._steady() < begun.next_at:
            return None
        begun.next_at = self._steady() + begun.interval_s
        try:
            async with self._place_of(begun.address):
                tokens = await self._provider.tokens(
                    grant_type="urn:ietf:params:oauth:grant-type:device_code", device_code=begun.device_code
                )
        except SignOnRefused as error:
            if error.metadata["check"] not in WAITS:
                self._pending.take(handle)
                raise
            if error.metadata["check"] == "slow_down":
                begun.interval_s += SLOWER_S
                begun.next_at += SLOWER_S
            return None
        self._pending.take(handle)
        return await self._open(tokens, None)

    @asynccontextmanager
    async def _place_of(self, address: str) -> AsyncGenerator[None, None]:
        """Hold a place at the provider for who would sign on."""
        own = self._coming_of.setdefault(address, asyncio.Semaphore(COMING_OF_AN_ADDRESS))
        async with own, self._coming:
            yield

    async def _open(self, tokens: Tokens, nonce: str | None) -> tuple[ApiKey, str]:
        if not tokens.id:
            raise refused("token", "the provider gave no ID token")
        claims = await self._verified(tokens.id, nonce)
        self._rules.require_acr(claims)
        subject, end = str(claims["sub"]), ends_at(claims)
        info = await self._userinfo(tokens, subject)
        asks_userinfo = self._rules.has_claim(info)
        if not asks_userinfo and not tokens.refresh:
            raise refused(
                "role",
                "the provider tells your roles neither in userinfo nor to a refresh token, so that a change could not act",
            )
        known = {**claims, **info}
        scopes = self._rules.scopes_of(info if asks_userinfo else claims)
        person = self._rules.person(known, subject)
        current_principal.set(replace(current_principal.get(), person=person))
        async with self._opening:
            asked_at = self._steady()
            session, text = await asyncio.to_thread(self._keys.sign_on, person, scopes, end, GOOD_S)
            self._people[session.key_id] = _Person(
                session.key_id, subject, tokens, end, asks_userinfo, asked_at, asked_at
            )
        log.info("signed_on", person=person, key_id=session.key_id, scopes=session.scopes)
        return session, text

    async def _verified(self, token: str, nonce: str | None) -> Mapping[str, Any]:
        provider = self._provider
        expected: dict[str, Any] = {"issuer": provider.issuer, "client_id": provider.client_id, "nonce": nonce}
        try:
            return verified(token, await provider.keys.get(), **expected, now=self._clock())
        except UnknownKey:
            if not provider.keys.fetch_anew():
                raise
            return verified(token, await provider.keys.get(), **expected, now=self._clock())

    async def _userinfo(self, tokens: Tokens, subject: str) -> Mapping[str, Any]:
        """Return what userinfo says; refuse what it says of somebody else (OpenID Connect Core 1.0, 5.3.2)."""
        info = await self._provider.userinfo(tokens.access)
        if info and info.get("sub") != subject:
            raise refused("subject", "the provider's userinfo is about somebody else")
        return info

    # Sessions

    async def run(self) -> None:
        """Look after the sessions until cancelled."""
        current_principal.set(ITSELF)
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("sign_ons_crashed")
            await asyncio.sleep(TICK_S)

    async def look(self) -> None:
        """Ask the provider about each person whose answer is due, and end what holds no more."""
        held = {key.key_id for key in self._keys.of_people()}
        for key_id in self._people.keys() - held:
            person = self._people.pop(key_id)
            if person.ends_at <= self._clock():
                await self._end(person, "the provider's token has ended")
        now = self._steady()
        for person in [person for person in self._people.values() if person.good_at + GOOD_S <= now]:
            await self._end(person, SILENT)
        due = [person for person in self._people.values() if person.asked_at + CHECK_S <= now]
        for person in due:
            self._people[person.key_id] = replace(person, asked_at=now)
        await asyncio.gather(*map(self._look_at, due))

    async def close(self) -> None:
        """End the connections to the provider."""
        await self._provider.close()

    async def _look_at(self, person: _Person) -> None:
        try:
            async with self._asking:
                again, scopes = await self._asked(person)
            self._keep(again)
            good_s = again.good_at + GOOD_S - self._steady()
            await asyncio.to_thread(self._keys.confirm, person.key_id, scopes, again.ends_at, good_s)
        except SignOnUnavailable as error:
            log.warning("sign_on_unconfirmed", key_id=person.key_id, detail=error.detail)
        except SignOnRefused as error:
            await self._end(person, error.detail)
        except FedplccError as error:  # the store's; the session is refused once the last answer is too old
            log.error("sign_on_unconfirmed", key_id=person.key_id, detail=error.detail)

    async def _asked(self, person: _Person) -> tuple[_Person, frozenset[Scope]]:
        """Return a person as the provider sees it now, and what the person may do."""
        asked_at, claims = self._steady(), None
        if not person.asks_userinfo or (person.tokens.refresh and person.ends_at - self._clock() < 2 * CHECK_S):
            person, claims = await self._refreshed(person)
        if person.asks_userinfo:
            claims = await self._userinfo(person.tokens, person.subject)
        if claims is None:
            raise refused("token", "the provider's refresh gave no ID token, so that your roles are not known")
        return replace(person, good_at=asked_at), self._rules.scopes_of(claims)

    async def _refreshed(self, person: _Person) -> tuple[_Person, Mapping[str, Any] | None]:
        tokens = await self._provider.tokens(grant_type="refresh_token", refresh_token=person.tokens.refresh)
        claims, end = None, self._clock() + tokens.life_s
        if tokens.id:
            claims = await self._verified(tokens.id, None)
            if claims["sub"] != person.subject:
                raise refused("subject", "the provider's refresh is about somebody else")
            end = ends_at(claims)
        tokens = replace(tokens, refresh=tokens.refresh or person.tokens.refresh)
        person = replace(person, tokens=tokens, ends_at=end)
        self._keep(person)  # whatever follows: the older refresh token may be spent
        return person, claims

    def _keep(self, person: _Person) -> None:
        if person.key_id in self._people:  # and was not revoked meanwhile
            self._people[person.key_id] = person

    async def _end(self, person: _Person, why: str) -> None:
        self._people.pop(person.key_id, None)
        await asyncio.to_thread(self._keys.sign_off, person.key_id, why)
        log.info("signed_off", key_id=person.key_id, why=why)


def _number(value: object, otherwise: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**31
    return float(value) if is_number and isinstance(value, int | float) else otherwise
