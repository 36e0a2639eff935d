"""Dashboards, alerts and documents name all metrics and no others, and are files that Grafana and Prometheus take."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from docs.site import metrics
from fedplcc.aggregator.metrics.outcomes import CONTENT_REFUSALS
from fedplcc.command.all_commands import app
from tests.support import ROOT
from tests.support.hosts.prometheus_server import FOLDER, RULES, faster, faster_rules, rules
from tests.support.screens import dashboards
from tests.support.screens.dashboards import OF_PROMETHEUS, OF_SCRAPE, labels_in, metrics_in

DEPLOY = ROOT / "deploy"
RUNBOOK = DEPLOY / "alerts.md"
DOCUMENTS = (metrics.DOCUMENT, RUNBOOK, DEPLOY / "README.md", ROOT / "README.md")
RULE_TESTS = FOLDER / "tests" / "fedplcc.yml"
SERIES_OF = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
OF_GRAFANA = frozenset({"__rate_interval", "__interval", "__range"})
_IN_TEXT = re.compile(r"`((?:fedplcc|grpc_server|process)_[a-z_]+)(\*?)")
_IN_TEMPLATE = re.compile(r"\$labels\.(\w+)")


@cache
def exported() -> Mapping[str, frozenset[str]]:
    """Labels of every series that a process exports, by its name, whether it has a value yet or not."""
    found: dict[str, frozenset[str]] = dict(OF_PROMETHEUS)
    for registry in metrics.registries().values():
        for family, labels in metrics.families(registry):
            of_type = {"le"} if family.type == "histogram" else set[str]()
            for suffix in SERIES_OF.get(family.type, ("",)):
                name = family.name + suffix
                found[name] = found.get(name, frozenset()) | set(labels) | of_type
    return found


def wrong_names(metrics: frozenset[str], labels: frozenset[str]) -> list[str]:
    """What no process exports: a metric, or a label that none of these metrics has."""
    known = set(OF_SCRAPE).union(*(exported().get(name, frozenset()) for name in metrics))
    return sorted(metrics - exported().keys()) + sorted(labels - known)


def unmentioned(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Metrics that no text names; a histogram counts by any of its series."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    base = re.compile(r"_(bucket|sum|count)$")
    return sorted({base.sub("", name) for name in names if not {name, base.sub("", name)} & words})


# Metrics


def test_a_query_asks_for_what_is_exported() -> None:
    for query in dashboards.queries():
        assert query.metrics, query
        assert wrong_names(query.metrics, query.labels) == [], query


def test_an_alert_judges_and_tells_what_is_exported() -> None:
    for rule in rules():
        told = frozenset(_IN_TEMPLATE.findall(" ".join(rule["annotations"].values()))) - OF_SCRAPE
        assert wrong_names(metrics_in(rule["expr"]), labels_in(rule["expr"]) | told) == [], rule["alert"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_only_metrics_that_there_are(path: Path) -> None:
    known = exported().keys() | {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    packages = {"fedplcc_aggregator", "fedplcc_trainer"}  # names of volumes
    named = [(name, star) for name, star in _IN_TEXT.findall(path.read_text()) if name not in packages]
    assert [name for name, star in named if name not in known and not (star and any(_begins(known, name)))] == []


def _begins(names: Iterator[str] | Any, prefix: str) -> Iterator[bool]:
    return (name.startswith(prefix) for name in names)


def test_every_metric_is_in_a_panel_an_alert_or_a_document() -> None:
    texts = [query.expression for query in dashboards.queries()] + [rule["expr"] for rule in rules()]
    texts += [path.read_text() for path in DOCUMENTS]
    assert unmentioned(list(exported()), texts) == []
    assert unmentioned([*exported(), "fedplcc_new_seconds_bucket"], texts) == ["fedplcc_new_seconds"]


def test_what_a_wrong_query_asks_for_is_found() -> None:
    query = 'sum by (kind, rnd) (rate(fedplcc_transfer_bytes_totl{dir="sent"}[5m])) / up'
    assert wrong_names(metrics_in(query), labels_in(query, "{{zone}}")) == [
        "fedplcc_transfer_bytes_totl",
        *("dir", "kind", "rnd", "zone"),
    ]


# Dashboards


def test_there_are_six_dashboards_that_lead_to_each_other() -> None:
    documents = list(dashboards.documents().values())
    uids = [document["uid"] for document in documents]
    names = ("fleet", "overview", "performance", "prototypes", "run", "stages")
    assert sorted(uids) == [f"fedplcc-{name}" for name in names]
    assert len({document["title"] for document in documents}) == len(documents)
    for document in documents:
        assert {link["url"] for link in document["links"]} == {f"/d/{uid}" for uid in uids if uid != document["uid"]}
        assert all(link["keepTime"] for link in document["links"])


def test_a_link_takes_along_only_what_the_other_dashboard_can_choose() -> None:
    several = {document["uid"]: _takes_several(document) for document in dashboards.documents().values()}
    for document in dashboards.documents().values():
        for link in document["links"]:
            target = several[link["url"].removeprefix("/d/")]
            fits = all(target.get(name, True) or not is_many for name, is_many in several[document["uid"]].items())
            assert link["includeVars"] is fits, (document["uid"], link["url"])


def _takes_several(document: dict[str, Any]) -> dict[str, bool]:
    """Of each variable, whether it may be all values at once."""
    variables = document["templating"]["list"]
    return {each["name"]: each["multi"] for each in variables if each["type"] == "query"}


@pytest.mark.parametrize("path", dashboards.documents(), ids=lambda path: path.name)
def test_a_dashboard_is_one_that_grafana_draws(path: Path) -> None:
    document = dashboards.documents()[path]
    panels = document["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    cells = [cell for panel in panels for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells), "panels lie on each other"
    variables = {variable["name"] for variable in document["templating"]["list"]}
    source = {"type": "prometheus", "uid": _source()["uid"]}
    for variable in document["templating"]["list"]:
        assert variable["type"] == "interval" or variable["datasource"] == source
    assert {each["name"] for each in document["annotations"]["list"]} == {"Run started", "Run ended", "Recovery"}
    assert all(each["datasource"] == source for each in document["annotations"]["list"])
    for panel in panels:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGHIJ"[: len(panel["targets"])])
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == source
        for query in dashboards.of_panel(path.name, panel):
            assert query.variables <= variables | OF_GRAFANA, panel["title"]
            assert query.legend or panel["type"] == "table", panel["title"]
        steps = [step["value"] for step in defaults.get("thresholds", {"steps": [{"value": None}]})["steps"]]
        assert steps[0] is None
        assert all(one < other for one, other in pairwise(steps[1:])), panel["title"]
    used = set[str]().union(*(query.variables for query in dashboards.queries() if query.dashboard == path.name))
    assert variables <= used, "every variable changes something"


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    assert place["x"] + place["w"] <= 24
    for row in range(place["y"], place["y"] + place["h"]):
        for column in range(place["x"], place["x"] + place["w"]):
            yield row, column


def _source() -> dict[str, Any]:
    text = (DEPLOY / "grafana/provisioning/datasources/fedplcc.yml").read_text()
    source: dict[str, Any] = yaml.safe_load(text)["datasources"][0]
    return source


def test_grafana_and_prometheus_of_compose_find_the_dashboards_and_the_rules() -> None:
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/fedplcc.yml").read_text())["providers"][0]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    grafana, prometheus = services["grafana"], services["prometheus"]
    assert _source()["url"].removeprefix("$") in grafana["environment"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert dashboards.FOLDER / home.name in dashboards.documents()
    assert str(home.parent) == provider["options"]["path"]
    # Where a configuration says rules/*.yml is beside itself.
    assert "./prometheus/prometheus.yml:/etc/prometheus/prometheus.yml:ro" in prometheus["volumes"]
    assert "./prometheus/rules:/etc/prometheus/rules:ro" in prometheus["volumes"]
    for file in ("prometheus.yml", "host.yml"):
        (pattern,) = yaml.safe_load((FOLDER / file).read_text())["rule_files"]
        assert list(FOLDER.glob(pattern)) == [RULES]


# Alerts


def test_every_alert_says_what_to_do_and_has_a_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (Fedplcc\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()], "in the order of the rules"
    for rule in rules():
        texts = rule["annotations"]
        assert rule["labels"].keys() == {"severity"}
        assert texts.keys() == {"summary", "description", "runbook_url"}
        assert len(texts["summary"]) < 80
        assert texts["description"].endswith((".", "`"))
        assert texts["runbook_url"] == f"deploy/alerts.md#{rule['alert'].lower()}"


def test_the_runbook_s_table_has_every_alert_under_its_severity() -> None:
    table = {
        severity: {f"Fedplcc{name}" for name in names.split(", ")}
        for severity, names in re.findall(
            r"^\| (critical|warning|info) \|.*\| (.*) \|$", RUNBOOK.read_text(), re.MULTILINE
        )
    }
    severities = {rule["labels"]["severity"] for rule in rules()}
    assert table == {
        severity: {rule["alert"] for rule in rules() if rule["labels"]["severity"] == severity}
        for severity in severities
    }


def test_the_commands_that_a_person_is_told_to_type_exist() -> None:
    texts = [RUNBOOK.read_text(), *(rule["annotations"]["description"] for rule in rules())]
    told = set(re.findall(r"\bfedplcc ((?:run |state )?[a-z]+)\b(?= |`|$)", "\n".join(texts), re.MULTILINE))
    known: Any = typer.main.get_command(app)
    names = {
        *known.commands,
        *(f"{group} {name}" for group in ("run", "state") for name in known.commands[group].commands),
    }
    assert {"doctor", "run status", "run client", "state audit"} <= told <= names


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "config", "host.yml"),
        ("check", "rules", f"rules/{RULES.name}"),
        ("test", "rules", f"tests/{RULE_TESTS.name}"),
    ],
    ids=lambda arguments: "-".join(str(part).rpartition("/")[2] for part in arguments),
)
def test_promtool_accepts(arguments: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool (Debian's package prometheus)")
    folder = tmp_path / "prometheus"
    shutil.copytree(FOLDER, folder)
    # It looks for the files of a monitor and of a key, which each installation makes for itself.
    (folder / "fedplcc").mkdir()
    for name in ("identity.pem", "key"):
        (folder / "fedplcc" / name).touch()
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alert_about_refused_updates_counts_the_same_ones_with_a_run_and_without() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "FedplccUpdatesRejected")
    (outcomes,) = re.findall(r'outcome=~"([^"]+)"', rule["expr"])
    assert sorted(outcomes.split("|")) == sorted(kind.reason.lower() for kind in CONTENT_REFUSALS)


def test_every_alert_has_a_test_of_its_rule() -> None:
    tested = set(re.findall(r'alertname(?:="|: )(\w+)', RULE_TESTS.read_text()))
    assert tested == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("30m", "18000ms"),
        ("rate(a_total[5m] offset 1h)", "rate(a_total[3000ms] offset 36000ms)"),
        ("time() - b_seconds < 15 * 60", "time() - b_seconds < 9.0"),
        ("predict_linear(c5m[6h], 24 * 3600) < 0.3", "predict_linear(c5m[216000ms], 864.0) < 0.3"),
    ],
)
def test_rules_are_made_faster_by_their_lengths_of_time_alone(text: str, shortened: str) -> None:
    assert faster(text, 100) == shortened


def test_a_faster_rule_differs_in_nothing_else() -> None:
    numbers = re.compile(r"\d+(\.\d+)?(ms|[smhd]\b)?( \* \d+)?")
    for rule, shipped in zip(faster_rules(100)["groups"][0]["rules"], rules(), strict=True):
        assert rule | {"expr": 0, "for": 0} == shipped | {"expr": 0, "for": 0}
        assert numbers.sub("N", rule["expr"]) == numbers.sub("N", shipped["expr"])
