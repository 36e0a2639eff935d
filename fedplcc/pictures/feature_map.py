"""The map of features and prototypes as data, with its table and its descriptions. Pure.

Shape legend: N points.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedplcc.pictures.points import NO_DOMAIN, DoubleArray, Kind, Points
from fedplcc.pictures.projection import LIBRARY, Silhouettes, project, silhouettes, usable_perplexity
from fedplcc.shared.types import IntArray
from fedplcc.terminal.printable import table_cell

DECIMALS = 4
"""Decimals of coordinates in the table: a picture has a thousand pixels over about two hundred units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Parameters of the projection to the plane; see `projection.project`."""

    perplexity: float = 30.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """The part of a map that shows one model.

    Attributes:
        name: "before", "after", or "model" where there is one panel.
        title: Name of the model, for people.
        facts: Description of the model, for programs.
        points: Images and prototypes.
        xy_N2: Their places on the plane; each panel has its own plane.
        silhouettes: Silhouettes of the images in feature space.
    """

    name: str
    title: str
    facts: Mapping[str, Any]
    points: Points
    xy_N2: DoubleArray
    silhouettes: Silhouettes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureMap:
    """A map of one panel, or of two for comparison.

    Attributes:
        panels: The panels from left to right.
        per_class: Most test images of each class and domain.
    """

    panels: tuple[Panel, ...]
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    per_class: int
    projection: Projection

    def table(self) -> str:
        """Return all points as CSV. Images have no weight, global prototypes no domain."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["panel", "x", "y", "class", "domain", "kind", "weight"])
        for panel in self.panels:
            shown = panel.points
            rows = zip(panel.xy_N2, shown.class_ids_N, shown.domain_ids_N, shown.kinds_N, shown.weights_N, strict=True)
            for (x, y), class_id, domain_id, kind, weight in rows:
                writer.writerow(
                    [
                        panel.name,
                        f"{x:.{DECIMALS}f}",
                        f"{y:.{DECIMALS}f}",
                        table_cell(self.classes[class_id]),
                        "" if domain_id == NO_DOMAIN else self.domains[domain_id],
                        Kind(kind).label,
                        "" if kind == Kind.IMAGE else f"{weight:.6g}",
                    ]
                )
        return text.getvalue()

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs, without the points."""
        return {
            "panels": [
                {
                    "panel": panel.name,
                    "title": panel.title,
                    **panel.facts,
                    "num_images": panel.points.count(Kind.IMAGE),
                    "num_local_prototypes": panel.points.count(Kind.LOCAL),
                    "num_global_prototypes": panel.points.count(Kind.GLOBAL),
                    "silhouette": asdict(panel.silhouettes),
                    "perplexity": usable_perplexity(self.projection.perplexity, len(panel.points)),
                }
                for panel in self.panels
            ],
            "classes": list(self.classes),
            "domains": list(self.domains),
            "images_per_class_and_domain": self.per_class,
            "projection": {"method": "t-SNE", "library": LIBRARY, "metric": "cosine", "seed": self.projection.seed},
            "alt_text": self.alt_text(),
            "caption": self.caption(),
        }

    def lines(self) -> Iterator[str]:
        """Yield a table for people: the silhouettes of each panel."""
        heading = "silhouette of the test images"
        width = max(len(heading), *(len(panel.title) for panel in self.panels))
        yield f"{heading:<{width}}  {'by class':>8}  {'by domain':>9}  {'by domain in a class':>20}"
        for panel in self.panels:
            found = panel.silhouettes
            columns = (signed(found.by_class), signed(found.by_domain), signed(found.by_domain_within_class))
            yield f"{panel.title:<{width}}  {columns[0]:>8}  {columns[1]:>9}  {columns[2]:>20}"

    def caption(self) -> str:
        """Return the caption of the picture in a paper."""
        parts = [
            f"{_capital(self._content())}, by t-SNE ({LIBRARY}, perplexity {self.projection.perplexity:g}, seed "
            f"{self.projection.seed}) of unit features, so that near means a large cosine.",
            f"Colour is the class, shape the domain ({', '.join(self.domains)}); at most {self.per_class} test images of "
            "each class and domain.",
        ]
        if any(panel.points.count(Kind.LOCAL) for panel in self.panels):
            parts.append(
                "Outlined: local prototypes of the clients' training images under the model shown. Stars: global "
                "prototypes, their area is their share of their class."
            )
        if any(panel.facts.get("round") == 0 and panel.points.count(Kind.GLOBAL) for panel in self.panels):
            parts.append("At round 0 there are no prototypes yet; those shown are what the method makes of that model.")
        parts += [f"{panel.title}: {_silhouettes_text(panel.silhouettes)}." for panel in self.panels]
        parts.append(
            "Silhouettes are of the test images in feature space, by cosine distance. Every panel has its own plane: "
            "neither directions nor distances between far groups mean anything."
        )
        return " ".join(parts)

    def alt_text(self) -> str:
        """Return a text for people who do not see the picture."""
        panels = "; ".join(
            f"{panel.title}, {panel.points.count(Kind.IMAGE)} test images, {panel.points.count(Kind.LOCAL)} local and "
            f"{panel.points.count(Kind.GLOBAL)} global prototypes, {_silhouettes_text(panel.silhouettes)}"
            for panel in self.panels
        )
        number = "Two scatter plots" if len(self.panels) > 1 else "Scatter plot"
        return (
            f"{number} of {self._content()}, coloured by {len(self.classes)} classes and marked by {len(self.domains)} "
            f"domains. {panels}."
        )

    def _content(self) -> str:
        has_prototypes = any(panel.points.count(Kind.LOCAL) for panel in self.panels)
        return "features of test images" + (" with local and global prototypes" if has_prototypes else "")


def mapped(name: str, title: str, facts: Mapping[str, Any], shown: Points, projection: Projection) -> Panel:
    """Return a panel with the places of its points and the silhouettes of its images.

    Raises:
        InvalidData, InvalidModel: As `projection.project`.
    """
    is_image_N = shown.of(Kind.IMAGE)
    return Panel(
        name=name,
        title=title,
        facts=facts,
        points=shown,
        xy_N2=project(shown.features_ND, perplexity=projection.perplexity, seed=projection.seed),
        silhouettes=silhouettes(
            shown.features_ND[is_image_N], shown.class_ids_N[is_image_N], shown.domain_ids_N[is_image_N]
        ),
    )


def label_spots(panel: Panel) -> dict[int, tuple[float, float]]:
    """Return the places of the classes' names: the image of each class with the nearest neighbours of its class.

    A class has no place if most images around that image are of other classes: names would mislead on the map of a model
    that has learnt nothing.
    """
    spots = {}
    is_image_N = panel.points.of(Kind.IMAGE)
    xy_N2, class_ids_N = panel.xy_N2[is_image_N], panel.points.class_ids_N[is_image_N]
    for class_id in np.unique(class_ids_N).tolist():
        own_K2 = xy_N2[class_ids_N == class_id]
        distances_KK = np.linalg.norm(own_K2[:, None] - own_K2[None], axis=2)
        around = max(1, len(own_K2) // 4) + 1
        spot_2 = own_K2[int(np.sort(distances_KK, axis=1)[:, :around].mean(1).argmin())]
        nearest_N = np.argsort(np.linalg.norm(xy_N2 - spot_2, axis=1), kind="stable")[:around]
        if np.mean(class_ids_N[nearest_N] == class_id) > 0.5:
            spots[class_id] = (float(spot_2[0]), float(spot_2[1]))
    return spots


def coloured_classes(panels: Sequence[Panel], num_classes: int, num_colours: int) -> IntArray:
    """Return the classes with a colour of their own, in order: all, or those with the most images on the map."""
    ids = np.concatenate([panel.points.class_ids_N[panel.points.of(Kind.IMAGE)] for panel in panels])
    counts_M = np.bincount(ids, minlength=num_classes)
    return np.sort(np.argsort(-counts_M, kind="stable")[:num_colours])


def signed(value: float | None) -> str:
    """Return a silhouette with its sign and two decimals, or a dash."""
    return "-" if value is None else f"{value:+.2f}".replace("-0.00", "+0.00")


def _silhouettes_text(found: Silhouettes) -> str:
    within = signed(found.by_domain_within_class)
    return f"silhouette by class {signed(found.by_class)}, by domain within a class {within}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
