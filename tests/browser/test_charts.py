"""The charts of a run: their arithmetic, what they draw, and that eyes, hands and ears all get the numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.support import present
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import LIGHT, PHONE, Console

NONE = "\u2013"
"""What stands where there is no value."""
METRICS: dict[str, Any] = {
    "loss": {"ce": 0.5, "contra": 40.0, "corr": -0.25},
    "prototypes": {"local": 30, "global": 8},
}


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; some have runs of their own."""
    return served_by_module


@pytest.fixture(scope="module")
def page(browser: Browser, served: ServedGateway) -> Iterator[Console]:
    """A page of the console that is nobody's, for its modules: one for all tests that need no run."""
    context = browser.new_context(**LIGHT.context)
    console = Console(context.new_page(), served).open("#/nowhere")
    expect(console.page.get_by_role("heading", name="There is no such page")).to_be_visible()
    yield console
    assert console.unforeseen() == []
    context.close()


def a_round(number: int, **accuracy: float | None) -> dict[str, Any]:
    known = [value for value in accuracy.values() if value is not None]
    summary = {"mean": sum(known) / len(known) if known else None, "worst": min(known, default=None)}
    return {"round": number, "accuracy": {**accuracy, **summary}, **METRICS}


THREE = [
    a_round(1, ann=0.25, bob=0.5),
    a_round(2, ann=None, bob=0.75),
    a_round(3, ann=0.875, bob=0.8125),
]


def shown(console: Console, module: str, rounds: list[dict[str, Any]]) -> Locator:
    """The section of a module, alone on the page, with these rounds."""
    console.within(
        module,
        """(module, rounds) => {
          const { element, update } = module.section();
          document.getElementById("main").replaceChildren(element);
          update({ rounds });
          window.updateSection = (rounds) => update({ rounds });
          const frame = () => new Promise(requestAnimationFrame);
          return frame().then(frame); // a chart draws once it knows how wide it is
        }""",
        rounds,
    )
    return console.page.locator("main")


def expect_value(chart: Locator, label: str, value: str) -> None:
    """Wait until the legend says this of a line."""
    item = chart.locator(".legend-item").filter(has=chart.page.get_by_text(label, exact=True))
    expect(item.locator(".legend-value")).to_have_text(value)


@pytest.mark.full
def test_an_axis_has_round_numbers_and_holds_its_range(page: Console) -> None:
    def ticks(low: float, high: float, most: int, **options: bool) -> list[float]:
        return list(page.call("charts/maths.js", "axisOf", low, high, most, options)["ticks"])

    assert ticks(0, 1, 6) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(-0.7, 4.4, 5) == [-2, 0, 2, 4, 6]
    assert ticks(1, 30, 4, isWhole=True, isTight=True) == [10, 20, 30]
    assert ticks(1, 3, 9, isWhole=True, isTight=True) == [1, 2, 3], "there is no round 1.5"
    for low, high in ((0.1, 0.3), (1e-7, 3e-6), (-5, 1e6), (99_990, 100_000), (7, 7), (0, 0)):
        axis = page.call("charts/maths.js", "axisOf", low, high, 6)
        steps = [after - before for before, after in zip(axis["ticks"], axis["ticks"][1:], strict=False)]
        assert axis["low"] <= low <= high <= axis["high"]
        assert 2 <= len(axis["ticks"]) <= 8
        assert max(steps) == pytest.approx(min(steps))
    assert page.call("charts/maths.js", "logAxisOf", 0.02, 3)["ticks"] == [0.01, 0.1, 1, 10]
    assert page.call("charts/maths.js", "logAxisOf", 1, 1)["ticks"] == [1, 10]
    assert len(page.call("charts/maths.js", "logAxisOf", 1e-30, 1e30)["ticks"]) <= 10


def lines(console: Console, values: list[float | None], width: int) -> list[list[list[float]]]:
    found = console.within(
        "charts/maths.js",
        "(maths, [values, width]) => maths.linesOf(values.map((_, index) => index), values,"
        " (x) => (x * width) / values.length, (y) => y)",
        [values, width],
    )
    return list(found)


@pytest.mark.full
def test_a_line_ends_where_a_value_is_missing_and_begins_again_after_it(page: Console) -> None:
    found = lines(page, [None, 1, 2, None, 3, None], 60)
    assert [[y for _, y in line] for line in found] == [[1, 2], [3]]
    path = page.call("charts/maths.js", "pathOf", found)
    assert path == "M10 1L20 2M40 3h0", "a line of one point is a dot"
    assert lines(page, [None, None], 60) == lines(page, [], 60) == []


