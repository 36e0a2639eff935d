"""What a run's page shows of stages, of classes over the rounds, and of who took part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.steering import AdmitClient, RetireClient
from tests.browser.test_run_details import opened
from tests.support.federation.in_process import PassingClock
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console, in_every_look

TWO_PASSES = {"stages": 3, "rounds_per_stage": 2, "passes": 2}
MATRIX = "Accuracy on each stage after each stage"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """One gateway for all tests, with a client that no run has at first; each test has a run of its own."""
    folder = tmp_path_factory.mktemp("federation")
    with ServedGateway(folder, ("ann", "bob", "cid"), Limits(lease_heartbeats=150), PassingClock()) as served:
        yield served


def with_comings(served: ServedGateway, **sections: Any) -> str:
    """A run of ann and bob that cid joins in round 2 and bob leaves in round 5."""
    federation = served.federation
    run_id = served.create(method="fedplcc", **sections)
    federation.join()
    changes: dict[int, Callable[[], object]] = {
        2: lambda: federation.coordinator.steer(run_id, AdmitClient("cid")),
        5: lambda: federation.coordinator.steer(run_id, RetireClient("bob")),
    }
    for number, change in changes.items():
        while federation.coordinator.get_run(run_id).round_number < number:
            assert federation.step()
        change()
    federation.run_to_end(run_id)
    return run_id


def lines_of(console: Console, run_id: str) -> list[dict[str, Any]]:
    rounds = console.served.http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"]
    return [each["metrics"] for each in rounds if each["metrics"]]


def width_of(console: Console) -> int:
    size = console.page.viewport_size
    return size["width"] if size else 0


def region(console: Console, name: str) -> Locator:
    return console.page.get_by_role("region", name=name, exact=True)


@in_every_look
def test_the_matrix_is_shown_stage_by_stage_with_its_measures(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 12}, stream=TWO_PASSES)
    console.open(f"#/runs/{run_id}")
    stages = region(console, "Stages")
    expect(stages).to_contain_text("Round 12 was the last one to commit: pass 2 of 2, stage 3 of 3.")
    last = lines_of(console, run_id)[-1]
    expect(stages.locator(".stat", has_text="Average accuracy (A)")).to_contain_text(
        f"{100 * last['average_accuracy']:.1f} %"
    )
    for label, key in (("Forgetting (F)", "forgetting"), ("Backward transfer (BWT)", "backward_transfer")):
        expect(stages.locator(".stat", has_text=label)).to_contain_text(f"{abs(100 * last[key]):.1f} points")
    table = stages.get_by_role("region", name=MATRIX)
    expect(table.get_by_role("columnheader")).to_have_text(["After", "On stage 1", "On stage 2", "On stage 3"])
    expect(table.get_by_role("rowheader")).to_have_text(["Stage 1, round 8", "Stage 2, round 10", "Stage 3, round 12"])
    cells = [f"{100 * value:.1f} %" for value in last["accuracy_by_stage"]]
    expect(table.get_by_role("row").nth(3).get_by_role("cell")).to_have_text(cells)
    expect(table.get_by_role("row").nth(1).get_by_role("cell")).to_have_text([re.compile("%"), "", ""])

    stages.get_by_label("Pass").fill("1")
    stages.get_by_label("Pass").press("Enter")
    expect(table.get_by_role("rowheader")).to_have_text(["Stage 1, round 2", "Stage 2, round 4", "Stage 3, round 6"])
    sixth = lines_of(console, run_id)[5]["average_accuracy"]
    expect(stages.locator(".stat", has_text="Average accuracy (A)")).to_contain_text(f"{100 * sixth:.1f} %")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"stages-{width_of(console)}")


@pytest.mark.full
@in_every_look
def test_every_curve_names_the_stage_of_its_rounds(console: Console) -> None:
    run_id = console.served.create_and_finish(
        method="fedplcc", run={"rounds": 12}, stream=TWO_PASSES, evaluation={"confusion": True}
    )
    console.open(f"#/runs/{run_id}")
    opened(console, "Time and data of the rounds")
    classes = opened(console, "Classes")
    expect(classes.get_by_role("figure", name="Accuracy of each class")).to_be_visible()
    charts = console.page.locator("figure.chart:visible")
    expect(charts).to_have_count(6)
    for chart in charts.all():
        expect(chart.locator(".chart-stage-begin")).to_have_attribute(
            "d", re.compile(r"^(M[\d.]+ -?[\d.]+V[\d.]+){5}$")
        )
        expect(chart.locator(".chart-stage")).to_have_attribute("d", re.compile(r"^(M[^M]+Z){3}$"))
        names = chart.locator(".chart-stage-name").all_text_contents()
        assert names[:2] in (["pass 1", "pass 2"], ["1", "2"])
        assert len(names) in (2, 8), "stages are named where all of them have room"
        slider = chart.get_by_role("slider")
        expect(slider).to_have_attribute("aria-valuetext", re.compile("^Round 12, pass 2, stage 3: "))
        slider.press("Home")
        expect(chart.locator(".chart-at")).to_have_text("Round 1, pass 1, stage 1")
    accuracy = region(console, "Accuracy")
    accuracy.get_by_text("Table", exact=True).click()
    table = accuracy.get_by_role("region", name="Accuracy by domain, as a table")
    expect(table.get_by_role("columnheader").nth(1)).to_have_text("Stage")
    expect(table.get_by_role("row").nth(1).get_by_role("cell").first).to_have_text("pass 2, stage 3")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"stage-bands-{width_of(console)}")


@pytest.mark.full
def test_a_run_without_stages_shows_none(console: Console) -> None:
    run_id = console.served.create_and_finish(run={"rounds": 3})
    console.open(f"#/runs/{run_id}")
    expect(region(console, "Accuracy").get_by_role("slider")).to_have_attribute("aria-valuemax", "3")
    expect(console.page.get_by_role("heading", name="Stages", exact=True)).to_be_hidden()
    assert console.page.locator(".chart-stage, .chart-stage-name").count() == 0
    expect(region(console, "Accuracy").locator(".chart-at")).to_have_text("Round 3")


@pytest.mark.full
@in_every_look
def test_who_took_part_is_a_row_for_each_client_and_a_mark_for_each_round(console: Console) -> None:
    run_id = with_comings(console.served, run={"rounds": 8}, stream={"stages": 4, "rounds_per_stage": 2})
    console.open(f"#/runs/{run_id}")
    assert not any("type=client_admitted" in asked for asked in console.requests), "it is read when somebody opens it"
    part = opened(console, "Who took part")
    table = part.get_by_role("region", name="Who took part, as a table")
    part.get_by_text("Table", exact=True).click()
    words = ["Client", "trained", "dropped", "not drawn", "without data", "not yet admitted", "retired"]
    expect(table.get_by_role("columnheader")).to_have_text(words)
    for name, counts in {"ann": [8, 0, 0, 0, 0, 0], "bob": [4, 1, 0, 0, 0, 3], "cid": [6, 0, 0, 0, 2, 0]}.items():
        row = table.get_by_role("row", name=re.compile(f"^{name} "))
        expect(row.get_by_role("cell")).to_have_text([str(value) for value in counts])
    slider = part.get_by_role("slider")
    expect(slider).to_have_attribute(
        "aria-valuetext", re.compile(r"^Round 8, stage 4: ann trained; 2 clients trained, 1 retired \(bob\)")
    )
    slider.press("ArrowDown")
    expect(part.locator(".timeline-at")).to_contain_text("Round 8, stage 4 · bob was retired")
    slider.press("ArrowDown")
    slider.press("Home")
    expect(part.locator(".timeline-at")).to_contain_text("Round 1, stage 1 · cid was not yet admitted")
    assert part.locator(".timeline path.mark").count() == 6, "one path for each kind"
    clients = console.unfold("Clients")
    expect(clients.get_by_role("row", name=re.compile("^bob "))).to_contain_text("retired in round 5")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"timeline-{width_of(console)}")


@pytest.mark.full
@in_every_look
def test_the_timeline_of_many_clients_and_rounds_stays_light(console: Console) -> None:
    console.open("#/nowhere")
    console.within(
        "stages/timeline.js",
        """(module) => {
          const names = Array.from({ length: 100 }, (_, index) => `client-${String(index).padStart(3, "0")}`);
          const rounds = Array.from({ length: 1200 }, (_, index) => ({
            round: index + 1, stage: 1 + Math.floor(index / 240), pass: 1,
            cohort: names.filter((_, client) => (client * 7 + index * 13) % 10 < 5),
            dropped: names.filter((_, client) => (client * 7 + index * 13) % 97 === 0 && (client * 7 + index * 13) % 10 < 5),
          }));
          const event = (sequence, type, round, client_id, data = {}) => ({ sequence, type, round, client_id, data });
          const events = [event(1, "client_admitted", 900, "zoe"), event(2, "client_retired", 700, "client-001"),
            event(3, "client_without_data", 721, "client-002", { stage: 4 })];
          const api = { get: async () => ({ events, next_page_token: null }) };
          const { element, update } = module.section({ runId: "run-1", api });
          document.getElementById("main").replaceChildren(element);
          update({ run: { roster: [...names, "zoe"] }, rounds });
          element.open = true;
        }""",
    )
    part = console.page.locator("main details.disclosure")
    expect(part.locator(".timeline path.mark")).to_have_count(6)
    expect(part).to_contain_text("Shown are the last 1,000 of 1,200 rounds.")
    assert part.locator("*").count() < 400
    length = sum(
        part.locator(".timeline path").evaluate_all("paths => paths.map(path => path.getAttribute('d').length)")
    )
    assert length < 1_000_000, "characters of all paths"
    assert console.barriers(within="main") == []
    assert console.overflow_px() <= 0
    console.screenshot(f"timeline-long-{width_of(console)}")


def participation(console: Console, rounds: list[dict[str, Any]], events: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Words for each round by client, in a run whose roster is ann and bob."""
    found = console.within(
        "stages/participation.js",
        """(module, [rounds, events]) => {
          const changes = events.flatMap((event) => module.changesOf(event, 3));
          const { clients, kinds } = module.participation(rounds, ["ann", "bob"], changes);
          const n = rounds.length;
          const words = (row) => [...kinds.slice(row * n, (row + 1) * n)].map((kind) => module.KINDS[kind]);
          return clients.map((name, row) => [name, words(row)]);
        }""",
        [rounds, events],
    )
    return dict(found)


