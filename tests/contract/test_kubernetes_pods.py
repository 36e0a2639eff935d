"""Pods, Services and monitors of the Helm chart and of the trainer's manifest agree with what the services do."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.gateway.http.guards.key_guard import OPEN_PATHS
from fedplcc.shared.config.settings import (
    AggregatorSettings,
    GatewaySettings,
    Settings,
    TrainerSettings,
    from_command_line,
)
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, GATEWAY_DNS
from tests.support.hosts.helm import RELEASE, Document
from tests.support.hosts.kubernetes import (
    WORKLOADS,
    charts,
    component,
    container,
    of_kind,
    workloads,
)

KINDS: dict[str, type[Settings]] = {
    "aggregator": AggregatorSettings,
    "gateway": GatewaySettings,
    "trainer": TrainerSettings,
}


def settings_of(name: str, workload: Document, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings with which the container's process starts."""
    with monkeypatch.context() as patch:
        for each in container(workload)["env"]:
            if each["name"].startswith("FEDPLCC_"):
                patch.setenv(each["name"], each.get("value", "postgresql://database/fedplcc"))
        package, *flags = container(workload)["args"]
        assert package == name
        return from_command_line(KINDS[name], name, "", [*(("--client", "south") if name == "trainer" else ()), *flags])


def test_pods_have_no_rights_and_write_to_their_volumes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, workload in workloads():
        pod, own = workload["spec"]["template"]["spec"], container(workload)
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert own["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "variables of Services would be read as settings"
        assert pod["terminationGracePeriodSeconds"] == 60
        assert own["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in own["resources"]["limits"]
        settings = settings_of(name, workload, monkeypatch)
        written = {each["mountPath"] for each in own["volumeMounts"] if not each.get("readOnly")}
        assert written == {"/var/lib/fedplcc", "/tmp"}
        assert str(settings.state_dir) == "/var/lib/fedplcc/state", (
            "below the volume, whose own folder its driver makes"
        )
        claimed = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
        assert {each["name"] for each in own["volumeMounts"]} == claimed | {each["name"] for each in pod["volumes"]}


def test_environment_names_are_settings_and_ports_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, workload in workloads():
        settings, own = settings_of(name, workload, monkeypatch), container(workload)
        variables = {each["name"] for each in own["env"]} - {"POD_NAME"}
        known = {f"FEDPLCC_{field.upper()}" for field in KINDS[name].model_fields} | {"FEDPLCC_INVITE_ADDRESS"}
        assert variables <= known
        assert settings.insecure is False
        ports = {each["name"]: each["containerPort"] for each in own.get("ports", ())}
        if name == "aggregator":
            expected = {"members": settings.port, "admission": settings.enrol_port, "metrics": settings.metrics_port}
            assert (ports, settings.host) == (expected, "0.0.0.0")
        elif name == "gateway":
            assert (ports, settings.host) == ({"rest": settings.port}, "0.0.0.0")
            assert settings.uses_own_certificate
            assert settings.aggregator == f"{RELEASE}-aggregator:50051"
            assert settings.join_file.parts[-2:] == ("fedplcc-join", "$(POD_NAME)")
        else:
            assert ports == {}, "nothing dials a trainer"
            assert (settings.data_spec, settings.device) == ("folder:/data", "cuda")
            assert own["resources"]["limits"]["nvidia.com/gpu"] == 1
        if name != "trainer":
            enabled = any(each["kind"] == "ServiceMonitor" for each in charts()[1]) and workload in charts()[1]
            assert name == "gateway" or settings.metrics_host == ("0.0.0.0" if enabled else "127.0.0.1")


def test_services_lead_to_ports_of_their_pods() -> None:
    for found in charts():
        ports = {
            component(each): {port["name"]: port["containerPort"] for port in container(each)["ports"]}
            for each in of_kind(found, *WORKLOADS)
        }
        for service in of_kind(found, "Service"):
            for port in service["spec"]["ports"]:
                target = service["spec"]["selector"]["app.kubernetes.io/component"]
                assert ports[target][port["targetPort"]] == port["port"]
        published = [
            port["name"]
            for each in of_kind(found, "Service")
            if each["spec"].get("type")
            for port in each["spec"]["ports"]
        ]
        assert sorted(published) == ["admission", "members", "rest"], "metrics are not published"


def test_probes_ask_what_the_services_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, workload in workloads():
        settings, own = settings_of(name, workload, monkeypatch), container(workload)
        probes = {kind.removesuffix("Probe"): each for kind, each in own.items() if kind.endswith("Probe")}
        asked = [each["exec"]["command"] for each in probes.values() if "exec" in each]
        serves = ["fedplcc", "doctor", "--serves", f"127.0.0.1:{getattr(settings, 'health_port', None)}"]
        assert [command for command in asked if command != serves] == []
        got = {kind: each["httpGet"] for kind, each in probes.items() if "httpGet" in each}
        if name == "gateway":
            assert {kind: each["path"] for kind, each in got.items()} == {
                "startup": "/livez",
                "liveness": "/livez",
                "readiness": "/readyz",
            }
            assert {each["path"] for each in got.values()} <= OPEN_PATHS
            for each in got.values():
                assert (each["port"], each["scheme"]) == ("rest", "HTTPS")
                assert each["httpHeaders"] == [{"name": "Host", "value": "localhost"}], "whatever the allowed hosts are"
        elif name == "aggregator":
            assert (set(probes), len(asked)) == ({"startup", "readiness", "liveness"}, 2)
            assert probes["liveness"]["tcpSocket"] == {"port": "members"}
        else:
            assert (set(probes), len(asked)) == ({"readiness"}, 1), "no restart while the aggregator is away"


def test_prometheus_reads_each_service_by_its_fixed_name_and_the_gateway_with_a_key() -> None:
    plain, everything = charts()
    assert of_kind(plain, "ServiceMonitor") == []
    identity = {"name": f"{RELEASE}-monitor", "key": "identity.pem"}
    ca, key = {"secret": identity}, {"name": f"{RELEASE}-monitor", "key": "key"}
    expected = {
        f"{RELEASE}-aggregator-metrics": {
            "port": "metrics",
            "tlsConfig": {"serverName": AGGREGATOR_DNS, "ca": ca, "cert": ca, "keySecret": identity},
        },
        f"{RELEASE}-gateway": {
            "port": "rest",
            "tlsConfig": {"serverName": GATEWAY_DNS, "ca": ca},
            "authorization": {"credentials": key},
        },
    }
    for monitor in of_kind(everything, "ServiceMonitor"):
        (service,) = (
            each
            for each in of_kind(everything, "Service")
            if monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
        )
        endpoint = {"interval": "15s", "scheme": "https", **expected.pop(service["metadata"]["name"])}
        assert (monitor["apiVersion"], monitor["spec"]["endpoints"]) == ("monitoring.coreos.com/v1", [endpoint])
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert expected == {}
