"""The harness notices what a page does wrong: without this, a green test of the console would say nothing."""

from __future__ import annotations

import pytest

from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console

OFF_HOST = "http://192.0.2.1:9/"
"""An address that is nobody's (RFC 5737)."""
JSON_HAS_NO_ICON = "/favicon.ico"
"""Chromium asks for one where a page names none."""


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; nothing happens in its federation."""
    return served_by_module


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("console.error('it broke')", "console error: it broke"),
        ("setTimeout(() => { throw new Error('nobody caught it') })", "uncaught: nobody caught it"),
        ("Promise.reject(new Error('nobody awaited it'))", "uncaught: nobody awaited it"),
        ("fetch('/v1/runs/unknown').then(() => 0)", "status of 404"),
        (f"fetch('{OFF_HOST}').catch(() => 0)", "asked another origin: GET http://192.0.2.1"),
        ("fetch('http://localhost:1/').catch(() => 0)", "asked another origin: GET http://localhost:1/"),
    ],
)
def test_what_goes_wrong_in_a_page_is_noticed(console: Console, script: str, said: str) -> None:
    console.blank()
    console.page.evaluate(f"() => {{ {script} }}")
    console.eventually(lambda: any(said in problem for problem in console.problems), f"{said!r} in {console.problems}")
    assert any(said in problem for problem in console.unforeseen())

    console.tolerate("")
    assert not console.unforeseen()


def test_what_goes_wrong_in_a_second_tab_is_noticed_as_well(console: Console) -> None:
    other = console.another("v1/problems")
    other.page.evaluate("() => console.error('it broke')")
    other.eventually(lambda: other.problems, "the message comes")

    console.tolerate(JSON_HAS_NO_ICON)
    assert [problem.split(" (")[0] for problem in console.unforeseen()] == ["console error: it broke"]
    console.tolerate("it broke")
    assert not console.unforeseen()


def test_what_keeps_somebody_out_is_noticed(console: Console) -> None:
    console.open()
    assert not console.barriers()
    console.page.evaluate("() => document.querySelector('main').append(document.createElement('img'))")
    assert any(found.startswith("image-alt (critical)") for found in console.barriers())

    console.page.evaluate("() => document.body.style.setProperty('width', '3000px')")
    assert console.overflow_px() > 1000


def test_a_quiet_page_has_no_problems(console: Console) -> None:
    console.open("v1/problems")
    console.tolerate(JSON_HAS_NO_ICON)
    assert not console.unforeseen()
    assert console.requests == ["GET /v1/problems"]
