"""Look up the installed packages in the advisories of PyPI. Known vulnerabilities are an error; no answer is not.

python .ci/known_vulnerabilities.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

LIMIT_S = 300
"""Longest time of the whole look-up."""
SKIPPED = "pip-audit: skipped, no advisories can be reached from here"
NO_ANSWER = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Max retries exceeded", "Could not connect")
"""What pip-audit says where the advisories cannot be reached; it ends without a report then."""


def verdict(report: dict[str, Any]) -> tuple[bool, str]:
    """Return whether no vulnerability is known, and what there is to say, from pip-audit's report."""
    packages = report["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {known['id']}, "
        f"mended in {', '.join(known['fix_versions']) or 'no version'}"
        for package in packages
        for known in package.get("vulns", [])
    ]
    num_answered = sum("vulns" in package for package in packages)
    if found:
        return False, "\n".join(found)
    if not num_answered:
        return True, SKIPPED
    return True, f"pip-audit: clean, {num_answered} of {len(packages)} packages looked up"


def outcome(printed: str, complained: str) -> tuple[bool, str]:
    """Return the same from all that pip-audit printed; an end without a report is an error unless nothing answered."""
    try:
        return verdict(json.loads(printed))
    except (ValueError, KeyError, TypeError):
        if any(words in complained for words in NO_ANSWER):
            return True, SKIPPED
        return False, f"pip-audit gave no report: {complained.strip()[-2000:]}"


def main() -> None:
    """Look them up, and exit with 1 if a vulnerability is known."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--skip-editable", "--format", "json"]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10"], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        print(SKIPPED)
        return
    is_clean, said = outcome(done.stdout, done.stderr)
    print(said)
    sys.exit(0 if is_clean else 1)


if __name__ == "__main__":
    main()
