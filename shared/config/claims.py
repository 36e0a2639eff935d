"""Claims of privacy that are untrue, each with the sentence why. Pure.

A claim is true by what leaves a client: see the table in docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedplcc.shared.config.sections import InvalidKey
from fedplcc.shared.config.tables.run_tables import RunTables
from fedplcc.shared.methods.arithmetic.fixed_point import LARGEST
from fedplcc.shared.methods.parts.private_sums import COUNT_RATIO
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.methods.private_form import private_refusal
from fedplcc.shared.privacy.noise import MOST_DEVIATIONS


def check_privacy(config: RunTables) -> None:
    """Refuse noise where it does nothing, and a claim that is untrue.

    Raises:
        InvalidKey: At the key to change, with the sentence why.
    """
    for key, sentence in refusals(config):
        raise InvalidKey(key, sentence)


def refusals(config: RunTables) -> Iterator[tuple[str, str]]:
    """Yield the keys for which noise or a claim is refused, with a sentence each."""
    if config.privacy.clip is None:
        return
    yield from _of_method(config)
    if config.stream.is_stream:
        yield (
            "privacy.clip",
            "[privacy]: stages of [stream] share images, and what they cost together is not known; leave it out",
        )
    if config.privacy.claim != "none" and config.privacy.told(config.run.rounds)["epsilon"] is None:
        yield (
            "privacy.noise",
            f'privacy.claim = "{config.privacy.claim}": releases with this little noise come to no epsilon; set '
            "more, or epsilon and delta",
        )
    if config.privacy.claim == "site":
        yield from _of_site(config)


def _of_method(config: RunTables) -> Iterator[tuple[str, str]]:
    refused = private_refusal(config.base_algorithm, config.method)
    if refused is not None:
        yield "privacy.clip", refused
        return
    if config.base_algorithm.part(PrototypeExchange) is None:
        release = config.privacy.release(config.run.rounds)
        if release is not None and MOST_DEVIATIONS * release.noise * max(release.clip, COUNT_RATIO) >= LARGEST:
            yield (
                "privacy.clip",
                f"[privacy]: noise of {release.noise:g} times the clip {release.clip:g} may come to 2^30 or more, and "
                "updates with such sums are refused; set a smaller clip, or less noise",
            )
        return
    if config.privacy.release_every != 1:
        yield (
            "privacy.release_every",
            f"method {config.run.method} makes class means of another model in every round, and each is a release; set "
            "privacy.release_every = 1",
        )
    if config.training.prototype_statistics != "trained":
        yield (
            "privacy.clip",
            '[privacy]: training.prototype_statistics = "site" makes the features of an image depend on all others; '
            "leave it out",
        )
    if config.privacy.claim == "site":
        yield (
            "privacy.claim",
            f'privacy.claim = "site" is about all that leaves a client, and method {config.run.method} sends models that '
            'are trained on the images in the clear; privacy.claim = "prototypes" is about its class means alone',
        )


def _of_site(config: RunTables) -> Iterator[tuple[str, str]]:
    claim = 'privacy.claim = "site" is about all that is made of training images and leaves a client'
    if config.training.train != "head":
        yield (
            "privacy.claim",
            f'{claim}, and training.train = "{config.training.train}" has weights that may have been trained on these: '
            'features under them move with an image by more than the clip; set training.train = "head"',
        )
    if config.run.initial_model is not None:
        yield "privacy.claim", f"{claim}, and run.initial_model may have been trained on these images; leave it out"
    if config.run.initial_runs:
        yield (
            "privacy.claim",
            f"{claim}, and run {config.run.initial_runs[0]} trained the weights (run.initial_runs), maybe on these images; "
            "begin with weights that no run trained",
        )
    if config.data.window == "auto":
        yield (
            "privacy.claim",
            f'{claim}, and data.window = "auto" makes the features of an image depend on all others; give the two values',
        )
    if config.data.validation_every is not None:
        yield (
            "privacy.claim",
            f"{claim}, and images for validation are chosen among them by data.validation_every; leave it out",
        )
    if config.run.patience is not None:
        yield (
            "privacy.claim",
            f"{claim}, and scores of validation images, which run.patience needs, stay there; leave it out",
        )
    if config.evaluation.own_classes:
        yield (
            "privacy.claim",
            f"{claim}, and evaluation.own_classes tells the classes that a client has; leave it out",
        )
    if config.site_statistics_key is not None:
        yield (
            "privacy.claim",
            f"{claim}, and {config.site_statistics_key} scores with statistics of these images; leave it out",
        )


def client_refusal(
    *, samples_per_class: int | None, fraction: float | None, validation_per_class: int | None, data: str
) -> str | None:
    """Return why the data of a client are not those of which a claim "site" speaks; None where they are.

    A subset that is drawn from each class takes another image where one is gone: the two differ in more than one record.
    """
    given = {
        "samples_per_class": samples_per_class,
        "fraction": fraction,
        "validation_per_class": validation_per_class,
    }
    for key, value in given.items():
        if value is not None:
            return (
                f"{key} = {value} chooses images by what others there are, so that one image less changes more than one: "
                'privacy.claim = "site" is untrue; leave it out'
            )
    for rule in ("part:", "long_tail("):
        if data.startswith(rule):
            return f'data "{rule}" chooses images by a rule that looks at all of them: privacy.claim = "site" is untrue'
    return None
