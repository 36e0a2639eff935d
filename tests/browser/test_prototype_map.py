"""The prototype map on a run's page: what it shows and says, round by round, and what it does where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from fedplcc.aggregator.garbage.rules import Keep
from tests.support.federation.in_process import PassingClock
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import DARK_PHONE, LIGHT, Console, Look


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """One gateway for all tests, which have runs of their own; the aggregator keeps the prototypes of five rounds."""
    with ServedGateway(tmp_path_factory.mktemp("map"), clock=PassingClock()) as served:
        keep_prototypes(served, 5)
        yield served


def keep_prototypes(served: ServedGateway, num_rounds: int) -> None:
    """Start the aggregator again with another setting."""
    served.stop_aggregator()
    served.federation.keep = Keep(models=1, prototypes=num_rounds, updates=0)
    served.federation.start_again()
    served.start_aggregator()


@pytest.fixture(scope="module")
def three_rounds(served: ServedGateway) -> str:
    """A run with prototypes that has ended, for tests that only look."""
    return served.create_and_finish(method="fedplcc", run={"rounds": 3})


def a_point(x: float, y: float, *, class_id: int = 0, client: int | None = None, **others: Any) -> dict[str, Any]:
    fields = {"weight": 1.0, "share": 1.0, "nearest": None}
    return {"x": x, "y": y, "class_id": class_id, "client": client, **fields, **others}


def a_map(*points: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A document as the gateway gives it, of the clients ann (photos) and bob (sketches)."""
    clients = [("ann", "photos"), ("bob", "sketches")]
    return {
        "round": 3,
        "comparison": "cosine",
        "explained": 0.5,
        "clients": [{"client_id": name, "domain": domain, "is_kept": True} for name, domain in clients],
        "prototypes": list(points),
        "left_out_global": 0,
        "left_out_local": 0,
        "rounds": [{"first": 1, "last": 3}],
        "aligned_from": 1,
        **others,
    }


THREE = a_map(
    a_point(0, 0),
    a_point(1, 0, client=0, weight=30, share=0.75, nearest=0),
    a_point(0, 1, client=1, weight=10, share=1, nearest=0),
)
NAMES = {"classes": ["cat", "dog"], "domains": ["photos", "sketches"]}


def test_a_map_is_told_in_words(console: Console) -> None:
    def said(name: str, *arguments: Any) -> Any:
        return console.call("map/view.js", name, *arguments)

    assert said("summaryOf", THREE) == (
        "1 global and 2 local prototypes of 1 class from 2 domains, compared by angle. "
        "The plane shows 50.0 % of the local ones' spread."
    )
    assert said("summaryOf", a_map()) == "No client sent a prototype in round 3."
    assert said("readoutOf", THREE, 0, NAMES) == [
        "Global prototype of cat",
        "100.0 % of the class's weight",
        "the nearest for 2 local prototypes from photos and sketches",
    ]
    assert said("readoutOf", THREE, 1, NAMES) == [
        "Local prototype of cat",
        "client ann, domain photos",
        "30 samples, 75.0 % of the client's cat",
    ]
    assert said("attachedTo", THREE, 0) == [1, 2]
    assert said("attachedTo", THREE, 2) == [0]
    assert said("missingFrom", THREE) == ""
    cut = a_map(left_out_local=1200, left_out_global=3)
    cut["clients"][1]["is_kept"] = False
    assert said("missingFrom", cut) == (
        "Prototypes of bob are not kept any more. 3 lighter global and 1,200 lighter local prototypes are left out."
    )
    assert said("tableOf", THREE, NAMES) == {
        "head": ["Class", "Global, with share of the class", "Local of photos", "Local of sketches"],
        "rows": [["cat", "1: 1", "1 for 30 samples", "1 for 10 samples"]],
    }
    assert said("roundsOf", [{"first": 2, "last": 4}, {"first": 9, "last": 9}]) == [2, 3, 4, 9]
    metrics = [{"accuracy": {"sketches": 1, "mean": 1, "worst": 1}}]
    assert said("domainsOf", metrics, [THREE]) == ["photos", "sketches"]


