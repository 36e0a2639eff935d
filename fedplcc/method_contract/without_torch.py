"""A trial of a method's server half where torch cannot be imported: `python -m fedplcc.method_contract.without_torch NAME`.

It imports nothing that needs torch itself, and ends with exit code 0 where all is well.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import numpy as np

from fedplcc.method_contract.fold_checks import first_slots, has_slots, slot_folded
from fedplcc.method_contract.server_checks import tried_without_torch
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import NUM_CLASSES, a_client, in_order, merged, reports_of
from fedplcc.shared.methods import METHODS, add_methods
from fedplcc.shared.methods.config import fold_weights


class NoTorch(MetaPathFinder):
    """Refuses torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for torch and its parts; leave all else to others."""
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ImportError(f"its server half imports {name}, which an aggregator does not have")


def main(name: str) -> None:
    """Import the method and let it fold and merge."""
    sys.meta_path.insert(0, NoTorch())
    add_methods([name])
    setting = Setting(METHODS[name])
    blocks = np.random.default_rng(0).normal(size=(3, 20)).astype(np.float32)
    setting.method.fold(lambda: blocks[0], iter(blocks[1:]), fold_weights([1, 2], setting.config), setting.config)
    if has_slots(setting):
        slot_folded(setting, blocks[0], list(blocks[1:]), [1, 2], first_slots(setting, 20))
    tried_without_torch(setting)
    if setting.method.has_prototypes:
        merged(setting, in_order(reports_of(setting)))
        assert a_client(0)[1].max() < NUM_CLASSES


if __name__ == "__main__":
    main(sys.argv[1])