@pytest.mark.full
def test_ten_thousand_points_become_a_few_per_pixel_and_none_that_sticks_out_is_lost(page: Console) -> None:
    values: list[float | None] = [math.sin(index / 300) for index in range(10_000)]
    values[1234], values[8765] = 9.0, -9.0
    (line,) = lines(page, values, 500)
    heights = [y for _, y in line]
    assert len(line) <= 4 * 500
    assert (max(heights), min(heights)) == (9.0, -9.0)
    assert (heights[0], heights[-1]) == (values[0], values[-1])
    assert [x for x, _ in line] == sorted(x for x, _ in line)


@pytest.mark.full
def test_names_at_the_ends_of_lines_do_not_overlap(page: Console) -> None:
    def spread(wanted: list[float]) -> list[float]:
        return list(page.call("charts/maths.js", "spread", wanted, 15, 0, 100))

    assert spread([10, 50, 90]) == [10, 50, 90]
    assert spread([50, 48, 52]) == [63, 48, 78]
    assert spread([99, 98, 97]) == [100, 85, 70]


def test_ticks_have_as_many_digits_as_they_need_whatever_their_place_and_size(page: Console) -> None:
    def ticks(*losses: float) -> list[str]:
        rounds = [{"round": index + 1, "loss": {"ce": loss}} for index, loss in enumerate(losses)]
        section = shown(page, "charts/losses.js", rounds)
        return section.locator(".chart-grid text[text-anchor=end]").all_text_contents()

    assert ticks(1.05, 1.38) == ["1", "1.1", "1.2", "1.3", "1.4"]
    assert ticks(2e6, 6e6) == ["2.00e+6", "3.00e+6", "4.00e+6", "5.00e+6", "6.00e+6"]
    assert ticks(1e-5, 3e-5) == ["1.00e-5", "1.50e-5", "2.00e-5", "2.50e-5", "3.00e-5"]


@pytest.mark.full
def test_the_worst_domain_is_named_and_drawn_heaviest(page: Console) -> None:
    section = shown(page, "charts/accuracy.js", THREE)
    expect(section).to_contain_text(
        "Mean 84.4 % in round 3. Worst domain: bob with 81.3 %, 6.3 points behind the best."
    )
    expect(section.locator(".legend-item", has_text="worst").filter(has_text="bob")).to_be_visible()
    found = page.call("charts/accuracy.js", "accuracySeries", THREE, "accuracy")
    assert found["rounds"] == [1, 2, 3]
    series = {each["label"]: each for each in found["series"]}
    assert list(series) == ["mean", "worst of each round", "ann", "bob"]
    assert series["ann"]["values"] == [0.25, None, 0.875]
    assert series["bob"]["width"] > series["ann"]["width"]
    assert page.call("charts/accuracy.js", "worstDomain", {"a": None, "mean": None, "worst": None}) is None
    assert page.call("charts/accuracy.js", "accuracySentence", [a_round(1, ann=None)], "accuracy") == (
        "No client reported an accuracy in round 1."
    )
    assert (
        page.call("charts/accuracy.js", "accuracySentence", [a_round(4, ann=0.5)], "accuracy") == "50.0 % in round 4."
    )


@pytest.mark.full
def test_rounds_that_were_not_evaluated_are_left_out_of_the_curve(page: Console) -> None:
    between = [{**a_round(number), "accuracy": None} for number in (2, 4)]
    rounds = [a_round(1, ann=0.25), between[0], a_round(3, ann=0.5), between[1]]
    expect(shown(page, "charts/accuracy.js", rounds)).to_contain_text("50.0 % in round 3.")
    assert page.call("charts/accuracy.js", "accuracySeries", rounds, "accuracy")["rounds"] == [1, 3]
    expect(shown(page, "charts/accuracy.js", between)).to_contain_text("No round has been evaluated yet.")


@pytest.mark.full
def test_the_accuracy_of_clients_own_models_is_shown_where_there_is_one(page: Console) -> None:
    both = [{**each, "accuracy_local": each["accuracy"] | {"ann": 0.125}} for each in THREE]
    section = shown(page, "charts/accuracy.js", both)
    expect_value(section, "ann", "87.5 %")
    section.get_by_label("Clients' own models").check()
    expect_value(section, "ann", "12.5 %")
    expect(section.get_by_text("this run shares none")).to_be_hidden()

    own = [{**each, "accuracy_local": each["accuracy"], "accuracy_of": "local"} for each in THREE]
    section = shown(page, "charts/accuracy.js", own)
    expect(section.get_by_text("this run shares none")).to_be_visible()
    expect(section.get_by_label("Clients' own models")).to_be_hidden()


