"""People sign on at a real provider process, through a real gateway and aggregator, in a browser and at a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.identity.keyed_federation import Keyed
from tests.support.identity.own_provider import CLIENT as OWN_CLIENT
from tests.support.identity.own_provider import SUBJECT, OwnProvider
from tests.support.identity.provider_process import ADA, ProviderProcess, sign_on

ORIGIN = {"X-Fedplcc-Console": "1"}
MINUTE_S = 60.0


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    if find_spec("oidc_provider_mock") is None:
        pytest.skip("oidc-provider-mock, the provider, is not installed")
    found = ProviderProcess(tmp_path_factory.mktemp("provider"))
    try:
        found.start()
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def keyed(provider: ProviderProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    with Keyed(folder) as federation:
        federation.begin(*provider.flags(folder / "client-secret"))
        yield federation


@pytest.fixture
def browser(keyed: Keyed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed.gateway_url, timeout=60, trust_env=False) as client:
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_browser_signs_on_acts_by_name_and_signs_out(
    keyed: Keyed, provider: ProviderProcess, browser: httpx.Client
) -> None:
    provider.set_user("ada", ADA)
    assert browser.get("/v1/sign-on").json() == {"name": "University login"}
    assert refusal(browser.get("/v1/me")) == (401, "KEY_INVALID")
    answer = sign_on(browser, provider, "ada")
    assert (answer.status_code, answer.headers["location"]) == (303, "/#signed-on"), answer.text
    session = next(each for each in answer.headers.get_list("set-cookie") if "fedpk_" in each)
    assert {"HttpOnly", "SameSite=strict"} <= set(session.split("; "))
    me = browser.get("/v1/me").json()
    assert (me["caller"], me["scopes"]) == ("person:Ada Lovelace <ada>", ["run"])
    assert refusal(browser.post("/v1/runs/absent/stop", headers=ORIGIN)) == (404, "RUN_NOT_FOUND")
    assert refusal(browser.post("/v1/runs/absent/stop")) == (403, "CROSS_ORIGIN")
    assert refusal(browser.get("/v1/audit")) == (403, "SCOPE_MISSING")
    assert "Ada Lovelace <ada>" in keyed.owner("key", "list")

    def told() -> bool:
        entries = keyed.ask("/v1/audit")["entries"]
        by_ada = {
            (each["method"], each["outcome"]) for each in entries if each["caller"] == "person:Ada Lovelace <ada>"
        }
        return by_ada >= {("SignOn", "done"), ("ListAudit", "refused")}

    eventually(told, "the audit names who signed on and what was refused")
    assert browser.post("/v1/session/end", headers=ORIGIN).status_code == 204
    assert refusal(browser.get("/v1/me")) == (401, "KEY_INVALID")


def test_a_way_back_is_good_once_and_in_the_browser_that_began(
    provider: ProviderProcess, browser: httpx.Client, keyed: Keyed
) -> None:
    provider.set_user("ada", ADA)
    led = browser.get("/v1/sign-on/start").headers["location"]
    back = provider.way_back(led, "ada")
    with httpx.Client(trust_env=False, timeout=60) as another:
        assert refusal(another.get(back)) == (401, "SIGN_ON_REFUSED")
        another.get(f"{keyed.gateway_url}/v1/sign-on/start")
        assert refusal(another.get(back)) == (401, "SIGN_ON_REFUSED")
    cookies = dict(browser.cookies)
    assert browser.get(back).status_code == 303
    with httpx.Client(trust_env=False, timeout=60, cookies=cookies) as replaying:
        assert refusal(replaying.get(back)) == (401, "SIGN_ON_REFUSED")


def test_a_page_of_another_site_begins_no_sign_on(browser: httpx.Client) -> None:
    answer = browser.get("/v1/sign-on/start", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"})
    assert (answer.headers["location"], dict(browser.cookies)) == ("/", {})


def test_who_has_no_role_is_not_admitted(provider: ProviderProcess, browser: httpx.Client) -> None:
    provider.set_user("eve", {"name": "Eve", "roles": ["strangers"]})
    answer = sign_on(browser, provider, "eve")
    assert refusal(answer) == (401, "SIGN_ON_REFUSED")
    assert answer.json()["metadata"]["check"] == "role"


def test_a_change_of_roles_and_a_locked_person_act_within_a_minute(
    provider: ProviderProcess, browser: httpx.Client
) -> None:
    provider.set_user("bob", {"name": "Bob", "roles": ["operators"]})
    assert sign_on(browser, provider, "bob").status_code == 303
    assert browser.get("/v1/me").json()["scopes"] == ["run"]
    provider.set_user("bob", {"name": "Bob", "roles": ["readers"]})
    eventually(lambda: browser.get("/v1/me").json()["scopes"] == ["read"], "fewer scopes", MINUTE_S)
    assert refusal(browser.post("/v1/runs/absent/stop", headers=ORIGIN)) == (403, "SCOPE_MISSING")
    assert provider.http.post("/users/bob/revoke-tokens").status_code == 204
    eventually(lambda: browser.get("/v1/me").status_code == 401, "signed off", MINUTE_S)
    assert refusal(browser.get("/v1/me")) == (401, "SIGN_ON_ENDED")


def test_a_persons_runs_are_stopped_with_the_session(
    keyed: Keyed, provider: ProviderProcess, browser: httpx.Client, data: Path
) -> None:
    provider.set_user("ada", ADA)
    sign_on(browser, provider, "ada")
    document = tiny_federation.run_document(tiny_federation.document(data, run={"clients": ["nobody"]}))
    run_id = browser.post("/v1/runs", json=document, headers=ORIGIN).json()["run_id"]
    (text,) = (value for value in dict(browser.cookies).values() if value.startswith("fedpk_"))
    keyed.owner("login", "--gateway", keyed.gateway_url)
    said = keyed.owner("key", "revoke", text.split("_")[1], "--stop-runs", "--gateway", keyed.gateway_url)
    assert run_id in said
    assert refusal(browser.get("/v1/me"))[0] == 401
    assert keyed.ask(f"/v1/runs/{run_id}")["status"] in ("stopping", "stopped")


def test_the_command_signs_on_at_a_terminal(tmp_path: Path) -> None:
    with OwnProvider() as provider, Keyed(tmp_path) as federation:
        provider.claims = {"nonce": None}
        federation.begin("--sso-issuer", provider.issuer, "--sso-client-id", OWN_CLIENT, "--sso-role", "operators=run")
        words = ("login", "--sign-on", "--gateway", federation.gateway_url)
        environment = {
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(tmp_path / "user"),
            "PATH": "",
            "HOME": str(tmp_path),
        }
        command = subprocess.Popen(
            [sys.executable, "-m", "fedplcc", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert command.stdout is not None
            assert f"open {provider.issuer}/type-the-code and type the code WDJB-MJHT" in command.stdout.readline()
            provider.has_signed_on.set()
            said, _ = command.communicate(timeout=MINUTE_S)
        finally:
            command.kill()
        assert command.returncode == 0, said
        assert "fedpk_" not in said
        assert federation.command("run", "list", "--gateway", federation.gateway_url).returncode == 0
        assert f"Ada Lovelace <{SUBJECT}>" in federation.owner("key", "list")
        done = federation.command("login", "--forget", "--gateway", federation.gateway_url)
        assert done.returncode == 0, done.stderr
        assert SUBJECT not in federation.owner("key", "list")


def test_nobody_signs_on_where_no_provider_is_set(tmp_path: Path) -> None:
    with Keyed(tmp_path) as federation:
        federation.begin()
        with httpx.Client(base_url=federation.gateway_url, timeout=60, trust_env=False) as client:
            assert client.get("/v1/sign-on").json() == {"name": ""}
            assert refusal(client.get("/v1/sign-on/start")) == (400, "FAILED_PRECONDITION")
            assert refusal(client.post("/v1/sign-on/terminal")) == (400, "FAILED_PRECONDITION")
