"""The guide to methods is true: its example works when it is added as the guide says, and its tables are the code's."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.methods import METHODS
from shared.methods.base import Method
from tests.support import ROOT
from tests.support.federation.methods_in_a_run import mid_run
from tests.support.oracles.client_losses import on_numpy
from tests.support.records.method_settings import Setting, of_methods

FOLDER = ROOT / "shared" / "methods"
GUIDE = (FOLDER / "README.md").read_text()
COPIED = ("aggregator", "fedplcc", "gateway", "shared", "trainer", "tests", "pyproject.toml")
RUN_S = 240.0


def rows_of(*first_cells: str) -> list[list[str]]:
    """The cells of the guide's table that begins with these, without its head."""
    lines = iter(GUIDE.splitlines())
    head = "| " + " | ".join(first_cells)
    next(line for line in lines if line.startswith(head))
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


TABLE = {row[0].split("`")[1]: row for row in rows_of("Method", "A client uploads")}


def test_the_table_has_every_method_and_no_other() -> None:
    assert list(TABLE) == list(METHODS)


@of_methods()
def test_a_method_s_row_says_what_its_code_does(method: Method) -> None:
    name, uploads, downloads, keeps, terms, server = TABLE[method.name]
    assert f"({method.name}.py)" in name
    step = on_numpy(*mid_run(Setting(method)))
    assert terms.replace("`", "").split() == list(method.client_loss(step, method.config()))
    assert (keeps == "-") == (not method.keeps_client_state)
    assert ("means" in uploads or "centres" in uploads) == method.has_prototypes
    assert (downloads == "model") == (not method.has_prototypes)
    assert ("per class" in server) == method.has_prototypes


def test_every_attribute_of_a_method_is_explained() -> None:
    explained = {name for row in rows_of("Attribute") for name in re.findall(r"`(\w+)`", row[0])}
    assert explained == {field.name for field in dataclasses.fields(Method)}


def test_every_part_that_it_names_is_there() -> None:
    listed = re.search(r"has the parts of prototype methods:(.*?)\n\n", GUIDE, re.DOTALL)
    assert listed is not None
    names = re.findall(r"`(\w+)`", listed[1])
    code = (FOLDER / "prototypes.py").read_text()
    assert len(names) > 5
    assert [name for name in names if f"def {name}(" not in code] == []


@dataclass(frozen=True)
class Project:
    """A copy of the project to which the example's method was added."""

    folder: Path
    method: str


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project after steps 1 and 2 of the guide."""
    folder = tmp_path_factory.mktemp("project")
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    found = re.search(r"```python shared/methods/(\w+)\.py\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    name, code = found.groups()
    methods = folder / "shared" / "methods"
    (methods / f"{name}.py").write_text(code)
    before = (methods / "__init__.py").read_text()
    imported = re.sub(r"^(from shared\.methods import .*)$", rf"\1, {name}", before, count=1, flags=re.MULTILINE)
    named = re.sub(r"(for module in \([^)]*)\)", rf"\1, {name})", imported, count=1)
    assert before != imported != named
    (methods / "__init__.py").write_text(named)
    return Project(folder, name)


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module's command on the copy."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(project.folder)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


@pytest.mark.slow
def test_the_example_keeps_the_whole_contract_and_trains(extended: Project) -> None:
    """Its checks run in a process of their own, on the copy: contract, simulations, restarts, the neutral setting."""
    files = ["tests/contract/test_methods.py", "tests/integration/test_methods_everywhere.py"]
    words = f"{extended.method} and not processes"
    finished = run(extended, "pytest", "-v", "-p", "no:cacheprovider", *files, "-k", words)
    said = finished.stdout[-3000:] + finished.stderr[-1000:]
    assert finished.returncode == 0, said
    for check in (
        "TestClientLoss::test_torch_has_the_value_of_numpy_and_the_gradient_of_its_differences",
        "TestPrototypes::test_the_aggregator_takes_what_any_client_reports",
        "test_interruptions_in_every_round_change_nothing",
        "test_the_neutral_setting_gives_fedavgs_models",
        "test_round_1_is_fedavgs_and_the_next_is_not",
    ):
        assert f"{check}[{extended.method}] PASSED" in finished.stdout, said


def test_the_example_is_formatted_as_the_rest_of_the_folder(extended: Project) -> None:
    file = f"shared/methods/{extended.method}.py"
    for arguments in (["check"], ["format", "--check"]):
        finished = run(extended, "ruff", *arguments, file)
        assert finished.returncode == 0, finished.stdout + finished.stderr
