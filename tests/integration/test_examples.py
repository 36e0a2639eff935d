"""The examples with real pictures: their folders, their configurations, and tables that are those of the reports."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fedplcc.comparison.round_values import BALANCED_MODELS
from fedplcc.shared.config.run import load_federation
from fedplcc.trainer.data import load_dataset
from tests.support import ROOT

PICTURES = ROOT.parent / "shared" / "data"
NAMES = ("dermatoscopy", "pacs")
FOLDERS = {"dermatoscopy": "ham10000", "pacs": "pacs"}


def prepared(name: str, out: Path) -> int:
    """Run an example's prepare.py into a folder; the number of pictures."""
    pictures = PICTURES / FOLDERS[name]
    if not (pictures / "split.csv").exists():
        pytest.skip(f"the pictures of {pictures} are missing; examples/{name}/README.md says where to get them")
    spec = importlib.util.spec_from_file_location(f"prepare_{name}", ROOT / "examples" / name / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.prepare(pictures, out))


@pytest.mark.parametrize("name", NAMES)
def test_every_site_gets_folders_that_its_trainer_reads(name: str, tmp_path: Path) -> None:
    count = prepared(name, tmp_path / "sites")
    assert prepared(name, tmp_path / "sites") == count, "again changes nothing"
    federation = load_federation(ROOT / "examples" / name / "federation.toml")
    read = 0
    for site, client in federation.clients.items():
        spec = f"folder:{tmp_path / 'sites' / site}"
        assert client.data == f"folder:fedplcc-runs/{name}/{site}"
        loaded = load_dataset(spec, contract=federation.config.data)
        assert loaded.unreadable == ()
        assert min(len(loaded.train), len(loaded.test)) > 0
        read += len(loaded.train) + len(loaded.test)
    assert read == count


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_the_page_is_the_reports(name: str) -> None:
    page, report = ((ROOT / "examples" / name / file).read_text() for file in ("README.md", "results/report.md"))
    what = "global model, balanced accuracy" if name == "dermatoscopy" else "global model"
    start = report.index(f"**Mean of the last 10 rounds, {what}, ")
    table = report[start : report.index("\n\n", start + 80)]
    assert BALANCED_MODELS
    for row in re.findall(r"^\| (F[^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE):
        method, mean, worst = (cell.strip().replace("*", "") for cell in row)
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {method} |"))
        cells = [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
        assert [mean, worst] == cells[5:7], method
