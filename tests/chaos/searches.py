"""Searches that are tests, at full size: calls that are refused, shares, flipped blobs, liars, ports, headers and names."""

from __future__ import annotations

import os
import sys

import pytest

from tests.support.searches import SEARCHES, VARIABLE

if __name__ == "__main__":
    os.environ[VARIABLE] = "1"
    # Those of this folder are parts of their own.
    sys.exit(pytest.main([*(file for file in SEARCHES if not file.startswith("tests/chaos/")), *sys.argv[1:]]))
