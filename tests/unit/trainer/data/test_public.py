"""Public images are the same ones in the same order everywhere, whatever their labels and places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.public import load_public

NUM = 40


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(NUM, 16, 16, 3), dtype=np.uint8)


def written(folder: Path, labels: np.ndarray) -> str:
    np.savez(
        folder / "public.npz",
        x_train=images(),
        y_train=labels,
        x_test=images()[:2],
        y_test=labels[:2],
        classes=np.array(["cat", "dog"]),
    )
    return f"npz:{folder / 'public.npz'}"


def read(spec: str, num_images: int = 20, image_size: int = 16) -> np.ndarray:
    return load_public(spec, num_images, image_size=image_size, test_every=5).images_NSS3


def test_labels_and_places_change_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = read(written(tmp_path / "a", np.repeat([0, 1], NUM // 2)))
    second = read(written(tmp_path / "b", np.zeros(NUM, np.int64)))
    assert first.tobytes() == second.tobytes()


def test_they_are_different_images_of_the_set_in_another_order_than_its_own(tmp_path: Path) -> None:
    spec = written(tmp_path, np.zeros(NUM, np.int64))
    known = [image.tobytes() for image in images()]
    places = [known.index(image.tobytes()) for image in read(spec)]
    assert len(set(places)) == 20
    assert places != sorted(places)
    assert max(places) >= 20
    more = [known.index(image.tobytes()) for image in read(spec, 30)]
    assert more[:20] == places


def test_too_few_are_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"have 40 training images, and the run uses 41 \(public.num_images\)"):
        read(written(tmp_path, np.zeros(NUM, np.int64)), 41)


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / "train" / "any"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images()[number]).save(folder / f"{number}.png")
    (tmp_path / "test" / "any").mkdir(parents=True)
    Image.fromarray(images()[7]).save(tmp_path / "test" / "any" / "7.png")
    assert len(read(f"folder:{tmp_path}", 6)) == 6
    (tmp_path / "train" / "any" / "3.png").write_bytes(b"no image")
    with pytest.raises(InvalidData, match=r"public image '.*3.png' cannot be read"):
        read(f"folder:{tmp_path}", 6)
