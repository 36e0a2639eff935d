"""Cases that people reported in public: each is a script that prints one line and exits 0 where the product does right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CASES = REPOSITORY.parent / "shared" / "cases"
SCRIPTS = sorted(CASES.glob("c[0-9][0-9]_*.py"))
LIMIT_S = 900

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.timeout(LIMIT_S + 60),
    pytest.mark.skipif(not SCRIPTS, reason=f"there are no public cases in {CASES}"),
]


@pytest.mark.parametrize("script", SCRIPTS or [CASES], ids=lambda path: path.stem)
def test_a_public_case_holds(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
