"""The notebook in examples/, run from its first cell to its last as a person would."""

from __future__ import annotations

import time
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import ROOT

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Jupyter about itself

NOTEBOOK = ROOT / "examples" / "federation.ipynb"
CELL_S = 240


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook with its outputs, from a kernel that finds this package."""
    folder = tmp_path_factory.mktemp("notebook")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("TMPDIR", str(folder))
    patch.setenv("IPYTHONDIR", str(folder / "ipython"))
    try:
        found: Any = _read()
        began = time.monotonic()
        NotebookClient(found, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        print(f"the notebook took {time.monotonic() - began:.0f} s")
        return found
    finally:
        patch.undo()


def _read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def outputs(notebook: Any, text: str) -> list[Any]:
    """Outputs of the one cell that has this text."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and text in cell.source]
    found: list[Any] = cell.outputs
    return found


def test_the_notebook_trains_with_two_methods_and_shows_curves_and_a_map(notebook: Any) -> None:
    rounds = "".join(each.text for each in outputs(notebook, "callbacks=[show]") if each.output_type == "stream")
    assert rounds.count("round ") == 8
    assert "Result of fedplcc: 8 rounds, completed" in str(outputs(notebook, '"run.method": "fedplcc"'))
    assert "<table" in str(outputs(notebook, "curves = pd.DataFrame"))
    for picture in ("plot_accuracy()", "plot_map("):
        assert any("image/png" in each.get("data", {}) for each in outputs(notebook, picture)), picture


def test_the_notebook_says_nothing_on_stderr(notebook: Any) -> None:
    errors = [each for cell in notebook.cells for each in cell.get("outputs", []) if each.get("name") == "stderr"]
    assert errors == []


def test_the_notebook_is_kept_without_outputs() -> None:
    kept = _read()
    assert not any(cell.get("outputs") for cell in kept.cells)
