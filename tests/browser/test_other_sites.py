"""The gateway refuses requests of other sites' pages, in a browser that names the origin of every request."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.screens.browsing import Console


def test_a_page_of_another_site_stops_no_run(console: Console) -> None:
    run_id = console.served.create()
    stop = f"{console.served.url}/v1/runs/{run_id}/stop"
    console.tolerate("asked another origin|status of 403|ERR_BLOCKED_BY_RESPONSE|ERR_FAILED|favicon|CORS")
    console.blank(console.served.url.replace("127.0.0.1", "localhost"))
    # Neither of these asks the gateway first whether it may: it is a request that any page may send.
    refused = console.page.evaluate(
        "(url) => fetch(url, { method: 'POST', mode: 'no-cors' }).then(() => '', (error) => String(error))", stop
    )
    assert "Failed to fetch" in refused, "not even that it was refused can be read"
    with console.page.expect_navigation():
        console.page.evaluate(
            "(url) => { const form = document.createElement('form'); Object.assign(form, { method: 'POST', action: url });"
            " document.body.append(form); form.submit(); }",
            stop,
        )
    assert "CROSS_ORIGIN" in console.page.content()
    assert console.served.http.get(f"/v1/runs/{run_id}").json()["status"] in ("pending", "running")

    console.open(f"#/runs/{run_id}")
    console.page.get_by_role("button", name="Stop …").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Stop the run").click()
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    assert console.served.http.get(f"/v1/runs/{run_id}").json()["status"] in ("stopping", "stopped")


def test_no_other_site_can_show_the_console_in_a_frame(console: Console) -> None:
    console.tolerate("frame-ancestors|Framing|ERR_BLOCKED_BY|asked another origin|favicon|chrome-error")
    console.blank(console.served.url.replace("127.0.0.1", "localhost"))
    console.page.evaluate(
        "(url) => new Promise((done) => { const frame = document.createElement('iframe'); frame.src = url;"
        " frame.onload = done; document.body.append(frame); })",
        f"{console.served.url}/",
    )
    assert all("Overview" not in frame.content() for frame in console.page.frames)
