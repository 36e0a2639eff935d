"""What the metrics of real processes say of members: ends of certificates, refusals by reason, open invitations."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.errors import InvitationUsed
from fedplcc.shared.identity.certificates import new_key
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.wire.enrolling.enrolment import join
from tests.support.federation.processes import eventually
from tests.support.identity.keyed_federation import Keyed

DAY_S = 86_400.0


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Keyed]:
    with Keyed(tmp_path) as federation:
        federation.begin()
        yield federation


def scraped(url: str, headers: dict[str, str] | None = None) -> dict[str, float]:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=headers or {}), timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_of_members_follow_what_happens(federation: Keyed) -> None:
    aggregator = f"http://127.0.0.1:{federation.metrics_port}"
    _key_id, metrics_key = federation.new_key("metrics")

    def of_aggregator(name: str) -> float | None:
        return scraped(aggregator).get(f"fedplcc_{name}")

    own = federation.authority.not_after
    assert of_aggregator('certificate_expiry_timestamp_seconds{client="",role="aggregator"}') == own
    assert of_aggregator('certificate_life_seconds{client="",role="aggregator"}') == pytest.approx(30 * DAY_S, abs=2)

    # The gateway's own certificate, and a request that it refuses itself.
    held = Credentials.load(federation.folder / "gateway" / IDENTITY_FILE)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scraped(federation.gateway_url)
    found = scraped(federation.gateway_url, metrics_key)
    assert found['fedplcc_certificate_expiry_timestamp_seconds{client="",role="gateway"}'] == held.not_after
    assert found['fedplcc_refusals_total{reason="key_invalid"}'] == 1

    # An invitation, its certificate, and another key that comes with the same line.
    code = InvitationCode.parse(federation.owner("invite", "north", "--address", "127.0.0.1"))
    eventually(lambda: of_aggregator("invitations_open") == 2, "it is open beside the gateway's")
    joined = join(code, new_key())
    eventually(lambda: of_aggregator("invitations_open") == 1, "it is spent")
    client = 'certificate_expiry_timestamp_seconds{client="other",role="client"}'
    assert of_aggregator(client) == joined.not_after
    with pytest.raises(InvitationUsed):
        join(code, new_key())
    assert of_aggregator('refusals_total{reason="invitation_used"}') == 1
    state = str(federation.folder / "aggregator")
    eventually(lambda: "INVITATION_USED" in federation.command("state", "audit", state).stdout, "the audit has it")

    # An unknown key, which the aggregator refuses.
    key = metrics_key["Authorization"].removeprefix("Bearer ")
    federation.owner("key", "revoke", key.split("_")[1])
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scraped(federation.gateway_url, metrics_key)
    assert of_aggregator('refusals_total{reason="key_invalid"}') == 1
    federation.owner("client", "revoke", "north")
    assert of_aggregator(client) is None
