"""The owner's rules of single sign-on: what a claim lets people do, which sign-ons suffice, and what people are called."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.aggregator.identity.sign_on.id_tokens import refused
from fedplcc.shared.config.settings import AggregatorSettings
from fedplcc.shared.identity.api_keys import Scope

MAX_NAME = 64
"""Most characters of a person's name in the audit; the rest is cut off."""
MAX_SUBJECT = 48
"""Most characters of a subject in the audit; of a longer one the audit has the SHA-256."""
HASHED = "sha256:"
"""Begins what the audit has in a subject's place."""
MAX_VALUES = 1_000
"""Most values of a claim that are looked at."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules."""

    claim: str
    scopes: Collection[tuple[str, Scope]]
    """What values of the claim let a person do; a value may stand for several scopes."""
    acr: Collection[str]
    """Values of `acr` that suffice; any if empty."""
    name_claim: str

    @classmethod
    def of(cls, settings: AggregatorSettings) -> Rules:
        """Return the rules of the settings."""
        scopes = [(value, Scope(scope)) for value, _, scope in (text.rpartition("=") for text in settings.sso_role)]
        return cls(settings.sso_claim, scopes, settings.sso_acr, settings.sso_name_claim)

    def has_claim(self, claims: Mapping[str, Any]) -> bool:
        """Whether claims have the one that tells what a person may do."""
        return _value(claims, self.claim) is not None

    def scopes_of(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return what a person with these claims may do.

        Raises:
            SignOnRefused: Nothing.
        """
        value = _value(claims, self.claim)
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        held = {each for each in values[:MAX_VALUES] if isinstance(each, str)}
        found = frozenset(scope for name, scope in self.scopes if name in held)
        if not found:
            raise refused(
                "role", "the provider knows you, and the owner of the federation has given your roles nothing"
            )
        return found

    def require_acr(self, claims: Mapping[str, Any]) -> None:
        """Refuse a sign-on that was too weak.

        Raises:
            SignOnRefused: `acr` is none of those that suffice.
        """
        if self.acr and claims.get("acr") not in self.acr:
            raise refused("acr", "the sign-on is too weak: sign on with the second factor that the owner asks for")

    def person(self, claims: Mapping[str, Any], subject: str) -> str:
        """Return a person's name with the subject, which no other person of the provider has."""
        name = _value(claims, self.name_claim)
        shown = _plain(name)[:MAX_NAME].strip() if isinstance(name, str) else ""
        is_told = len(subject) <= MAX_SUBJECT and subject.isascii() and _plain(subject) == subject
        is_told &= not subject.startswith(HASHED)
        digest = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
        told = subject if is_told else f"{HASHED}{digest[:32]}"
        return f"{shown or 'nameless'} <{told}>"


def _plain(text: str) -> str:
    return "".join(each if each.isprintable() and each not in "<>" else "?" for each in text[:256])


def _value(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by its name, or by a path with dots; None without it."""
    if name in claims:
        found: object = claims[name]
        return found
    found = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
