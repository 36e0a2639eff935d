"""The pages that a reviewer reads first: a valid citation file, tests that are there, and an answer to each requirement."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.site import citations
from fedplcc.shared.version import VERSION
from tests.contract.test_documents import rows
from tests.support import ROOT

DOCS = ROOT / "docs"
THREATS, ASSESSMENT = DOCS / "threat-model.md", DOCS / "assessment.md"
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
ANSWERS = ("met", "partly", "not met", "not applicable")
LINK = re.compile(r"\]\((\.\./tests/[\w/.]+\.py)\)")


def sections(path: Path) -> dict[str, str]:
    """Texts of a page's parts by their headings."""
    return {head: text for head, text in re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", path.read_text(), re.MULTILINE)}


def test_the_citation_file_has_what_version_1_2_0_of_the_format_demands() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "version", "license"} <= CITATION.keys()
    for cited in (CITATION, *CITATION["references"]):
        assert cited["type"]
        assert cited["title"]
        assert all(author.keys() & {"name", "family-names"} for author in cited["authors"])


def test_the_citation_file_names_this_version_and_the_projects_licence() -> None:
    assert CITATION["version"] == VERSION
    assert f'license = "{CITATION["license"]}"' in (ROOT / "pyproject.toml").read_text()


def test_the_paper_that_is_cited_is_the_one_of_the_documents() -> None:
    (paper,) = CITATION["references"]
    page = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    assert f'"{paper["title"]}", {paper["year"]}, <{paper["url"]}>' in page


def test_the_minor_version_is_a_supported_one() -> None:
    supported = {row[0]: row[1] for row in rows((ROOT / "SECURITY.md").read_text()) if len(row) == 2}
    assert supported[".".join(VERSION.split(".")[:2])].startswith("yes")


@pytest.mark.parametrize("path", [THREATS, ASSESSMENT, ROOT / "SECURITY.md"], ids=lambda path: path.name)
def test_the_check_of_citations_reads_the_page_and_finds_a_test_that_is_not_there(path: Path) -> None:
    name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    assert name in set(citations.files(ROOT))
    there = citations.known(
        (ROOT / citations.ALGORITHMS).read_text(encoding="utf-8"), [*citations.files(ROOT), *citations.LEFT_OUT]
    )
    assert citations.problems(name, text, there) == []
    planted = "test_that_nobody_" + "wrote.py"
    (found,) = citations.problems(
        name, f"{text}\n[{planted}](../tests/unit/{planted})\n".replace(f"[{planted}]", "[t]"), there
    )
    assert planted in found


def test_each_threat_says_what_holds_with_its_test_and_what_does_not() -> None:
    parts = {head[0]: rows(text) for head, text in sections(THREATS).items() if head[1:2] == "."}
    threats = [row for part in parts.values() for row in part]
    assert "".join(parts) == "STRIDE"
    assert len(threats) >= 18
    for _, holds, tests, left in threats:
        assert LINK.search(tests) if holds != "nothing" else tests == "none", holds
        assert left


def test_each_answer_has_a_test_or_a_command_that_shows_it() -> None:
    answers = rows(sections(ASSESSMENT)["Answers"])
    assert len(answers) >= 12
    for subject, answer, shown in answers:
        assert answer, subject
        assert LINK.search(shown) or re.search(r"`[^`]+`", shown), subject


def test_each_requirement_has_one_answer_and_what_is_met_a_proof() -> None:
    numbers: Counter[str] = Counter()
    chapters = set()
    for requirements, answer, why in rows(sections(ASSESSMENT)["OWASP ASVS 4.0.3, level 2, for the gateway"]):
        assert answer in ANSWERS, requirements
        assert LINK.search(why) or "](" in why or answer != "met", requirements
        assert why, requirements
        for number in requirements.split(", "):
            assert re.fullmatch(r"\d{1,2}\.\d{1,2}(\.\d{1,2})?", number), number
            numbers[number] += 1
            chapters.add(int(number.partition(".")[0]))
    assert [number for number, times in numbers.items() if times > 1] == []
    whole = {number for number in numbers if number.count(".") == 1}
    assert [number for number in numbers if number.count(".") == 2 and number.rpartition(".")[0] in whole] == []
    assert chapters == set(range(1, 15))


def test_each_requirement_of_flute_that_is_named_is_answered() -> None:
    flute = {row[0]: row[1] for row in rows(sections(ASSESSMENT)["HL7 Europe's FLUTE"])}
    wanted = {*(f"URS-{n}" for n in range(1, 16)), *(f"F-SRS-{n}" for n in range(1, 11)), "NF-PIL-5"}
    named = {name for cell in flute for name in cell.split(", ")}
    assert wanted <= named
    assert set(flute.values()) <= set(ANSWERS)
