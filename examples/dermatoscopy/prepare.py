"""Folders of the four dermatoscopy sites, as links into a copy of the pictures.

    python examples/dermatoscopy/prepare.py ../shared/data/ham10000

The copy has `split.csv` (path, site, class, split) and the pictures at the paths that it names. Each site gets
`fedplcc-runs/dermatoscopy/SITE/{train,test}/CLASS/`, which is what `folder:` reads. Other classes than the three that every
site has are left out.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

CLASSES = ("bkl", "mel", "nv")
OUT = Path("fedplcc-runs/dermatoscopy")


def prepare(pictures: Path, out: Path = OUT) -> int:
    """Link the pictures of the classes into a folder of each site and return their number."""
    with (pictures / "split.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["class"] in CLASSES]
    for old in out.glob("*/*/*/*"):
        if old.is_symlink():  # of another split, by which pictures would be on both sides
            old.unlink()
    for row in rows:
        picture = pictures / row["path"]
        link = out / row["site"] / row["split"] / row["class"] / picture.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(picture.resolve())
    return len(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, help="folder with split.csv")
    print(f"{prepare(parser.parse_args().pictures)} pictures in {OUT}")
