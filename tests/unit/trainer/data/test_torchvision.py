"""torchvision's sets in their true formats, read and fetched."""

import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torchvision import datasets

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData, Unavailable
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.sets.torchvision_sets import SETS, fetch
from tests.support.records import public_sets
from tests.support.records.public_sets import CIFAR10, CIFAR100, DIGITS, FASHION, NUM_TEST, NUM_TRAIN

CLASSES = {name: DIGITS for name in ("mnist", "usps", "svhn")} | {
    "fashionmnist": FASHION,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
}


def write(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the sets as a finished download leaves it."""
    if name in ("mnist", "fashionmnist"):
        title = SETS[name].title
        public_sets.write_mnist(folder / title / "raw", monkeypatch, title)
        public_sets.unpack(folder / title / "raw")
    elif name == "usps":
        public_sets.write_usps(folder)
    elif name == "svhn":
        public_sets.write_svhn(folder, monkeypatch)
    else:
        public_sets.write_cifar(folder, monkeypatch, SETS[name].title)


@pytest.mark.parametrize("name", sorted(SETS))
def test_a_set_is_read_from_torchvisions_layout_with_its_official_class_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(name, tmp_path, monkeypatch)
    classes, spec = CLASSES[name], f"{name}:{tmp_path}"
    assert tuple(describe(spec)) == classes
    assert sum(describe(spec).values()) == NUM_TRAIN
    data = load_dataset(spec, contract=DataSection(classes=classes))
    for images, count in ((data.train, NUM_TRAIN), (data.test, NUM_TEST)):
        assert images.labels_N.tolist() == public_sets.labels(count, len(classes)).tolist()
        wanted = public_sets.shades(count, 32, 3)
        assert np.abs(images.images_NSS3.astype(int) - wanted).max() <= (1 if name == "usps" else 0)


@pytest.mark.parametrize("name", sorted(SETS))
def test_a_set_that_is_not_there_is_answered_with_the_command_that_fetches_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a trainer downloads nothing"))
    folder = tmp_path / "with space"
    with pytest.raises(
        InvalidData, match=rf"no whole \w+ in .*; fetch it with: fedplcc data describe '{name}:{folder}' --fetch"
    ):
        describe(f"{name}:{folder}")
    assert not folder.exists()


def test_a_damaged_set_is_not_half_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (
        ("cifar10", "cifar-10-batches-py/data_batch_2"),
        ("svhn", "test_32x32.mat"),
        ("usps", "usps.t.bz2"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        write(name, folder, monkeypatch)
        (folder / file).write_bytes((folder / file).read_bytes()[:-20])
        with pytest.raises(InvalidData, match=f"fedplcc data describe {name}:\\S+ --fetch"):
            describe(f"{name}:{folder}")


def served(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let torchvision fetch everything from a place of the test's."""
    for title in ("MNIST", "FashionMNIST"):
        monkeypatch.setattr(getattr(datasets, title), "mirrors", [f"{place}/"])
    for title in ("CIFAR10", "CIFAR100"):
        monkeypatch.setattr(getattr(datasets, title), "url", f"{place}/{getattr(datasets, title).filename}")
    for split in ("train", "test"):
        _, file, checksum = datasets.USPS.split_list[split]
        monkeypatch.setitem(datasets.USPS.split_list, split, [f"{place}/{file}", file, checksum])


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and writes no log."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *_args: Any) -> None:
        self.asked.append(self.path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address on loopback at which it is served."""
    folder = tmp_path / "server"
    folder.mkdir()
    Quiet.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join(10)


def test_mnist_is_fetched_and_unpacked_once(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    public_sets.write_mnist(folder, monkeypatch)
    served(monkeypatch, address)
    asked: list[int] = []
    for _ in range(2):
        source = fetch("mnist", tmp_path / "new" / "data")
        assert (len(source.train), len(source.test), source.class_names) == (NUM_TRAIN, NUM_TEST, DIGITS)
        asked = [*asked, len(Quiet.asked)]
    assert asked[0] == asked[1] > 0


@pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter extracted tar:DeprecationWarning")
def test_cifar_is_fetched_and_unpacked(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    public_sets.write_cifar(folder, monkeypatch)
    public_sets.pack_cifar(folder, monkeypatch)
    served(monkeypatch, address)
    assert fetch("cifar10", tmp_path / "data").class_names == CIFAR10


def test_what_arrives_damaged_is_told_as_such(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    public_sets.write_usps(folder)
    served(monkeypatch, address)  # the MD5s are the published ones
    with pytest.raises(InvalidData, match="is damaged; remove it and fetch it again"):
        fetch("usps", tmp_path / "data")


@pytest.mark.parametrize("name", ["mnist", "usps", "cifar100"])
def test_a_server_that_is_out_of_reach_is_told_as_such(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(
        Unavailable, match=r"cannot fetch .* where there is no way out, fetch it elsewhere and copy the folder"
    ):
        fetch(name, tmp_path)
    assert socket.getdefaulttimeout() is None


def test_archives_that_lie_in_place_are_unpacked_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public_sets.write_mnist(tmp_path / "FashionMNIST" / "raw", monkeypatch, "FashionMNIST")
    served(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(InvalidData, match="fedplcc data describe fashionmnist:"):
        describe(f"fashionmnist:{tmp_path}")
    assert fetch("fashionmnist", tmp_path).class_names == FASHION


def test_what_is_in_place_but_damaged_is_not_called_fetched(tmp_path: Path) -> None:
    public_sets.write_usps(tmp_path)
    (tmp_path / "usps.bz2").write_bytes(b"cut short")
    with pytest.raises(
        InvalidData, match=r"holds of USPS \(usps.bz2 and usps.t.bz2\) is damaged; remove it and fetch it again"
    ):
        fetch("usps", tmp_path)
