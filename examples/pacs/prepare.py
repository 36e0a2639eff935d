"""Folders of the four domains of PACS, as links into a copy of the pictures.

    python examples/pacs/prepare.py ../shared/data/pacs

The copy has `split.csv` (path, domain, class, split) and the pictures at the paths that it names. Each site gets
`fedplcc-runs/pacs/DOMAIN/{train,test}/CLASS/`, which is what `folder:` reads.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

OUT = Path("fedplcc-runs/pacs")


def prepare(pictures: Path, out: Path = OUT) -> int:
    """Link the pictures into a folder of each domain and return their number."""
    with (pictures / "split.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for old in out.glob("*/*/*/*"):
        if old.is_symlink():  # of another split, by which pictures would be on both sides
            old.unlink()
    for row in rows:
        picture = pictures / row["path"]
        link = out / row["domain"] / row["split"] / row["class"] / picture.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(picture.resolve())
    return len(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, help="folder with split.csv")
    print(f"{prepare(parser.parse_args().pictures)} pictures in {OUT}")
