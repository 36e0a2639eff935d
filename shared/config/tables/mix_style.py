"""`[training.mix_style]`: training on features whose channel statistics are those of other images too. Pure."""

from __future__ import annotations

from pydantic import Field

from fedplcc.shared.config.sections import Section


class MixStyleSettings(Section):
    """`[training.mix_style]`; defaults are MixStyle's."""

    probability: float = Field(0.5, gt=0, le=1)
    """Probability that the statistics of a mini-batch are mixed, in each of the three places by itself."""
    alpha: float = Field(0.1, gt=0, le=100)
    """Both parameters of the Beta distribution of an image's own share in the mix; the smaller, the more often the share is
    close to 0 or 1."""
