"""What attacks find in what clients send: prototypes, class sums and models, by threshold, in one round and in all.

`python -m benchmarks.privacy`: minutes on two cores; `--quick` in seconds. Digits of four domains, a client each, 30 images
a class; as many others of the same domain are no members. Rounds of FedAvg make the models; the sets are those that
FedPLCC's, FedProto's and ClassSums' clients would send of them. A member is guessed by its loss under the client's model, or
by its largest cosine with what was sent of its class; over all rounds by the mean of these. `feature sent` is the share of
classes of one or two images that have an image whose own feature is among what is sent. `inversion` makes an image of each
prototype under the known model: the share whose nearest image is a member, of which chance finds a half. Class sums with
noise are of the first model's features, and `canary` is the area by which the best attack tells whether one record is in
them. A number that is low here is no guarantee: another attack may find more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from benchmarks.poison.federation import NUM_CLASSES, Federation, Site, folded, with_seeds
from benchmarks.poison.federation import Fold as Folding
from benchmarks.privacy import attacks
from benchmarks.privacy.private_sums import CASES, NoisySums, Samples
from benchmarks.support.report import Row, finish, options
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.arrays import ModelArrays
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.methods.prototypes import local_means
from fedplcc.shared.privacy.class_sums import centred
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.models import FeatureModel, load_arrays

ROUNDS = 5
INVERTED = "mnist"
"""The client whose prototypes are inverted; one, for the time that it takes."""
THRESHOLDS = (1, 2, 5, 10)
RARE = {1: 1, 2: 2}
"""Images of the rare classes, by class."""
CHANNELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{
        f"prototypes, {size} or more": ("fedplcc", {} if size == 1 else {"min_cluster_size": size})
        for size in THRESHOLDS
    },
    "prototypes, 5 or more, merged": ("fedplcc", {"min_cluster_size": 5, "small_clusters": "merge"}),
    "class means": ("fedproto", {}),
}
"""Sets of prototypes: a method and its hyper-parameters."""
MODEL, SUMS, BOTH = "model", "class sums", "model and prototypes"
Draws = dict[tuple[str, str], list[tuple[float, float]]]
"""Area and share found, by channel and rounds, of each client of each seed."""


def main() -> None:
    """Measure every attack."""
    arguments = options(__doc__, more=with_seeds)
    quick = arguments.quick
    draws: Draws = {}
    single: dict[str, list[float]] = {}
    inversion: list[float] = []
    canary: dict[str, list[float]] = {}
    for seed in (0,) if quick else arguments.seeds:
        federation = Federation(seed, *((8, 1, 2) if quick else (60, 1, 20)))
        sites = [_halves(site) for site in federation.sites]
        scores = _Scores()
        first = model = federation.first_model()
        for number in range(1, (2 if quick else ROUNDS) + 1):
            sent = [federation.trained(model, site, number) for site, _ in sites]
            for (site, others), own in zip(sites, sent, strict=True):
                _add_scores(scores, federation, model, own, site, others)
            received, model = model, folded(model, sent, [len(site.train) for site, _ in sites], Folding())
        scores.into(draws, [site.name for site, _ in sites])
        for site, others in sites:
            _add_noisy(
                draws, canary, [federation.features(first, images) for images in (site.train, others)], seed, quick
            )
        for (site, others), own in zip(sites, sent, strict=True):
            for channel, share in _single_images(federation, received, own, site).items():
                single.setdefault(channel, []).append(share)
            if site.name == INVERTED:
                inversion.append(_inverted(federation, own, site, others, seed))
    rows: list[Row] = [
        {
            "from": channel,
            "rounds": rounds,
            "AUC": round(float(np.mean([area for area, _ in found])), 3),
            "AUC, worst domain": round(_worst([area for area, _ in found]), 3),
            "found at 1 % false": round(float(np.mean([share for _, share in found])), 3),
            "feature sent": round(float(np.mean(single[channel])), 2) if channel in single else "",
            "canary": round(float(np.mean(canary[channel])), 3) if channel in canary and rounds == "all" else "",
            "inversion": round(float(np.mean(inversion)), 2)
            if channel == next(iter(CHANNELS)) and rounds == "one"
            else "",
        }
        for (channel, rounds), found in draws.items()
    ]
    finish("privacy", rows, arguments)


def _halves(site: Site) -> tuple[Site, ImageSet]:
    """A site that trains on half of its images, and the other half: no members."""
    labels_N, is_member_N = site.train.labels_N, np.zeros(len(site.train), np.bool_)
    for label in range(NUM_CLASSES):
        is_member_N[np.flatnonzero(labels_N == label)[::2]] = True
    return Site(site.name, site.train.of(is_member_N), site.test), site.train.of(~is_member_N)


class _Scores:
    """Scores of members and others by channel and client, a row for each round."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[tuple[attacks.Scores, attacks.Scores]]] = {}

    def add(self, channel: str, client: str, members: attacks.Scores, others: attacks.Scores) -> None:
        self.rows.setdefault((channel, client), []).append((members, others))

    def into(self, draws: Draws, clients: Sequence[str]) -> None:
        for channel in dict.fromkeys(channel for channel, _ in self.rows):
            for client in clients:
                rows = self.rows[channel, client]
                whole = tuple(np.mean([row[half] for row in rows], axis=0) for half in (0, 1))
                for rounds, (members, others) in {"one": rows[-1], "all": whole}.items():
                    found = attacks.area(members, others), attacks.found_at(members, others)
                    draws.setdefault((channel, rounds), []).append(found)