@pytest.mark.full
def test_kinds_follow_from_cohorts_and_the_history(console: Console) -> None:
    def event(kind: str, number: int | None, client: str | None, **data: Any) -> dict[str, Any]:
        return {"type": kind, "round": number, "client_id": client, "data": data}

    console.open("#/nowhere")
    rounds = [
        {"round": 1, "stage": 1, "cohort": ["ann", "bob"], "dropped": ["bob"]},
        {"round": 2, "stage": 2, "cohort": ["ann"]},
        {"round": 3, "stage": 1, "cohort": ["bob", "dan"]},
        {"round": 4, "stage": 2, "cohort": ["dan"]},
    ]
    events = [
        event("client_without_data", 2, "bob", stage=2),
        event("clients_admitted", None, None, clients={"dan": {}}),
        event("client_retired", 2, "ann", forgets=False),
        event("client_admitted", 3, "ann"),
        event("round_opened", 3, None),
    ]
    assert participation(console, rounds, events) == {
        "ann": ["trained", "trained", "retired", "not drawn"],
        "bob": ["dropped", "without data", "trained", "without data"],
        "dan": ["not yet admitted", "not yet admitted", "trained", "trained"],
    }
    assert participation(console, [], []) == {"ann": [], "bob": []}


@pytest.mark.full
def test_curves_of_classes_go_through_few_rounds_that_stay(console: Console) -> None:
    console.open("#/nowhere")

    def points(last: int) -> list[int]:
        return list(console.call("classes/curves.js", "pointsAmong", list(range(1, last + 1)), 6))

    assert points(4) == [1, 2, 3, 4]
    assert points(8) == [1, 2, 4, 6, 8]
    assert points(9) == [1, 4, 8, 9]
    assert set(points(9)) - {9} <= set(points(10)), "little is read anew"
    assert points(1000) == [1, 256, 512, 768, 1000]