@pytest.mark.full
def test_marks_have_their_area_and_go_their_way_and_the_pointer_finds_them(console: Console) -> None:
    area_goes_by_weight_and_no_mark_is_too_small_to_see(console)
    prototypes_go_on_as_the_nearest_of_their_class_and_client(console)
    the_view_holds_all_points_and_moves_only_where_it_must(console)
    under_the_pointer_is_the_smaller_of_two_marks(console)


def area_goes_by_weight_and_no_mark_is_too_small_to_see(console: Console) -> None:
    light = a_point(1, 1, client=0, weight=0.001, share=0.01)
    heavy, quarter = (a_point(0, 0, client=0, weight=weight) for weight in (40, 10))
    points = console.call("map/view.js", "pointsOf", a_map(a_point(0, 0, share=0.25), heavy, quarter, light), NAMES)
    assert [point["radius"] for point in points] == [0.5, 1, 0.5, pytest.approx(0.36)]
    assert [point["domain"] for point in points] == [-1, 0, 0, 0]


def prototypes_go_on_as_the_nearest_of_their_class_and_client(console: Console) -> None:
    before = console.call("map/view.js", "pointsOf", THREE, NAMES)
    after = console.call(
        "map/view.js",
        "pointsOf",
        a_map(a_point(0, 0.1), a_point(0.1, 0.9, client=1), a_point(5, 5, class_id=1, client=1)),
        NAMES,
    )
    pairs = console.call("map/view.js", "paired", before, after)
    found = [(pair["from"]["index"], pair["to"]["index"]) for pair in pairs]
    assert found == [(1, -1), (0, 0), (2, 1), (2, 2)]
    begin, middle, end = (console.call("map/view.js", "between", pairs, share) for share in (0, 0.5, 1))
    assert [point["alpha"] for point in begin] == [1, 1, 1, 0]
    assert [point["alpha"] for point in end] == [0, 1, 1, 1]
    assert (middle[1]["x"], middle[1]["y"]) == (0, pytest.approx(0.05))


def the_view_holds_all_points_and_moves_only_where_it_must(console: Console) -> None:
    def view(points: Sequence[tuple[float, float]], before: Any = None) -> dict[str, float]:
        return dict(console.call("map/view.js", "viewFor", [{"x": x, "y": y} for x, y in points], 800, 400, before))

    first = view([(0, 0), (4, 2)])
    assert first == {"x": 2, "y": 1, "scale": pytest.approx(0.92 * 200)}
    assert view([(0.3, 0.1), (3.9, 1.9)], first) == first, "a little smaller"
    assert view([(0, 0), (40, 20)], first)["scale"] == pytest.approx(0.92 * 20), "they would lie outside"
    assert view([(0, 0), (0.4, 0.2)], first)["scale"] == pytest.approx(0.92 * 2000), "they would be too small to see"
    for points in ([], [(3, 3)], [(1, 1), (1, 1)]):
        assert view(points)["scale"] > 0


def under_the_pointer_is_the_smaller_of_two_marks(console: Console) -> None:
    found = console.within(
        "map/canvas.js",
        """async ({ MapCanvas }, map) => {
          const { pointsOf } = await import("/console/map/view.js");
          const canvas = new MapCanvas(document.body.appendChild(document.createElement("canvas")));
          canvas.resize(600, 400);
          canvas.view = { x: 0, y: 0, scale: 100 };
          const names = { classes: [], domains: ["photos", "sketches"] };
          canvas.draw(pointsOf(map, names), { chosen: 1, attached: [0], labels: new Map([[0, "cat"]]) });
          const pixels = canvas.element.getContext("2d").getImageData(0, 0, 600, 400).data;
          const inked = pixels.filter((value, place) => place % 4 === 3 && value > 0).length;
          return [canvas.at(300, 200), canvas.at(292, 200), canvas.at(403, 203), canvas.at(40, 40), inked > 500];
        }""",
        a_map(a_point(0, 0), a_point(1, 0, client=0), a_point(0, 0, client=1, weight=0.2)),
    )
    assert found == [2, 0, 1, -1, True]


