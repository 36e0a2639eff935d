"""Archives of trained cells: a ZIP file per data set, from which a report can be written without the cells' folders.

    python -m fedplcc.comparison.archive FOLDER

writes FOLDER/DATASET.zip with every finished cell below FOLDER and those that the archive already holds. Configuration,
metrics, evaluations and timings are kept byte for byte; models and pictures are not. Equal files give equal archives.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

from fedplcc.comparison.reading import archive_path
from fedplcc.runs.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.runs.run_folder import FEDERATION, RunFolder
from fedplcc.shared.errors import FedplccError, InvalidData

KEPT = (FEDERATION, MANIFEST, METRICS, EVALUATIONS, TIMINGS)
"""Files of a cell that an archive holds."""


def pack(out: Path, dataset: str) -> int:
    """Write the archive of a data set's finished cells; returns how many cells it holds, and writes none without cells.

    Raises:
        InvalidData: The present archive is damaged.
        StoreUnavailable: The archive cannot be written.
    """
    path = archive_path(out, dataset)
    files = _archived(path) if path.exists() else {}
    for manifest in (out / dataset).glob(f"*/seed-*/{MANIFEST}"):
        cell = manifest.parent
        if not RunFolder(cell, is_finished=True).state.exists():
            names = [name for name in KEPT if (cell / name).exists()]
            files |= {f"{cell.parent.name}/{cell.name}/{name}": (cell / name).read_bytes() for name in names}
    if not files:
        return 0
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            # Without a date of its own an entry has the first one of the format.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return sum(name.endswith(f"/{MANIFEST}") for name in files)


def _archived(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise InvalidData(f"{path} is damaged ({error}); remove it, or put an undamaged copy there") from error


def main() -> None:
    """Write the archive of every data set in a comparison's folder; exits with a sentence if that cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m fedplcc.comparison.archive", description="Pack trained cells.")
    parser.add_argument("folder", type=Path, help="folder of a comparison: --out of `fedplcc compare`")
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    try:
        packed = {entry.name: pack(folder, entry.name) for entry in sorted(folder.iterdir()) if entry.is_dir()}
    except FedplccError as error:
        sys.exit(f"fedplcc: {error.detail}")
    if not any(packed.values()):
        sys.exit(f"fedplcc: {folder} has no finished cell: train some with fedplcc compare --out {folder}")
    for dataset, num_cells in packed.items():
        if num_cells:
            print(f"{archive_path(folder, dataset)}: {num_cells} cells")


if __name__ == "__main__":
    main()
