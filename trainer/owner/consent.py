"""Consent of a site's owner: the code and the weights that a run's document may name.

A run's document comes from a person who may start runs, not from the owner of the data. So a trainer imports no code that
its owner did not list, begins with no weights but those that the owner keeps, and downloads nothing. A person who starts a
command with their own configuration consents to that configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.settings import WEIGHTS, TrainerSettings, weights_folder
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import CodeNotAllowed, DataNotAllowed
from fedplcc.shared.methods import BUILTIN
from fedplcc.trainer.owner.policy import NO_POLICY, Policy
from fedplcc.trainer.weights.store import WeightsStore

if TYPE_CHECKING:
    from torch import Tensor

HOST_STORE = WeightsStore(WEIGHTS)
"""The store of a host that names no other."""


@dataclass(frozen=True, slots=True)
class Consent:
    """The names that a run's document may use at this site.

    Attributes:
        code: Factories of models and of augmentations, as `package.module:factory`; a name is allowed if it is equal to
            one of them.
        methods: Methods of other packages, which a process has imported before it sees a document.
        public_data: Data specification of the public images at this site, which is read in place of the run's own; None
            where the owner named none.
        weights: The backbones that the owner keeps; the run names one by its SHA-256.
    """

    code: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    public_data: str | None = None
    weights: WeightsStore = HOST_STORE

    @classmethod
    def of_owner(cls, settings: TrainerSettings, policy: Policy = NO_POLICY) -> Consent:
        """Return the consent that the settings of a trainer list, and the policy of its owner."""
        return cls(
            code=frozenset((*settings.allow_code, *policy.runs.allow_code)),
            methods=frozenset(settings.allow_method),
            public_data=settings.public_data,
            weights=WeightsStore(settings.weights_dir),
        )

    @classmethod
    def to_run(cls, config: RunConfig) -> Consent:
        """Return consent to all that a run names, for a person who runs their own configuration."""
        of_model = cls.to(config.model)
        return replace(
            of_model,
            code=of_model.code | frozenset(config.training.augmentation_code),
            methods=frozenset(() if config.run.method in BUILTIN else {config.run.method}),
            public_data=config.public.data,
        )

    @classmethod
    def to(cls, model: ModelSection) -> Consent:
        """Return consent to everything that a model section names, for a person who runs their own configuration."""
        return cls(
            code=frozenset({model.name} if model.is_factory else ()),
            weights=WeightsStore(weights_folder()),
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that give a trainer this consent."""
        return (
            *(f"--allow-code={name}" for name in sorted(self.code)),
            f"--weights-dir={self.weights.folder}",
            *(() if self.public_data is None else (f"--public-data={self.public_data}",)),
            *self.method_flags,
        )

    @property
    def method_flags(self) -> tuple[str, ...]:
        """Flags that make the methods known to any service."""
        return tuple(f"--allow-method={name}" for name in sorted(self.methods))

    def check_code(self, spec: str) -> None:
        """Refuse code that is not listed.

        Raises:
            CodeNotAllowed: The owner did not list `spec`.
        """
        if spec not in self.code:
            raise CodeNotAllowed(
                f"the run names {spec!r}, code that the owner of this site has not allowed; nothing of it was imported. Who "
                f"trusts it starts this trainer with --allow-code {spec}, or lists it in the policy's runs.allow_code"
            )

    def public_images(self, asked: str | None) -> str:
        """Return the data specification of the public images at this site.

        Args:
            asked: The run's `public.data`, which is named and not opened.

        Raises:
            DataNotAllowed: The owner named none.
        """
        if self.public_data is None:
            raise DataNotAllowed(
                f"the run learns from public images, {asked!r}, and the owner of this site has named none; nothing was "
                "opened. Who has the same images starts this trainer with --public-data and where they lie here"
            )
        return self.public_data

    def backbone(self, section: ModelSection) -> dict[str, Tensor] | None:
        """Return the tensors of the backbone that a model begins with; None where it begins with none.

        Raises:
            WeightsMissing: This site has no such backbone.
        """
        if section.weights_sha256 is None:
            return None
        return self.weights.load(section.weights_sha256, section.weights or "")


NO_CONSENT = Consent()
"""Default of every site: only built-in models, no files, no downloads."""
