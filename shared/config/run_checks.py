"""Checks between the sections of a run's configuration: settings that are right alone and wrong together. Pure."""

from __future__ import annotations

from fedplcc.shared.bounds import MAX_CONFUSED_CLASSES
from fedplcc.shared.config.class_map import class_fault
from fedplcc.shared.config.sections import InvalidKey, unknown
from fedplcc.shared.config.starts import check_encoding
from fedplcc.shared.config.tables.aggregation import check_aggregation
from fedplcc.shared.config.tables.model import TIMM, batch_norm_refusal, mixing_refusal
from fedplcc.shared.config.tables.public import PublicSection
from fedplcc.shared.config.tables.run_tables import RunTables
from fedplcc.shared.config.tables.stream import unknown_classes
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.prototypes import MAX_PAIRS, most_rows_per_class
from fedplcc.shared.methods.parts.public import PublicLearning
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.types import ALONE_MODEL, BATCH_NORM, GLOBAL_MODEL


def check_sections(config: RunTables) -> None:
    """Refuse a configuration whose sections do not fit each other.

    Raises:
        InvalidKey: At the key to change, with what to do.
    """
    for check in CHECKS:
        check(config)


def _public_images_where_they_are_used(config: RunTables) -> None:
    part, name = config.algorithm.part(PublicLearning), config.run.method
    if part is None or not part.is_used(config.method):
        if config.public != PublicSection():
            raise InvalidKey("public", f"method {name} uses no public images here; leave [public] out")
        return
    if config.public.data is None:
        raise InvalidKey(
            "public.data",
            f"method {name} learns from unlabelled images that every client has; name them with public.data",
        )
    size = part.batch_size(config.method)
    if config.public.num_images < size:
        raise InvalidKey(
            "public.num_images",
            f"public.num_images = {config.public.num_images} is less than a batch of {size} (method.public_batch)",
        )


def _rounds_and_classes_of_the_stream(config: RunTables) -> None:
    stream = config.stream
    if stream.rounds is not None and stream.rounds != config.run.rounds:
        raise InvalidKey(
            "run.rounds",
            f"run.rounds = {config.run.rounds}: stream has {_counted(stream.passes, 'pass', 'passes')} of "
            f"{stream.stages} stages of {_counted(stream.rounds_per_stage or 0, 'round', 'rounds')}, {stream.rounds} "
            f"rounds; leave run.rounds out or set {stream.rounds}",
        )
    unknown_class = unknown_classes(stream, config.data.classes)
    if unknown_class is not None:
        raise InvalidKey("stream.classes", f"stream.classes: {unknown('class', unknown_class, config.data.classes)}")


def _a_plan_that_can_be_kept(config: RunTables) -> None:
    fault = config.membership.fault(config.run.clients, config.run.rounds, config.quorum.min_clients or 1)
    if fault is not None:
        raise InvalidKey(f"membership.{fault[0]}", fault[1])


def _a_quorum_that_can_be(config: RunTables) -> None:
    needed, out = config.quorum.min_clients, config.admission.quarantined
    roster = None if config.run.clients is None else set(config.run.clients) - set(out)
    sizes = {
        "in run.clients" + (" that are not quarantined" if out else ""): None if roster is None else len(roster),
        "that the run begins with (run.min_clients)": config.run.min_clients,
        "drawn for each round (run.cohort_size)": config.run.cohort_size,
    }
    for which, size in sizes.items():
        if needed is not None and size is not None and needed > size:
            raise InvalidKey(
                "quorum.min_clients",
                f"quorum.min_clients = {needed} is more than {size}, the number of clients {which}",
            )


def _somebody_takes_part(config: RunTables) -> None:
    if config.run.clients is not None and set(config.run.clients) <= set(config.admission.quarantined):
        raise InvalidKey(
            "admission.quarantined", "admission.quarantined names every client of the run; leave at least one"
        )


def _a_limit_on_what_is_sent(config: RunTables) -> None:
    if config.admission.max_update_norm is not None and not config.algorithm.shares_model(config.method):
        raise InvalidKey(
            "admission.max_update_norm",
            "admission.max_update_norm limits the models that clients send, and in this run they keep them; leave it "
            "out",
        )
    if config.admission.max_prototype_norm is not None and config.algorithm.prototype_kind is None:
        raise InvalidKey(
            "admission.max_prototype_norm",
            f"admission.max_prototype_norm limits prototypes, and {config.run.method} has none; leave it out",
        )


def _a_clustering_that_ends(config: RunTables) -> None:
    rows, num_classes = config.admission.max_prototypes_per_class, len(config.data.classes)
    if rows is None:
        return
    key = "admission.max_prototypes_per_class"
    if config.algorithm.prototype_kind is None:
        raise InvalidKey(key, f"{key} limits prototypes, and {config.run.method} has none; leave it out")
    if num_classes * (rows * config.num_pooled_clients) ** 2 > MAX_PAIRS:
        most, window = most_rows_per_class(num_classes, config.num_pooled_clients), _window(config)
        in_rounds = "" if window == 1 else f" in {window} rounds (method.proto_window)"
        raise InvalidKey(
            key,
            f"{key} = {rows}: with {config.num_pooled_clients // window} clients{in_rounds} and {num_classes} classes a "
            f"round could compare more than {MAX_PAIRS} pairs of prototypes; at most {most} can be allowed",
        )


