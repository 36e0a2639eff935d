"""Starting a run from the console: whoever picks clients can press Start, and what is wrong is said where it is."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from fedplcc.shared.config.recipes import AT_SITES, RECIPES, recipe
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import DARK_PHONE, Console

Runs = Callable[[], list[dict[str, Any]]]
REFUSED_BY_HTTP = "status of 4"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """One federation for all tests, with ann and bob connected; nobody works on the runs that they make."""
    with ServedGateway(tmp_path_factory.mktemp("start")) as served:
        served.federation.clock.now = time.time()
        served.federation.join()
        yield served


@pytest.fixture
def runs(served: ServedGateway) -> Runs:
    """The runs that this test has made."""

    def all_ids() -> list[str]:
        return [run["run_id"] for run in served.http.get("/v1/runs", params={"page_size": 200}).json()["runs"]]

    before = set(all_ids())
    # A list has no configurations.
    return lambda: [served.http.get(f"/v1/runs/{run_id}").json() for run_id in all_ids() if run_id not in before]


@pytest.fixture
def form(console: Console, runs: Runs) -> Locator:
    """A new form."""
    form = opened(console)
    expect(row(form, "bob")).to_be_visible()
    return form


def opened(console: Console, query: str = "") -> Locator:
    console.open(f"#/start{query}")
    return console.page.get_by_role("form", name="Start a run")


def row(form: Locator, client: str) -> Locator:
    return form.get_by_role("checkbox", name=re.compile(f"^{client} "))


def box(form: Locator, label: str) -> Locator:
    return form.get_by_label(label, exact=True)


def start(form: Locator) -> None:
    form.get_by_role("button", name="Start the run").click()


def says(form: Locator, text: str) -> None:
    expect(form.get_by_role("status").filter(has_text=text)).to_be_visible()


def loses_the_answer(console: Console) -> None:
    """The next run is created, and its answer is lost on the way."""
    console.tolerate("ERR_FAILED|Failed to load resource")
    console.page.route("**/v1/runs", lambda route: (route.fetch(), route.abort()), times=1)


def has_images_of(console: Console, sides: Mapping[str, int]) -> None:
    """The clients have the same classes, and images of these smaller sides."""

    def answer(route: Route) -> None:
        found = route.fetch()
        clients = found.json()["clients"]
        counts = clients[0]["class_counts"]
        changed = [{**each, "class_counts": counts, "smallest_side": sides[each["client_id"]]} for each in clients]
        route.fulfill(response=found, json={**found.json(), "clients": changed})

    console.page.route("**/v1/clients?*", answer)


def started(console: Console, runs: Runs) -> dict[str, Any]:
    """The one run there is, whose page is shown."""
    expect(console.page).to_have_url(re.compile("#/runs/"))
    (run,) = runs()
    assert console.page.url.endswith(run["run_id"])
    return run


@pytest.mark.full
def test_who_picks_clients_can_start_with_the_keyboard_alone(console: Console, form: Locator, runs: Runs) -> None:
    row(form, "ann").focus()
    console.page.keyboard.press("Space")
    console.page.keyboard.press("Tab")
    console.page.keyboard.press("Space")
    says(form, "Nothing is wrong")
    box(form, "Name").focus()
    console.page.keyboard.press("Enter")
    config = started(console, runs)["config"]
    assert config["run"]["clients"] == ["ann", "bob"]
    assert config["data"]["classes"] == ["a", "b", "c"], "those of the clients"
    assert (config["run"]["method"], config["run"]["rounds"]) == ("fedplcc", 30)
    assert config["method"] == {**config["method"], **recipe("small-images")["method"], **AT_SITES}


@pytest.mark.full
def test_an_empty_form_says_what_is_missing_and_leads_there(console: Console, form: Locator, runs: Runs) -> None:
    says(form, "Pick the clients")
    start(form)
    summary = form.locator(".form-summary")
    expect(summary).to_be_focused()
    expect(summary).to_contain_text("2 things are missing or wrong")
    summary.get_by_role("button", name=re.compile("^Classes: This needs at least 2 entries")).click()
    expect(box(form, "Classes")).to_be_focused()
    expect(box(form, "Classes")).to_have_attribute("aria-invalid", "true")
    expect(box(form, "Classes")).to_have_accessible_description(re.compile("needs at least 2 entries, not 0"))
    row(form, "ann").check()
    expect(summary).to_be_hidden()
    expect(box(form, "Classes")).not_to_have_attribute("aria-invalid", "true")
    assert runs() == []


def test_what_is_wrong_is_said_at_its_field_while_somebody_writes(console: Console, form: Locator, runs: Runs) -> None:
    row(form, "ann").check()
    for label, text, said in (
        ("Rounds", "many", "Write a whole number"),
        ("Rounds", "0", "It must be at least 1"),
        ("Name", "two words", "A name is up to 64 letters, digits"),
    ):
        box(form, label).fill(text)
        expect(box(form, label)).to_have_accessible_description(re.compile(said))
    form.get_by_text("More settings").click()
    box(form, "Tau").fill("0")
    expect(box(form, "Tau")).to_have_accessible_description(re.compile("It must be at least 0.001"))
    box(form, "Deadline in seconds").fill("600")
    expect(box(form, "Min clients")).to_have_accessible_description(re.compile("deadline_s drops nobody"))
    says(form, "4 things are missing or wrong")
    assert runs() == []


def test_photographs_begin_with_their_recipe_until_somebody_chooses(console: Console, runs: Runs) -> None:
    has_images_of(console, {"ann": 224, "bob": 224})
    form = opened(console)
    expect(box(form, "Begin with")).to_have_value("small-images")
    row(form, "ann").check()
    expect(box(form, "Begin with")).to_have_value("photos")
    expect(form.get_by_text("has 224 pixels at its smaller side")).to_be_visible()
    expect(form.get_by_text("does not show goes along")).to_contain_text("model.weights")
    expect(box(form, "Image size")).to_have_value("224")
    box(form, "Begin with").select_option("As published")
    expect(box(form, "Method")).to_have_value("fedplcc")
    expect(box(form, "Image size")).to_have_value("32")
    expect(form.get_by_text("does not show goes along")).to_be_hidden()
    row(form, "bob").check()
    expect(box(form, "Begin with")).to_have_value("")  # what somebody chose stays
    box(form, "Begin with").select_option("Photographs")
    console.page.reload()
    expect(box(form, "Begin with")).to_have_value("photos")
    expect(form.get_by_text(RECIPES["photos"].summary)).to_be_visible()
    console.screenshot("start-form-photos")
    says(form, "Nothing is wrong")
    box(form, "Method").select_option("fedavg")
    says(form, "begin with Photographs, trained by steps")
    box(form, "Method").select_option("classsums")
    says(form, "Nothing is wrong")
    box(form, "Begin with").select_option("Photographs, trained by steps")
    box(form, "Method").select_option("fedplcc")
    expect(form.get_by_label("balance")).to_have_value("0.03")
    box(form, "Begin with").select_option("Photographs")
    start(form)
    config = started(console, runs)["config"]
    said = recipe("photos")
    assert (config["run"]["method"], config["run"]["rounds"]) == (said["run"]["method"], said["run"]["rounds"])
    assert config["method"]["head"] == said["method"]["head"]
    assert config["model"].items() >= said["model"].items()
    assert config["training"]["train"] == "head"


def test_a_client_with_smaller_images_of_the_same_classes_changes_the_recipe(console: Console, runs: Runs) -> None:
    has_images_of(console, {"ann": 224, "bob": 28})
    form = opened(console)
    row(form, "ann").check()
    expect(box(form, "Begin with")).to_have_value("photos")
    row(form, "bob").check()
    expect(form.get_by_text("has 28 pixels at its smaller side")).to_be_visible()
    expect(box(form, "Begin with")).to_have_value("small-images")
    expect(box(form, "Rounds")).to_have_value("30")


@pytest.mark.full
def test_a_method_brings_its_own_settings(console: Console, form: Locator, runs: Runs) -> None:
    row(form, "ann").check()
    form.get_by_text("More settings").click()
    expect(form.get_by_text("A contrast and a correlation with weighted prototypes")).to_be_visible()
    expect(box(form, "Phi")).to_have_value("0.5")
    box(form, "Method").select_option("fedprox")
    expect(box(form, "Phi")).to_have_count(0)
    box(form, "Mu").fill("0.5")
    box(form, "Unit of local training").select_option("epochs")
    box(form, "Local training in a round").fill("2")
    box(form, "Model").select_option("cnn4")
    start(form)
    config = started(console, runs)["config"]
    assert config["method"].items() >= {"averaging": "weighted", "mu": 0.5}.items()
    assert (config["training"]["local_epochs"], config["training"]["local_steps"]) == (2, None)
    assert config["model"] == {"name": "cnn4", "norm": "batch", "options": {}, "stem": None}


@pytest.mark.full
def test_clients_to_come_are_named_and_whoever_joins_is_counted(console: Console, form: Locator, runs: Runs) -> None:
    box(form, "Clients that have not joined yet, by name").fill("north, south")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form.get_by_text("has not joined yet", exact=True)).to_have_count(2)
    expect(form.get_by_text("2 clients picked")).to_be_visible()
    form.get_by_label("Whoever joins").check()
    box(form, "Start when so many clients have joined").fill("3")
    box(form, "Classes").fill("x, y\nz")
    box(form, "Model").select_option("another one …")
    box(form, "Which model").fill("timm:resnet18")
    box(form, "Hidden dim").fill("64")
    start(form)
    config = started(console, runs)["config"]
    assert (config["run"]["min_clients"], config["run"]["clients"]) == (3, None)
    assert config["data"]["classes"] == ["x", "y", "z"]
    assert config["model"]["options"]["hidden_dim"] == 64


@pytest.mark.full
def test_a_second_press_makes_no_second_run(console: Console, form: Locator, runs: Runs) -> None:
    row(form, "ann").check()
    row(form, "bob").check()
    says(form, "Nothing is wrong")
    form.get_by_role("button", name="Start the run").dblclick()
    started(console, runs)
    assert sum(request == "POST /v1/runs" for request in console.requests) == 1


def test_a_start_whose_answer_was_lost_is_pressed_again_and_makes_one_run(
    console: Console, form: Locator, runs: Runs
) -> None:
    loses_the_answer(console)
    row(form, "ann").check()
    start(form)
    summary = form.locator(".form-summary")
    expect(summary).to_contain_text("It is not known yet whether the run was created")
    assert len(runs()) == 1, "its answer was lost on the way"
    start(form)
    started(console, runs)


@pytest.mark.full
def test_a_start_that_was_changed_after_its_answer_was_lost_says_that_there_is_a_run(
    console: Console, form: Locator, runs: Runs
) -> None:
    loses_the_answer(console)
    row(form, "ann").check()
    start(form)
    summary = form.locator(".form-summary")
    expect(summary).to_be_visible()
    box(form, "Rounds").fill("7")
    start(form)
    (run,) = runs()
    expect(summary.get_by_role("link", name=run["run_id"])).to_be_visible()
    start(form)
    expect(console.page).to_have_url(re.compile("#/runs/"))
    assert sorted(each["total_rounds"] for each in runs()) == [7, 30]


@pytest.mark.full
def test_what_is_half_filled_in_is_there_after_a_reload(console: Console, form: Locator, runs: Runs) -> None:
    row(form, "ann").check()
    box(form, "Clients that have not joined yet, by name").fill("north")
    form.get_by_role("button", name="Add", exact=True).click()
    box(form, "Rounds").fill("many")
    box(form, "Method").select_option("fedprox")
    form.get_by_text("More settings").click()
    box(form, "Mu").fill("")
    box(form, "Unit of local training").select_option("epochs")
    box(form, "Local training in a round").fill("2")
    box(form, "Model").select_option("another one …")
    box(form, "Which model").fill("package.module:factory")
    box(form, "Options of the model").fill('{"depth": ')
    box(form, "Clients that have not joined yet, by name").fill("sou")
    expect(form.get_by_role("button", name="Start over")).to_have_count(0)
    console.page.reload()
    expect(row(form, "ann")).to_be_checked()
    expect(row(form, "north")).to_be_checked()
    expect(row(form, "bob")).not_to_be_checked()
    expect(box(form, "Clients that have not joined yet, by name")).to_have_value("sou")
    expect(box(form, "Rounds")).to_have_value("many")
    expect(box(form, "Rounds")).to_have_accessible_description(re.compile("Write a whole number"))
    expect(box(form, "Method")).to_have_value("fedprox")
    expect(box(form, "Mu")).to_have_value("")
    expect(box(form, "Unit of local training")).to_have_value("epochs")
    expect(box(form, "Local training in a round")).to_have_value("2")
    expect(box(form, "Which model")).to_have_value("package.module:factory")
    expect(box(form, "Options of the model")).to_have_value('{"depth": ')
    form.get_by_role("button", name="Start over").click()
    expect(form.get_by_role("button", name="Start over")).to_have_count(0)
    expect(box(form, "Rounds")).to_have_value("30")
    expect(row(form, "ann")).not_to_be_checked()
    row(form, "ann").check()
    start(form)
    started(console, runs)
    console.page.go_back()
    expect(box(form, "Rounds")).to_have_value("30")
    expect(form.get_by_text("These are your settings")).to_have_count(0)


@pytest.mark.full
def test_a_start_whose_answer_was_lost_makes_one_run_after_a_reload_too(
    console: Console, form: Locator, runs: Runs
) -> None:
    loses_the_answer(console)
    form.get_by_label("Whoever joins").check()
    box(form, "Start when so many clients have joined").fill("7")
    start(form)
    expect(form.locator(".form-summary")).to_contain_text("It is not known yet whether the run was created")
    console.page.reload()
    expect(box(form, "Start when so many clients have joined")).to_have_value("7")
    start(form)
    assert started(console, runs)["config"]["run"]["min_clients"] == 7


@pytest.mark.full
def test_what_another_version_of_the_console_has_kept_is_not_read(console: Console, form: Locator, runs: Runs) -> None:
    box(form, "Rounds").fill("7")
    console.page.reload()
    expect(box(form, "Rounds")).to_have_value("7")
    renamed = console.page.evaluate(
        """() => {
          const kept = Object.entries(sessionStorage);
          sessionStorage.clear();
          for (const [name, value] of kept) sessionStorage.setItem(name.replace(/console\\/\\w+/, "console/earlier"), value);
          return Object.keys(sessionStorage);
        }"""
    )
    assert [name for name in renamed if "console/earlier" in name]
    console.page.reload()
    expect(row(form, "bob")).to_be_visible()
    expect(box(form, "Rounds")).to_have_value("30")


@pytest.mark.full
def test_options_that_are_written_outlive_what_is_written_elsewhere(
    console: Console, form: Locator, runs: Runs
) -> None:
    box(form, "Model").select_option("another one …")
    name = box(form, "Which model")
    name.fill("timm:resnet18")
    box(form, "Hidden dim").fill("64")
    name.press("End")
    name.press_sequentially("d")
    expect(box(form, "Hidden dim")).to_have_value("64")
    expect(name).to_be_focused()
    box(form, "Hidden dim").press("Home")
    box(form, "Hidden dim").press_sequentially("1")
    expect(box(form, "Hidden dim")).to_be_focused()
    expect(box(form, "Hidden dim")).to_have_value("164")
    box(form, "Model").select_option("cnn4")
    expect(box(form, "Hidden dim")).to_have_count(0)
    box(form, "Model").select_option("another one …")
    expect(name).to_have_value("timm:resnet18d")
    expect(box(form, "Hidden dim")).to_have_value("164")
    assert runs() == []


@pytest.mark.full
def test_what_only_the_aggregator_knows_is_said_at_its_field(console: Console, form: Locator, runs: Runs) -> None:
    console.tolerate(REFUSED_BY_HTTP)
    row(form, "ann").check()
    form.get_by_text("More settings").click()
    box(form, "Initial model").fill("run:no-such-run")
    start(form)
    expect(form.locator(".form-summary")).to_contain_text("Initial model:")
    expect(box(form, "Initial model")).to_have_accessible_description(re.compile("no-such-run"))
    box(form, "Initial model").fill("")
    box(form, "Deadline in seconds").fill("60")
    box(form, "Min clients").fill("1")
    box(form, "Silence in seconds").fill("0.001")
    start(form)
    expect(box(form, "Silence in seconds")).to_have_accessible_description(re.compile("the lease of this aggregator"))
    assert runs() == []


def test_the_form_begins_with_an_earlier_run_and_says_the_same_as_a_file(console: Console, runs: Runs) -> None:
    document = a_document(
        "fedplcc",
        run={"rounds": 5, "seed": 11},
        model={"name": "resnet18", "stem": "cifar3x3", "norm": "group"},
        training={"local_epochs": 2, "augment": ["flip"]},
    ) | {"method": {"tau": 0.2}}
    run_id = str(console.served.http.post("/v1/runs", json=document).json()["run_id"])
    console.open(f"#/runs/{run_id}")
    console.page.get_by_role("link", name="Start another run like this").click()
    form = console.page.get_by_role("form", name="Start a run")
    expect(form.get_by_text("Filled in as run")).to_contain_text(run_id)
    says(form, "Nothing is wrong")
    form.get_by_text("As a file and a command").click()
    written = tomllib.loads(form.get_by_label("The configuration as TOML").inner_text())
    assert written["method"] == {"tau": 0.2}
    assert written["training"] == {"local_epochs": 2, "augment": ["flip"]}
    expect(form.get_by_label("The command")).to_have_text(
        f"fedplcc run start --config run.toml --gateway {console.served.url}"
    )
    hashes = {console.served.http.post("/v1/run-configuration/check", json=written).json()["config_hash"]}
    start(form)
    expect(console.page).to_have_url(re.compile("#/runs/"))
    assert {run["config_hash"] for run in runs()} > hashes, "beside the run that it began with, under another name"
    assert written["run"]["name"].endswith("-2")


WEIGHTS = {"name": "resnet18", "stem": "cifar3x3", "weights": "of-a-site", "weights_sha256": "0" * 64}
NOISY = {"clip": 1.0, "noise": 4.0, "claim": "prototypes"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("tables", "unshown"),
    [
        ({"membership": {"bob": "2-"}, "model": WEIGHTS}, ["membership.bob", "model.weights", "model.weights_sha256"]),
        ({"stream": {"stages": 2, "rounds_per_stage": 2}}, ["stream.stages", "stream.rounds_per_stage"]),
        ({"run": {"method": "fcclplus"}, "public": {"data": "digits:svhn"}}, ["public.data"]),
        (
            {"run": {"method": "classsums"}, "method": {"head": "means"}, "privacy": NOISY},
            ["privacy.clip", "privacy.noise", "privacy.claim"],
        ),
        ({"training": {"mix_style": {"probability": 0.25, "alpha": 0.2}}}, []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_has_no_field_goes_along_and_is_named(
    console: Console, tables: dict[str, dict[str, Any]], unshown: list[str]
) -> None:
    document = a_document(run={"rounds": 4})
    for section, table in tables.items():
        document[section] = document.get(section, {}) | table
    answer = console.served.http.post("/v1/runs", json=document)
    assert answer.status_code == 202, answer.text
    form = opened(console, f"?from={answer.json()['run_id']}")
    for seed in ("7", "8"):  # the second time from what is kept over a reload
        box(form, "Seed").fill(seed)
        notice = form.get_by_text("does not show goes along")
        for location in unshown:
            expect(notice).to_contain_text(f"{location} = ")
        expect(notice).to_be_visible(visible=bool(unshown))
        form.get_by_text("As a file and a command").click()
        text = form.get_by_label("The configuration as TOML")
        expect(text).to_contain_text(f"seed = {seed}\n")
        written = tomllib.loads(text.inner_text())
        for section, table in tables.items():
            assert {key: written[section].get(key) for key in table} == table
        console.page.reload()


@pytest.mark.full
def test_a_run_that_is_not_there_cannot_be_copied(console: Console) -> None:
    console.tolerate(REFUSED_BY_HTTP)
    console.open("#/start?from=no-such-run")
    expect(console.page.get_by_role("alert")).to_contain_text("no-such-run")
    console.page.get_by_role("link", name="Start from a new form").click()
    expect(console.page.get_by_role("form", name="Start a run")).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("look", [DARK_PHONE], ids=str)
def test_the_whole_form_can_be_used_on_a_phone_by_everybody(console: Console, form: Locator, runs: Runs) -> None:
    start(form)
    expect(form.locator(".form-summary")).to_be_visible()
    for closed in form.locator("summary").all():
        closed.click()
    assert console.overflow_px() <= 0
    assert console.barriers() == []
    console.screenshot("start-form")


def test_clients_with_classes_that_the_run_lacks_are_amber_beside_the_button(
    console: Console, form: Locator, runs: Runs
) -> None:
    row(form, "ann").check()
    status = form.locator(".start-status")
    expect(status).to_contain_text("Nothing is wrong")
    box(form, "Classes").fill("a, b")
    expect(status).to_have_text("ann has the class c, which the run has not, and will refuse it.")
    expect(status).to_have_attribute("data-tone", "warning")
    assert console.barriers() == []
    box(form, "Classes").fill("a, b, c, d")
    expect(status).to_contain_text("Nothing is wrong")
    expect(status).to_have_attribute("data-tone", "good")
