"""The guides of deploy/ name files, services, settings and sentences that there are."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedplcc.deployment.files import WHEEL, deployment_files, write_files
from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.config.settings import INVITATION
from fedplcc.shared.version import VERSION
from tests.support import ROOT
from tests.support.hosts.compose import COMPOSE_FILES, DEPLOY, DOCKERFILES, KINDS, VARIABLE
from tests.support.records import deploy_guide
from tests.support.records.deploy_guide import AGGREGATOR_HOST, INSTALL

README, OPERATIONS = ROOT / "README.md", ROOT / "docs" / "operations.md"
OF_THE_OPERATOR = {"deploy/.env"}
"""What the guides tell an operator to write."""


def guide() -> str:
    return deploy_guide.GUIDE.read_text()


def test_two_hosts_take_at_most_eight_commands() -> None:
    by_hand = [
        line for block in deploy_guide.blocks(section="Without containers") for line in block.lines if block.marks
    ]
    in_containers = [line for block in deploy_guide.blocks(section="With containers") for line in block.lines]
    # The last one of each fetches the results of what runs by then.
    assert len(by_hand[:-1]) <= 8
    assert len(in_containers[:-1]) <= 8
    assert "fetch" in by_hand[-1]
    assert "fetch" in in_containers[-1]


def test_the_installation_of_the_guide_names_the_package_s_own_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (install,) = deploy_guide.blocks(INSTALL)
    wheel = re.escape(f"./{WHEEL}")
    named = re.findall(rf"pip install '{wheel}\[([\w,]+)\]'", guide())
    assert re.search(rf"-m venv \.venv && \.venv/bin/pip install '{wheel}\[", install.text)
    assert {extra for each in named for extra in each.split(",")} <= extras.keys()


NAMED = (README, OPERATIONS, *sorted(DEPLOY.rglob("*.md")))
"""Documents whose files of a deployment are written."""


def paths_named_in(document: Path) -> set[str]:
    """Files and folders of a deployment that a document links to, or whose path it writes in a command, from the root."""
    text = document.read_text()
    if document == README:
        text = text.partition("## Deploy it")[2].partition("\n## ")[0]
    links = (re.sub(r"#.*", "", link) for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link)
    linked = {os.path.relpath(document.parent / link, ROOT) for link in links if link}
    typed = set(re.findall(r"(?<![\w/.-])(?:deploy/[\w./*-]*\w|Dockerfile\.\w+|locks/\w+\.txt)", text))
    return {path for path in linked | typed if path.startswith(("deploy", "Dockerfile", "locks"))} - OF_THE_OPERATOR


@pytest.mark.parametrize("document", NAMED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_guide_names_is_written(document: Path, tmp_path: Path) -> None:
    write_files(tmp_path)
    named = paths_named_in(document)
    assert named or document.parent == DEPLOY
    assert [path for path in sorted(named) if not list(tmp_path.glob(path))] == []


@pytest.mark.parametrize("dockerfile", DOCKERFILES.values())
def test_an_image_is_made_of_its_lock_and_this_version_s_wheel(dockerfile: str) -> None:
    text, written = (ROOT / dockerfile).read_text(), deployment_files()
    assert re.findall(r"^ARG VERSION=(.*)$", text, re.MULTILINE) == [VERSION]
    copied = re.findall(r"^COPY (?!--from)(\S+) \./$", text.replace("${VERSION}", VERSION), re.MULTILINE)
    assert copied == [f"locks/{dockerfile.removeprefix('Dockerfile.')}.txt", WHEEL]
    assert copied[0] in written
    let_in = [line[1:] for line in written[".dockerignore"].read_text().splitlines() if line.startswith("!")]
    assert all(any(fnmatch(name, f"{pattern}*") for pattern in let_in) for name in copied)


def test_documents_name_the_wheel_of_this_version() -> None:
    texts = {path: path.read_text() for path in (*NAMED, *(ROOT / "docs").rglob("*.md"))}
    found = [name for text in texts.values() for name in re.findall(r"fedplcc-\d[\w.]*-py3-none-any\.whl", text)]
    assert set(found) == {WHEEL}


def test_every_variable_that_is_written_somewhere_is_read_somewhere() -> None:
    settings = {f"FEDPLCC_{name.upper()}" for kind in KINDS.values() for name in kind.model_fields}
    of_compose = {found["name"] for file in COMPOSE_FILES for found in VARIABLE.finditer((DEPLOY / file).read_text())}
    of_grafana, of_commands = {"FEDPLCC_PROMETHEUS"}, {INVITATION, "FEDPLCC_INVITE_ADDRESS", "FEDPLCC_GATEWAY"}
    for path in sorted(
        path for path in DEPLOY.rglob("*") if path.suffix in (".md", ".yaml", ".yml", ".env", ".service")
    ):
        written = set(re.findall(r"\bFEDPLCC_[A-Z_]+\b", path.read_text()))
        assert written <= settings | of_compose | of_grafana | of_commands, path
    assert {name for name in of_compose if name not in guide()} == set(), "the guide tells every setting of compose"


def test_every_file_that_the_guide_names_is_there() -> None:
    linked = re.findall(r"\]\(((?!http|#)[^)]+)\)", guide())
    typed = re.findall(r"\bdeploy/[\w./*@-]+\w", guide())
    assert linked
    assert [path for path in linked if not (DEPLOY / path.partition("#")[0]).exists()] == []
    assert [path for path in typed if not any(ROOT.glob(path)) and path != "deploy/.env"] == []
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", guide(), re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", guide())) <= anchors


def test_every_sentence_of_the_table_of_troubles_is_said_by_the_code() -> None:
    sentences = [
        sentence
        for row in guide().partition("## When something is wrong")[2].splitlines()
        if row.startswith("|") and "---" not in row
        for sentence in re.findall(r"`([^`]+)`", row.split("|")[2])
        if "(systemd)" not in row
    ]
    assert len(sentences) > 10
    said = "\n".join(_texts())
    assert [sentence for sentence in sentences if sentence not in said] == []


def _texts() -> Iterator[str]:
    """The constant parts of every text in the code, with those that stand beside each other put together."""
    for package in ("shared", "aggregator", "trainer", "gateway", "fedplcc"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "gen" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_the_first_run_is_a_valid_one_that_any_two_clients_can_begin() -> None:
    document = tomllib.loads((DEPLOY / "first-run.toml").read_text())
    run = parse_federation(document).config.run
    assert (run.clients, run.min_clients) == (None, 2) or not run.clients
    for name in document["data"]["classes"]:
        assert f"/srv/images/{name}/" in guide()


def test_a_backup_starts_the_aggregator_as_the_guide_did_before() -> None:
    first = deploy_guide.blocks(AGGREGATOR_HOST, section="Without containers")[0].lines[0]
    assert deploy_guide.block(AGGREGATOR_HOST, "backup").lines[-1] == first
