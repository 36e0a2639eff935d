"""Limits of requests at a real gateway: of an address, of a key, and of keys that are tried out."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fedplcc.gateway.http.guards.rate_limits import RateLimits
from fedplcc.shared.identity.api_keys import api_key_text
from tests.support.federation.processes import eventually
from tests.support.federation.served_gateway import ServedGateway
from tests.support.identity.keyed_federation import Keyed

NEVER = "0.000001"
"""So slow a rate that there is one token, and nothing comes back while a test runs."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("limits")) as federation:
        federation.begin()
        yield federation


def restarted(keyed: Keyed, *flags: str) -> httpx.Client:
    """A client of the gateway with other limits and full buckets."""
    keyed.processes.pop("gateway").kill()
    keyed.start_gateway(*flags)
    return httpx.Client(base_url=keyed.gateway_url, timeout=None, trust_env=False)


def guess() -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key_text(secrets.token_hex(6), secrets.token_bytes(32))}"}


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert answer.status_code != 429 or int(answer.headers["retry-after"]) >= 1
    problem = answer.json()
    return answer.status_code, problem["code"], problem.get("metadata", {}).get("limit", "")


def test_the_audit_names_who_guessed(keyed: Keyed) -> None:
    """The first test of the file: the aggregator writes one record a minute of a gateway's refusals of this kind."""
    _, admin = keyed.new_key("admin")
    flags = ("--guess-rate", NEVER, "--trusted-proxy", "127.0.0.1")
    with restarted(keyed, *flags) as http:
        assert http.get("/v1/runs", headers=admin).status_code == 200
        for _ in range(12):
            http.get("/v1/runs", headers={**guess(), "X-Forwarded-For": "192.0.2.99"})

        def entries() -> list[dict[str, object]] | None:
            page = http.get("/v1/audit", headers=admin).json()
            found = [each for each in page["entries"] if each["reason"] == "TOO_MANY_REQUESTS"]
            return [each for each in found if each["address"] == "192.0.2.99"] or None

        found = eventually(entries, "the audit has the refusals")
        assert {(each["caller"], each["outcome"], each["target"]) for each in found} == {
            ("gateway:console", "refused", "failed_keys")
        }


def test_guessing_ends_and_known_keys_go_on(keyed: Keyed) -> None:
    _, known = keyed.new_key("read", "metrics")
    _, new = keyed.new_key("read")
    with restarted(keyed, "--guess-rate", NEVER) as http:
        assert http.get("/v1/runs", headers=known).status_code == 200
        assert refusal(http.get("/v1/runs", headers=guess()))[:2] == (401, "KEY_INVALID")
        for headers in (guess(), new):
            assert refusal(http.get("/v1/runs", headers=headers)) == (429, "TOO_MANY_REQUESTS", "failed_keys")
        answer = http.post("/v1/console/sessions", json={"code": "a guess"})
        assert refusal(answer) == (429, "TOO_MANY_REQUESTS", "failed_keys")
        assert http.get("/v1/runs", headers=known).status_code == 200
        assert http.get("/").status_code == 200
        metrics = http.get("/metrics", headers=known).text
        assert re.search(r'rate_limited_total\{[^}]*"failed_keys"[^}]*\} 3\.0', metrics)


def test_wrong_codes_of_the_console_are_guesses(keyed: Keyed) -> None:
    with restarted(keyed, "--guess-rate", NEVER) as http:
        assert http.post("/v1/console/sessions", json={"code": "a guess"}).status_code == 401
        assert http.post("/v1/console/sessions", json={"code": keyed.code()}).status_code == 429


def test_one_key_is_limited_and_another_is_not(keyed: Keyed) -> None:
    (_, busy), (_, calm) = keyed.new_key("read"), keyed.new_key("read")
    with restarted(keyed, "--key-rate", NEVER) as http:
        assert http.get("/v1/runs", headers=busy).status_code == 200
        assert refusal(http.get("/v1/runs", headers=busy)) == (429, "TOO_MANY_REQUESTS", "key")
        assert http.get("/v1/runs", headers=calm).status_code == 200


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    """A gateway in whose buckets is one token, and nothing comes back."""
    with ServedGateway(tmp_path) as gateway:
        gateway.services.rate_limits = RateLimits(1e-6, 1e-6, 1e-6)
        yield gateway


def test_an_address_is_limited_and_probes_of_the_process_are_not(served: ServedGateway) -> None:
    served.services.trusted_proxies = (ipaddress.ip_network("127.0.0.1"),)
    named = {"X-Forwarded-For": "203.0.113.9, 192.0.2.7"}
    assert served.http.get("/", headers=named).status_code == 200
    for forged in ("192.0.2.7", "198.51.100.1, 192.0.2.7"):
        answer = served.http.get("/v1/runs", headers={"X-Forwarded-For": forged})
        assert refusal(answer) == (429, "TOO_MANY_REQUESTS", "address")
    assert served.http.get("/", headers={"X-Forwarded-For": "192.0.2.7, 192.0.2.8"}).status_code == 200
    assert [served.http.get("/livez", headers=named).status_code for _ in range(30)] == [200] * 30


def test_the_word_of_a_proxy_that_is_not_listed_does_not_count(served: ServedGateway) -> None:
    found = [served.http.get("/", headers={"X-Forwarded-For": f"192.0.2.{n}"}).status_code for n in range(3)]
    assert found == [200, 429, 429]


def test_the_cookie_is_secure_behind_a_listed_proxy_that_ends_tls(keyed: Keyed) -> None:
    for flags, is_secure in (((), False), (("--trusted-proxy", "127.0.0.0/8"), True)):
        with restarted(keyed, *flags) as http:
            headers = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
            answer = http.post("/v1/console/sessions", json={"code": keyed.code()}, headers=headers)
            assert ("Secure" in answer.headers["set-cookie"].split("; ")) is is_secure
