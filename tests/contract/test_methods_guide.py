"""The guide to methods is true: its examples work when they are added as it says, and its tables are the code's."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedplcc.method_contract import public_checks
from fedplcc.method_contract.client_losses import on_numpy
from fedplcc.method_contract.contract import findings
from fedplcc.method_contract.mid_run import mid_run
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods import METHODS, add_methods, remove_method
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.part import Part
from fedplcc.shared.methods.parts.public import PublicLearning
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.in_process import LocalFederation
from tests.support.records.method_settings import of_methods

FOLDER = ROOT / "shared" / "methods"
GUIDE = (FOLDER / "README.md").read_text()
COPIED = ("aggregator", "fedplcc", "gateway", "shared", "trainer", "tests", "pyproject.toml")
EXAMPLES: dict[str, str] = dict(re.findall(r"```python shared/methods/(\w+)\.py\n(.*?)```", GUIDE, re.DOTALL))
"""The code of the examples by name."""
MOST_LINES = 40
"""Lines of code that a method with a slot takes."""
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
    assert f"{method.name}.py)" in name
    step = on_numpy(*mid_run(Setting(method)))
    on_public = public_checks.terms_of(Setting(method)) if method.part(PublicLearning) is not None else ()
    assert terms.replace("`", "").split() == [*method.client_loss(step, method.config()), *on_public]
    assert (keeps == "-") == (not method.keeps_client_state)
    assert ("means" in uploads or "centres" in uploads) == method.has_prototypes
    assert downloads.endswith(", a number") == method.has("scalars")
    has_more = method.has_prototypes or method.sends(method.config()) or method.part(PublicLearning) is not None
    assert (downloads.removesuffix(", a number") == "model") == (not has_more)
    assert ("per class" in server) == method.has_prototypes


def test_every_attribute_of_a_method_is_explained() -> None:
    explained = {name for row in rows_of("Attribute") for name in re.findall(r"`(\w+)`", row[0])}
    assert explained == {field.name for field in dataclasses.fields(Method)}


def test_every_part_has_a_row_with_every_attribute() -> None:
    rows = {row[0].split("`")[1]: set(re.findall(r"`(\w+)`", row[2])) for row in rows_of("Part")}
    kinds = {
        kind.__name__: kind
        for kind in Part.__subclasses__()
        if kind.__module__.startswith("fedplcc.shared.methods.parts.")
    }
    assert rows.keys() == kinds.keys()
    for name, kind in kinds.items():
        assert dataclasses.is_dataclass(kind)
        assert {field.name for field in dataclasses.fields(kind)} <= rows[name]


def test_every_function_that_it_names_is_there() -> None:
    listed = re.search(r"the functions that prototype methods share:(.*?)\n\n", GUIDE, re.DOTALL)
    assert listed is not None
    names = re.findall(r"`(\w+)`", listed[1])
    code = (FOLDER / "prototypes.py").read_text()
    assert len(names) > 5
    assert [name for name in names if f"def {name}(" not in code] == []


@dataclass(frozen=True)
class Project:
    """A copy of the project to which the examples' methods were added."""

    folder: Path
    methods: tuple[str, ...]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project after steps 1 and 2 of the guide."""
    folder = tmp_path_factory.mktemp("project")
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, symlinks=True)  # compiled modules too
        else:
            shutil.copy(ROOT / part, folder / part)
    methods = folder / "shared" / "methods"
    for name, code in EXAMPLES.items():
        (methods / f"{name}.py").write_text(code)
        before = (methods / "__init__.py").read_text()
        imported = re.sub(
            r"^(from fedplcc\.shared\.methods import )", rf"\1{name}, ", before, count=1, flags=re.MULTILINE
        )
        named = re.sub(r"(for module in \([^)]*?),?\s*\)", rf"\1, {name})", imported, count=1)
        assert before != imported != named
        (methods / "__init__.py").write_text(named)
    return Project(folder, tuple(EXAMPLES))


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


def test_a_method_with_a_slot_takes_few_lines() -> None:
    code = EXAMPLES["fedavgm"]
    docstrings = {
        line
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = [line for number, line in enumerate(code.splitlines(), 1) if line.strip() and number not in docstrings]
    assert 20 < len(lines) <= MOST_LINES


@pytest.mark.slow
def test_the_examples_keep_the_whole_contract_and_train(extended: Project) -> None:
    """Their checks run in a process of their own, on the copy: contract, simulations, restarts, the neutral setting.

    Without what a run has whatever its method.
    """
    files = ["tests/contract/test_methods.py", "tests/integration/test_methods_everywhere.py"]
    of_the_run = ("processes", "attacked", "does_not_train_on", "goes_on_to_more_rounds")
    words = " and not ".join((f"({' or '.join(extended.methods)})", *of_the_run))
    finished = run(extended, "pytest", "-v", "-p", "no:cacheprovider", *files, "-k", words)
    said = finished.stdout[-3000:] + finished.stderr[-1000:]
    assert finished.returncode == 0, said
    for check in (
        "test_round_1_is_fedavgs_and_the_next_is_not[fedpull]",
        *(f"test_the_contract_holds[{name}]" for name in extended.methods),
        *(f"test_interruptions_in_every_round_change_nothing[{name}]" for name in extended.methods),
        *(f"test_the_neutral_setting_gives_fedavgs_models[{name}]" for name in extended.methods),
    ):
        assert f"{check} PASSED" in finished.stdout, said


def test_a_method_of_another_package_brings_a_part_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploaded, made and kept by the aggregator, sent, used in the loss and computed again: none of them knows the part."""
    package = tmp_path / "a_stranger"
    package.mkdir()
    (package / "centre.py").write_text(EXAMPLES["fedcentre"])
    monkeypatch.syspath_prepend(tmp_path)
    add_methods(["a_stranger.centre"])
    try:
        found = list(findings(METHODS["a_stranger.centre"]))
        assert [each for each in found if each.problem is not None] == []
        tiny_federation.write_data(tmp_path)
        values = tiny_federation.document(tmp_path, "a_stranger.centre", run={"rounds": 2})
        lines = tiny_federation.simulated(tmp_path / "run", values)
        assert [list(line["loss"]) for line in lines] == [["ce"], ["ce", "centre"]]
        with LocalFederation.small(tmp_path / "numpy") as federation:
            federation.join()
            run = federation.run_to_end(federation.create("a_stranger.centre", run={"rounds": 3}).run_id)
            kept = [each.server_state for each in federation.coordinator.list_rounds(run.run_id)[1:]]
            assert [set(each) for each in kept] == [{"feature_centre"}] * 3
            assert len({each["feature_centre"].sha256 for each in kept}) == 3
    finally:
        remove_method("a_stranger.centre")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_formatted_as_the_rest_of_the_folder(extended: Project, name: str) -> None:
    file = f"shared/methods/{name}.py"
    for arguments in (["check"], ["format", "--check"]):
        finished = run(extended, "ruff", *arguments, file)
        assert finished.returncode == 0, finished.stdout + finished.stderr
