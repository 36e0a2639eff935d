"""`mnist:PATH`, `cifar10:PATH` and so on: torchvision's data sets, read by torchvision's own classes.

A trainer never downloads, which would hang on a closed network. `fetch` downloads, when a person asks for it. CIFAR's files
are pickles; torchvision opens them only if their MD5 is the published one.
"""

from __future__ import annotations

import shlex
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import URLError

import numpy as np

from fedplcc.shared.errors import InvalidData, StoreUnavailable, Unavailable
from fedplcc.trainer.data.sets.digits import CLASS_NAMES
from fedplcc.trainer.data.source import Pixels, Samples, Source

SILENCE_SECONDS = 60.0
"""Time without a byte after which a server is given up."""


@dataclass(frozen=True, slots=True)
class TorchvisionSet:
    """One of torchvision's classes.

    Attributes:
        files: Its files below PATH, for messages.
        class_names: Names in the order of its labels; None for torchvision's own names.
        splits: Keyword arguments that choose the training and the test set.
    """

    title: str
    files: str
    class_names: tuple[str, ...] | None = CLASS_NAMES
    splits: tuple[Mapping[str, Any], Mapping[str, Any]] = (
        MappingProxyType({"train": True}),
        MappingProxyType({"train": False}),
    )

    def open(self, root: Path, *, download: bool = False) -> list[Any]:
        """Return the training and the test set, as torchvision's objects."""
        from torchvision import datasets

        with warnings.catch_warnings():
            # The published pickles were made by an old numpy; the present one warns of their dtypes.
            warnings.filterwarnings("ignore", message=r"dtype\(\): align should be passed")
            return [getattr(datasets, self.title)(root, download=download, **split) for split in self.splits]


SETS: Mapping[str, TorchvisionSet] = MappingProxyType(
    {
        "mnist": TorchvisionSet("MNIST", "MNIST/raw/train-images-idx3-ubyte and its three companions"),
        "usps": TorchvisionSet("USPS", "usps.bz2 and usps.t.bz2"),
        "svhn": TorchvisionSet(
            "SVHN",
            "train_32x32.mat and test_32x32.mat",
            splits=(MappingProxyType({"split": "train"}), MappingProxyType({"split": "test"})),
        ),
        "fashionmnist": TorchvisionSet(
            "FashionMNIST", "FashionMNIST/raw/train-images-idx3-ubyte and its three companions", None
        ),
        "cifar10": TorchvisionSet("CIFAR10", "cifar-10-batches-py/data_batch_1 and its companions", None),
        "cifar100": TorchvisionSet("CIFAR100", "cifar-100-python/train, test and meta", None),
    }
)


def open_torchvision(name: str, root: Path) -> Source:
    """Return one of torchvision's data sets from the folder where torchvision keeps it.

    Raises:
        InvalidData: torchvision is not installed, or files are missing or damaged.
    """
    known = SETS[name]
    try:
        train, test = known.open(root)
    except ImportError as error:
        raise InvalidData(f"data {name}: needs torchvision: pip install 'fedplcc[trainer]'") from error
    # torchvision's parsers raise anything on damaged files.
    except Exception as error:
        raise InvalidData(
            f"there is no whole {known.title} in {root}, that is {known.files}; "
            f"fetch it with: fedplcc data describe {shlex.quote(f'{name}:{root}')} --fetch"
        ) from error
    names = known.class_names or tuple(train.classes)
    return Source(names, _samples(train, "train"), _samples(test, "test"))


def _samples(dataset: Any, split: str) -> Samples:
    labels = dataset.labels if hasattr(dataset, "labels") else dataset.targets

    def read(i: int) -> Pixels:
        pixels = np.asarray(dataset[i][0])
        return pixels if pixels.ndim == 3 else pixels[:, :, None]

    return Samples(np.asarray(labels, dtype=np.int64), read, lambda i: f"{split} image {i}")


def fetch(name: str, root: Path) -> Source:
    """Download one of torchvision's data sets into the folder, unless it is there already; archives there are unpacked.

    Raises:
        InvalidData: torchvision is not installed, or files are damaged.
        Unavailable: The server cannot be reached or stops sending.
        StoreUnavailable: The folder cannot be written.
    """
    known = SETS[name]
    with _patience():
        try:
            root.mkdir(parents=True, exist_ok=True)
            known.open(root, download=True)
        except ImportError as error:
            raise InvalidData("fetching needs torchvision: pip install 'fedplcc[trainer]'") from error
        except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
            raise _unreachable(known, error) from error
        # torchvision does not check every file before it parses it, and its parsers raise anything.
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:  # decompressors raise it without a number
                raise StoreUnavailable(f"cannot write {known.title} to {root}: {error.strerror}") from error
            if isinstance(error, RuntimeError) and "Error downloading" in str(error):
                raise _unreachable(known, error) from error
            raise InvalidData(
                f"what {root} holds of {known.title} ({known.files}) is damaged; remove it and fetch it again"
            ) from error
    return open_torchvision(name, root)


@contextmanager
def _patience() -> Iterator[None]:
    """Give up on a server that sends nothing; torchvision itself would wait forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _unreachable(known: TorchvisionSet, error: Exception) -> Unavailable:
    return Unavailable(
        f"cannot fetch {known.title}: {' '.join(str(error).split())}; "
        "where there is no way out, fetch it elsewhere and copy the folder"
    )
