"""Consent of a site's owner: the code, files and downloads that a run's document may name.

A run's document comes from a person who may start runs, not from the owner of the data. So a trainer imports no code, opens
no file and downloads nothing that its owner did not list. A person who starts a command with their own configuration
consents to that configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedplcc.shared.config.model import TIMM, ModelSection, TimmOptions
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import CodeNotAllowed, DataNotAllowed, DownloadNotAllowed, FileNotAllowed
from fedplcc.shared.methods import BUILTIN

if TYPE_CHECKING:
    from fedplcc.shared.config.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Consent:
    """The names that a run's document may use at this site.

    Attributes:
        code: Factories of models and of augmentations, as `package.module:factory`; a name is allowed if it is equal to
            one of them.
        files: Files, and folders whose whole content is allowed; absolute, without symbolic links.
        downloads: Models as `timm:NAME` whose trained weights may be downloaded; compared as `code`.
        methods: Methods of other packages, which a process has imported before it sees a document.
        public_data: Data specification of the public images at this site, which is read in place of the run's own; None
            where the owner named none.
    """

    code: frozenset[str] = frozenset()
    files: frozenset[Path] = frozenset()
    downloads: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    public_data: str | None = None

    @classmethod
    def of_owner(cls, settings: TrainerSettings) -> Consent:
        """Return the consent that the settings of a trainer list."""
        return cls(
            code=frozenset(settings.allow_code),
            files=frozenset(path.expanduser().resolve() for path in settings.allow_file),
            downloads=frozenset(settings.allow_download),
            methods=frozenset(settings.allow_method),
            public_data=settings.public_data,
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
        if not TIMM.fullmatch(model.name):
            return cls(code=frozenset({model.name} if model.is_factory else ()))
        options = TimmOptions.model_validate(model.options)
        file = None if options.checkpoint is None else _resolved(options.checkpoint)
        return cls(
            files=frozenset(() if file is None else {file}),
            downloads=frozenset({model.name} if options.pretrained else ()),
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that give a trainer this consent."""
        return (
            *(f"--allow-code={name}" for name in sorted(self.code)),
            *(f"--allow-file={path}" for path in sorted(self.files)),
            *(f"--allow-download={name}" for name in sorted(self.downloads)),
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
                f"trusts it starts this trainer with --allow-code {spec}"
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

    def check_weights(self, name: str, options: TimmOptions) -> None:
        """Refuse weights of a timm model that are in no listed file, or whose download is not listed.

        The answer does not depend on whether the file exists.

        Args:
            name: `timm:NAME`.
            options: The run's `[model.options]`.

        Raises:
            FileNotAllowed, DownloadNotAllowed: The owner did not list where the weights come from.
        """
        if options.checkpoint is not None:
            path = _resolved(options.checkpoint)
            if path is None or not any(path.is_relative_to(allowed) for allowed in self.files):
                raise FileNotAllowed(
                    f"the run's model.options.checkpoint {options.checkpoint!r} is a file that the owner of this site has "
                    "not allowed; it was not opened. Who wants it read starts this trainer with --allow-file and its path"
                )
        elif options.pretrained and name not in self.downloads:
            raise DownloadNotAllowed(
                f"the run's model.options.pretrained downloads the weights of {name!r}, which the owner of this site has "
                f"not allowed; nothing was downloaded. Who wants them starts this trainer with --allow-download {name}"
            )


def _resolved(text: str) -> Path | None:
    """Return the file that a text names, through all symbolic links; None where it can name no file."""
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # an unknown home, a cycle of links, a NUL
        return None


NO_CONSENT = Consent()
"""Default of every site: only built-in models, no files, no downloads."""