def the_map(console: Console, run_id: str) -> Locator:
    console.open(f"#/runs/{run_id}")
    return console.unfold("Prototype map")


def commit(served: ServedGateway, run_id: str, number: int) -> None:
    """Let the clients work until a round has committed."""
    while not served.federation.coordinator.list_rounds(run_id, after=number - 1, limit=1) or (
        served.federation.coordinator.list_rounds(run_id, after=number - 1, limit=1)[0].results_json == ""
    ):
        assert served.federation.step()
    served.federation.coordinator.garbage_collection.collect()


def test_it_follows_the_newest_round_until_somebody_goes_back(console: Console) -> None:
    served = console.served
    run_id = served.create(method="fedplcc", run={"rounds": 7})
    found = the_map(console, run_id)
    expect(found).to_contain_text("The map begins when round 1 has committed.")
    served.federation.join()
    at, slider = found.locator(".map-at"), found.get_by_role("slider", name="Round of the map")
    for number in (1, 2, 3):
        commit(served, run_id, number)
        expect(at).to_have_text(f"Round {number}")
    expect(found).to_contain_text("local prototypes of 3 classes from 2 domains")
    slider.press("ArrowLeft")
    expect(at).to_have_text("Round 2")
    expect(slider).to_have_attribute("aria-valuetext", "Round 2")
    commit(served, run_id, 4)
    expect(slider).to_have_attribute("max", "3")
    expect(at).to_have_text("Round 2")
    expect(found.get_by_role("button", name="Newest")).to_have_attribute("aria-pressed", "false")
    found.get_by_role("button", name="Newest").click()
    expect(at).to_have_text("Round 4")
    asked = [request for request in console.requests if "prototype-map" in request]
    assert len(asked) == len(set(asked)), "no round is asked for twice"
    commit(served, run_id, 7)
    expect(at).to_have_text("Round 7")
    slider.press("Home")
    expect(at).to_have_text("Round 3")  # those of rounds 1 and 2 were collected


@pytest.mark.full
def test_rounds_are_played_and_playing_ends_at_the_newest(console: Console, three_rounds: str) -> None:
    console.page.emulate_media(reduced_motion="no-preference")  # prototypes are on their way from round to round
    found = the_map(console, three_rounds)
    expect(found.locator(".map-at")).to_have_text("Round 3")
    found.get_by_role("button", name="Play").click()
    expect(found.locator(".map-at")).to_have_text("Round 1")
    expect(found.get_by_role("button", name="Stop")).to_be_visible()
    expect(found.locator(".map-at")).to_have_text("Round 3")
    expect(found.get_by_role("button", name="Play")).to_be_visible()


