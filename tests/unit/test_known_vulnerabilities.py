from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from tests.support import ROOT

module = runpy.run_path(str(ROOT / ".ci" / "known_vulnerabilities.py"))
verdict, outcome = module["verdict"], module["outcome"]
UNKNOWN = {"name": "alabaster", "skip_reason": "Dependency not found on PyPI"}
CLEAN = {"name": "httpx", "version": "0.28.1", "vulns": []}
WRONG = {"name": "pillow", "version": "9.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["9.0.1", "10.0"]}]}


@pytest.mark.parametrize(
    ("packages", "is_clean", "said"),
    [
        ([CLEAN, UNKNOWN], True, "clean, 1 of 2 packages"),
        ([UNKNOWN, UNKNOWN], True, "skipped"),
        ([], True, "skipped"),
        ([CLEAN, WRONG, UNKNOWN], False, "pillow 9.0: PYSEC-1, mended in 9.0.1, 10.0"),
    ],
)
def test_a_known_vulnerability_is_an_error_and_no_answer_is_none(
    packages: list[dict[str, Any]], is_clean: bool, said: str
) -> None:
    found, text = verdict({"dependencies": packages})
    assert found is is_clean
    assert said in text


@pytest.mark.parametrize(
    ("printed", "complained", "is_clean", "said"),
    [
        (json.dumps({"dependencies": [CLEAN]}), "a warning", True, "clean, 1 of 1"),
        ("", "requests.exceptions.ConnectionError: HTTPSConnectionPool", True, "skipped"),
        ("", "No module named pip_audit", False, "gave no report: No module named pip_audit"),
        ("usage: pip-audit", "unrecognized arguments", False, "unrecognized arguments"),
    ],
)
def test_an_end_without_a_report_is_an_error_unless_nothing_answered(
    printed: str, complained: str, is_clean: bool, said: str
) -> None:
    found, text = outcome(printed, complained)
    assert found is is_clean
    assert said in text