@pytest.mark.full
def test_stages_are_named_as_far_as_there_is_room(console: Console) -> None:
    console.open("#/nowhere")

    def named(num_passes: int, stages: int, width: int) -> list[tuple[str, list[str]]]:
        found = console.within(
            "charts/bands.js",
            """(module, [bands, width, last]) => module.labelRows(
              bands, { left: 0, right: width, toX: (round) => ((round - 1) / (last - 1)) * width })""",
            [bands(num_passes, stages), width, num_passes * stages * 2],
        )
        return [(row["title"], [label["text"] for label in row["labels"]]) for row in found]

    assert named(1, 3, 600) == [("", ["stage 1", "stage 2", "stage 3"])]
    assert named(1, 5, 150) == [("stage", ["1", "2", "3", "4", "5"])]
    assert named(2, 2, 600) == [("", ["pass 1", "pass 2"]), ("", ["stage 1", "stage 2", "stage 1", "stage 2"])]
    ((title, passes),) = named(50, 5, 300)
    assert (title, passes[0], 3 < len(passes) < 50) == ("pass", "2", True), "the first is cut off by the end"


def bands(num_passes: int, stages: int) -> list[dict[str, int]]:
    """Bands of two rounds each."""
    places = [(number, stage) for number in range(1, num_passes + 1) for stage in range(1, stages + 1)]
    return [
        {"from": 2 * index + 1, "to": 2 * index + 2, "pass": number, "stage": stage}
        for index, (number, stage) in enumerate(places)
    ]


@pytest.mark.full
def test_measures_are_said_in_words(console: Console) -> None:
    console.open("#/nowhere")
    said = [console.call("stages/matrix.js", "points", value) for value in (0.175, -0.175, 0.0, -0.0001, None)]
    assert said == ["+17.5 points", "\u221217.5 points", "0.0 points", "0.0 points", "\u2013"]
    place = [{"round": 3, "stage": 2, "pass": 1}, {"stages": 5, "passes": 1}]
    assert console.call("stages/matrix.js", "placeSentence", *place).endswith("commit: stage 2 of 5.")
