"""Whether the data of cells can be opened, asked before a night of training and not when the last cell begins."""

from __future__ import annotations

from collections.abc import Iterable

from fedplcc.comparison.plan import Cell
from shared.errors import InvalidData
from trainer.data.specs import open_source, opened_once


def what_cannot_be_opened(cells: Iterable[Cell]) -> dict[str, str]:
    """What is wrong with data sets, a sentence each by their names; opening reads headers and labels, no image.

    A data set that is fine now may be gone when a cell begins: that cell fails then, for itself.
    """
    found: dict[str, str] = {}
    asked: set[tuple[str, int]] = set()
    with opened_once():
        for cell in cells:
            test_every = cell.federation.config.data.test_every
            for client, section in cell.federation.clients.items():
                if (section.data, test_every) in asked:
                    continue
                asked.add((section.data, test_every))
                try:
                    open_source(section.data, test_every)
                except InvalidData as error:
                    found.setdefault(cell.dataset, f"{cell.dataset} cannot be trained: client {client}: {error.detail}")
    return found
