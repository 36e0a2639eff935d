"""ID tokens: a signature by a key of the provider, and claims that hold for this federation, this sign-on and now.

Source: OpenID Connect Core 1.0, 3.1.3.7; RFC 8725 for the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    InvalidKeyIdError,
    JoseError,
    MissingAlgorithmError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import KeySet

from fedplcc.shared.errors import SignOnRefused

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are taken: none by a secret that two share, and never "none"."""
MAX_TOKEN = 16 << 10
"""Most characters of a token."""
MAX_SUBJECT = 255
"""Most characters of a subject (OpenID Connect Core 1.0, 2)."""
LEEWAY_S = 30.0
"""Seconds by which the provider's clock may differ from the aggregator's."""


class UnknownKey(SignOnRefused):
    """The token names a key that is none of the provider's; newer keys may have it."""


def verified(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str | None, now: float
) -> Mapping[str, Any]:
    """Return the claims of an ID token.

    Args:
        token: JWS in compact form.
        nonce: What the sign-on's beginning sent; None where the way has none.
        now: Seconds since the epoch.

    Raises:
        UnknownKey: The key that it names is none of these.
        SignOnRefused: Anything else is wrong; the metadata's "check" says what.
    """
    if len(token) > MAX_TOKEN:
        raise refused("token", f"the ID token has more than {MAX_TOKEN:,} characters")
    try:
        claims = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
    except InvalidKeyIdError as error:
        raise UnknownKey("the ID token is signed by a key that the provider does not publish", check="key") from error
    except (UnsupportedAlgorithmError, MissingAlgorithmError) as error:
        raise refused("alg", f"the ID token's algorithm is none of {', '.join(ALGORITHMS)}") from error
    except BadSignatureError as error:
        raise refused("signature", "the ID token's signature is wrong") from error
    except (JoseError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise refused("token", "the ID token is malformed") from error
    if claims.get("iss") != issuer:
        raise refused("issuer", "the ID token is of another issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    party = claims.get("azp")
    if not isinstance(audiences, list) or client_id not in audiences or party not in (None, client_id):
        raise refused("audience", "the ID token is for another client")
    if len(audiences) > 1 and party is None:
        raise refused("audience", "the ID token is for several clients, and does not say which one asked for it")
    if nonce is not None and claims.get("nonce") != nonce:
        raise refused("nonce", "the ID token is of another sign-on")
    if ends_at(claims) <= now - LEEWAY_S:
        raise refused("expired", "the ID token has ended; is a clock wrong?")
    begins_at = max(_time(claims, "iat"), _time(claims, "nbf") if "nbf" in claims else -math.inf)
    if begins_at > now + LEEWAY_S:
        raise refused("future", "the ID token begins in the future; is a clock wrong?")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT:
        raise refused("subject", f"the ID token has no subject of 1 to {MAX_SUBJECT} characters")
    return claims


def ends_at(claims: Mapping[str, Any]) -> float:
    """Return when a token ends, in seconds since the epoch."""
    return _time(claims, "exp")


def refused(check: str, detail: str) -> SignOnRefused:
    """Return the refusal of a check."""
    return SignOnRefused(detail, check=check)


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise refused("token", f"the ID token's {name} is no time")
    return float(value)
