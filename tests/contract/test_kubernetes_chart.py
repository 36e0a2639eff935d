"""The Helm chart and the trainer's manifest are what Kubernetes takes, and every value of the chart is used and said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from fedplcc.shared.config.settings import (
    AggregatorSettings,
    GatewaySettings,
    Settings,
)
from fedplcc.shared.identity.certificates import GATEWAY_DNS
from fedplcc.shared.version import VERSION
from tests.support.hosts.helm import CHART, RELEASE, Document, Refused, need_helm, rendered
from tests.support.hosts.kubernetes import (
    EVERYTHING,
    GUIDE,
    WORKLOADS,
    charts,
    component,
    container,
    made,
    manifest,
    of_kind,
    peer,
    with_value,
    workloads,
)

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes are installed")

VERSIONS = ("1.31.0", "1.34.0", "1.37.0")
"""Kubernetes' oldest version that the chart takes, one between and the newest whose schemas there are."""
SETTINGS: dict[str, type[Settings]] = {"aggregator": AggregatorSettings, "gateway": GatewaySettings}
NOT_OFFERED = {
    "aggregator": {"port", "enrol_port", "metrics_port", "gateway_join_file", "insecure"},
    "gateway": {"port", "metrics_host", "tls_cert", "tls_key", "plain_http", "insecure"},
}
"""Settings that the chart leaves as they are: its ports are fixed, and nothing is ever plain text."""
OTHER: Mapping[str, Any] = {
    "image": "registry.example.org/other:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "aggregator.address": "fl.example.org",
    "aggregator.service.type": "LoadBalancer",
    "aggregator.service.annotations": {"sentinel": "here"},
    "aggregator.storage.size": "77Gi",
    "aggregator.storage.className": "sentinel",
    "aggregator.databaseSecret": "sentinel",
    "aggregator.signOnSecret": "sentinel",
    "aggregator.settings": {"keep_models": "77"},
    "aggregator.resources": {"requests": {"cpu": "7"}},
    "aggregator.evictable": 0,
    "aggregator.scheduling": {"nodeSelector": {"sentinel": "here"}},
    "gateway.replicas": 7,
    "gateway.invitationsSecret": "sentinel",
    "gateway.messagesSecret": "sentinel",
    "gateway.service.type": "NodePort",
    "gateway.service.annotations": {"sentinel": "here"},
    "gateway.storage.size": "77Gi",
    "gateway.storage.className": "sentinel",
    "gateway.settings": {"allowed_hosts": "fl.example.org"},
    "gateway.resources": {"requests": {"cpu": "7"}},
    "gateway.evictable": 7,
    "gateway.scheduling": {"priorityClassName": "sentinel"},
    "metrics.enabled": False,
    "metrics.secret": "sentinel",
    "metrics.interval": "77s",
    "metrics.labels": {"sentinel": "here"},
    "networkPolicy.trainers": peer("sentinel"),
    "networkPolicy.people": peer("sentinel"),
    "networkPolicy.prometheus": peer("sentinel"),
    "networkPolicy.database": peer("sentinel"),
    "networkPolicy.databasePort": 7777,
    "networkPolicy.provider": peer("sentinel"),
    "networkPolicy.providerPort": 7777,
    "networkPolicy.receivers": peer("sentinel"),
    "networkPolicy.receiverPorts": [7777],
    "networkPolicy.dns": peer("sentinel"),
}
"""Another value for each of values.yaml."""
WRONG: Mapping[str, Any] = {
    "image": "",
    "imagePullPolicy": "Sometimes",
    "typo": True,
    "aggregator.typo": True,
    "aggregator.evictable": 2,
    "aggregator.service.type": "ExternalName",
    "aggregator.databaseSecret": "postgresql://fedplcc:secret@db/fedplcc",
    "aggregator.settings": {"keep_models": 10},
    "aggregator.storage.size": "0Gi",
    "aggregator.scheduling": {"hostNetwork": True},
    "gateway.replicas": 0,
    "gateway.settings": {"plain_http": "true"},
    "metrics.interval": "15",
    "networkPolicy.people": [{}],
    "networkPolicy.databasePort": 0,
    "networkPolicy.receiverPorts": [],
}


@cache
def changed() -> Mapping[str, list[Document]]:
    """What the chart makes of another value for each, where everything is asked for."""
    outcomes = rendered(*(with_value(EVERYTHING, path, value) for path, value in OTHER.items()))
    return {path: made(found) for path, found in zip(OTHER, outcomes, strict=True)}


def test_every_document_validates_for_three_versions_of_kubernetes() -> None:
    plain, everything = charts()
    sets = (plain, everything, manifest(), *changed().values())
    distinct = {json.dumps(each, sort_keys=True): each for found in sets for each in found}
    assert len(distinct) > len(everything)
    for document in distinct.values():
        if document["kind"] != "ServiceMonitor":  # which is no kind of Kubernetes' own
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert oldest == f">={VERSIONS[0]}-0"


