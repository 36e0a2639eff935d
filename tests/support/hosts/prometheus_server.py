"""A real Prometheus on a free port of loopback, from Debian's package, with a configuration of the test's own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tests.support import ROOT
from tests.support.federation.processes import eventually, free_port

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "rules" / "fedplcc.yml"
ALERT = "alert"
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_SECONDS = re.compile(r"\b(\d+) \* (60|3600)\b")


def need_prometheus() -> str:
    """The program, or a skip that says what to install."""
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("there is no prometheus (Debian's package prometheus)")
    return found


def rules() -> list[dict[str, Any]]:
    """The alerts that are shipped, in order."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def faster(text: str, factor: float) -> str:
    """PromQL or a duration with every length of time shortened: 5m, [15m] and 24 * 3600 alike."""
    shorter = _DURATION.sub(lambda found: _milliseconds(int(found[1]) * _UNIT_S[found[2]] / factor), text)
    return _SECONDS.sub(lambda found: f"{int(found[1]) * int(found[2]) / factor}", shorter)


def faster_rules(factor: float) -> dict[str, Any]:
    """The shipped rules, word for word but for their lengths of time."""
    document: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule |= {key: faster(rule[key], factor) for key in ("expr", "for") if key in rule}
    return document


def _milliseconds(seconds: float) -> str:
    return f"{round(1000 * seconds)}ms"


def faster_configuration(
    file: Path, targets: Mapping[str, Sequence[str]], *, interval_s: float, rule_file: Path
) -> dict[str, Any]:
    """A shipped configuration with these targets by job, read and judged at a shorter interval; the rest is as it is."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    often = _milliseconds(interval_s)
    document["global"] |= dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), often)
    document["rule_files"] = [str(rule_file)]
    assert targets.keys() == {job["job_name"] for job in document["scrape_configs"]}
    for job in document["scrape_configs"]:
        (static,) = job.get("static_configs", [{"labels": {"client": "north"}}])
        for found_by in ("dns_sd_configs", "relabel_configs"):
            job.pop(found_by, None)
        job["static_configs"] = [{**static, "targets": list(targets[job["job_name"]])}]
    return document


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an answer: its labels, and (time, value) by time."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


class PrometheusServer:
    """Scrapes and judges within its block."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder, self._program = folder, need_prometheus()
        self._file, self._log = folder / "prometheus.yml", folder / "prometheus.log"
        self._file.write_text(yaml.safe_dump(dict(configuration)))

    def __enter__(self) -> Self:
        listen = self.url.removeprefix("http://")
        flags = [f"--config.file={self._file}", f"--storage.tsdb.path={self._folder / 'tsdb'}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, *flags, f"--web.listen-address={listen}"], stdout=log, stderr=subprocess.STDOUT
            )
        eventually(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        if error is not None:
            print(f"\n--- prometheus\n{self._log.read_text(errors='replace')[-4000:]}")

    def query(self, expression: str) -> list[Series]:
        """Series of an expression now; series without a number are left out."""
        answer = self._get("query", query=expression)
        assert answer["resultType"] in ("vector", "scalar"), expression
        if answer["resultType"] == "scalar":
            return _series([{"metric": {}, "values": [answer["result"]]}])
        return _series([{**each, "values": [each["value"]]} for each in answer["result"]])

    def query_range(self, expression: str, *, begin: float, end: float, step_s: float) -> list[Series]:
        """Series of an expression between two times, as a panel over time asks; points without a number are left out."""
        answer = self._get("query_range", query=expression, start=begin, end=end, step=step_s)
        return _series(answer["result"])

    def label_values(self, metric: str, label: str) -> list[str]:
        """Values that Grafana offers for a variable."""
        return sorted({series.labels[label] for series in self.query(f"group by ({label}) ({metric})")})

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """Alerts that fire now, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self._get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def rule_health(self) -> dict[str, str]:
        """Of every rule by name "ok", or the error that it was judged with."""
        groups = self._get("rules")["groups"]
        return {rule["name"]: rule.get("lastError") or rule["health"] for group in groups for rule in group["rules"]}

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, f"prometheus ended:\n{self._log.read_text(errors='replace')[-2000:]}"
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, **parameters: Any) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {json.load(error)['error']}") from error


def _series(results: Sequence[Mapping[str, Any]]) -> list[Series]:
    found = []
    for each in results:
        points = [(float(at), float(value)) for at, value in each["values"] if value not in ("NaN", "+Inf", "-Inf")]
        if points:
            found.append(Series(each["metric"], points))
    return found


def now() -> float:
    """The time by which Prometheus stamps its points."""
    return time.time()
