"""Consent of a site's owner: the code that a run's document may make this process import.

A run's document comes from whoever may start runs, not from the owner of the data. So a trainer imports nothing that its
owner did not list. Commands that a person starts with a configuration of their own consent to that configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import CodeNotAllowed
from shared.run_config import ModelSection

if TYPE_CHECKING:
    from shared.config import TrainerSettings


@dataclass(frozen=True, slots=True)
class Consent:
    """The names that a run's document may use at this site.

    Attributes:
        code: Factories of models, as `package.module:factory`; a name is allowed if it is equal to one of them.
    """

    code: frozenset[str] = frozenset()

    @classmethod
    def of_owner(cls, settings: TrainerSettings) -> Consent:
        """What the owner of a trainer's site lists in its settings."""
        return cls(code=frozenset(settings.allow_code))

    @classmethod
    def to(cls, model: ModelSection) -> Consent:
        """Consent to everything that a model section names, for a person who runs their own configuration."""
        return cls(code=frozenset({model.name} if model.is_factory else ()))

    @property
    def flags(self) -> tuple[str, ...]:
        """The command line that gives a trainer this consent."""
        return tuple(f"--allow-code={name}" for name in sorted(self.code))

    def check_code(self, spec: str) -> None:
        """Refuse code that is not listed.

        Raises:
            CodeNotAllowed: The owner did not list `spec`.
        """
        if spec not in self.code:
            raise CodeNotAllowed(
                f"the run's model {spec!r} is code that the owner of this site has not allowed; nothing of it was imported. "
                f"Who trusts it starts this trainer with --allow-code {spec}"
            )


NO_CONSENT = Consent()
"""The default of every site: built-in models alone, without files and downloads."""
