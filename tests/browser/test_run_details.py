"""The parts of a run's page for who looks closer: configuration, classes, range of rounds, tags and notes, files."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console, in_every_look

ASKING = {"evaluation": {"confusion": True}}


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; each has a run of its own."""
    return served_by_module


def opened(console: Console, heading: str) -> Locator:
    """The part of a run's page that this summary opens."""
    part = console.page.locator("details").filter(has=console.page.get_by_role("heading", name=heading, exact=True))
    part.locator("summary").first.click()
    return part


@in_every_look
def test_every_key_is_shown_and_those_off_default_are_marked(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 3}, training={"batch_size": 7})
    console.open(f"#/runs/{run_id}")
    part = opened(console, "Configuration")
    document = console.served.http.get(f"/v1/runs/{run_id}").json()["config"]
    form = console.served.http.get("/v1/run-configuration").json()
    settings = next(each["settings"] for each in form["methods"] if each["name"] == "fedplcc")
    keys = {f"{section}.{key}" for section, schema in form["sections"].items() for key in schema["properties"]}
    keys |= {f"method.{key}" for key in settings["properties"]}
    keys |= {f"{section}.{key}" for section, values in document.items() for key in values}
    expect(part.locator("tbody tr")).to_have_count(len(keys))
    batch = part.get_by_role("row").filter(has_text="batch_size").first
    expect(batch).to_contain_text("7 changed")
    expect(batch).to_contain_text(str(form["defaults"]["training"]["batch_size"]))
    expect(part.get_by_role("row", name=re.compile(r"^classes \["))).to_contain_text("has none")

    part.get_by_label("Only those off default").check()
    names = part.locator("tbody th").all_text_contents()
    assert "batch_size" in names
    assert "rounds" in names
    assert "evaluation_batch_size" not in names
    part.get_by_label("Find a key").fill("training.b")
    expect(part.locator("tbody th")).to_have_text(["batch_size"])
    expect(part.get_by_role("status")).to_contain_text(f"1 key shown of {len(keys)}; ")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"configuration-{console.page.viewport_size and console.page.viewport_size['width']}")


@in_every_look
def test_accuracy_per_class_and_confusion_are_tables_by_round_and_domain(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 3}, **ASKING)
    console.open(f"#/runs/{run_id}")
    assert not any("/evaluations" in asked for asked in console.requests), "it is read when somebody opens it"
    part = opened(console, "Classes")
    reports = console.served.http.get(f"/v1/runs/{run_id}/evaluations?round=3").json()["evaluations"]
    domains = [each["domain"] for each in reports]
    counts = reports[0]["counts"][0]
    table = part.get_by_role("region", name="Accuracy per class by domain")
    expect(table.get_by_role("columnheader")).to_have_text(["Class", *domains, "all domains"])
    for index, name in enumerate(["a", "b", "c"]):
        share = counts["correct"][index] / counts["total"][index]
        expect(table.get_by_role("row", name=re.compile(f"^{name} ")).get_by_role("cell").first).to_have_text(
            f"{100 * share:.1f} %"
        )
    beside = part.get_by_role("region", name="Accuracy per class by round")
    expect(beside.get_by_role("columnheader")).to_have_text(["Class", "1", "2", "3"])

    part.locator(".filters").get_by_label("Domain").select_option(domains[0])
    matrix = part.get_by_role("region", name="Confusion of classes")
    cells = [str(value) for value in counts["confusion"][0]]
    expect(matrix.get_by_role("row", name=re.compile("^a ")).get_by_role("cell")).to_have_text([*cells, "0"])
    said = [counts["scores"][score][0] for score in ("recall", "precision", "specificity", "f1")]
    scores = part.get_by_role("region", name="Scores of each class")
    expect(scores.get_by_role("row", name=re.compile("^a ")).get_by_role("cell")).to_have_text(
        ["\u2013" if value is None else f"{100 * value:.1f} %" for value in said]
    )
    part.locator(".filters").get_by_label("Round").select_option("1")
    expect(matrix.locator("caption")).to_contain_text(f"Images of {domains[0]} in round 1")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"classes-{console.page.viewport_size and console.page.viewport_size['width']}")


@pytest.mark.full
def test_counts_of_a_domain_are_the_sum_of_its_clients(console: Console) -> None:
    def report(client: str, domain: str, correct: list[int], **more: Any) -> dict[str, Any]:
        counts = {"set_name": "test", "model": "global", "correct": correct, "total": [4, 0], "confusion": None}
        return {"client_id": client, "domain": domain, "counts": [{**counts, **more}]}

    module, key = "classes/counts.js", "test global"
    reports = [report("cid", "b", [1, 0]), report("ann", "a", [2, 0]), report("bob", "a", [4, 0])]
    reports[0]["counts"].append({**reports[0]["counts"][0], "set_name": "test/fgsm", "model": "local"})
    console.open("#/nowhere")
    found = console.within(
        module, "(module, [reports, key]) => [...module.countsByDomain(reports, key)]", [reports, key]
    )
    assert {domain: counts["correct"] for domain, counts in found} == {"a": [6, 0], "b": [1, 0], "all domains": [7, 0]}
    assert console.call(module, "classAccuracy", found[0][1], 0) == 0.75
    assert console.call(module, "classAccuracy", found[0][1], 1) is None, "there is no image of this class"
    assert console.call(module, "setsOf", reports) == [
        {"key": "test global", "label": "global model, test images"},
        {"key": "test/fgsm local", "label": "clients' own models, test images under fgsm"},
    ]
    assert console.call(module, "spreadOut", list(range(1, 101)), 3) == [1, 51, 100]