def test_names_are_unique_and_fit_whatever_the_release_is_called() -> None:
    for found in (*charts(), manifest()):
        names = [(each["kind"], each["metadata"]["name"]) for each in found]
        assert len(set(names)) == len(names)
        assert all(len(name) <= len(RELEASE) + 23 for _kind, name in names), "with 40 of a release at most 63"


def test_what_selects_pods_selects_some() -> None:
    for found in (*charts(), manifest()):
        pods = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind(found, *WORKLOADS)]
        services = [each["metadata"]["labels"] for each in of_kind(found, "Service")]
        for each in of_kind(found, "Service", "PodDisruptionBudget", "ServiceMonitor", "NetworkPolicy", *WORKLOADS):
            spec = each["spec"]
            selector = spec.get("podSelector") or spec["selector"]
            wanted = selector.get("matchLabels", selector)
            among = services if each["kind"] == "ServiceMonitor" else pods
            assert [labels for labels in among if wanted.items() <= labels.items()] != [], each["metadata"]["name"]
        for each in of_kind(found, "StatefulSet"):
            assert each["spec"]["serviceName"] in {service["metadata"]["name"] for service in of_kind(found, "Service")}


def leaves(values: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from leaves(value, f"{at}{name}.")
        else:
            yield f"{at}{name}"


def test_every_value_is_used_and_documented() -> None:
    text = (CHART / "values.yaml").read_text()
    assert set(leaves(yaml.safe_load(text))) == OTHER.keys()
    _plain, everything = charts()
    assert [path for path, found in changed().items() if found == everything] == []
    lines = text.splitlines()
    names = {path.rpartition(".")[2] for path in OTHER}
    undocumented = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if (found := re.match(r" *(\w+):", line)) and found[1] in names and not before.lstrip().startswith("#")
    ]
    assert undocumented == []


def test_a_wrong_value_is_refused() -> None:
    outcomes = rendered(*(with_value({}, path, value) for path, value in WRONG.items()))
    assert [path for path, found in zip(WRONG, outcomes, strict=True) if not isinstance(found, Refused)] == []
    said = dict(zip(WRONG, map(str, outcomes), strict=True))
    assert "keep_models" in said["aggregator.settings"]
    assert "typo" in said["aggregator.typo"]


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_every_setting_of_the_product_is_offered_by_its_name_or_set_by_the_chart(name: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    offered = set(schema["properties"][name]["properties"]["settings"]["propertyNames"]["enum"])
    _plain, everything = charts()
    (workload,) = (each for each in of_kind(everything, *WORKLOADS) if component(each) == name)
    given = {each["name"].removeprefix("FEDPLCC_").lower() for each in container(workload)["env"]}
    hidden = {field for field, info in SETTINGS[name].model_fields.items() if info.json_schema_extra}
    assert offered & given == set()
    assert (
        offered | (given & SETTINGS[name].model_fields.keys()) | NOT_OFFERED[name] | hidden
        == SETTINGS[name].model_fields.keys()
    )


def test_no_value_is_a_secret() -> None:
    for found in charts():
        assert of_kind(found, "Secret", "ConfigMap") == []


def test_the_chart_and_its_images_are_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    images = {container(each)["image"] for each in of_kind(charts()[0] + manifest(), *WORKLOADS)}
    assert images == {f"fedplcc-aggregator:{VERSION}", f"fedplcc-trainer:{VERSION}"}


# The guide


def test_the_guide_names_what_is_there() -> None:
    need_helm()
    text = GUIDE.read_text()
    plain, everything = charts()
    names = {each["metadata"]["name"] for each in everything}
    pods = {f"{each['metadata']['name']}-0" for each in of_kind(plain, "StatefulSet")}
    manifests = {each["metadata"]["name"] for each in manifest()}
    for kind, name in re.findall(r"\b(statefulset|service|deployment)/([\w-]+)", text):
        assert name in (manifests if kind == "deployment" else names)
    assert set(re.findall(r"\bexec ([\w-]+)", text)) <= pods
    secrets = {
        each["secret"]["secretName"]
        for _name, workload in workloads()
        for each in workload["spec"]["template"]["spec"]["volumes"]
        if "secret" in each
    } | {
        each["spec"]["endpoints"][0]["tlsConfig"]["ca"]["secret"]["name"]
        for each in of_kind(everything, "ServiceMonitor")
    }
    assert set(re.findall(r"create secret generic ([\w-]+)", text)) == secrets
    named = {
        code or flag
        for code, flag in re.findall(r"`((?:aggregator|gateway|networkPolicy)\.[\w.]+)|--set ([\w.]+)=", text)
    }
    assert {name for name in named if not any(f"{name}.".startswith(f"{path}.") for path in OTHER)} == {GATEWAY_DNS}
