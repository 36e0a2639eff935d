"""The table of docs/data.md: what happens with each mode, depth, layout and form of labels, as it is tried here.

`python -m tests.support.records.data_table` writes it anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

import fedplcc
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.images.colours import remarks_on_pictures
from fedplcc.trainer.data.images.pixels import read_pixels
from fedplcc.trainer.data.images.scaling import Unreadable, Window
from fedplcc.trainer.data.specs import open_source
from tests.support.icc_profiles import ADOBE, GREY_18, P3, PRESS

DOCUMENT = Path(__file__).parents[3] / "docs" / "data.md"
BEGIN, END = "<!-- what happens -->", "<!-- /what happens -->"

COLOUR = (200, 30, 60)


def _picture(mode: str, kind: str = "tif") -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        path = root / f"image.{kind}"
        image = Image.new("RGB", (4, 4), COLOUR)
        if mode == "P":
            image = image.quantize(4)
        elif mode == "LAB":
            image = Image.new("LAB", (4, 4), (128, 128, 128))
        elif mode != "RGB":
            image = image.convert(mode)
        image.save(path)
        return path

    return make


def _transparent(root: Path) -> Path:
    image = Image.new("RGBA", (4, 4), (*COLOUR, 0))
    image.putpixel((0, 0), (0, 0, 0, 255))
    image.save(root / "image.png")
    return root / "image.png"


def _unseen(root: Path) -> Path:
    Image.new("RGBA", (4, 4), (*COLOUR, 0)).save(root / "image.png")
    return root / "image.png"


def _turned(root: Path) -> Path:
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (8, 4), COLOUR).save(root / "image.png", exif=exif)
    return root / "image.png"


def _profiled(icc: bytes, mode: str = "RGB") -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        Image.new("RGB", (4, 4), COLOUR).convert(mode).save(root / "image.tif", icc_profile=icc)
        return root / "image.tif"

    return make


def _linear(root: Path) -> Path:
    info = PngImagePlugin.PngInfo()
    info.add(b"gAMA", (100000).to_bytes(4, "big"))
    Image.new("L", (4, 4), 84).save(root / "image.png", pnginfo=info)
    return root / "image.png"


def _numbers(values: list[int] | list[float], dtype: str, kind: str = "tif", **tags: Any) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        image = Image.fromarray(np.array([values], dtype))
        image.save(root / f"image.{kind}", **({"tiffinfo": tags["tags"]} if tags else {}))
        return root / f"image.{kind}"

    return make


def _stack(kind: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        frames = [Image.new("L", (4, 4), shade) for shade in (10, 20, 30)]
        frames[0].save(root / f"image.{kind}", save_all=True, append_images=frames[1:])
        return root / f"image.{kind}"

    return make


PICTURES: list[tuple[str, Callable[[Path], Path], Window]] = [
    ("grey, 8 bits", _picture("L"), None),
    ("black and white, 1 bit", _picture("1"), None),
    ("RGB, 8 bits", _picture("RGB"), None),
    ("palette", _picture("P", "png"), None),
    ("CMYK", _picture("CMYK"), None),
    ("YCbCr", _picture("YCbCr"), None),
    ("LAB, mid grey", _picture("LAB"), None),
    ("ICC profile of Display P3", _profiled(P3), None),
    ("ICC profile of Adobe RGB", _profiled(ADOBE), None),
    ("ICC profile of a grey curve, 1.8, on grey 84", _profiled(GREY_18, "L"), None),
    ("ICC profile of a press, on CMYK", _profiled(PRESS, "CMYK"), None),
    ("ICC profile that is damaged", _profiled(P3[:200]), None),
    ("ICC profile of grey on colours", _profiled(GREY_18), None),
    ("PNG that states linear light (gamma 1), grey 84", _linear, None),
    ("transparent but for one black pixel", _transparent, None),
    ("transparent everywhere", _unseen, None),
    ("EXIF: turned by 90 degrees, 8 x 4", _turned, None),
    ("16 bits, whole range", _numbers([0, 32768, 65535], "u2", "png"), None),
    ("16 bits, white is zero", _numbers([0, 32768, 65535], "u2", tags={262: 0}), None),
    ("16 bits, turned by TIFF's own tag, 1 x 3", _numbers([0, 32768, 65535], "u2", tags={274: 6}), None),
    ("a TIFF of 3 pages of one size", _stack("tif"), None),
    ("a GIF of 3 frames: the first", _stack("gif"), None),
    ("12 bits in 16", _numbers([0, 2048, 4095], "u2", "png"), None),
    ("12 bits in 16, MaxSampleValue 4095", _numbers([0, 2048, 4095], "u2", tags={281: 4095}), None),
    ("12 bits in 16, `data.window = [0, 4095]`", _numbers([0, 2048, 4095], "u2", "png"), (0, 4095)),
    ("32 bits of numbers to 900", _numbers([0, 450, 900], "i4"), None),
    ("fractions", _numbers([0.0, 0.5, 1.0], "f4"), None),
    ("fractions, `data.window = [0, 1]`", _numbers([0.0, 0.5, 1.0], "f4"), (0, 1)),
    ("fractions, one of them none", _numbers([0.0, float("nan")], "f4"), (0, 1)),
]


def _read(path: Path, window: Window) -> str:
    with remarks_on_pictures() as said:
        shown = _shown(read_pixels(path, window))
    return "; says: ".join([shown, *said])


def _shown(pixels: Any) -> str:
    size = f"{pixels.shape[0]} x {pixels.shape[1]}"
    if (pixels == pixels[:, :, :1]).all():
        return f"{size}, grey {', '.join(str(value) for value in dict.fromkeys(pixels[0, :, 0].tolist()))}"
    return f"{size}, colour {', '.join(str(value) for value in pixels[0, 0].tolist())}"


LAYOUTS: list[tuple[str, list[str], str]] = [
    ("`cat/`, `dog/`", ["cat/{}", "dog/{}"], ""),
    ("`train/`, `test/` with class folders", ["train/cat/{}", "test/cat/{}"], ""),
    ("`Training/`, `Testing/`", ["Training/cat/{}", "Testing/cat/{}"], ""),
    ("`TRAIN/`, `TEST/`, `val/`", ["TRAIN/cat/{}", "TEST/cat/{}", "val/cat/{}"], ""),
    ("`train/`, `valid/`", ["train/cat/{}", "valid/cat/{}"], ""),
    ("`train/` alone", ["train/cat/{}"], ""),
    ("`train/images/`, `test/images/`", ["train/images/{}", "test/images/{}"], ""),
    ("`CLASS/train/`, `CLASS/test/`", ["cat/train/{}", "cat/test/{}", "dog/train/{}", "dog/test/{}"], ""),
    ("`seg_train/`, `seg_test/`", ["seg_train/cat/{}", "seg_test/cat/{}"], ""),
    ("`train/`, `test/test/`", ["train/cat/{}", "test/test/{}"], ""),
    ("images straight in `test/`", ["train/cat/{}", "test/{}"], ""),
    ("a class called train", ["train/{}", "bus/{}"], ""),
    ("`__MACOSX/`, `@eaDir/` beside the classes", ["cat/{}", "dog/{}", "__MACOSX/{}", "@eaDir/{}"], ""),
    ("`pets/pets/` around the classes", ["pets/cat/{}", "pets/dog/{}"], ""),
    ("one class folder that holds folders", ["zoo/cat/{}", "zoo/dog/{}"], ""),
    ("a parent of sites", ["north/cat/{}", "north/dog/{}", "south/cat/{}", "south/dog/{}"], ""),
    ("a parent of sites with sides", [f"{a}/{b}/cat/{{}}" for a in ("north", "south") for b in ("train", "test")], ""),
    ("annotations beside the images", ["cat/{}", "cat/0.xml", "dog/{}"], ""),
    ("masks beside the images", ["cat/{}", "cat/0_mask.png", "dog/{}"], ""),
    ("a class folder without images", ["cat/{}", "dog/{}", "owl/readme.txt"], ""),
    ("`Cat/`, `cat/`", ["Cat/{}", "cat/{}"], ""),
    ("other classes in `test/`", ["train/cat/{}", "train/dog/{}", "test/cat/{}", "test/owl/{}"], ""),
    ("a table beside class folders", ["cat/{}", "dog/{}", "metadata.csv"], ""),
    ("`?labels=labels.csv`", ["x/{}"], "path,label\nx/0.png,nv\nx/1.png,mel\n"),
    (
        "`?labels=` with `split` and `group`",
        ["x/{}"],
        "path,label,split,group\nx/0.png,nv,train,p1\nx/1.png,mel,test,p2\n",
    ),
    (
        "`?labels=`, a group on both sides",
        ["x/{}"],
        "path,label,split,group\nx/0.png,nv,train,p1\nx/1.png,mel,test,p1\n",
    ),
    ("`?labels=`, a column `set`", ["x/{}"], "path,label,set\nx/0.png,nv,train\nx/1.png,nv,test\n"),
    ("`?labels=`, a label of 0.5", ["x/{}"], "path,label\nx/0.png,0.5\n"),
    ("`?labels=`, a quote without its end", ["x/{}"], 'path,label\nx/0.png,"nv\nx/1.png,mel\n'),
    ("`?labels=`, labels 001 and 002", ["x/{}"], "path,label\nx/0.png,001\nx/1.png,002\n"),
    ("`?labels=`, labels 01 and 1", ["x/{}"], "path,label\nx/0.png,01\nx/1.png,1\n"),
    ("`?labels=`, an image that is not listed", ["x/{}"], "path,label\nx/0.png,nv\n"),
    ("`?labels=`, an image that is not there", ["x/{}"], "path,label\nx/9.png,nv\n"),
]


def _laid_out(root: Path, places: list[str], labels: str) -> str:
    for place in places:
        for number in range(2) if "{}" in place else (0,):
            path = root / place.format(f"{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".png":
                Image.new("L", (4, 4), number).save(path)
            else:
                path.write_text("")
    if labels:
        (root / "labels.csv").write_text(labels)
    source = open_source(f"folder:{root}{'?labels=labels.csv' if labels else ''}", 2)
    aside = 0 if source.train.aside is None else len(source.train.aside)
    counts = [
        f"{len(source.train) - aside} train",
        f"{len(source.test)} test",
        *([f"{aside} validation"] if aside else []),
    ]
    said = "".join(f"; says: {remark}" for remark in source.remarks)
    return f"classes {', '.join(source.class_names)}; {', '.join(counts)}{said}"


X = np.zeros((2, 4, 4, 3), np.uint8)


class _Named:
    def __init__(self, labels: list[Any], classes: list[str] | None) -> None:
        self.labels = labels
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return X[number], self.labels[number]


LABELS: list[tuple[str, dict[str, Any]]] = [
    ('numbers, with `classes=["dog", "cat"]`', {"train": (X, [0, 1]), "classes": ["dog", "cat"]}),
    ("numbers, without names", {"train": (X, [0, 1])}),
    ("names", {"train": (X, ["cat", "dog"])}),
    ("numbers of a data set whose `classes` are dog, cat", {"train": _Named([0, 1], ["dog", "cat"])}),
    ('the same, with `classes=["cat", "dog"]`', {"train": _Named([0, 1], ["dog", "cat"]), "classes": ["cat", "dog"]}),
    ("a data set that names a cow", {"train": _Named([0, 1], ["cat", "cow"])}),
    ("`classes` that name one twice", {"train": _Named([0, 1], ["cat", "cat"])}),
    ("a data set of fewer images than its length says", {"train": _Named([0, 1, 0], ["cat", "dog"])}),
    ("fractions", {"train": _Named([0, 0.5], ["cat", "dog"])}),
    ("negative numbers", {"train": _Named([0, -1], ["cat", "dog"])}),
    ("a number beyond the names", {"train": _Named([0, 2], ["cat", "dog"])}),
]


def _labelled(root: Path, data: dict[str, Any]) -> str:
    spec = fedplcc.Client(**data).table(["cat", "dog"], root)["data"]
    with np.load(spec.removeprefix("npz:")) as stored:
        return "read as " + ", ".join(str(stored["classes"][label]) for label in stored["y_train"])


def _rows() -> Iterator[tuple[str, str]]:
    trials: list[tuple[str, Callable[[Path], str]]] = []
    for title, make, window in PICTURES:
        trials.append((title, lambda root, make=make, window=window: _read(make(root), window)))  # type: ignore[misc]
    for title, places, text in LAYOUTS:
        trials.append((title, lambda root, places=places, text=text: _laid_out(root, places, text)))  # type: ignore[misc]
    for title, data in LABELS:
        trials.append((f"labels: {title}", lambda root, data=data: _labelled(root, data)))  # type: ignore[misc]
    for title, trial in trials:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "pets"
            root.mkdir()
            try:
                outcome = trial(root)
            except InvalidData as error:
                outcome = f"refused: {error.detail}"
            except Unreadable as error:
                outcome = f"left out: {error}"
            yield title, outcome.replace(str(root), "PATH").replace("|", "\\|")


def table() -> str:
    """Return the table's lines, the markers included."""
    rows = [f"| {title} | {outcome} |" for title, outcome in _rows()]
    return "\n".join([BEGIN, "| what lies there | what happens |", "|---|---|", *rows, END])


def in_document() -> str:
    """Return the table that the document has."""
    text = DOCUMENT.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


if __name__ == "__main__":
    DOCUMENT.write_text(DOCUMENT.read_text().replace(in_document(), table()))
