"""Ends of certificates: which of them metrics show, and what the log says when one comes near."""

from __future__ import annotations

import pytest

from fedplcc.aggregator.identity.admissions import DAY_S, RECOVERY_S
from fedplcc.aggregator.identity.certificate_ends import CertificateEnds
from fedplcc.aggregator.store.base import Certificate
from fedplcc.shared.process.certificate_metrics import CertificateSpan
from fedplcc.shared.process.metrics import OTHER

NOW = 1_800_000_000.0
LIFE_S = 30 * DAY_S


def issued(
    name: str, *, left_days: float, role: str = "client", serial: str = "", is_revoked: bool = False
) -> Certificate:
    ends_at = NOW + left_days * DAY_S
    return Certificate(
        serial=serial or f"{name}-{left_days}",
        role=role,
        name=name,
        public_key_sha256="",
        issued_at=ends_at - LIFE_S,
        not_after=ends_at,
        revoked_at=NOW if is_revoked else None,
        pem="",
    )


def span(role: str, client: str, left_days: float) -> CertificateSpan:
    return CertificateSpan(role, client, NOW + left_days * DAY_S, LIFE_S)


def ends_of(*certificates: Certificate) -> CertificateEnds:
    return CertificateEnds(certificates, lambda: NOW)


def test_of_other_holders_the_one_that_ends_first_is_shown_for_each_role() -> None:
    ends = ends_of(
        issued("north", left_days=9),
        issued("south", left_days=8),
        issued("console", left_days=7, role="gateway"),
        issued("spare", left_days=6, role="gateway"),
        issued("north", left_days=5, role="monitor"),
    )
    shown = ends.spans({"east"})
    assert shown == [span("client", OTHER, 8), span("gateway", "", 6), span("monitor", "", 5)]


def test_who_has_left_is_not_shown_and_an_absent_client_of_a_run_is() -> None:
    ends = ends_of(issued("north", left_days=-1), issued("south", left_days=-2))
    assert ends.spans({"north"}) == [span("client", "north", -1)]


def test_a_renewal_counts_at_once_and_a_revocation_removes_the_holder() -> None:
    ends = ends_of(issued("north", left_days=2), issued("south", left_days=4, is_revoked=True))
    ends.issued(issued("north", left_days=30, serial="new"))
    assert ends.spans({"north", "south"}) == [span("client", "north", 30)]
    ends.revoked({"north-2"})
    assert ends.spans({"north"}) == [span("client", "north", 30)], "an older one was revoked"
    ends.revoked({"new"})
    assert ends.spans({"north"}) == []


def test_the_log_says_once_that_a_certificate_ends_soon_and_once_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "fedplcc.aggregator.identity.certificate_ends.log.warning",
        lambda event, **facts: said.append((event, facts["name"])),
    )
    now = [NOW]
    ends = CertificateEnds([issued("north", left_days=11), issued("south", left_days=29)], lambda: now[0])
    ends.look()
    assert said == []
    now[0] += 1.5 * DAY_S
    ends.look()
    ends.look()
    assert said == [("certificate_ends_soon", "north")]
    now[0] += 10 * DAY_S
    ends.look()
    ends.look()
    assert said[1:] == [("certificate_ended", "north")]
    now[0] += 9 * DAY_S
    ends.look()
    assert said[2:] == [("certificate_ends_soon", "south")]


def test_a_holder_that_nobody_can_recover_is_forgotten() -> None:
    now = [NOW]
    ends = CertificateEnds([issued("north", left_days=1)], lambda: now[0])
    now[0] += RECOVERY_S + 2 * DAY_S
    ends.look()
    assert ends.spans({"north"}) == []