def _add_scores(
    scores: _Scores, federation: Federation, received: ModelArrays, own: ModelArrays, site: Site, others: ImageSet
) -> None:
    name = site.name
    told = [-federation.losses(own, images).astype(np.float64) for images in (site.train, others)]
    scores.add(MODEL, name, told[0], told[1])
    by_model = told
    members, rest = (
        [federation.features(model, images) for model in (received, own)] for images in (site.train, others)
    )
    for channel, (which, sent) in _sets(*members).items():
        found = [attacks.nearness(*samples[which], sent) for samples in (members, rest)]
        scores.add(channel, name, *found)
        if channel == next(iter(CHANNELS)):
            scores.add(BOTH, name, *attacks.together(by_model, found))


def _add_noisy(
    draws: Draws, canary: dict[str, list[float]], samples: Sequence[Samples], seed: int, quick: bool
) -> None:
    """Add what attacks find in releases of one client's sums; its samples are members and others."""
    for channel, (epsilon, num) in CASES.items():
        if quick and num > 1:
            continue
        noisy = NoisySums(samples[0], NUM_CLASSES, epsilon, num, seed)
        for rounds, count in {"one": 1, "all": num}.items():
            sent = noisy.mean(count)
            members, rest = (attacks.nearness(centred(features), labels, sent) for features, labels in samples)
            draws.setdefault((channel, rounds), []).append(
                (attacks.area(members, rest), attacks.found_at(members, rest))
            )
        canary.setdefault(channel, []).append(noisy.canary_area())


def _sets(of_received: Samples, of_own: Samples) -> Mapping[str, tuple[int, PrototypeSet]]:
    """What a client sends besides its model, by channel, and whether the received model (0) or its own (1) made it.

    Args:
        of_received: Features of its images and their labels, under the received model.
        of_own: The same under its own.
    """
    found = {channel: (1, _prototypes(*of_own, *which)) for channel, which in CHANNELS.items()}
    return {**found, SUMS: (0, class_sums(*of_received))}


def _prototypes(features_ND: FloatArray, labels_N: IntArray, name: str, hyper: Mapping[str, Any]) -> PrototypeSet:
    method = METHODS[name]
    exchange = method.part(PrototypeExchange)
    assert exchange is not None
    return exchange.report(features_ND, labels_N, NUM_CLASSES, method.config.model_validate(dict(hyper))).prototypes


def class_sums(features_ND: FloatArray, labels_N: IntArray) -> PrototypeSet:
    """Class sums over their counts, which both are sent: means of features under the model that clients received."""
    return local_means(features_ND, labels_N, NUM_CLASSES).prototypes


def _single_images(federation: Federation, received: ModelArrays, own: ModelArrays, site: Site) -> Mapping[str, float]:
    """Share of rare classes with an image whose own feature is sent, by channel."""
    labels_N, is_kept_N = site.train.labels_N, np.ones(len(site.train), np.bool_)
    for label, number in RARE.items():
        is_kept_N[np.flatnonzero(labels_N == label)[number:]] = False
    images = site.train.of(is_kept_N)
    found, samples = {}, [federation.features(model, images) for model in (received, own)]
    for channel, (which, sent) in _sets(*samples).items():
        features_ND, labels_N = samples[which]
        is_sent_N = attacks.is_sent(features_ND, labels_N, sent)
        found[channel] = float(np.mean([is_sent_N[labels_N == label].any() for label in RARE]))
    return found


def _inverted(federation: Federation, own: ModelArrays, site: Site, others: ImageSet, seed: int) -> float:
    """Share of prototypes whose inversion is nearest to a member, among members and as many others of the class."""
    features_ND, labels_N = federation.features(own, site.train)
    sent = _prototypes(features_ND, labels_N, "fedplcc", {})
    model = federation.model
    load_arrays(model, own)
    model.eval()
    images = attacks.inverted(cast(FeatureModel, model).features, sent.vectors, federation.config.data.image_size, seed)
    hits = []
    for label in range(NUM_CLASSES):
        is_class_N = site.train.labels_N == label
        of_class = [site.train.of(is_class_N), others.of(others.labels_N == label)]
        pixels = [federation.pixels(each) for each in of_class]
        places = attacks.nearest(images[sent.class_ids == label], torch.cat(pixels))
        hits.extend((places < len(of_class[0])).tolist())
    return float(np.mean(hits))


def _worst(areas: Sequence[float]) -> float:
    """The highest mean over seeds of one domain; clients come in the same order for each seed."""
    return float(np.array(areas).reshape(-1, 4).mean(0).max())


if __name__ == "__main__":
    main()