@pytest.mark.full
def test_curves_show_a_range_of_rounds_that_the_link_keeps(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 6})
    console.open(f"#/runs/{run_id}")
    page = console.page
    accuracy = page.get_by_role("region", name="Accuracy", exact=True)
    slider = accuracy.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuemax", "6")
    fields = page.get_by_role("group", name="Rounds that the charts show")
    fields.get_by_label("From round").fill("2")
    fields.get_by_label("To round").fill("4")
    fields.get_by_label("To round").press("Enter")
    for chart in (slider, page.get_by_role("region", name="Training loss").get_by_role("slider")):
        expect(chart).to_have_attribute("aria-valuemin", "2")
        expect(chart).to_have_attribute("aria-valuemax", "4")
    assert page.url.endswith(f"#/runs/{run_id}?from=2&to=4")
    other = console.another(f"#/runs/{run_id}?from=2&to=4")
    shown = other.page.get_by_role("region", name="Accuracy", exact=True).get_by_role("slider")
    expect(shown).to_have_attribute("aria-valuemax", "4")
    fields.get_by_role("button", name="All rounds").click()
    expect(slider).to_have_attribute("aria-valuemax", "6")
    assert page.url.endswith(f"#/runs/{run_id}")

    slider.press("Home")
    slider.press("+")
    expect(slider).to_have_attribute("aria-valuemax", "4")
    slider.press("-")
    expect(slider).to_have_attribute("aria-valuemax", "6")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.41 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.99 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    expect(slider).to_have_attribute("aria-valuemin", "3")
    expect(slider).to_have_attribute("aria-valuemax", "6")
    fields.get_by_label("From round").fill("90")
    fields.get_by_label("From round").press("Enter")
    expect(accuracy.get_by_text("There is nothing in rounds from 90.")).to_be_visible()
    expect(slider).to_be_hidden()


@pytest.mark.full
@in_every_look
def test_tags_and_notes_are_changed_in_the_page(console: Console) -> None:
    run_id = console.served.create_and_finish(run={"rounds": 1})
    console.open(f"#/runs/{run_id}")
    card = console.page.get_by_role("region", name="Tags and notes")
    expect(card).to_contain_text("None yet.")
    card.get_by_role("button", name="Edit").click()
    expect(card.get_by_role("textbox", name="Tags")).to_be_focused()
    card.get_by_role("textbox", name="Tags").fill("paper no<b>")
    card.get_by_role("textbox", name="Notes").fill("first\n<b>try</b>")
    console.tolerate("400|422")
    card.get_by_role("button", name="Save").click()
    expect(card.get_by_role("alert")).to_contain_text("This was not saved.")
    assert console.barriers() == []
    card.get_by_role("textbox", name="Tags").fill("paper, seed=1 paper")
    card.get_by_role("button", name="Save").click()
    expect(card.get_by_role("listitem")).to_have_text(["paper", "seed=1"])
    expect(card.locator(".notes")).to_have_text("first\n<b>try</b>")
    expect(card.get_by_role("button", name="Edit")).to_be_focused()
    document = console.served.http.get(f"/v1/runs/{run_id}").json()
    assert (document["tags"], document["notes"]) == (["paper", "seed=1"], "first\n<b>try</b>")
    assert console.barriers() == []


@pytest.mark.full
def test_what_the_server_keeps_stands_among_the_facts(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedopt", run={"rounds": 1})
    console.open(f"#/runs/{run_id}")
    facts = console.page.get_by_role("region", name="Files")
    expect(facts).to_contain_text(re.compile(r"Server keeps\s*m \(\d+ bytes\), v \(\d+ bytes\)"))


def test_what_releases_with_noise_cost_is_told_where_the_run_names_their_noise(console: Console) -> None:
    privacy = {"clip": 1.0, "noise": 4.0, "claim": "prototypes", "release_every": 1}
    run_id = console.served.create(method="fedproto", run={"rounds": 4}, privacy=privacy)
    told = console.served.http.get(f"/v1/runs/{run_id}/manifest").json()["privacy"]
    console.open(f"#/runs/{run_id}")
    facts = opened(console, "Files")
    expect(facts).to_contain_text(f"claim prototypes, epsilon {told['epsilon']:.3g}, delta 0.00001")
