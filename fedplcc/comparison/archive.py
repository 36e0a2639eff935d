"""Archives of trained cells: a ZIP file per data set, from which a report can be written without the cells' folders.

    python -m fedplcc.comparison.archive FOLDER

writes FOLDER/DATASET.zip with every finished cell below FOLDER and those that the archive already holds. Configuration,
metrics, evaluations and timings are kept byte for byte; models and pictures are not. Equal files give equal archives.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from fedplcc.comparison.reading import archive_path
from fedplcc.runs.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.runs.run_folder import FEDERATION, RunFolder

KEPT = (FEDERATION, MANIFEST, METRICS, EVALUATIONS, TIMINGS)
"""Files of a cell that an archive holds."""


def pack(out: Path, dataset: str) -> int:
    """Write the archive of a data set's finished cells; returns how many cells it holds.

    Raises:
        StoreUnavailable: The archive cannot be written.
        zipfile.BadZipFile: The present archive is damaged.
    """
    path = archive_path(out, dataset)
    files: dict[str, bytes] = {}
    if path.exists():
        with zipfile.ZipFile(path) as earlier:
            files = {name: earlier.read(name) for name in earlier.namelist()}
    for manifest in (out / dataset).glob(f"*/seed-*/{MANIFEST}"):
        cell = manifest.parent
        if not RunFolder(cell, True).state.exists():
            names = [name for name in KEPT if (cell / name).exists()]
            files |= {f"{cell.parent.name}/{cell.name}/{name}": (cell / name).read_bytes() for name in names}
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            # Without a date of its own an entry has the first one of the format.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return sum(name.endswith(f"/{MANIFEST}") for name in files)


def main(out: Path) -> None:
    """Write the archive of every data set in a comparison's folder."""
    for folder in sorted(entry for entry in out.iterdir() if entry.is_dir()):
        print(f"{archive_path(out, folder.name)}: {pack(out, folder.name)} cells")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
