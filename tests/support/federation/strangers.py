"""A stranger's package: a method, a model and an augmentation that nothing of this project imports by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import ROOT

METHOD = "strangers.pull"
MODEL = "strangers.parts:model"
AUGMENTATION = "strangers.parts:darker"
_GUIDE = (ROOT / "shared" / "methods" / "README.md").read_text()
_PARTS = '''
"""A model that is a bare Sequential, and an augmentation that darkens images."""

import torch
from torch import nn


def model(num_classes, image_size, width=8):
    pooled = nn.AdaptiveAvgPool2d(2)
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), pooled, nn.Flatten(), nn.Linear(4 * width, num_classes))


def darker():
    def change(images, generator):
        share = torch.rand(len(images), generator=generator)[:, None, None, None]
        return (images * (0.5 + share / 2)).to(torch.uint8)

    return change
'''


def method_text() -> str:
    """The method of the guide: FedPull, as a stranger copies it."""
    found = re.search(r"```python shared/methods/fedpull\.py\n(.*?)```", _GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def write_package(folder: Path, name: str = "strangers", **files: str) -> None:
    """Write the package into a folder; `files` are further modules, or others in place of its own."""
    package = folder / name
    package.mkdir()
    for module, text in {"__init__": "", "pull": method_text(), "parts": _PARTS, **files}.items():
        (package / f"{module}.py").write_text(text)


def strange(values: Mapping[str, Any]) -> dict[str, Any]:
    """A run under the stranger's method, model and augmentation."""
    return {
        **values,
        "run": {**values["run"], "method": METHOD},
        "method": {"lambda1": 5.0},
        "model": {"name": MODEL, "options": {"width": 6}},
        "training": {**values["training"], "augment": ["flip", AUGMENTATION]},
    }
