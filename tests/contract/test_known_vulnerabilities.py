"""CI's look-up of known vulnerabilities: one that is known, or a tool that fails, is an error; no answer is not."""

from __future__ import annotations

import json
import runpy
import subprocess
from typing import Any

import pytest

from tests.support import ROOT

SCRIPT = ROOT / ".ci" / "known_vulnerabilities.py"
SOUND = {"name": "sound", "version": "1.0", "vulns": []}
KNOWN = {"name": "weak", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}


def looked_up(monkeypatch: pytest.MonkeyPatch, printed: str, complained: str = "") -> int:
    """The exit code of the script where pip-audit says this."""

    def run(*_command: Any, **_options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, printed, complained)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("printed", "complained", "code"),
    [
        (json.dumps({"dependencies": [SOUND]}), "", 0),
        (json.dumps({"dependencies": [SOUND, KNOWN]}), "", 1),
        ("", "requests.exceptions.ConnectionError: Max retries exceeded", 0),
        ("", "Traceback (most recent call last): ImportError", 1),
        ('{"dependencies": [', "", 1),
    ],
    ids=["sound", "known", "no answer", "crash", "cut report"],
)
def test_only_a_service_that_cannot_be_reached_passes_without_a_report(
    monkeypatch: pytest.MonkeyPatch, printed: str, complained: str, code: int
) -> None:
    assert looked_up(monkeypatch, printed, complained) == code


def test_the_vulnerability_and_its_mend_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_up(monkeypatch, json.dumps({"dependencies": [KNOWN]}))
    assert capsys.readouterr().out == "weak 1.0: PYSEC-1, mended in 1.1\n"
