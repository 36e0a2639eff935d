"""The policy of a site's owner: a TOML file that says which runs the site takes part in and what may leave it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fedplcc.shared.bounds import MAX_EXAMPLES
from fedplcc.shared.config.sections import FACTORY, InvalidKey, Section, check_keys, validate
from fedplcc.shared.config.tables.model import SHA256
from fedplcc.shared.config.tables.privacy import Claim
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process import disk
from fedplcc.shared.types import LogLevel

MAX_POLICY_BYTES = 256 << 10
"""Most bytes of a policy's file."""
MAX_NAMES = 1000
"""Most entries of a list in a policy."""
ONLY_OF_SITE = "classsums"
"""The method of which `privacy.claim = "site"` can be true: no other sends nothing but releases with noise."""
MAX_CHARACTERS = 256
"""Most characters of a name in such a list."""


def _name(text: str) -> str:
    if not 1 <= len(text) <= MAX_CHARACTERS:
        raise ValueError(f"a name has 1 to {MAX_CHARACTERS} characters")
    return text


def _digest(text: str) -> str:
    if not re.fullmatch(SHA256, text):
        raise ValueError("write a SHA-256: 64 digits and letters a to f, as `fedplcc weights list` shows it")
    return text


def _factory(text: str) -> str:
    if not FACTORY.fullmatch(_name(text)):
        raise ValueError("write package.module:factory")
    return text


_OF_A_LIST = Field(strict=False, fail_fast=True, max_length=MAX_NAMES)
Names = Annotated[tuple[Annotated[str, AfterValidator(_name)], ...], _OF_A_LIST]
Digests = Annotated[tuple[Annotated[str, AfterValidator(_digest)], ...], _OF_A_LIST]
Factories = Annotated[tuple[Annotated[str, AfterValidator(_factory)], ...], _OF_A_LIST]


class RunLimits(Section):
    """`[runs]`: the runs that the site takes part in."""

    methods: Names | None = None
    """Methods, as run.method names them."""
    models: Names | None = None
    """Models, as model.name names them: resnet10, timm:NAME, package.module:factory."""
    backbones: Digests | None = None
    """SHA-256 of the backbones that a run may begin with (model.weights_sha256). A run that begins with none is not
    concerned."""
    most_rounds: int | None = Field(None, ge=1)
    """Most rounds of a run, those that it is prolonged by included."""
    most_image_size: int | None = Field(None, ge=8)
    """Largest data.image_size, in pixels."""
    most_local_steps: int | None = Field(None, ge=1)
    """Most mini-batches of a round's training here. With it, a run that counts in passes needs `most_local_epochs` too."""
    most_local_epochs: int | None = Field(None, ge=1)
    """Most passes over the training images in a round. With it, a run that counts in mini-batches needs `most_local_steps`
    too."""
    allow_code: Factories = ()
    """MODULE:NAME of code that runs may name, besides that of --allow-code. All other code is refused in any case."""


class Thresholds(Section):
    """`[thresholds]`: least numbers of images. They lower what attacks find and prove nothing."""

    class_images: int = Field(1, ge=1, le=MAX_EXAMPLES)
    """Least training images of a class. Those of a smaller class are not used: no count, model, prototype or sum is made of
    them. Scores leave out each class with fewer images in the set."""
    test_images: int = Field(1, ge=1, le=MAX_EXAMPLES)
    """Least images of an evaluation set of which a score leaves."""
    prototype_images: int = Field(1, ge=1, le=2**24)
    """Least training images that a prototype stands for; the run's method.min_cluster_size where that is larger."""


