"""The researcher's tutorial, typed as it stands: its lines, its comparison, its Python."""

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

TUTORIAL = (ROOT / "docs" / "tutorials" / "researcher.md").read_text()


def blocks(fence: str) -> list[str]:
    return re.findall(rf"^```{re.escape(fence)}\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def test_the_researchers_hour_is_typed_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(*blocks("toml compare.toml"))
    (tmp_path / "look.py").write_text(*blocks("python"))
    python = f'"{sys.executable}"'
    script = f'set -eu\nfedplcc() {{ {python} -P -m fedplcc "$@"; }}\n' + "".join(blocks("sh")) + f"{python} look.py\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs" in done.stdout
    assert "worst domain after 2 rounds" in done.stdout
    chosen = json.loads((tmp_path / "first" / "chosen.json").read_text())
    assert chosen
    assert (tmp_path / "first" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "accuracy.svg").exists()
