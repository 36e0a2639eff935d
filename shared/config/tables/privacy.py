"""`[privacy]`: class sums that leave a client with noise, and what a run claims by them. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedplcc.shared.config.sections import InvalidKey, Section
from fedplcc.shared.privacy.class_sums import Release
from fedplcc.shared.privacy.guarantee import DEFAULT_DELTA, composed, epsilon_of, noise_for

Claim = Literal["none", "prototypes", "site"]
"""What is private: nothing, what sums add to models that are taken as given, or all that is made of training images."""


class PrivacySection(Section):
    """`[privacy]`: noise on what clients make of images, and the run's claim; docs/privacy.md says what that covers."""

    clip: float | None = Field(None, ge=1e-3, le=1e3)
    """C: class sums are of features less their own mean, shortened to this L2 norm, and leave each client with noise. The
    features of feature_norm = "sqrt_l2" have length 1 before; with a small clip all count alike. Methods of class means
    take features as they are, and their means are made of such sums. No noise if not set."""
    noise: float | None = Field(None, ge=1e-3, le=1e6)
    """z: the noise on sums has deviation z times `clip`, that on counts 4 z. Set this, or both
    `epsilon` and `delta`."""
    epsilon: float | None = Field(None, ge=1e-3, le=100)
    """Epsilon of all releases of a client in the run together; with `delta` it decides the noise."""
    delta: float | None = Field(None, gt=0, le=1e-2)
    """Delta of all releases of a client in the run together."""
    release_every: int | None = Field(None, ge=1, le=100_000)
    """Rounds after which a client makes new noise; until then it sends the same bytes again, which costs nothing. One
    release in the whole run if not set: sums of the same images are the same. Methods of class means need 1: their
    features are of another model in every round."""
    claim: Claim = "none"
    """What the run claims: none; prototypes (what the sums add, models taken as given: no guarantee on the run); site (all
    that is made of training images and leaves a client). A claim that is untrue is refused."""

    @model_validator(mode="after")
    def _noise_that_is_known(self) -> Self:
        if self.clip is None:
            for key in ("noise", "epsilon", "delta", "release_every"):
                if getattr(self, key) is not None:
                    raise InvalidKey(key, f"'{key}' is about sums with noise; set 'clip' too")
            if self.claim != "none":
                raise InvalidKey(
                    "claim", f'claim = "{self.claim}" needs noise; set clip, and epsilon and delta, or leave claim out'
                )
            return self
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidKey("epsilon" if self.epsilon is None else "delta", "set 'epsilon' and 'delta' both")
        if (self.noise is None) == (self.epsilon is None):
            raise InvalidKey("noise", "set either 'noise', or both 'epsilon' and 'delta'")
        return self

    def num_releases(self, rounds: int) -> int:
        """Return the number of releases of a client that takes part in all rounds."""
        return 1 if self.release_every is None else -(-rounds // self.release_every)

    def release_round(self, round: int, rounds: int) -> int:
        """Return the round whose release a round sends; rounds beyond those of the configuration send its last one."""
        if self.release_every is None:
            return 1
        return 1 + self.release_every * min((round - 1) // self.release_every, self.num_releases(rounds) - 1)

    def told(self, rounds: int) -> dict[str, Any]:
        """Return the claim, and what all releases of a client in the run cost together; nothing without noise.

        An epsilon that means nothing is None.
        """
        release = self.release(rounds)
        if release is None:
            return {}
        num, delta = self.num_releases(rounds), DEFAULT_DELTA if self.delta is None else self.delta
        spent = epsilon_of(delta, composed([release.mu] * num)) if self.epsilon is None else self.epsilon
        return {
            "claim": self.claim,
            "clip": release.clip,
            "noise": release.noise,
            "releases": num,
            "epsilon": spent if math.isfinite(spent) else None,
            "delta": delta,
        }

    def release(self, rounds: int) -> Release | None:
        """Return how class sums are released; None where they leave as they are."""
        if self.clip is None:
            return None
        if self.noise is not None:
            return Release(clip=self.clip, noise=self.noise)
        assert self.epsilon is not None, "one of the two is set"
        assert self.delta is not None, "both are set"
        return Release(clip=self.clip, noise=noise_for(self.epsilon, self.delta, self.num_releases(rounds)))