class PrivacyLimits(Section):
    """`[privacy]`: what a run must claim, and what its releases may cost."""

    claim: Claim = "none"
    """Least privacy.claim of a run: none, prototypes or site."""
    epsilon: float | None = Field(None, gt=0, le=1000)
    """Most epsilon that releases may come to over all runs, with `delta`; --privacy-epsilon where that allows less."""
    delta: float = Field(1e-5, gt=0, le=1e-2)
    """Delta with which `epsilon` is meant."""

    @model_validator(mode="after")
    def _a_delta_of_something(self) -> Self:
        if self.epsilon is None and "delta" in self.model_fields_set:
            raise InvalidKey(
                "delta", "'delta' is about 'epsilon', and without it nothing is limited; give both, or neither"
            )
        return self


class Leaves(Section):
    """`[leaves]`: what may leave the site."""

    models: bool = True
    """Whether weights that were trained on the site's images may leave."""
    class_counts: bool = True
    """Whether numbers of training images of single classes may leave. Their sum leaves in any case."""
    losses: bool = True
    """Whether losses on training images may leave."""
    scores: bool = True
    """Whether counts of correct predictions on test and validation images may leave."""
    readings: bool = True
    """Whether speeds, memory, load and the times of passes over images may leave."""
    logs: Annotated[LogLevel, Field(strict=False)] = LogLevel.NONE
    """The level from which on lines of the trainer's log may leave: none, error, warning or info. Events and facts of closed
    lists alone do, never a sentence, a name of a file or a number; docs/privacy.md has them."""


class Policy(Section):
    """A site's policy; a key that is not given forbids nothing.

    Attributes:
        approve: Whose yes a run needs here: `each` run is approved by the owner; `matching` runs, which ask for no more
            than one that the owner approved, need no second yes; `always` means that the policy is the owner's yes.
        runs: The runs that the site takes part in.
        thresholds: Least numbers of images.
        privacy: What a run must claim, and what its releases may cost.
    """

    approve: Literal["each", "matching", "always"] = "each"
    """Whose yes a run needs: each run is approved by the owner; matching runs, which ask for no more than one that the owner
    approved, need no second yes; with always the policy is the owner's yes."""
    runs: RunLimits = RunLimits.model_validate({})
    thresholds: Thresholds = Thresholds.model_validate({})
    privacy: PrivacyLimits = PrivacyLimits.model_validate({})
    leaves: Leaves = Leaves.model_validate({})

    @model_validator(mode="after")
    def _some_run_passes(self) -> Self:
        if self.thresholds.class_images > 1 and self.privacy.claim != "none":
            raise InvalidKey(
                "thresholds.class_images",
                f'class_images = {self.thresholds.class_images} makes privacy.claim = "{self.privacy.claim}" untrue, as '
                "which classes there are would show beside the noise: no run would pass; leave one of the two out",
            )
        if self.privacy.claim == "site" and self.runs.methods and ONLY_OF_SITE not in self.runs.methods:
            raise InvalidKey(
                "runs.methods",
                f'privacy.claim = "site" is true of method {ONLY_OF_SITE} alone, which runs.methods lacks: no run would '
                "pass; add it, or leave one of the two out",
            )
        return self


NO_POLICY = Policy()
"""What holds at a site whose owner has written none: nothing is forbidden."""


def read_policy(path: Path) -> Policy:
    """Read a policy's file.

    Raises:
        InvalidConfig: It cannot be read, is no file, is too large, or says something that no policy says.
    """
    document = _document(path)
    try:
        check_keys(document, Policy, "")
        return validate(Policy, document, "")
    except InvalidConfig as error:
        raise InvalidConfig(f"the policy {path}: {error.detail}") from error


def _document(path: Path) -> dict[str, Any]:
    try:
        data = disk.read_regular(path, MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"cannot read the policy {path}: {error.strerror or error}") from error
    except ValueError as error:  # of a path that no file has
        raise InvalidConfig(f"cannot read the policy {str(path)!r}: {error}") from error
    if len(data) > MAX_POLICY_BYTES:
        raise InvalidConfig(f"the policy {path} has more than {MAX_POLICY_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"the policy {path} is not TOML: {str(error)[:200]}") from error
