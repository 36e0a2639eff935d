"""What one liar of four does in one round: attack by rule, mean and worst domain; of models, class sums, prototypes.

`python -m benchmarks.poison`: minutes on two cores; `--quick` in seconds. Digits of four domains, a client each. Honest
rounds make the model; in the round after it each client in turn is the liar, for three seeds. Attacks on models: the negated
step times 10, labels flipped to 9 - d in training, and these with a claim of 2^29 samples. On class sums and prototypes:
classes swapped likewise, and with that claim; sums negated and times 10. Accuracies of heads and prototypes are of frozen
features of the honest model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.poison.federation import (
    NUM_CLASSES,
    Federation,
    Fold,
    flipped,
    folded,
    mean_and_worst,
    relabelled,
    with_seeds,
)
from benchmarks.support.report import Row, finish, options
from fedplcc.shared.methods import METHODS, classsums
from fedplcc.shared.methods.arithmetic.fixed_point import LARGEST
from fedplcc.shared.methods.arrays import ArrayGroup, ModelArrays
from fedplcc.shared.methods.folds.class_medians import with_medians
from fedplcc.shared.methods.folds.shares import capped_sets
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import BeforeTraining, ServerRound
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet

CLAIM = 2**29
"""Samples that a liar says it has."""
SHARE = 0.25
"""One over the number of clients: all weigh alike at most."""
FOLDS = (
    Fold(),
    Fold(max_share=SHARE),
    Fold(rule="clipped_mean"),
    Fold(rule="clipped_mean", max_share=SHARE),
    Fold(rule="trimmed_mean"),
    Fold(rule="median"),
)
HONEST_ROUNDS = (6, 12)
"""Honest rounds before the one with the liar: of a model that still learns fast, and of one that does not. Class sums and
prototypes are of the first."""
Features = Sequence[tuple[FloatArray, IntArray]]
Found = dict[tuple[str, ...], list[list[float]]]
"""Accuracies by domain of each draw, by what was attacked, the attack and the rule."""


def main() -> None:
    """Measure every attack."""
    arguments = options(__doc__, more=with_seeds)
    quick, found = arguments.quick, Found()
    rounds = (1,) if quick else HONEST_ROUNDS
    for seed in (0,) if quick else arguments.seeds:
        federation = Federation(seed, *((10, 5, 2) if quick else (50, 10, 20)))
        model, number, reached = federation.first_model(), 1, []
        for honest in rounds:
            model = federation.rounds(model, range(number, honest + 1))
            number = honest + 1
            reached.append(model)
            for key, accuracies in _attacked_models(federation, model, number):
                found.setdefault(key, []).append(accuracies)
        train = [federation.features(reached[0], site.train) for site in federation.sites]
        test = [federation.features(reached[0], site.test) for site in federation.sites]
        for key, accuracies in (*_attacked_sums(train, test), *_attacked_prototypes(train, test)):
            found.setdefault(key, []).append(accuracies)
    rows: list[Row] = [
        {"what": what, "attack": attack, "rule": rule, "draws": len(draws), **mean_and_worst(draws)}
        for (what, attack, rule), draws in found.items()
    ]
    finish("poison", rows, arguments)


def _attacked_models(
    federation: Federation, start: ModelArrays, number: int
) -> Iterator[tuple[tuple[str, str, str], list[float]]]:
    sites, what = federation.sites, f"model, round {number}"
    counts = [float(len(site.train)) for site in sites]
    sent = [federation.trained(start, site, number) for site in sites]
    for fold in FOLDS:
        yield (what, "none", fold.label), federation.accuracies(folded(start, sent, counts, fold))
    for liar, site in enumerate(sites):
        wrong = federation.trained(start, site, number, relabelled(site.train, flipped))
        negated = {
            name: array if array.dtype != np.float32 else (start[name] - 10 * (array - start[name])).astype(np.float32)
            for name, array in sent[liar].items()
        }
        lies = {
            "negated x 10": (negated, counts[liar]),
            "flipped labels": (wrong, counts[liar]),
            "flipped labels, huge count": (wrong, float(CLAIM)),
            "negated x 10, huge count": (negated, float(CLAIM)),
        }
        for attack, (lie, count) in lies.items():
            updates, weights = [*sent], [*counts]
            updates[liar], weights[liar] = lie, count
            for fold in FOLDS:
                if fold.max_share is not None and count != CLAIM:
                    continue  # nobody's share is capped
                yield (what, attack, fold.label), federation.accuracies(folded(start, updates, weights, fold))


def _attacked_sums(train: Features, test: Features) -> Iterator[tuple[tuple[str, str, str], list[float]]]:
    part = classsums.METHOD.part(ServerArrays)
    assert part is not None
    for head in ("means", "lda"):
        config = classsums.Config.model_validate({"head": head, "shrinkage": 0.3})
        make = partial(_sums, config=config)
        honest = [make(*each) for each in train]
        for rule, chosen in (("mean", part), ("median", with_medians(part))):
            yield (f"class sums, {head}", "none", rule), _by_head(honest, chosen, config, test)
        for liar, (features_ND, labels_N) in enumerate(train):
            lies = {
                "swapped classes": make(features_ND, flipped(labels_N)),
                "swapped classes, huge count": _larger(make(features_ND, flipped(labels_N))),
            }
            if head == "means":  # with a second moment such sums are refused: no samples have them
                sums = honest[liar][classsums.SUMS]
                lies["negated x 10"] = {classsums.SUMS: {**sums, "sums": (-10 * sums["sums"]).astype(np.float32)}}
            for attack, lie in lies.items():
                sent = [*honest]
                sent[liar] = lie
                for rule, chosen in (("mean", part), ("median", with_medians(part))):
                    yield (f"class sums, {head}", attack, rule), _by_head(sent, chosen, config, test)


def _sums(features_ND: FloatArray, labels_N: IntArray, config: classsums.Config) -> Mapping[str, ArrayGroup]:
    before = BeforeTraining(features_ND=features_ND, labels_N=labels_N, num_classes=NUM_CLASSES, head={}, received={})
    return classsums.before_training(before, config)


def _larger(upload: Mapping[str, ArrayGroup]) -> Mapping[str, ArrayGroup]:
    """The sums of so many times the same samples as the server accepts."""
    group = upload[classsums.SUMS]
    largest = max(
        float(np.abs(group[name] / (1.0 if group[name].dtype == np.float32 else 2.0**32)).max()) for name in group
    )
    times = int(LARGEST / 4 / largest)
    return {classsums.SUMS: {name: (array * times).astype(array.dtype) for name, array in group.items()}}


def _by_head(uploads: Sequence[Any], part: ServerArrays, config: classsums.Config, test: Features) -> list[float]:
    dim = test[0][0].shape[1]
    head = {"weight": np.zeros((NUM_CLASSES, dim), np.float32), "bias": np.zeros(NUM_CLASSES, np.float32)}
    step = ServerRound(
        round=1,
        seed=0,
        num_classes=NUM_CLASSES,
        feature_dim=dim,
        uploads=uploads,
        arrays={},
        start_head=head,
        head=head,
    )
    made = part.step(step, config).head
    assert made is not None
    return [float(((x @ made["weight"].T + made["bias"]).argmax(1) == labels).mean()) for x, labels in test]


def _attacked_prototypes(train: Features, test: Features) -> Iterator[tuple[tuple[str, str, str], list[float]]]:
    for name, hyper in (("fedproto", {}), ("fedproto", {"proto_avg": "counts"}), ("fedplcc", {})):
        method = METHODS[name]
        config, exchange = method.config.model_validate(hyper), method.part(PrototypeExchange)
        assert exchange is not None
        what = f"prototypes, {name}" + (", by counts" if hyper else "")
        honest = [exchange.report(x, labels, NUM_CLASSES, config).prototypes for x, labels in train]
        rules: Mapping[str, Callable[[Sequence[PrototypeSet]], Sequence[PrototypeSet]]] = {
            "mean": lambda sets: sets,
            f"mean, share {SHARE:g}": partial(capped_sets, share=SHARE),
        }

        def scored(sets: Sequence[PrototypeSet], made: Any = exchange.merge, config: Any = config) -> list[float]:
            return _by_prototypes(made(sets, NUM_CLASSES, config), test)

        for rule, changed in rules.items():
            yield (what, "none", rule), scored(changed(honest))
        for liar, (features_ND, labels_N) in enumerate(train):
            swapped = exchange.report(features_ND, flipped(labels_N), NUM_CLASSES, config).prototypes
            huge = PrototypeSet.of(swapped.vectors, swapped.class_ids, swapped.weights * (CLAIM / len(labels_N)))
            for attack, lie in {"swapped classes": swapped, "swapped classes, huge count": huge}.items():
                sets = [*honest]
                sets[liar] = lie
                for rule, changed in rules.items():
                    yield (what, attack, rule), scored(changed(sets))


def _by_prototypes(prototypes: PrototypeSet, test: Features) -> list[float]:
    """Accuracies of naming the class whose prototypes are the nearest by their cosine, weighed as their class says."""
    units_GD = prototypes.vectors / np.maximum(np.linalg.norm(prototypes.vectors, axis=1, keepdims=True), 1e-8)
    found = []
    for features_ND, labels_N in test:
        rows_ND = features_ND / np.maximum(np.linalg.norm(features_ND, axis=1, keepdims=True), 1e-8)
        # As FedPLCC's contrast has them: each prototype by its cosine over tau = 0.07 and the logarithm of its weight.
        logits_NG = rows_ND @ units_GD.T / 0.07 + np.log(prototypes.weights)
        scores_NM = np.stack(
            [np.logaddexp.reduce(logits_NG[:, prototypes.class_ids == label], axis=1) for label in range(NUM_CLASSES)],
            axis=1,
        )
        found.append(float((scores_NM.argmax(1) == labels_N).mean()))
    return found


if __name__ == "__main__":
    main()
