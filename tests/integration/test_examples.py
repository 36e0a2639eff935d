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
ON_FEATURES = (*NAMES, "office10")
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
    one = next((tmp_path / "sites").glob("*/train/*/*.jpg"))
    one.rename(one.parents[2] / "test" / one.parent.name / f"other-{one.name}")  # as another split.csv would have it
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


def table(name: str, folder: str, title: str) -> list[list[str]]:
    """Cells of the lines of a report's table."""
    report = (ROOT / "examples" / name / folder / "report.md").read_text()
    start = report.index(f"**{title}**")
    lines = report[start : report.index("\n\n", start + len(title) + 10)].splitlines()
    return [
        [cell.strip().replace("*", "") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]


def told(name: str, pattern: str) -> list[list[str]]:
    """Cells of the lines of the page's tables whose method fits."""
    page = (ROOT / "examples" / name / "README.md").read_text()
    lines = re.findall(rf"^\| ({pattern}.+) \|$", page, re.MULTILINE)
    return [[cell.strip().replace("*", "") for cell in line.split("|")] for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_from_scratch_is_the_reports(name: str) -> None:
    what = "global model, balanced accuracy" if name == "dermatoscopy" else "global model"
    label = {"dermatoscopy": "Dermatoscopy", "pacs": "PACS"}[name]
    assert BALANCED_MODELS
    lines = {line[0]: line for line in table(name, "from-scratch", f"Mean of the last 10 rounds, {what}, {label}")}
    found = [line for line in told(name, r"F(?!ed\w+, head)") if len(line) == 3]
    assert len(found) == 4
    for method, mean, worst in found:
        assert [mean, worst] == lines[method][5:7], method


@pytest.mark.parametrize("name", ON_FEATURES)
def test_the_table_on_features_is_the_reports(name: str) -> None:
    label = {"dermatoscopy": "Dermatoscopy", "pacs": "PACS", "office10": "Office-10"}[name]
    balanced = ", balanced accuracy" if name == "dermatoscopy" else ""
    of_all = {line[0]: line for line in table(name, "results", f"Last round, global model{balanced}, {label}")}
    own = {
        line[0]: line
        for line in table(name, "results", f"Last round, local models, each on its own domain{balanced}, {label}")
    }
    found = [line for line in told(name, r"(?:ClassSums|Fed\w+), ") if len(line) == 7]
    assert len(found) == 5
    for method, *cells in found:
        assert cells[:2] == of_all[method][5:7], method
        assert cells[2:4] == (own[method][5:7] if method in own else ["", ""]), method
