"""The OpenID provider that the owner has set: what it says of itself, its keys, its tokens, and what it knows of a person.

The only addresses that are asked are the issuer's own and those that its metadata name. An answer has a limit in bytes and
in seconds, and redirections are not followed.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet

from fedplcc.aggregator.identity.sign_on.id_tokens import MAX_TOKEN, refused
from fedplcc.shared.errors import FedplccError, InvalidConfig, SignOnRefused, SignOnUnavailable
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire.addresses import is_trustworthy

ANSWER_S = 5.0
"""Longest time of one answer."""
MAX_ANSWER = 256 << 10
"""Most bytes of one answer."""
METADATA_S, KEYS_S = 3600.0, 60.0
"""Time for which the provider's metadata, and its keys, are kept."""
AGAIN_S = 5.0
"""Time for which a failure is the answer to everybody."""
MAX_SECRET = 1024
TOKEN_ERRORS = frozenset(
    ("invalid_grant", "access_denied", "expired_token", "authorization_pending", "slow_down", "invalid_client")
)
"""Errors of a provider that are told on; others are "provider"."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Addresses of a provider (OpenID Connect Discovery 1.0, 3); an empty one is missing."""

    authorization: str
    token: str
    userinfo: str
    keys: str
    device: str
    takes_basic: bool
    """Whether a client may show its secret in the header Authorization."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a person; nothing of them is stored or logged."""

    access: str
    id: str
    """Empty if a refresh gave none."""
    refresh: str
    """Empty if the provider gives none."""
    life_s: float
    """Seconds for which the access token holds; 0 if the provider does not say."""


class Kept(Generic[_Answer]):
    """An answer that is fetched once for all who ask, and so is a failure."""

    def __init__(self, fetch: Callable[[], Awaitable[_Answer]], keep_s: float, steady: Callable[[], float]) -> None:
        self._fetch, self._keep_s, self._steady = fetch, keep_s, steady
        self._lock = asyncio.Lock()
        self._found: _Answer | FedplccError | None = None
        self._until = self._anew_at = float("-inf")

    async def get(self) -> _Answer:
        """Return the answer. Raises SignOnUnavailable."""
        async with self._lock:
            if self._found is None or self._steady() >= self._until:
                try:
                    self._found, keep_s = await self._fetch(), self._keep_s
                except SignOnUnavailable as error:
                    self._found, keep_s = error, AGAIN_S
                self._until = self._steady() + keep_s
            if isinstance(self._found, FedplccError):
                raise SignOnUnavailable(self._found.detail)
            return self._found

    def fetch_anew(self) -> bool:
        """Let the next who asks fetch, once in the time for which answers are kept; returns whether it does."""
        if self._steady() < self._anew_at:
            return False
        self._until, self._anew_at = float("-inf"), self._steady() + self._keep_s
        return True


