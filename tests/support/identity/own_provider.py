"""An OpenID provider of the tests' own on loopback, which gives any token that a test asks for, and codes for terminals."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT = "fedplcc-tests"
SUBJECT = "248289761001"


def new_key(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", parameters={"kid": kid, "use": "sig"})


class OwnProvider:
    """The provider: what a test sets is what it says from then on."""

    def __init__(self) -> None:
        self.keys = [new_key("one")]
        """Keys that it publishes; it signs with the last."""
        self.published: list[dict[str, Any]] = []
        """What it publishes before these."""
        self.claims: dict[str, Any] = {}
        """Claims of ID tokens that differ from good ones; None leaves one out."""
        self.userinfo: dict[str, Any] = {"sub": SUBJECT, "name": "Ada Lovelace", "roles": ["operators"]}
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        """Makes an ID token of claims."""
        self.refreshes = False
        self.statuses: dict[str, int] = {}
        """Status of the answers at a path, where it is not 200."""
        self.held: dict[str, threading.Event] = {}
        """What answers at a path wait for."""
        self.metadata: dict[str, Any] = {}
        """Metadata that differ."""
        self.has_signed_on = threading.Event()
        """Whether the person at a terminal has typed the code."""
        self.asked: Counter[str] = Counter()
        """Requests by path."""
        self.forms: list[dict[str, str]] = []
        """Forms that the token endpoint got."""
        self._numbers = itertools.count()
        self._nonces: dict[str, tuple[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def code_for(self, url: str) -> tuple[str, str]:
        """Return code and state for a browser that opened the authorization address."""
        asked = dict(parse_qsl(urlsplit(url).query, strict_parsing=True))
        assert (asked["response_type"], asked["client_id"], asked["code_challenge_method"]) == ("code", CLIENT, "S256")
        code = f"code-{next(self._numbers)}"
        self._nonces[code] = asked["nonce"], asked["code_challenge"]
        return code, asked["state"]

    def good_claims(self, nonce: str | None) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": SUBJECT, "aud": CLIENT, "iat": now, "exp": now + 600, "nonce": nonce}
        return {name: value for name, value in (claims | self.claims).items() if value is not None}

    def signed(self, claims: dict[str, Any], key: ECKey | None = None, kid: str | None = None) -> str:
        key = key or self.keys[-1]
        return jwt.encode({"alg": "ES256", "kid": kid or key.kid}, claims, key)

    def unsigned(self, claims: dict[str, Any], alg: str = "none") -> str:
        """A token without a signature, with the algorithm "none"."""
        header = {"alg": alg, "kid": self.keys[-1].kid}
        return ".".join(_url_base64(json.dumps(part).encode()) for part in (header, claims)) + "."

    def signed_by_the_public_key(self, claims: dict[str, Any]) -> str:
        """A token whose HMAC has the public key for a secret, which everybody knows."""
        body = self.unsigned(claims, "HS256")[:-1]
        secret = self.keys[-1].as_pem(private=False)
        return f"{body}.{_url_base64(hmac.new(secret, body.encode(), hashlib.sha256).digest())}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return status and document of an answer."""
        if path in self.statuses:
            return self.statuses[path], {"error": "server_error"}
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "jwks_uri": f"{self.issuer}/keys",
                "device_authorization_endpoint": f"{self.issuer}/device",
                **self.metadata,
            }
        if path == "/keys":
            return 200, {"keys": [*self.published, *(key.as_dict(private=False) for key in self.keys)]}
        if path == "/userinfo":
            return 200, self.userinfo
        if path == "/device":
            return 200, {
                "device_code": "device-code",
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.issuer}/type-the-code",
                "expires_in": 300,
                "interval": 1,
            }
        return self._tokens(form)

    def _tokens(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        nonce: str | None = None
        if form["grant_type"] == "authorization_code":
            nonce, challenge = self._nonces.pop(form["code"], ("", ""))
            if _url_base64(hashlib.sha256(form["code_verifier"].encode()).digest()) != challenge:
                return 400, {"error": "invalid_grant"}
        elif form["grant_type"].endswith("device_code") and not self.has_signed_on.is_set():
            return 400, {"error": "authorization_pending"}
        tokens = {"access_token": "access", "token_type": "Bearer", "expires_in": 600}
        tokens["id_token"] = self.sign(self.good_claims(nonce))
        return 200, tokens | ({"refresh_token": "refresh"} if self.refreshes else {})

    def _handler(provider) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._answer({name: values[0] for name, values in parse_qs(body).items()})

            def _answer(self, form: dict[str, str]) -> None:
                provider.asked[self.path] += 1
                if self.path in provider.held:
                    provider.held[self.path].wait(60)
                status, document = provider.answer(self.path, form)
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _url_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
