"""What several tests of trainers watch."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.trainer.data.images.stored import RowFile


@pytest.fixture
def sizes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each read of files returned."""
    sizes: list[int] = []
    read = RowFile.read

    def watched(self: RowFile, rows: Any) -> Any:
        sizes.append(len(rows))
        return read(self, rows)

    monkeypatch.setattr(RowFile, "read", watched)
    return sizes
