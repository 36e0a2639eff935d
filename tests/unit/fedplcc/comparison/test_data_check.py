"""Data that a comparison cannot open are named before anything is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedplcc.comparison.data_check import what_cannot_be_opened
from tests.support.records.comparisons import COMPARISON, RUN, cells_of, write_comparison


def write_images(path: Path) -> None:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)


def test_each_data_set_whose_data_are_missing_has_one_sentence(tmp_path: Path) -> None:
    run = RUN.replace("npz:", f"npz:{tmp_path}/")
    (tmp_path / "gone.toml").write_text(run.replace("svhn.npz", "gone.npz"))
    path = write_comparison(tmp_path, COMPARISON + '\n[datasets.other]\nconfig = "gone.toml"\n', run)
    for name in ("mnist.npz", "svhn.npz"):
        write_images(tmp_path / name)
    found = what_cannot_be_opened(cells_of(path, tmp_path / "out"))
    assert found.keys() == {"other"}
    assert found["other"].startswith("other cannot be trained: client svhn: ")
    assert "gone.npz" in found["other"]


def test_nothing_to_train_is_nothing_to_say() -> None:
    assert what_cannot_be_opened([]) == {}
