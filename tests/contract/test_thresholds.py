"""No document and no message calls a threshold, or a rule of aggregation that a liar cannot turn, private."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import ROOT

SUBJECT = re.compile(
    r"threshold|min_cluster_size|class_images|prototype_images|test_images|withhold_below|small_clusters"
    r"|clipped_mean|trimmed_mean|robust rule",
    re.IGNORECASE,
)
CLAIM = re.compile(
    r"\bprivate\b|\bprivacy guarantee|\banonym|\bdifferential(ly)? priva|\bguarantee[sd]?\b", re.IGNORECASE
)
DENIAL = re.compile(r"\b(no|not|nor|nothing|never|none|neither|without|untrue|refuse[sd]?|refused)\b", re.IGNORECASE)
SUFFIXES = (".md", ".py", ".js", ".html", ".toml", ".yaml", ".json")
APART = ("tests/", "CHANGELOG.md", "docs/guarantees.md", "shared/gen/", "gateway_client/")
"""What speaks of tests and of generated code: there `guarantees` are those of a table."""


def sentences(text: str) -> Iterator[str]:
    """Sentences of a text, those of a table's cells too; a literal that runs over several lines is one."""
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    for part in re.split(r"\n\s*\n|(?<=[.:;!?])\s|\s\|\s|\n\s*[-*|]\s", joined):
        yield " ".join(part.split())


def claims(text: str) -> list[str]:
    """Sentences that call a threshold or a rule private."""
    return [each for each in sentences(text) if SUBJECT.search(each) and CLAIM.search(each) and not DENIAL.search(each)]


def test_nothing_calls_a_threshold_private() -> None:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    looked = [name for name in names if name.endswith(SUFFIXES) and not name.startswith(APART)]
    assert len(looked) > 500
    found = {
        name: said
        for name in looked
        if (ROOT / name).is_file() and (said := claims((ROOT / name).read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("A threshold of ten images makes prototypes private.", True),
        ("With class_images = 10 the site's images are anonymous.", True),
        ("rule = trimmed_mean guarantees that nobody learns an image", True),
        ("Thresholds lower what attacks find; there is no guarantee in them.", False),
        ("A threshold proves nothing. Private class sums have a claim.", False),
    ],
)
def test_a_sentence_that_does_is_found(text: str, is_found: bool) -> None:
    assert bool(claims(text)) == is_found
