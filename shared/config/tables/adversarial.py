"""`[training.adversarial]`: training on images that an attack has changed. Pure."""

from __future__ import annotations

from pydantic import Field

from fedplcc.shared.config.sections import Section

EPSILON = 8 / 255
"""Largest change of a pixel's value in [0, 1] if none is set; usual for colour images."""


class AdversarialSettings(Section):
    """`[training.adversarial]`; defaults are usual for colour images."""

    epsilon: float = Field(EPSILON, gt=0, le=1)
    """Largest change of a value in [0, 1]; for grey digits 0.3 is usual."""
    step_size: float = Field(2 / 255, gt=0, le=1)
    """Change of a value in one step of the attack, in [0, 1]; 0.075 goes with 0.3."""
    steps: int = Field(7, ge=1, le=1000)
    """Steps of the attack on each mini-batch; each costs about as much as a step of training."""