class Provider:
    """A provider; all methods run on one event loop, and raise `SignOnUnavailable` where it does not answer as it should."""

    def __init__(
        self, issuer: str, client_id: str, secret: str, *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare; nothing is asked yet. A public client has no secret."""
        self.issuer, self.client_id, self._secret = issuer, client_id, secret
        # A proxy that the environment names leads out, never to this machine.
        self._is_here = is_loopback(urlsplit(issuer).hostname or "")
        self._http: httpx.AsyncClient | None = None
        self.metadata = Kept(self._fetch_metadata, METADATA_S, steady)
        self.keys = Kept(self._fetch_keys, KEYS_S, steady)
        """Its public keys; fetched anew where a token names another."""

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def tokens(self, **form: str) -> Tokens:
        """Ask the token endpoint (RFC 6749, 3.2).

        Raises:
            SignOnRefused: The provider refuses; the metadata's "check" is its error.
        """
        metadata = await self.metadata.get()
        status, answer = await self._post(metadata, metadata.token, form)
        if status != HTTPStatus.OK:
            error = answer.get("error")
            check = error if isinstance(error, str) and error in TOKEN_ERRORS else "provider"
            if status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise SignOnUnavailable(f"the provider's token endpoint answers {status}")
            raise refused(check, f"the provider refuses this sign-on ({check})")
        life_s = answer.get("expires_in")
        return Tokens(
            access=_token(answer, "access_token", needed=True),
            id=_token(answer, "id_token"),
            refresh=_token(answer, "refresh_token"),
            life_s=float(life_s) if isinstance(life_s, int) and 0 < life_s < 2**31 else 0.0,
        )

    async def device_code(self, scope: str) -> Mapping[str, Any]:
        """Ask for a code that a person types elsewhere; returns the answer (RFC 8628, 3.2)."""
        metadata = await self.metadata.get()
        if not metadata.device:
            raise SignOnUnavailable("the provider has no sign-on for terminals (device_authorization_endpoint)")
        status, answer = await self._post(metadata, metadata.device, {"scope": scope})
        if status != HTTPStatus.OK:
            raise SignOnUnavailable(f"the provider's device authorization endpoint answers {status}")
        return answer

    async def userinfo(self, access_token: str) -> Mapping[str, Any]:
        """Return what the provider says of a person now; empty where it says nothing of anybody.

        Raises:
            SignOnRefused: The provider does not take the token any more.
        """
        address = (await self.metadata.get()).userinfo
        if not address:
            return {}
        status, answer = await self._ask("GET", address, headers={"Authorization": f"Bearer {access_token}"})
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.BAD_REQUEST):
            raise refused("revoked", "the provider does not take the person's token any more")
        if status != HTTPStatus.OK:
            raise SignOnUnavailable(f"the provider's userinfo endpoint answers {status}")
        return answer

    async def _fetch_metadata(self) -> Metadata:
        status, found = await self._ask("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if status != HTTPStatus.OK or found.get("issuer") != self.issuer:
            raise SignOnUnavailable(f"the provider's metadata are not those of the issuer {self.issuer}")
        methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return Metadata(
            authorization=self._endpoint(found, "authorization_endpoint", needed=True),
            token=self._endpoint(found, "token_endpoint", needed=True),
            userinfo=self._endpoint(found, "userinfo_endpoint"),
            keys=self._endpoint(found, "jwks_uri", needed=True),
            device=self._endpoint(found, "device_authorization_endpoint"),
            takes_basic=isinstance(methods, list) and "client_secret_basic" in methods,
        )

    def _endpoint(self, found: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
        address = found.get(name)
        if address is None and not needed:
            return ""
        if not isinstance(address, str) or not is_trustworthy(address):
            raise SignOnUnavailable(f"the provider's metadata have no {name} that is https")
        if is_loopback(urlsplit(address).hostname or "") and not self._is_here:
            raise SignOnUnavailable(f"the provider's metadata lead to this machine: {name}")
        return address

    async def _fetch_keys(self) -> KeySet:
        status, found = await self._ask("GET", (await self.metadata.get()).keys)
        keys = found.get("keys")
        if status != HTTPStatus.OK or not isinstance(keys, list):
            raise SignOnUnavailable("the provider has no list of keys")
        public: list[Key] = []
        for key in keys:
            # A secret that two share signs nothing here, and keys for encryption neither.
            if isinstance(key, dict) and key.get("kty") != "oct" and key.get("use") != "enc":
                with suppress(JoseError, ValueError, TypeError, LookupError):  # one of a new kind (RFC 7517, 5)
                    public += KeySet.import_key_set({"keys": [key]}).keys
        if not public:
            raise SignOnUnavailable("the provider's list of keys has none that is understood")
        return KeySet(public)

    async def _post(self, metadata: Metadata, address: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        client = {"client_id": self.client_id}
        if not self._secret:
            return await self._ask("POST", address, data={**form, **client})
        if not metadata.takes_basic:
            return await self._ask("POST", address, data={**form, **client, "client_secret": self._secret})
        return await self._ask(
            "POST", address, data=dict(form), auth=(quote_plus(self.client_id), quote_plus(self._secret))
        )

    async def _ask(self, method: str, address: str, **sent: Any) -> tuple[int, dict[str, Any]]:
        """Return the status of an answer and the object in it, which is empty where there is none."""
        if self._http is None:
            self._http = await asyncio.to_thread(
                httpx.AsyncClient, timeout=ANSWER_S, follow_redirects=False, trust_env=not self._is_here
            )
        sent["headers"] = {**sent.get("headers", {}), "Accept": "application/json", "Accept-Encoding": "identity"}
        body = bytearray()
        try:
            async with asyncio.timeout(ANSWER_S), self._http.stream(method, address, **sent) as answer:
                async for piece in answer.aiter_raw(MAX_ANSWER):
                    body += piece
                    if len(body) > MAX_ANSWER:
                        raise SignOnUnavailable(f"an answer of the provider has more than {MAX_ANSWER:,} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
            raise SignOnUnavailable(f"the provider does not answer ({type(error).__name__})") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        return answer.status_code, found if isinstance(found, dict) else {}


def secret_in(file: Path | None) -> str:
    """Return the client's secret in a file; empty without one.

    Raises:
        InvalidConfig: The file cannot be read, others may read it, or there is no secret in it.
    """
    if file is None:
        return ""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o077
            secret = opened.read(MAX_SECRET + 1).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"sso_secret_file: {file} cannot be read") from error
    if mode:
        raise InvalidConfig(f"sso_secret_file: others may read {file}; make it private: chmod 600 {file}")
    if not secret or len(secret) > MAX_SECRET or not secret.isprintable():
        raise InvalidConfig(f"sso_secret_file: {file} has no secret of 1 to {MAX_SECRET} printable characters")
    return secret


def _token(answer: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
    found = answer.get(name, "")
    if not isinstance(found, str) or len(found) > MAX_TOKEN or (needed and not found):
        raise SignOnRefused(f"the provider's {name} is no text of at most {MAX_TOKEN:,} characters", check="token")
    return found