def test_a_chart_is_read_round_by_round_with_the_keyboard(page: Console) -> None:
    section = shown(page, "charts/accuracy.js", THREE)
    slider = section.get_by_role("slider")
    expect(slider).to_have_attribute(
        "aria-valuetext", re.compile(r"^Round 3: mean 84\.4 %.* ann 87\.5 %, bob 81\.3 %$")
    )
    for key, number, value in (
        ("ArrowLeft", 2, NONE),
        ("Home", 1, "25.0 %"),
        ("ArrowLeft", 1, "25.0 %"),
        ("PageUp", 2, NONE),
        ("End", 3, "87.5 %"),
    ):
        slider.press(key)
        expect(slider).to_have_attribute("aria-valuenow", str(number))
        expect(section.locator(".chart-at")).to_have_text(f"Round {number}")
        expect_value(section, "ann", value)
    slider.press("Home")
    page.page.evaluate("(rounds) => window.updateSection(rounds)", [*THREE, a_round(4, ann=0.9, bob=0.9)])
    expect(section.locator(".chart-at")).to_have_text("Round 1")  # what somebody reads stays where it is
    slider.press("Escape")
    expect(section.locator(".chart-at")).to_have_text("Round 4")


@pytest.mark.full
def test_lines_are_switched_off_and_on_and_the_numbers_are_in_a_table(page: Console) -> None:
    section = shown(page, "charts/accuracy.js", THREE)
    button = section.get_by_role("button", name=re.compile("^ann"))
    drawn = section.locator(".chart-plot .chart-line")
    expect(drawn).to_have_count(3)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(drawn).to_have_count(2)
    expect(section.get_by_role("slider")).not_to_have_attribute("aria-valuetext", re.compile("ann"))
    button.click()
    expect(drawn).to_have_count(3)
    section.locator("summary").click()
    rows = section.get_by_role("row")
    expect(rows).to_have_count(4)
    assert [row.split() for row in rows.all_inner_texts()] == [
        ["Round", "mean", "ann", "bob"],
        ["3", "84.4", "%", "87.5", "%", "81.3", "%"],
        ["2", "75.0", "%", NONE, "75.0", "%"],
        ["1", "37.5", "%", "25.0", "%", "50.0", "%"],
    ]


@pytest.mark.full
def test_a_long_name_is_cut_at_its_line_and_whole_in_the_legend(page: Console) -> None:
    long, short = "n" * 64, "south"
    section = shown(page, "charts/accuracy.js", [a_round(1, **{long: 0.5, short: 0.25})])
    ends = section.locator(".chart-name text")
    expect(ends).to_have_count(3)
    assert sorted(ends.all_text_contents()) == ["mean", "n" * 19 + "\u2026", "south"]
    expect_value(section, long, "50.0 %")
    assert page.overflow_px() <= 0


@pytest.mark.full
def test_losses_far_apart_are_told_apart_on_a_logarithmic_scale(page: Console) -> None:
    section = shown(page, "charts/losses.js", THREE)
    expect_value(section, "correlation", "-0.25")
    ticks = section.locator(".chart-grid text")
    expect(ticks.filter(has_text="-20")).to_have_count(1)
    section.get_by_label("Logarithmic").check()
    for place, tick in enumerate(("0.1", "1", "10", "100")):
        expect(ticks.nth(place)).to_have_text(tick)
    expect(section.get_by_text("correlation is below zero: its size is drawn.")).to_be_visible()
    expect_value(section, "correlation", "-0.25")  # the number stays what it is


@pytest.mark.full
@pytest.mark.parametrize("look", [PHONE], ids=str)
def test_ten_thousand_rounds_are_drawn_on_a_phone(console: Console) -> None:
    console.open("#/nowhere")
    section = shown(console, "charts/accuracy.js", THREE)
    console.page.evaluate(
        """() => window.updateSection(Array.from({ length: 10_000 }, (_, index) => {
          const ann = 0.5 + 0.4 * Math.sin(index);
          return { round: index + 1, accuracy: { ann, bob: 0.5, mean: (ann + 0.5) / 2, worst: Math.min(ann, 0.5) } };
        }))"""
    )
    lines = section.locator(".chart-plot .chart-line")
    expect(lines).to_have_count(3)
    paths = [path.get_attribute("d") or "" for path in lines.all()]
    assert all(path.count("L") < 4 * PHONE.width for path in paths)
    assert console.overflow_px() <= 0
    slider = section.get_by_role("slider")
    slider.tap(position={"x": 60, "y": 50})
    expect(section.locator(".chart-at")).not_to_have_text("Round 10,000")
    section.get_by_role("button", name="mean").tap()
    expect(section.locator(".chart-at")).to_have_text("Round 10,000")
    section.locator("summary").click()
    assert console.barriers(but_for=("page-has-heading-one",)) == []
    expect(section.get_by_role("row")).to_have_count(201)
    expect(section.get_by_text("the last 200 of 10,000 rounds")).to_be_visible()


