"""A trainer says that it starts before it loads what takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.modules["torch"] = None  # whoever loads it fails
from fedplcc.shared.config.settings import TrainerSettings
from fedplcc.trainer.app import run
run(TrainerSettings(client="north", data=("digits:mnist",), insecure=True))
"""


def test_the_first_line_comes_before_torch_loads(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    assert '"trainer_starting"' in lines[0]
    assert "torch" in done.stderr, "it went on to load it"
