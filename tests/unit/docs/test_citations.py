"""The check of citations finds what is not there, and takes what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.citations import ALGORITHMS, Known, known, passages, problems

PAGE = """# Algorithms

### Rule 1.7: refusals

### Rule 1.9: clients that are away

## 3. FedPLCC

**Eq. 9**, local prototypes. **Eq. 10** and **eq. 11**, global ones; eq. 10 needs eq. 9.
"""
THERE = known(PAGE, ["aggregator/coordinator/ledger.py", "docs/decisions/012-memory.md", "docs/decisions/README.md"])
RULE, EQ, RECORDS = "ru" + "le", "e" + "q.", "DECI" + "SIONS"
CITED = "docs/deci" + "sions"  # this file is checked too


def said_of(text: str, root: Path, path: str = "aggregator/fold.py") -> list[str]:
    return problems(path, f'"""{text}"""\n' if path.endswith(".py") else text, THERE, root)


def test_what_is_defined_is_known() -> None:
    assert (
        Known(
            rules=frozenset({"1.7", "1.9"}),
            equations={"FedPLCC": frozenset({"9", "10", "11"})},
            decisions=frozenset({"012"}),
            files=frozenset(
                "/".join(path[i:])
                for path in (
                    ["aggregator", "coordinator", "ledger.py"],
                    ["docs", "decisions", "012-memory.md"],
                    ["docs", "decisions", "README.md"],
                )
                for i in range(len(path))
            ),
        )
        == THERE
    )


@pytest.mark.parametrize(
    "text",
    [
        f"Checks prototypes (docs/algorithms.md, {RULE} 1.7).",
        f"Checks prototypes (docs/algorithms.md,\n    {RULE} 1.7 and 1.9).",
        f"Weights are normalised: FedPLCC, {EQ} 11.",
        f"The two halves of FedPLCC, {EQ} 9 to 11.",
        "As the paper's section 4.1 says.",
        "The window of RFC 9113, section 6.9.2.",
        f"Chosen for memory ({CITED}/012).",
        "docs/algorithms.md has the equations, https://example.org/missing.md has not.",
        "The updates come from ledger.py, the names from versions/r0001_...py.",
        "Nothing is cited by the rule of 3 or by section and equation alone.",
    ],
)
def test_citations_of_what_is_there_are_taken(text: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / ALGORITHMS).write_text(PAGE)
    assert said_of(text, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Checks prototypes (docs/algorithms.md, {RULE} 1.8).", "has no rule 1.8"),
        (f"Checks prototypes ({RULE} 1.7 of the algorithms).", "write docs/algorithms.md, rule N.M"),
        (f"FedPLCC, {EQ} 12.", "the section FedPLCC of docs/algorithms.md has no eq. 12"),
        (f"FedPLCC, {EQ} 10 to 12.", "has no eq. 12"),
        (f"Normalised as in {EQ} 11.", "name the method"),
        ("Who may import whom (design section 3).", "of which publication?"),
        (f"As in {CITED}/012 and {CITED}/013.", "docs/decisions has no file 013-*.md"),
        (f"As in {CITED}/12.", "docs/decisions has no file 12-*.md"),
        (f"Chosen for memory: {RECORDS} 12.", "write docs/decisions/NNN"),
        ("Alerts are explained in deploy/missing.md.", "'deploy/missing.md': there is no such file"),
        ("The moves are in rounds/ledger.py.", "'rounds/ledger.py': there is no such file"),
        ("The moves are in missing.py.", "'missing.py': there is no such file"),
    ],
)
def test_citations_of_what_is_not_there_are_found(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / ALGORITHMS).write_text(PAGE)
    (problem,) = said_of(text, tmp_path)
    assert problem.startswith("aggregator/fold.py: ")
    assert said in problem


@pytest.mark.parametrize(
    "path", ["shared/methods/prototypical/fedplcc.py", "tests/unit/shared/methods/test_fedplcc.py"]
)
def test_the_file_of_a_method_cites_its_own_paper(path: str, tmp_path: Path) -> None:
    assert said_of(f"Normalised ({EQ} 11).", tmp_path, path) == []
    assert "has no eq. 12" in said_of(f"Normalised ({EQ} 12).", tmp_path, path)[0]


def test_a_section_of_the_page_cites_its_own_equations(tmp_path: Path) -> None:
    assert problems(ALGORITHMS, PAGE, THERE, tmp_path) == []
    assert "has no eq. 8" in problems(ALGORITHMS, f"{PAGE}As {EQ} 8.\n", THERE, tmp_path)[0]


def test_a_document_may_cite_a_rule_by_a_link(tmp_path: Path) -> None:
    assert said_of(f"[{RULE} 1.7](algorithms.md#there)", tmp_path, "docs/data.md") == [
        "docs/data.md: 'algorithms.md': there is no such file"
    ]


def test_a_document_beside_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "README.md").write_text("")
    assert said_of("README.md in this folder explains it.", tmp_path) == []


def test_of_python_comments_and_docstrings_are_read_and_values_are_not() -> None:
    code = '"""A module."""\n\nNAME = "a value"\n# One comment\n# on two lines.\nSIZE = 1  # another\n'
    assert sorted(passages("a.py", code)) == ["A module.", "One comment on two lines.", "another"]