def test_the_page_of_a_run_draws_what_the_run_measured(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 3})
    rounds = console.served.http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"]
    last = rounds[-1]["metrics"]
    console.open(f"#/runs/{run_id}")
    accuracy = console.page.get_by_role("region", name="Accuracy")
    expect(accuracy).to_contain_text("in round 3. Worst domain:")
    expect_value(accuracy, "ann-domain", f"{100 * last['accuracy']['ann-domain']:.1f} %")
    prototypes = console.page.get_by_role("region", name="Prototypes", exact=True)
    expect_value(prototypes, "sent by clients", str(last["prototypes"]["local"]))
    expect(console.page.get_by_role("region", name="Training loss")).to_contain_text("cross-entropy")
    console.screenshot("charts")
    for once in (f"/v1/runs/{run_id}/rounds?after=-1", f"/v1/runs/{run_id}/events?order=newest_first"):
        assert sum(once in asked for asked in console.requests) == 1, (
            "it is asked for while modules come, and not again"
        )


@pytest.mark.full
def test_bytes_of_a_round_are_there_before_it_and_beside_what_was_measured(console: Console) -> None:
    run_id = console.served.create(method="fedavg", run={"rounds": 3})
    federation = console.served.federation
    federation.join()
    console.open(f"#/runs/{run_id}")
    figure = console.page.get_by_role("region", name="Progress").locator(".stat", has_text="Traffic")
    expect(figure).to_be_hidden()
    while federation.coordinator.get_run(run_id).round_number < 1:
        assert federation.step()
    model = present(federation.coordinator.get_run(run_id).model)
    all_of_it = console.call("lib/format.js", "bytes", 4 * model.size_bytes)
    expect(figure).to_contain_text(all_of_it)
    expect(figure).to_contain_text("2 clients: ")
    console.page.get_by_role("heading", name="Time and data of the rounds").click()
    expect(console.page.get_by_text("In a round each of 2 clients receives")).to_be_visible()
    line = {"round": 3, "clients": {"ann": {"sent_bytes": 5, "received_bytes": 7}, "bob": {"train_seconds": 2}}}
    assert (
        console.call("charts/timings.js", "measuredText", line)
        == "Round 3 moved 12 bytes: clients received 7 bytes and sent 5 bytes."
    )
    assert console.call("charts/timings.js", "measuredText", {"round": 3, "clients": {}}) == ""


@pytest.mark.full
def test_a_document_that_was_read_before_the_newest_events_is_read_again(console: Console) -> None:
    run_id = console.served.create(run={"rounds": 3})
    federation = console.served.federation
    federation.join()
    held: list[Route] = []

    def answered_late(route: Route) -> None:
        answer = route.fetch()
        while federation.coordinator.get_run(run_id).round_number < 1:
            assert federation.step()
        route.fulfill(response=answer)
        for each in held:
            each.continue_()

    console.page.route(f"**/v1/runs/{run_id}", answered_late, times=1)
    console.page.route("**/events?order=newest_first*", lambda route: held.append(route), times=1)
    console.open(f"#/runs/{run_id}")
    expect(console.page.get_by_role("region", name="Progress")).to_contain_text("1 of 3")


@pytest.mark.full
def test_seconds_and_bytes_are_read_when_somebody_wants_them_and_line_by_line(console: Console) -> None:
    run_id = console.served.create(method="fedplcc", run={"rounds": 3})
    federation = console.served.federation
    federation.join()
    while federation.coordinator.get_run(run_id).round_number < 2:
        assert federation.step()
    console.open(f"#/runs/{run_id}")
    summary = console.page.get_by_role("heading", name="Time and data of the rounds")
    expect(summary).to_be_visible()
    assert not any("timings.jsonl" in request for request in console.requests)
    summary.click()
    sizes = console.page.get_by_role("figure", name="Bytes of a round's updates")
    expect(sizes.locator(".chart-at")).to_have_text("Round 1")
    federation.run_to_end(run_id)
    expect(sizes.locator(".chart-at")).to_have_text("Round 3")
    timings = console.served.http.get(f"/v1/runs/{run_id}/timings.jsonl").text.splitlines()
    received = json.loads(timings[-1])["bytes_received"]
    expect_value(sizes, "received from clients", console.call("lib/format.js", "bytes", received))
    asked = [request for request in console.requests if "timings.jsonl" in request]
    assert asked[0].endswith("after=-1")
    assert all(request.endswith(("after=1", "after=2")) for request in asked[1:])
    seconds = console.page.get_by_role("figure", name="Seconds of a round by phase")
    expect(seconds).to_contain_text("whole round")