def _a_window_that_can_be_clustered(config: RunTables) -> None:
    window, num_classes = _window(config), len(config.data.classes)
    num_clients = config.num_pooled_clients // window
    most = most_rows_per_class(num_classes, num_clients)  # one of each of so many rounds
    if window > most:
        raise InvalidKey(
            "method.proto_window",
            f"method.proto_window = {window}: with {num_clients} clients and {num_classes} classes a round could compare "
            f"more than {MAX_PAIRS} pairs of prototypes, though each client had one of each class; at most {most} can be "
            "allowed",
        )


def _an_average_that_is_the_result(config: RunTables) -> None:
    key = "method.global_average"
    if config.method.global_average == "none":
        decay = config.method.average_decay
        if decay != MethodConfig().average_decay:
            raise InvalidKey(
                "method.average_decay",
                f'method.average_decay = {decay} does nothing without {key} = "ema"; set that, or leave it out',
            )
        return
    if not config.algorithm.shares_model(config.method):
        raise InvalidKey(key, f"{key} averages the global models of rounds, and in this run clients keep theirs")
    if config.stream.epoch_model == "stage_mean":
        raise InvalidKey(
            key,
            f'{key}: stream.epoch_model = "stage_mean" makes a mean of the same models; leave one of the two out',
        )


def _one_rule_for_earlier_prototypes(config: RunTables) -> None:
    method = config.method
    if isinstance(method, PrototypeConfig) and method.proto_window > 1 and method.proto_staleness:
        raise InvalidKey(
            "method.proto_window",
            f"method.proto_window = {method.proto_window} has the earlier prototypes of all clients in the pool, and "
            "method.proto_staleness those of absent ones; leave one of the two out",
        )


def _classes_of_the_initial_model(config: RunTables) -> None:
    known = config.run.initial_classes
    fault = None if known is None else class_fault(config.data.classes, known, drops=config.run.drop_classes)
    if fault is not None:
        raise InvalidKey("run.initial_classes", fault)


def _reports_by_class_that_fit(config: RunTables) -> None:
    num_classes = len(config.data.classes)
    told = {"confusion": "a number for each pair of", "histograms": "the probabilities of"}
    for key, what in told.items():
        if getattr(config.evaluation, key) and num_classes > MAX_CONFUSED_CLASSES:
            raise InvalidKey(
                f"evaluation.{key}",
                f"evaluation.{key} reports {what} at most {MAX_CONFUSED_CLASSES} classes, and the run has {num_classes}; "
                "leave it out",
            )


def _rounds_after_the_warm_up(config: RunTables) -> None:
    if config.training.warmup_rounds >= config.run.rounds:
        raise InvalidKey(
            "training.warmup_rounds",
            f"training.warmup_rounds = {config.training.warmup_rounds} leaves none of the {config.run.rounds} rounds of the "
            "run; set fewer",
        )


def _rounds_for_the_method(config: RunTables) -> None:
    fewest = config.method.fewest_rounds
    if config.run.rounds < fewest:
        raise InvalidKey(
            "run.rounds",
            f"run.rounds = {config.run.rounds}: as it is set, method {config.run.method} needs {fewest}, the last of which "
            "chooses by what the one before made",
        )


def _prototypes_of_clean_images(config: RunTables) -> None:
    of_training = isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch"  # nosec B105
    for key, kind in (("adversarial", "of attacked images"), ("mix_style", "mixed")):
        if of_training and getattr(config.training, key) is not None:
            raise InvalidKey(
                f"training.{key}",
                'method.proto_pass = "last_epoch" makes prototypes of the features of training, and those of '
                f"training.{key} are {kind}; leave one of the two out",
            )


def _one_balance_of_classes(config: RunTables) -> None:
    if config.training.batches == "shuffled":
        return
    key = "training.batches"
    if config.training.class_weights != "none":
        raise InvalidKey(
            key,
            f'{key} = "balanced" shows rare classes more often, and training.class_weights = "balanced" weighs them more: '
            "both would count them twice; leave one of the two out",
        )
    if isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch":  # nosec B105
        raise InvalidKey(
            key,
            f'method.proto_pass = "last_epoch" makes prototypes of the images of the last pass, and {key} = "balanced" '
            "leaves some of a frequent class out of it; leave one of the two out",
        )


def _a_model_with_early_features(config: RunTables) -> None:
    refused = None if config.training.mix_style is None else mixing_refusal(config.model)
    if refused is not None:
        raise InvalidKey("training.mix_style", f"{refused}; leave it out")


