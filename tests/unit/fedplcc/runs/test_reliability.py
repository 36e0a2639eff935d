"""The reliability diagram of a run: bins of a domain's clients are added, and the last evaluated round is drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedplcc.runs.reliability import reliability_diagram, reported_bins
from fedplcc.shared.types import Reliability


def line(number: int, client: str, domain: str, *bins: tuple[float, float, int], **changes: Any) -> str:
    reported = [
        {"confidence": confidence, "accuracy": accuracy, "num_examples": count} for confidence, accuracy, count in bins
    ]
    counts = {"set_name": "test", "model": "global", "calibration": {"reliability": reported}, **changes}
    return json.dumps({"round": number, "client_id": client, "domain": domain, "counts": [counts]})


def test_bins_of_a_domains_clients_are_added() -> None:
    lines = [
        line(1, "ann", "city", (0.1, 0.0, 9)),
        line(2, "ann", "city", (0.41, 0.5, 10), (0.95, 1.0, 5)),
        line(2, "bob", "city", (0.45, 0.2, 30)),
        line(2, "zoe", "farm", (0.5, 0.5, 2), set_name="validation"),
        line(2, "zoe", "farm", (0.5, 0.5, 2), model="local"),
    ]
    found = reported_bins(lines, "global")
    assert list(found) == ["city"]
    first, last = found["city"]
    assert first.num_examples == 40
    assert first.accuracy == pytest.approx(11 / 40)
    assert first.confidence == pytest.approx((0.41 * 10 + 0.45 * 30) / 40)
    assert last == Reliability(confidence=0.95, accuracy=1.0, num_examples=5)
    assert reported_bins([line(1, "ann", "city", calibration=None)], "global") == {}
    assert reported_bins([], "global") == {}


def test_the_picture_is_a_png_file_whatever_there_is() -> None:
    bins = {"city": [Reliability(confidence=0.4, accuracy=0.5, num_examples=3)], "farm": []}
    assert reliability_diagram(bins, title="digits").startswith(b"\x89PNG")
