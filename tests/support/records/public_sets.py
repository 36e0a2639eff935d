"""Public data sets as they lie on disk, in their true formats but small: a few images a class, each of one shade."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from torchvision import datasets

DIGITS = tuple("0123456789")
FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = tuple(f"fine {i}" for i in range(100))
NUM_TRAIN, NUM_TEST = 20, 10
Images = np.ndarray[Any, np.dtype[np.uint8]]


def labels(count: int, num_classes: int = 10) -> Any:
    """0, 1, 2, ... and from 0 again."""
    return np.arange(count) % num_classes


def shades(count: int, side: int, *channels: int) -> Images:
    """Image i is of the shade 5 i + 3 throughout."""
    values = (5 * np.arange(count) + 3).astype(np.uint8)
    return np.broadcast_to(values.reshape(-1, *(1,) * (2 + len(channels))), (count, side, side, *channels)).copy()


def write_idx(path: Path, array: Any) -> str:
    """An idx.gz file as MNIST's; returns its MD5."""
    data = np.asarray(array, dtype=np.uint8)
    head = bytes([0, 0, 8, data.ndim]) + b"".join(size.to_bytes(4, "big") for size in data.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(head + data.tobytes(), mtime=0))
    return md5(path.read_bytes())


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def write_mnist(folder: Path, monkeypatch: pytest.MonkeyPatch, title: str = "MNIST") -> None:
    """The four archives of MNIST or FashionMNIST, whose MD5s torchvision then takes for the published ones."""
    resources = []
    for split, count in (("train", NUM_TRAIN), ("t10k", NUM_TEST)):
        for name, array in (("images-idx3", shades(count, 28)), ("labels-idx1", labels(count))):
            file = f"{split}-{name}-ubyte.gz"
            resources.append((file, write_idx(folder / file, array)))
    monkeypatch.setattr(getattr(datasets, title), "resources", resources)


def unpack(folder: Path) -> None:
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))


def write_usps(folder: Path) -> None:
    """Lines of a label 1 to 10 and 256 values from -1 to 1."""
    for name, count in (("usps.bz2", NUM_TRAIN), ("usps.t.bz2", NUM_TEST)):
        pictures = shades(count, 16).reshape(count, -1) / 127.5 - 1
        lines = [
            f"{label + 1} " + " ".join(f"{k}:{value:.6f}" for k, value in enumerate(picture, 1)) + " \n"
            for label, picture in zip(labels(count), pictures, strict=True)
        ]
        (folder / name).write_bytes(bz2.compress("".join(lines).encode()))


def write_svhn(folder: Path, monkeypatch: pytest.MonkeyPatch, prefix: str = "") -> None:
    """MATLAB files whose last axis counts images and whose label 10 stands for the digit 0."""
    splits = {}
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        path = folder / f"{prefix}{split}_32x32.mat"
        digits = labels(count)
        scipy.io.savemat(
            path,
            {
                "X": np.moveaxis(shades(count, 32, 3), 0, -1),
                "y": np.where(digits == 0, 10, digits)[:, None].astype(np.uint8),
            },
        )
        splits[split] = ["", path.name, md5(path.read_bytes())]
    monkeypatch.setattr(datasets.SVHN, "split_list", splits)


class OldPickler(pickle._Pickler):
    """Writes dtypes as the numpy of 2009 did, which today's numpy warns of."""

    dispatch_table = {np.dtype: lambda dtype: (np.dtype, (dtype.str, 0, 1))}  # noqa: RUF012


def old_pickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    OldPickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def write_cifar(folder: Path, monkeypatch: pytest.MonkeyPatch, title: str = "CIFAR10") -> None:
    """CIFAR's batches, pickles whose MD5s torchvision then takes for the published ones."""
    cifar = getattr(datasets, title)
    names = CIFAR10 if title == "CIFAR10" else CIFAR100
    key = "labels" if title == "CIFAR10" else "fine_labels"
    place = folder / cifar.base_folder
    place.mkdir(parents=True)

    def batch(name: str, first: int, count: int) -> list[str]:
        images = shades(first + count, 32, 3)[first:].transpose(0, 3, 1, 2).reshape(count, -1)
        numbers = labels(first + count, len(names))[first:].tolist()
        (place / name).write_bytes(old_pickle({"data": images, key: numbers}))
        return [name, md5((place / name).read_bytes())]

    train = ["data_batch_1", "data_batch_2"] if title == "CIFAR10" else ["train"]
    each = NUM_TRAIN // len(train)
    monkeypatch.setattr(cifar, "train_list", [batch(name, i * each, each) for i, name in enumerate(train)])
    monkeypatch.setattr(cifar, "test_list", [batch("test_batch" if title == "CIFAR10" else "test", 0, NUM_TEST)])
    meta = place / cifar.meta["filename"]
    meta.write_bytes(old_pickle({cifar.meta["key"]: list(names)}))
    monkeypatch.setattr(cifar, "meta", {**cifar.meta, "md5": md5(meta.read_bytes())})


def pack_cifar(folder: Path, monkeypatch: pytest.MonkeyPatch, title: str = "CIFAR10") -> Path:
    """The archive that the batches come in."""
    cifar = getattr(datasets, title)
    archive: Path = folder / cifar.filename
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / cifar.base_folder, arcname=cifar.base_folder)
    monkeypatch.setattr(cifar, "tgz_md5", md5(archive.read_bytes()))
    return archive