def _batch_norm_where_it_is_used(config: RunTables) -> None:
    is_kept = config.algorithm.personal_part(config.method) == BATCH_NORM
    used_by = 'method.personal = "batch_norm"' if is_kept else config.site_statistics_key
    refused = batch_norm_refusal(config.model)
    if used_by is not None and refused is not None:
        raise InvalidKey("model", f"{refused}, and {used_by} is about such layers; change one of the two")


def _a_pass_that_makes_prototypes(config: RunTables) -> None:
    if config.training.prototype_statistics == "trained":
        return
    key = "training.prototype_statistics"
    if not config.algorithm.has_prototypes:
        raise InvalidKey(
            key, f"{key} is about the pass that makes prototypes, and {config.run.method} has none; leave it out"
        )
    if isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch":  # nosec B105
        raise InvalidKey(
            key,
            f'method.proto_pass = "last_epoch" makes prototypes of the features of training, without the pass that '
            f"{key} is about; leave one of the two out",
        )


def _a_backbone_that_stays(config: RunTables) -> None:
    train = config.training.train
    if train == "all":
        return
    if config.model.weights is None or not TIMM.fullmatch(config.model.name):
        raise InvalidKey(
            "training.train",
            f'training.train = "{train}" leaves a backbone as every site has it; name a timm model and its weights with '
            "model.name and model.weights",
        )
    if not config.training.on_features:
        return
    of_images = {
        "training.augment": config.training.augment if not config.training.views else config.training.augmentation_code,
        "training.adversarial": config.training.adversarial,
        "evaluation.attacks": config.evaluation.attacks,
    }
    for key, value in of_images.items():
        if value:
            raise InvalidKey(
                key,
                f'{key} changes images, and training.train = "{train}" computes features once; leave one of the two out',
            )


def _a_rule_that_is_defined(config: RunTables) -> None:
    check_aggregation(config.aggregation, config.algorithm, config.method)


def _window(config: RunTables) -> int:
    """Rounds whose local prototypes are in one pool."""
    return config.method.proto_window if isinstance(config.method, PrototypeConfig) else 1


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def _joining_that_can_be_said(config: RunTables) -> None:
    """What joining is worth: of a model that is trained from the run's first one, and chosen by images set aside."""
    if not config.evaluation.joining:
        return
    found, key = config.algorithm.evaluated_models(config.method), "evaluation.joining"
    if ALONE_MODEL in found:
        raise InvalidKey(key, f"method {config.run.method} says by itself what joining is worth; leave {key} out")
    if found != (GLOBAL_MODEL,) or config.evaluation.batch_norm == "site":
        raise InvalidKey(
            key, f"{key} compares the global model, and here clients have models of their own; leave it out"
        )
    if config.data.validation_every is None:
        raise InvalidKey(
            key, f"{key} weighs a client's two models by validation images; set data.validation_every, for example to 5"
        )
    if config.run.initial_model is not None or config.stream.rounds is not None:
        raise InvalidKey(
            key,
            f"{key} begins with the model that seed and specification make, with all images in every round; leave out "
            "run.initial_model and [stream], or this key",
        )
    if config.run.patience is not None:
        raise InvalidKey(
            key, f"{key} is of the run's last round, and run.patience may end a run before it; leave one of the two out"
        )


def _views_that_are_taken(config: RunTables) -> None:
    training, key = config.training, "training.views"
    if not training.views:
        return
    if not training.on_features:
        raise InvalidKey(
            key,
            f'{key} is about copies whose features are computed once, for training.train = "head" or "last:N"; with '
            f'"{training.train}" training.augment changes the images of every mini-batch anew; leave one of the two out',
        )
    if not training.augment:
        raise InvalidKey(
            key, f'{key} needs to know how copies are changed; set training.augment, for example to ["flip"]'
        )
    if not config.algorithm.phases(config.method):
        raise InvalidKey(
            key, f"method {config.run.method} makes its head of sums over the images as they are; leave {key} out"
        )


CHECKS = (
    _public_images_where_they_are_used,
    _rounds_and_classes_of_the_stream,
    _a_plan_that_can_be_kept,
    _a_quorum_that_can_be,
    _somebody_takes_part,
    _a_limit_on_what_is_sent,
    _a_window_that_can_be_clustered,
    _a_clustering_that_ends,
    _an_average_that_is_the_result,
    _one_rule_for_earlier_prototypes,
    _classes_of_the_initial_model,
    _reports_by_class_that_fit,
    _rounds_after_the_warm_up,
    _rounds_for_the_method,
    _prototypes_of_clean_images,
    _one_balance_of_classes,
    _a_model_with_early_features,
    _batch_norm_where_it_is_used,
    _a_pass_that_makes_prototypes,
    _a_backbone_that_stays,
    _views_that_are_taken,
    _joining_that_can_be_said,
    _a_rule_that_is_defined,
    check_encoding,
)
"""All of them; the first that does not hold is reported."""
