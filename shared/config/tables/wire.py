"""`[wire]`: how models travel. Pure."""

from __future__ import annotations

from fedplcc.shared.config.sections import Section
from fedplcc.shared.encoded_models import Precision


class WireSection(Section):
    """`[wire]`"""

    precision: Precision = "float32"
    """Numbers in which updates and global models travel. "bfloat16" and "int8" send the difference from the model that
    the round began with, in half and a quarter of the bytes; what rounding leaves out is kept where it arose, and goes out
    with the next difference (docs/algorithms.md, rule 1.23). Checks, sums and training see float32. A client that has not
    the model that the round began with receives the whole one."""

    @property
    def is_encoded(self) -> bool:
        """Whether models travel as encoded differences."""
        return self.precision != "float32"
