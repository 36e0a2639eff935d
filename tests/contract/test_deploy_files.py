"""The files below deploy/ agree with the services, with each other, with the Dockerfiles and with their guide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fedplcc.aggregator.identity.authority import FOLDER as IDENTITY_FOLDER
from fedplcc.aggregator.identity.gateway_invitation import GATEWAY_FILE
from fedplcc.shared.config.settings import (
    INVITATION,
    from_command_line,
)
from tests.support import ROOT
from tests.support.hosts.compose import (
    COMPOSE_FILES,
    DEPLOY,
    DOCKERFILES,
    KINDS,
    compose,
    interpolated,
)
from tests.support.records import deploy_guide

ONE_SHOT = ("command", "invitations", "monitor-invitation")
"""Services of compose.yaml that end by themselves."""
MONITOR = "monitor"
"""Service of compose.yaml that keeps Prometheus' certificate."""
JOIN_FOLDER = "/var/lib/fedplcc-join"
"""Folder of invitations in both images."""
KNOWN_FROM_IDENTITY = {"trainer": ("--client", "south")}
"""What a joined service is not told."""
UNITS = {
    "fedplcc-aggregator.service": "aggregator.env",
    "fedplcc-gateway.service": "gateway.env",
    "fedplcc-trainer@.service": "trainer.env",
}
EXPOSURE = 20
"""Most that `systemd-analyze security` may find, in tenths: 0 may do nothing, 100 everything."""
PROGRAM = "/opt/fedplcc/bin/fedplcc"


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("FEDPLCC_"):
            monkeypatch.delenv(name)


# Compose


def services() -> list[tuple[str, str, dict[str, Any]]]:
    return [(file, name, service) for file in COMPOSE_FILES for name, service in compose(file)["services"].items()]


def lasting() -> list[tuple[str, str, dict[str, Any]]]:
    return [each for each in services() if each[1] not in ONE_SHOT]


def ours() -> list[tuple[str, str, dict[str, Any]]]:
    return [each for each in lasting() if each[2]["image"] in DOCKERFILES and each[1] != MONITOR]


class Image(NamedTuple):
    """What a Dockerfile says of its containers."""

    environment: dict[str, str]
    user: str
    volumes: list[str]
    ports: list[int]


@cache
def image(name: str) -> Image:
    text = (ROOT / DOCKERFILES[name]).read_text().replace("\\\n", "")
    said = re.findall(r"^(ENV|USER|VOLUME|EXPOSE) (.*)$", text, re.MULTILINE)
    words = {kind: [word for each, rest in said if each == kind for word in rest.split()] for kind, _ in said}
    environment = dict(word.split("=", 1) for word in words["ENV"])
    return Image(environment, words["USER"][-1], words["VOLUME"], [*map(int, words["EXPOSE"])])


