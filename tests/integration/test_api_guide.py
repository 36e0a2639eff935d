"""The walk-through of docs/api.md works as it is printed, with curl and from Python, with keys and real trainers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedplcc
from fedplcc.shared.errors import InvalidTransition, RunNotFound
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually

pytestmark = pytest.mark.slow

JOIN_S = 120.0
GUIDE = (ROOT / "docs" / "api.md").read_text()


def block(fence: str) -> str:
    """The one block of the guide with this fence."""
    (found,) = re.findall(rf"^```{re.escape(fence)}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """An aggregator, two trainers and a gateway that asks for keys."""
    data = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(data)
    with Federation(tmp_path_factory.mktemp("processes")) as federation:
        federation.start_aggregator()
        for client in tiny_federation.CLIENTS:
            federation.start_trainer(client, f"npz:{data / client}.npz")
        federation.start_gateway()
        with fedplcc.Gateway(federation.gateway_url, key=federation.key) as gateway:
            eventually(lambda: len(gateway.list_clients().clients) == 2, "both clients join", JOIN_S)
        yield federation


def environment(federation: Federation) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY": federation.gateway_url, "KEY": federation.key}


def test_the_lines_for_curl_start_steer_follow_and_fetch_a_run(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(block("json"))
    script = f"set -eu\n{block('sh curl')}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(federation), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "events.txt").read_text().count("event: round_committed") == 4
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        (model,) = (name for name in archive.namelist() if name.endswith("/model.safetensors"))
        assert archive.read(model) == (tmp_path / "model.safetensors").read_bytes()
    assert '"total":1' in done.stdout


def test_the_lines_for_python_do_the_same(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(block("json"))
    (tmp_path / "tour.py").write_text(block("python tour"))
    done = subprocess.run(
        [sys.executable, "tour.py"],
        cwd=tmp_path,
        env=environment(federation),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *rounds, last = done.stdout.splitlines()
    assert first == "['left', 'right']"
    assert [line.split()[0] for line in rounds] == ["1", "2", "3"]
    assert "tour-" in last
    assert (tmp_path / "model.safetensors").stat().st_size > 0


def test_what_the_gateway_refuses_is_raised_by_name(federation: Federation) -> None:
    with fedplcc.Gateway(federation.gateway_url, key=federation.key) as gateway:
        with pytest.raises(RunNotFound, match="no-such-run"):
            gateway.get_run("no-such-run")
        run = gateway.list_runs(page_size=1, status=["completed"]).runs[0]
        with pytest.raises(InvalidTransition):
            gateway.resume_run(run.run_id)
        assert gateway.update_run(run.run_id, tags=["seen"]).tags == ["seen"]
        assert gateway.list_runs(tag=["seen"]).total == 1
        assert gateway.list_rounds(run.run_id, after=0).rounds[0].round == 1
        assert len(gateway.get_metrics_lines(run.run_id)) == 3
