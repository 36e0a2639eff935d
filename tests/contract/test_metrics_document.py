"""deploy/metrics.md says what the processes export: every metric, its type, its labels and its meaning."""

from __future__ import annotations

import re

import pytest
from prometheus_client import Gauge

from docs.site import metrics


def test_the_document_has_the_tables_of_what_is_exported() -> None:
    text = metrics.DOCUMENT.read_text()
    assert re.findall(r"<!-- table: (\w+) -->", text) == list(metrics.registries())
    assert metrics.rewritten(text) == text, "write it anew with `python -m docs.site.metrics`"


def test_a_metric_that_the_document_does_not_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = metrics.registries()
    Gauge("fedplcc_new", "Something new.", ["kind"], registry=found["trainer"])
    monkeypatch.setattr(metrics, "registries", lambda: found)
    text = metrics.DOCUMENT.read_text()
    assert set(metrics.rewritten(text).splitlines()) - set(text.splitlines()) == {
        "| `fedplcc_new` | gauge | `kind` | Something new. |"
    }


def test_every_metric_is_in_base_units_and_explained() -> None:
    for registry in metrics.registries().values():
        for family in registry.collect():
            assert not re.search(r"_(ms|millis|kb|mb|percent|minutes|hours)(_|$)", family.name)
            assert family.documentation.endswith("."), f"{family.name}: a sentence"


@pytest.mark.parametrize("name", ["round_age_seconds", "checkpoint_age_seconds", "client_silence_seconds"])
def test_what_is_computed_when_it_is_scraped_is_named_before_it_has_a_value(name: str) -> None:
    assert f"| `fedplcc_{name}` | gauge |" in metrics.DOCUMENT.read_text()
