"""`[evaluation]`: the rounds in which clients evaluate, and in what ways they do. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fedplcc.shared.config.sections import Section

Attack = Literal["fgsm", "pgd20"]
"""An attack on test images."""


class EvaluationSection(Section):
    """`[evaluation]`: the rounds in which clients evaluate the models. Training is the same, to the last bit."""

    every: int = Field(1, ge=1, le=100_000)
    """Clients evaluate every n-th round. The other rounds commit without reports, and their accuracy is null in
    metrics.jsonl."""
    last: int = Field(10, ge=1, le=100_000)
    """Number of last rounds of the run that are evaluated in any case."""
    attacks: tuple[Attack, ...] = Field((), strict=False, fail_fast=True)
    """Attacks under which clients evaluate too: fgsm is one step of epsilon, pgd20 twenty steps of an eighth of it. They
    cost about 4 and 60 times as much as the evaluation itself."""
    epsilon: float | None = Field(None, gt=0, le=1)
    """Largest change of a value in [0, 1] by `attacks`; training.adversarial.epsilon if not set, and 8/255 without that."""
    confusion: bool = False
    """Clients report which class each class of their test images was given: the confusion matrix of each evaluation set. It
    needs at most 64 classes, and adds at most 32 KiB to a report of each set."""
    histograms: bool = False
    """Clients report, in fixed bins, how many of their test and validation images have which probability of each class and
    which largest one: areas under ROC curves and calibration follow. It needs at most 64 classes, and adds at most 64 KiB
    to a report of each set."""

    score: Literal["auto", "accuracy", "balanced_accuracy"] = "auto"
    """What decides the best round, the end by run.patience and the worst domain, and stands first wherever the run is shown:
    accuracy, or balanced_accuracy, the mean of the classes' recalls. With auto it is balanced accuracy in rounds in which a
    domain has more than three test images of one class for each of another."""

    own_classes: bool = False
    """Clients also report how the models do when they choose only among the classes of the client's own training images, in
    sets named test/own and all/own: by the nearest global prototype where the method names one for this, else by the
    logits."""
    joining: bool | Literal["pooled"] = False
    """In the last round each client also trains a model on its images alone, from the run's first one and for all the rounds
    of the run, and reports it (alone) beside the mean of both models' probabilities (local), whose weight its validation
    images choose: what joining is worth to it. That takes a client as long as all its rounds, and a client that is
    killed meanwhile begins it anew. It needs data.validation_every. With "pooled", in simulations alone, one model of all
    clients' training images together stands beside them (pooled)."""
    batch_norm: Literal["shared", "site"] = "shared"
    """Statistics of BatchNorm layers: those that the model came with (shared); or, with site, each client also evaluates its
    own model, the global one where the method gives it no other, with the mean and variance of its own training images under
    the model's weights."""

    @field_validator("attacks")
    @classmethod
    def _sorted_and_unique(cls, attacks: tuple[Attack, ...]) -> tuple[Attack, ...]:
        return tuple(sorted(set(attacks)))

    def covers(self, number: int, total_rounds: int) -> bool:
        """Whether a round is evaluated; rounds count from 1."""
        return number % self.every == 0 or number > total_rounds - self.last
