"""A client's site: its data specification, its device, and the consent of its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch import nn

from fedplcc.shared.bounds import MAX_SIDE
from fedplcc.shared.config.run import RunConfig, canonical_json, own_kind_refusal
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import FailedPrecondition, ModelKindRefused
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Client, Environment
from fedplcc.trainer.data import first_look
from fedplcc.trainer.devices.turns import NO_TURNS, Turns
from fedplcc.trainer.models import FeatureModel, build_model
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent
from fedplcc.trainer.owner.policy import NO_POLICY, Policy
from fedplcc.trainer.privacy.budget import Budget
from fedplcc.trainer.reproducibility.environment import card_names, environment, resolve_devices

log = get_logger("fedplcc.trainer.task.site")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientSite:
    """Facts about a client that no run changes.

    Attributes:
        display_name: Name for people; empty if it has none.
        data: Data specification, see data/README.md.
        samples_per_class: Size of a class-balanced training subset; all samples if None.
        fraction: Share of each class's training samples, in place of it; all samples if None.
        validation_per_class: Training samples of a class to set aside for validation; those of the run's rule if None.
        evaluate_only: Whether it never trains: it says that it has no training image, and its test images alone are read.
        withhold_below: Images of a class below which no confusion matrix and no histogram of a set is reported.
        model: Its own kind of model, for runs that share no models; None where it trains the run's.
        device: Where models are trained and evaluated.
        further_devices: Those that share each mini-batch of local training with it.
        turns: Turns on the cards among them.
        environment: Packages, processor and device as they were when the process began; a package that is installed later
            is not loaded.
        consent: The code and the weights that the documents of runs may name.
        budget: What its releases of class sums cost over all runs; None where it makes none.
        tells_counts: Whether it tells its images of each class when it joins, before any run is known.
    """

    client_id: str
    domain: str
    display_name: str = ""
    data: str
    samples_per_class: int | None = None
    fraction: float | None = None
    validation_per_class: int | None = None
    evaluate_only: bool = False
    withhold_below: int = 1
    model: ModelSection | None = None
    device: torch.device
    further_devices: tuple[torch.device, ...] = ()
    turns: Turns = NO_TURNS
    environment: Environment
    consent: Consent = NO_CONSENT
    budget: Budget | None = None
    tells_counts: bool = True
    policy: Policy = NO_POLICY

    @classmethod
    def at(
        cls, client_id: str, domain: str, data: str, *, device: str = "auto", takes_turns: bool = False, **facts: Any
    ) -> Self:
        """Return the site of a client on this machine; `device` is as `resolve_devices` takes it.

        One that takes turns trains on a card only while no other such site does. `facts` are the other attributes.

        Raises:
            InvalidConfig: There is no such device.
        """
        found, *others = resolve_devices(device)
        return cls(
            client_id=client_id,
            domain=domain,
            data=data,
            device=found,
            further_devices=tuple(others),
            turns=Turns(card_names([found, *others])) if takes_turns else NO_TURNS,
            environment=environment(found, *others),
            **facts,
        )

    def announced(self) -> Client:
        """Return the client as it is before any run is known: sample counts by the data set's own class names.

        Raises:
            InvalidData: The data set cannot be opened, or none of the images looked at can be read.
        """
        looked = first_look(
            self.data,
            samples_per_class=self.samples_per_class,
            fraction=self.fraction,
            evaluate_only=self.evaluate_only,
            class_images=self.policy.thresholds.class_images,
        )
        if looked.unreadable:
            log.warning(
                "unreadable_files",
                client_id=self.client_id,
                count=len(looked.unreadable),
                looked_at=looked.num_looked_at,
                first=looked.unreadable[0],
                why=looked.why,
            )
        for remark in looked.remarks:
            log.warning("data_remark", client_id=self.client_id, remark=remark)
        smallest_side = min(looked.smallest_side, MAX_SIDE) if self.tells_counts else 0
        return replace(self.client(looked.class_counts), smallest_side=smallest_side)

    def client(self, class_counts: Mapping[str, int], *, withholds: bool = False) -> Client:
        """Return the client with these numbers of training samples by class name, of which it may tell the sum alone."""
        tells_counts = self.tells_counts and self.policy.leaves.class_counts
        return Client(
            client_id=self.client_id,
            domain=self.domain,
            display_name=self.display_name,
            model_kind="" if self.model is None else self.model.kind,
            num_examples=sum(class_counts.values()),
            class_counts=class_counts if tells_counts and not withholds else {},
            environment=self.environment,
        )

    def new_model(self, config: RunConfig, *, with_weights: bool) -> nn.Module:
        """Return a model of the run's specification on the processor; see `fedplcc.trainer.models.build_model`.

        Raises:
            CodeNotAllowed, WeightsMissing: The run names what the site's owner did not list or does not keep.
            InvalidModel: The specification gives no usable model.
        """
        return build_model(
            config.model,
            len(config.data.classes),
            config.data.image_size,
            config.run.seed,
            with_weights=with_weights,
            consent=self.consent,
            train=config.training.train,
        )

    @property
    def kind(self) -> str:
        """Canonical JSON of its own kind of model; empty where it trains the run's. Equal texts mean the same kind."""
        return "" if self.model is None else canonical_json(self.model.model_dump(mode="json"))

    def check_kind(self, config: RunConfig) -> None:
        """Refuse a run that averages models or mixes features that the client's own kind has not.

        Raises:
            ModelKindRefused: It is so.
        """
        refused = None if self.model is None else own_kind_refusal(config, self.model)
        if self.model is not None and refused is not None:
            raise ModelKindRefused(f"client {self.client_id} has its own kind of model, {self.model.kind}: {refused}")

    def check_devices(self, config: RunConfig) -> None:
        """Refuse a run whose training cannot be shared by this site's devices.

        Raises:
            FailedPrecondition: It is so.
        """
        if self.further_devices and config.algorithm.uses_public(config.method):
            raise FailedPrecondition(
                f"client {self.client_id} trains on several devices, and they cannot share what method "
                f"{config.run.method!r} learns from public images; start its trainer with one --device"
            )

    def new_own_model(self, config: RunConfig, *, with_weights: bool) -> nn.Module:
        """Return a model of the client's own kind on the processor; of the run's where it has none.

        It has the run's feature size. The owner who named the kind has allowed what it needs.

        Raises:
            CodeNotAllowed: As `new_model`, which tells the run's feature size.
            InvalidModel: The specification gives no usable model.
        """
        if self.model is None:
            return self.new_model(config, with_weights=with_weights)
        of_run = self.new_model(config, with_weights=False)
        return build_model(
            self.model,
            len(config.data.classes),
            config.data.image_size,
            config.run.seed,
            with_weights=with_weights,
            consent=replace(Consent.to(self.model), weights=self.consent.weights),
            feature_dim=cast(FeatureModel, of_run).feature_dim,
        )
