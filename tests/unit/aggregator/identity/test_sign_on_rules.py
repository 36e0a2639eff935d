"""What an owner's rules make of a person's claims: the name in the audit and the scopes; and who may read the secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.identity.sign_on.provider import secret_in
from fedplcc.aggregator.identity.sign_on.rules import Rules
from fedplcc.shared import errors
from fedplcc.shared.config.settings import AggregatorSettings
from fedplcc.shared.identity.api_keys import Scope

RULES = Rules("roles", [("operators", Scope.RUN), ("readers", Scope.READ)], (), "name")


@pytest.mark.parametrize(
    ("subject", "claims", "person"),
    [
        ("7", {"name": "Ada <root>\x1b"}, "Ada ?root?? <7>"),
        ("7", {"name": "A" * 100}, "A" * 64 + " <7>"),
        ("7", {"name": 3}, "nameless <7>"),
        ("s" * 200, {"name": "Ada"}, "Ada <sha256:"),
        ("a>b", {"name": "Ada"}, "Ada <sha256:"),
        ("sha256:0123456789abcdef", {"name": "Ada"}, "Ada <sha256:bdee"),
    ],
)
def test_nobody_takes_the_name_of_another_in_the_audit(subject: str, claims: dict[str, Any], person: str) -> None:
    found = RULES.person(claims, subject)
    assert found.startswith(person)
    assert len(f"person:{found}") <= 128


def test_a_value_may_stand_for_several_scopes() -> None:
    roles = ("admins=admin", "admins=metrics", "a=b=run")
    rules = Rules.of(AggregatorSettings(sso_issuer="https://login.example.org", sso_client_id="c", sso_role=roles))
    assert rules.scopes_of({"roles": "admins"}) == {Scope.ADMIN, Scope.METRICS}
    assert rules.scopes_of({"roles": ["a=b", {}, 1]}) == {Scope.RUN}


def test_a_claim_may_lie_within_objects() -> None:
    rules = replace(RULES, claim="realm_access.roles")
    assert rules.scopes_of({"realm_access": {"roles": ["readers"]}}) == {Scope.READ}
    assert rules.scopes_of({"realm_access.roles": "readers"}) == {Scope.READ}
    assert not rules.has_claim({"realm_access": ["readers"]})


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content, mode in ((b"s", 0o640), (b"", 0o600), (b"x" * 2000, 0o600), (b"\xff", 0o600)):
        file.write_bytes(content)
        file.chmod(mode)
        with pytest.raises(errors.InvalidConfig):
            secret_in(file)
    file.write_bytes(b"s\n")
    assert (secret_in(file), secret_in(None)) == ("s", "")
    file.unlink()
    with pytest.raises(errors.InvalidConfig):
        secret_in(file)