@pytest.mark.full
def test_prototypes_are_read_one_by_one_with_the_keyboard_and_switched_off_by_class_and_domain(
    console: Console, three_rounds: str
) -> None:
    found = the_map(console, three_rounds)
    points = found.get_by_role("slider", name="Prototype", exact=True)
    expect(points).to_have_attribute("aria-valuetext", re.compile("None of [0-9]+ chosen"))

    def num_points() -> int:
        return int(points.get_attribute("aria-valuemax") or 0)

    number = num_points()
    points.press("ArrowRight")
    expect(found.locator(".map-readout")).to_have_text(
        re.compile("^Global prototype of [abc] · .* class's weight · the nearest for")
    )
    points.press("End")
    expect(found.locator(".map-readout")).to_have_text(
        re.compile("^Local prototype of [abc] · client (ann|bob), domain .* sample")
    )
    expect(points).to_have_attribute("aria-valuenow", str(number))
    points.press("Escape")
    expect(found.locator(".map-readout")).to_contain_text("with the arrow keys")

    button = found.get_by_role("group", name="Domains").get_by_role("button", name="bob-domain")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(points).not_to_have_attribute("aria-valuemax", str(number))
    without_bob = num_points()
    found.get_by_role("group", name="Classes").get_by_role("button", name="a", exact=True).click()
    console.eventually(lambda: 0 < num_points() < without_bob < number, "the points of a class are gone too")
    found.get_by_role("button", name="None").click()
    expect(points).to_have_attribute("aria-valuetext", "None of 0 chosen")
    found.get_by_role("button", name="All").click()
    expect(points).to_have_attribute("aria-valuemax", str(without_bob))

    found.get_by_text("Numbers in a table").click()
    expect(found.get_by_role("row")).to_have_count(4)
    expect(found.get_by_role("rowheader", name="b")).to_be_visible()


@pytest.mark.full
def test_somebody_looks_closer_with_keys_buttons_and_the_wheel_and_back_again(
    console: Console, three_rounds: str
) -> None:
    around = [a_point(x, y, client=0, nearest=0) for x, y in ((-1, -1), (1, 1), (1, -1), (-1, 1))]
    drawn = a_map(a_point(0, 0), *around, round=2, rounds=[{"first": 2, "last": 2}])
    console.page.route("**/prototype-map*", lambda route: route.fulfill(json=drawn))
    found = the_map(console, three_rounds)
    expect(found.locator(".map-at")).to_have_text("Round 2")
    canvas, readout = found.locator("canvas"), found.locator(".map-readout")
    points = found.get_by_role("slider", name="Prototype", exact=True)
    whole = found.get_by_role("button", name="Whole map")
    size = canvas.bounding_box()
    assert size is not None
    # A square of prototypes fills 92 % of the height, less the margin that marks need.
    corner = 0.92 * (size["height"] - 2 * 19) / 2

    def reads(x: float, y: float, text: str) -> None:
        canvas.hover(position={"x": size["width"] / 2 + x, "y": size["height"] / 2 + y})
        expect(readout).to_contain_text(text)

    reads(corner, -corner, "Local prototype")
    expect(whole).to_be_disabled()
    points.focus()
    reads(0, 0, "Global prototype")
    points.press("+")  # around the prototype that is read
    expect(whole).to_be_enabled()
    reads(corner, -corner, "Point at a prototype")
    reads(0, 0, "Global prototype")
    points.press("Shift+ArrowRight")
    reads(-60, 0, "Global prototype")
    points.press("0")
    expect(whole).to_be_disabled()
    reads(corner, -corner, "Local prototype")

    console.page.keyboard.down("Control")
    console.page.mouse.wheel(0, -200)
    console.page.keyboard.up("Control")
    expect(whole).to_be_enabled()
    reads(corner, -corner, "Local prototype")  # it stays under the pointer
    reads(0, 0, "Point at a prototype")
    points.press("End")
    expect(readout).to_contain_text("Local prototype")
    reads(0, 0, "Local prototype")  # a prototype that is read is brought into sight
    whole.click()
    reads(0, 0, "Global prototype")
    console.page.mouse.wheel(0, -200)
    expect(whole).to_be_disabled()  # a wheel alone scrolls the page
    found.get_by_role("button", name="Closer").click()
    found.get_by_role("button", name="Further away").click()
    expect(whole).to_be_disabled()
    assert console.barriers() == []


@pytest.mark.full
def test_a_closer_look_has_bounds(console: Console) -> None:
    whole = {"x": 0, "y": 0, "scale": 100}
    closer = console.call("map/view.js", "zoomed", whole, whole, 2, 50, -20)
    assert closer == {"x": 0.25, "y": 0.1, "scale": 200}
    assert console.call("map/view.js", "zoomed", closer, whole, 1e9, 0, 0)["scale"] == 4000
    assert console.call("map/view.js", "zoomed", closer, whole, 0.1, 0, 0) is None
    pushed = console.call("map/view.js", "pushed", closer, whole, -1e9, -1e9, [400, 200])
    assert pushed == {"x": 2, "y": -1, "scale": 200}


