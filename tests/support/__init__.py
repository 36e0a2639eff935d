"""Parts that tests share, by what they are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository's folder."""
