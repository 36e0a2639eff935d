"""A browser opens the console of a gateway that asks for keys, with a code of `fedplcc console`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.identity.keyed_federation import Keyed
from tests.support.identity.provider_process import ADA, ProviderProcess


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.begin()
        yield federation


def test_a_code_opens_the_console_and_leaves_the_address(browser: Browser, keyed: Keyed) -> None:
    code = keyed.code()
    context = browser.new_context()
    try:
        page = context.new_page()
        with page.expect_response("**/v1/console/sessions") as opened:
            page.goto(f"{keyed.gateway_url}/#code={code}")
        assert opened.value.status == 204
        page.wait_for_url(f"{keyed.gateway_url}/#/")
        with page.expect_response("**/v1/runs*") as listed:
            page.reload()
        assert listed.value.status == 200
        assert code not in page.evaluate("location.href + JSON.stringify(history.state) + document.cookie")
        assert page.evaluate("document.cookie") == ""
        cookies = context.cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
        page.go_back()
        assert code not in page.url
    finally:
        context.close()


def test_a_person_signs_in_at_the_provider_and_out_again(browser: Browser, tmp_path: Path) -> None:
    if find_spec("oidc_provider_mock") is None:
        pytest.skip("oidc-provider-mock, the provider, is not installed")
    provider = ProviderProcess(tmp_path)
    context = browser.new_context()
    try:
        provider.start()
        provider.set_user("ada", ADA)
        with Keyed(tmp_path) as federation:
            federation.begin(*provider.flags(tmp_path / "client-secret"))
            page = context.new_page()
            page.goto(federation.gateway_url)
            page.get_by_role("link", name="Sign in with University login").click()
            page.wait_for_url(f"{provider.issuer}/**")
            page.locator("input[name=sub]").fill("ada")
            page.locator("input[name=sub]").press("Enter")
            page.wait_for_url(f"{federation.gateway_url}/#/")
            assert page.evaluate("document.cookie") == ""
            button = page.get_by_role("button", name="Sign out")
            expect(button).to_have_attribute("title", "Signed in by Ada Lovelace <ada>")
            button.click()
            provider.set_user("eve", {"name": "Eve", "roles": ["strangers"]})
            page.get_by_role("link", name="Sign in with University login").click()
            page.locator("input[name=sub]").fill("eve")
            page.locator("input[name=sub]").press("Enter")
            page.wait_for_url(f"{federation.gateway_url}/#/")
            expect(page.locator("body")).to_contain_text(
                "Signing in failed. The provider knows you, and gives you no role"
            )
            page.goto(f"{federation.gateway_url}/v1/sign-on/callback?error=access_denied&state=x")
            expect(page.locator("body")).to_contain_text("Signing in failed. It began too long ago")
    finally:
        context.close()
        provider.end()
