"""The page of messages: who is told, how the last one went, and a test by hand."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from fedplcc.shared.steering import StopRun
from tests.support.hosts.message_receivers import status, webhook_host
from tests.support.screens.browsing import Console


def test_a_gateway_without_receivers_says_how_to_have_some(console: Console) -> None:
    page = console.open("#/clients").page
    page.get_by_role("link", name="Messages to people").click()
    main = page.locator("main")
    expect(main.get_by_role("heading", name="Messages to people")).to_be_visible()
    expect(main).to_contain_text("fedplcc gateway --messages messages.toml")


def test_the_page_shows_the_receivers_and_sends_a_test(console: Console, tmp_path: Path) -> None:
    file, secret, served = tmp_path / "messages.toml", tmp_path / "secret", console.served
    secret.touch(0o600)
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    with webhook_host() as host:
        file.write_text(f'[receivers.ops]\nkind = "webhook"\nurl = "{host.url}"\nsecret_file = "secret"\n')
        served.stop()
        served.settings = served.settings.model_copy(update={"messages": file, "state_dir": tmp_path / "gateway"})
        served.start()
        page = console.open("#/messages").page
        row = page.locator("main tbody tr")
        expect(row).to_contain_text("webhook, 127.0.0.1")
        expect(row).to_contain_text("none yet")
        expect(page.locator("main")).not_to_contain_text("not-to-be-shown")
        button = row.get_by_role("button", name="Send ops a test")
        button.click()
        expect(row.get_by_role("status")).to_have_text("The test arrived.")
        host.says(status("503 no"))
        button.click()
        expect(row.get_by_role("status")).to_have_text("It did not arrive: HTTP status 503.")
        run_id = served.create()
        served.federation.coordinator.steer(run_id, StopRun(reason=""))
        expect(row.locator(".error")).to_have_text("HTTP status 503.")
        host.says(status("200 well"))
        expect(row).to_contain_text("run stopped")