def settings_of(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings with which the container's process starts."""
    for name, value in {**image(service["image"]).environment, **service.get("environment", {})}.items():
        if name.startswith("FEDPLCC_"):
            monkeypatch.setenv(name, str(value))
    package, *flags = service["command"]
    return from_command_line(KINDS[package], package, "", [*KNOWN_FROM_IDENTITY.get(package, ()), *flags])


def exposed(name: str) -> set[int]:
    """Ports that an image says its containers listen at."""
    return set(image(name).ports)


def label(value: object) -> str:
    """How a service is named among the tests."""
    return value if isinstance(value, str) else "."


def port_numbers(settings: Any) -> set[int]:
    return {value for name, value in settings.model_dump().items() if name.endswith("port") and value}


@pytest.mark.parametrize(("file", "name", "service"), services(), ids=label)
def test_every_service_of_compose_is_hardened_watched_and_kept(file: str, name: str, service: dict[str, Any]) -> None:
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert name in ONE_SHOT or service["healthcheck"]["test"][0] == "CMD"
    user = image(service["image"]).user if service["image"] in DOCKERFILES else service["user"]
    assert user.partition(":")[0] not in ("", "0", "root")
    assert not re.search(r":latest$", service["image"])


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_names_only_what_is_there(file: str) -> None:
    document = compose(file)
    for service in document["services"].values():
        for other, condition in service.get("depends_on", {}).items():
            if other in ONE_SHOT:
                assert condition == {"condition": "service_completed_successfully"}
            else:
                assert condition == {"condition": "service_healthy"}
                assert "healthcheck" in document["services"][other]
        for mount in service.get("volumes", ()):
            source = mount["source"] if isinstance(mount, dict) else mount.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
            elif not source.startswith("/"):
                assert source in document["volumes"]
        if "build" in service:
            assert service["build"]["dockerfile"] == DOCKERFILES[service["image"]]
            assert (DEPLOY / service["build"]["context"]).samefile(ROOT)
    used = {
        mount.split(":")[0]
        for each in document["services"].values()
        for mount in each.get("volumes", ())
        if isinstance(mount, str)
    }
    assert document["volumes"].keys() <= used
    for built in {service["image"] for service in document["services"].values()} & DOCKERFILES.keys():
        builders = [each for each in document["services"].values() if each["image"] == built and "build" in each]
        assert len(builders) == 1, "two builds of one image collide"


@pytest.mark.parametrize(("file", "name", "service"), ours(), ids=label)
def test_what_compose_starts_is_understood_and_fits_its_image(
    file: str, name: str, service: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, built = settings_of(service, monkeypatch), image(service["image"])
    assert settings.insecure is False
    targets = {
        mount["target"] if isinstance(mount, dict) else mount.split(":")[1] for mount in service.get("volumes", ())
    }
    package = service["command"][0]
    assert str(settings.state_dir) in targets
    assert str(settings.state_dir) in built.volumes
    if package == "trainer":
        assert settings.data_spec == "folder:/data"
        assert "/data" in targets
        assert file == "compose.trainer.yaml" or settings.client == name.removeprefix("trainer-")
        assert "ports" not in service, "nothing dials a trainer"
    else:
        assert settings.host == "0.0.0.0"
    published = {int(port.rpartition(":")[2]) for port in service.get("ports", ())}
    assert published <= port_numbers(settings) & exposed(service["image"])
    address = service["healthcheck"]["test"][-1]
    assert service["healthcheck"]["test"][1:-1] == ["fedplcc", "doctor", "--serves"]
    at = f"http://127.0.0.1:{settings.port}" if package == "gateway" else f"127.0.0.1:{settings.health_port}"
    assert address == at
    if package == "gateway":
        aggregator = settings_of(compose(file)["services"]["aggregator"], monkeypatch)
        assert settings.aggregator == f"aggregator:{aggregator.port}"
        assert settings.plain_http, "its port is published on loopback alone"


def mounts(service: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Named volumes of a service: where each is seen, and how."""
    named = [mount.split(":") for mount in service.get("volumes", ()) if isinstance(mount, str)]
    return {name: (target, "".join(how) or "rw") for name, target, *how in named}


def test_invitations_reach_the_gateway_and_the_trainers_and_nobody_else_sees_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = compose("compose.yaml")["services"]
    seen = {
        name: {volume for volume in mounts(service) if volume.startswith("join-")} for name, service in found.items()
    }
    gateway, trainers, monitor = {"join-gateway"}, {"join-trainers"}, {"join-monitor"}
    assert {name: volumes for name, volumes in seen.items() if volumes} == {
        "aggregator": gateway,
        "gateway": gateway,
        "invitations": trainers,
        "monitor": monitor,
        "monitor-invitation": monitor,
        "trainer-north": trainers,
        "trainer-south": trainers,
    }
    read_only = {name for name, service in found.items() if (JOIN_FOLDER, "ro") in mounts(service).values()}
    assert read_only == {"gateway", "monitor", "trainer-north", "trainer-south"}
    written = settings_of(found["aggregator"], monkeypatch).gateway_join_file
    assert written == settings_of(found["gateway"], monkeypatch).join_file
    assert str(written.parent) == JOIN_FOLDER
    for name in ("north", "south"):
        file = settings_of(found[f"trainer-{name}"], monkeypatch).join_file
        assert str(file) == f"{JOIN_FOLDER}/{name}.join"
    (script,) = found["invitations"]["command"]
    assert "for name in north south;" in script
    assert f"file={JOIN_FOLDER}/$name.join" in script


def test_the_federation_s_keys_are_seen_by_the_aggregator_and_its_administration_alone() -> None:
    found = compose("compose.yaml")["services"]
    assert {name for name, service in found.items() if "aggregator" in mounts(service)} == {"aggregator", *ONE_SHOT}
    for name in ONE_SHOT:
        assert mounts(found[name])["aggregator"] == mounts(found["aggregator"])["aggregator"], "the socket's path"


def test_prometheus_reads_the_identity_that_its_monitor_keeps() -> None:
    found = compose("compose.yaml")["services"]
    monitor, prometheus = found[MONITOR], found["prometheus"]
    assert monitor["user"] == prometheus["user"], "files of one are readable by the other"
    assert mounts(monitor)["monitor"] == ("/var/lib/fedplcc-monitor", "rw")
    assert mounts(prometheus)["monitor"] == ("/etc/prometheus/fedplcc", "ro")
    named = re.findall(r"\bfedplcc/[\w.]+", (DEPLOY / "prometheus/prometheus.yml").read_text())
    (script,) = monitor["command"]
    assert {name.removeprefix("fedplcc/") for name in named} == {"identity.pem", "key"}
    assert monitor["working_dir"] == "/var/lib/fedplcc-monitor"
    assert "--state-dir ." in script
    assert "fedplcc-join/key key" in script


def test_everything_is_published_on_loopback_unless_somebody_names_an_address() -> None:
    ports = [port for _file, _name, service in services() for port in service.get("ports", ())]
    assert sorted(ports) == [
        "127.0.0.1:3000:3000",
        "127.0.0.1:50051:50051",
        "127.0.0.1:50053:50053",
        "127.0.0.1:8080:8080",
    ]
    public = interpolated((DEPLOY / "compose.yaml").read_text(), {"FEDPLCC_ADDRESS": "192.0.2.10"})
    assert yaml.safe_load(public)["services"]["aggregator"]["ports"] == [
        "192.0.2.10:50051:50051",
        "192.0.2.10:50053:50053",
    ]


def test_the_gpu_file_adds_to_the_trainer_alone() -> None:
    added = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())["services"]
    assert added.keys() == compose("compose.trainer.yaml")["services"].keys()
    (device,) = added["trainer"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_docker_compose_accepts_the_files() -> None:
    command = next((each for each in (["docker", "compose"], ["docker-compose"]) if _runs([*each, "version"])), None)
    if command is None:
        pytest.skip("there is no docker compose")
    for files in (["compose.yaml"], ["compose.trainer.yaml"], ["compose.trainer.yaml", "compose.gpu.yaml"]):
        flags = [flag for file in files for flag in ("-f", str(DEPLOY / file))]
        done = subprocess.run(
            [*command, *flags, "config", "--quiet"], env=dict(os.environ), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


# Prometheus


def targets(file: str) -> dict[str, list[str]]:
    jobs = yaml.safe_load((DEPLOY / "prometheus" / file).read_text())["scrape_configs"]
    found = {}
    for job in jobs:
        static = [target for each in job.get("static_configs", ()) for target in each["targets"]]
        by_name = [f"{name}:{each['port']}" for each in job.get("dns_sd_configs", ()) for name in each["names"]]
        found[job["job_name"]] = static + by_name
    return found


def test_prometheus_of_compose_scrapes_every_service_that_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    expected: dict[str, list[str]] = {}
    for file, name, service in ours():
        if file != "compose.yaml":
            continue
        package = service["command"][0]
        with monkeypatch.context() as patch:
            settings = settings_of(service, patch)
        host, port = (
            (settings.host, settings.port) if package == "gateway" else (settings.metrics_host, settings.metrics_port)
        )
        assert host == "0.0.0.0", f"{name} lets nobody read its metrics"
        expected.setdefault(package, []).append(f"{name}:{port}")
    assert targets("prometheus.yml") == expected


def test_prometheus_of_a_host_scrapes_what_the_units_start(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for unit in UNITS:
        with monkeypatch.context() as patch:
            settings = unit_settings(unit, patch)
        where = (
            (settings.host, settings.port)
            if unit == "fedplcc-gateway.service"
            else (settings.metrics_host, settings.metrics_port)
        )
        found[settings.table] = ["{}:{}".format(*where)]
    assert targets("host.yml") == found


# systemd


def unit_lines(unit: str) -> list[tuple[str, str]]:
    text = (DEPLOY / "systemd" / unit).read_text()
    text = text.replace("%S", "/var/lib").replace("%i", "south")
    return [
        (key, value) for key, _, value in (line.partition("=") for line in text.splitlines()) if value or key.isalpha()
    ]


def variables(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def unit_settings(unit: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings with which the unit's process starts, with the environment file that is shipped."""
    lines = dict(unit_lines(unit))
    given = dict(pair.split("=", 1) for pair in lines.get("Environment", "").split())
    for name, value in {**given, **variables(DEPLOY / "systemd" / UNITS[unit])}.items():
        monkeypatch.setenv(name, value)
    program, package, *flags = lines["ExecStart"].split()
    assert program == PROGRAM
    return from_command_line(KINDS[package], package, "", flags)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_with_its_environment_file(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, lines = unit_settings(unit, monkeypatch), dict(unit_lines(unit))
    name = UNITS[unit].replace(".env", "-south.env") if "@" in unit else UNITS[unit]
    assert lines["EnvironmentFile"] == f"/etc/fedplcc/{name}"
    assert name in deploy_guide.GUIDE.read_text()
    assert settings.insecure is False
    assert str(settings.state_dir) == f"/var/lib/{lines['StateDirectory']}" == lines["WorkingDirectory"]
    assert lines["User"] == lines["Group"] == (DEPLOY / "systemd/fedplcc.sysusers").read_text().split()[1]


@pytest.mark.parametrize("file", sorted(set(UNITS.values())))
def test_an_environment_file_names_only_settings_that_there_are(file: str) -> None:
    text = (DEPLOY / "systemd" / file).read_text()
    kind = KINDS[file.removesuffix(".env")]
    named = re.findall(r"^#?FEDPLCC_(\w+)=", text, re.MULTILINE)
    assert named
    known = kind.model_fields.keys() | {INVITATION.removeprefix("FEDPLCC_").lower()}
    assert {name.lower() for name in named} <= known


def test_the_units_of_one_host_find_each_other_s_files(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        aggregator = unit_settings("fedplcc-aggregator.service", patch)
    gateway = unit_settings("fedplcc-gateway.service", monkeypatch)
    assert gateway.join_file == aggregator.state_dir / GATEWAY_FILE
    hidden = dict(unit_lines("fedplcc-gateway.service"))["InaccessiblePaths"]
    assert hidden == f"-{aggregator.state_dir / IDENTITY_FOLDER}", "the gateway cannot issue certificates"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_a_unit(unit: str, tmp_path: Path) -> None:
    analyze = _systemd_analyze()
    program = tmp_path / "fedplcc"
    program.touch(mode=0o755)
    copy = tmp_path / unit.replace("@.", "@south.")
    copy.write_text((DEPLOY / "systemd" / unit).read_text().replace(PROGRAM, str(program)))
    done = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True)
    # Before version 254 systemd knows no steps between restarts, and says that it ignores them.
    complaints = [line for line in done.stderr.splitlines() if not re.search(r"'Restart(Steps|MaxDelaySec)'", line)]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_exposes_little_of_the_host(unit: str) -> None:
    analyze = _systemd_analyze()
    flags = ["security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}"]
    done = subprocess.run([analyze, *flags, DEPLOY / "systemd" / unit], capture_output=True, text=True)
    if "unrecognized option '--offline" in done.stderr:
        pytest.skip("this systemd-analyze examines running units only")
    assert done.returncode == 0, done.stdout


def _systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("there is no systemd-analyze")
    return found


# Passwords, ports and flags


def test_grafana_never_has_a_password_that_everybody_knows(tmp_path: Path) -> None:
    service = compose("compose.yaml")["services"]["grafana"]
    (script,) = service["command"]
    told = tmp_path / "run.sh"
    told.write_text('cat "$GF_SECURITY_ADMIN_PASSWORD__FILE"')
    script = script.replace("/var/lib/grafana", str(tmp_path)).replace("/run.sh", f"sh {told}")

    def password(given: str) -> str:
        environment = {"PATH": os.environ["PATH"], "FEDPLCC_GRAFANA_PASSWORD": given}
        ran = subprocess.run(
            [*service["entrypoint"], script], env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout

    made = password("")
    assert len(made) == 32
    assert password("later") == made, "the first start decides, in Grafana too"
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    (tmp_path / "password").unlink()
    assert password("chosen") == "chosen"
    assert not [key for key in service["environment"] if "PASSWORD" in key and key.startswith("GF_")]


def test_the_table_of_ports_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = deploy_guide.GUIDE.read_text().partition("\n## Ports\n")[2].partition("\n## ")[0]
    table = {int(port) for row in re.findall(r"^\| ([\d, ]+) \|", ports, re.MULTILINE) for port in row.split(",")}
    used = {int(port.rpartition(":")[2]) for _file, _name, service in services() for port in service.get("ports", ())}
    used |= {port for name in DOCKERFILES for port in exposed(name)}
    used |= {
        int(target.rpartition(":")[2])
        for file in ("prometheus.yml", "host.yml")
        for each in targets(file).values()
        for target in each
    }
    for unit in UNITS:
        with monkeypatch.context() as patch:
            used |= port_numbers(unit_settings(unit, patch))
    for _file, _name, service in ours():
        with monkeypatch.context() as patch:
            used |= port_numbers(settings_of(service, patch))
    assert table == used


def services_that_the_guide_starts() -> list[list[str]]:
    text = "\n".join(block.text for block in deploy_guide.blocks() if block.language == "sh")
    return [found.split() for found in re.findall(r"\bfedplcc ((?:aggregator|gateway|trainer)\b[^\n>&|;]*)", text)]


def test_the_services_that_the_guide_starts_understand_their_flags() -> None:
    started = services_that_the_guide_starts()
    assert {package for package, *_flags in started} == set(KINDS)
    for package, *flags in started:
        named = [flag.replace('"$(hostname)"', "south") for flag in flags]
        from_command_line(KINDS[package], package, "", [*KNOWN_FROM_IDENTITY.get(package, ()), *named])