@pytest.mark.full
def test_maps_that_are_aligned_otherwise_are_forgotten_and_the_rest_is_asked_for_once(console: Console) -> None:
    asked = console.within(
        "map/rounds.js",
        """async ({ MapRounds }, map) => {
          const asked = [];
          let alignedFrom = 1;
          const api = {
            runPath: (run, part) => part,
            get: async (path) => {
              const round = Number(path.split("=")[1] ?? 6);
              asked.push(round);
              return { ...map, round, aligned_from: alignedFrom, rounds: [{ first: 1, last: 6 }] };
            },
          };
          const rounds = new MapRounds({ runId: "run", api }, () => {});
          const settled = async (place) => {
            if (place !== undefined) rounds.goTo(place);
            await new Promise((resolve) => setTimeout(resolve, 50));
            return [rounds.map?.round, asked.splice(0)];
          };
          rounds.committed(6);
          const found = [await settled(), await settled(2), await settled(3)];
          alignedFrom = 5;
          found.push(await settled(0), await settled(4), await settled(99));
          found.push([...rounds.maps].map((each) => each.aligned_from));
          rounds.close();
          return found;
        }""",
        THREE,
    )
    assert asked == [
        [6, [6, 5]],
        [3, [3, 4, 2]],
        [4, []],
        [1, [1, 2, 3]],  # those of before are gone
        [5, [5, 6, 4]],
        [6, []],
        [5] * 6,
    ]


@pytest.mark.full
def test_a_method_without_prototypes_has_no_map_and_asks_for_none(console: Console) -> None:
    run_id = console.served.create_and_finish()
    expect(the_map(console, run_id)).to_contain_text(
        "There is nothing to map: no client of this fedavg run sends prototypes."
    )
    assert not [request for request in console.requests if "prototype-map" in request]


@pytest.mark.full
def test_a_round_that_was_collected_a_moment_ago_leads_back_to_those_that_there_are(console: Console) -> None:
    console.tolerate("404|50[034]")  # the aggregator is away for a moment, and then has less
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 4})
    found = the_map(console, run_id)
    expect(found.locator(".map-at")).to_have_text("Round 4")
    keep_prototypes(console.served, 2)
    console.served.federation.coordinator.garbage_collection.collect()
    found.get_by_role("slider", name="Round of the map").press("Home")
    expect(found.get_by_text("there are those of rounds 3 to 4")).to_be_visible()
    expect(found.get_by_role("slider", name="Round of the map")).to_have_attribute("max", "1")
    expect(found.locator(".map-at")).to_have_text("Round 4")
    keep_prototypes(console.served, 5)


@pytest.mark.full
@pytest.mark.parametrize("look", [LIGHT, DARK_PHONE], ids=str)
def test_the_map_is_for_everybody_and_fits_every_screen(console: Console, look: Look) -> None:
    served = console.served
    many = [NumpyClient(f"ward-{index}", f"scanner-{index}", counts=(40, 30, 20 + index)) for index in range(5)]
    served.federation.clients |= {client.client_id: client for client in many}
    run_id = served.create(method="fedplcc", run={"rounds": 2, "clients": [client.client_id for client in many]})
    served.federation.join()
    served.federation.run_to_end(run_id)
    found = the_map(console, run_id)
    expect(found.locator(".map-at")).to_have_text("Round 2")
    found.get_by_text("Numbers in a table").click()
    found.get_by_role("slider", name="Prototype", exact=True).press("ArrowRight")
    assert console.overflow_px() == 0
    assert not console.barriers()
    console.screenshot(f"prototype-map-{look}")
