"""Pictures of accuracies by class and domain, and by method and domain, in the last evaluated round."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from fedplcc.comparison.outcomes import SUMMARIES, over_seeds
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Drawing, Part
from fedplcc.comparison.report.drawings import CLASSES, DOMAINS, drawing_name
from fedplcc.comparison.report.heat_map import Panel, heat_map
from fedplcc.shared.scoring.class_scores import ClassScores, class_scores
from fedplcc.shared.types import GLOBAL_MODEL, LOCAL_MODEL

Recalls = Mapping[tuple[str, int], float]
"""Fraction of correct predictions by domain and class."""
LOCAL_NOTE = " (local models)"


def class_lines(findings: Findings) -> Iterator[tuple[str | int | float | None, ...]]:
    """Yield the lines of classes.csv: each class of each domain in a cell's last evaluated round."""
    for result in findings.whole:
        config, round_number = result.cell.federation.config, result.rounds[-1].number if result.rounds else 0
        evaluated = [current for current in result.rounds if current.classes]
        for (domain, model), counts in evaluated[-1].classes.items() if evaluated else ():
            round_number = evaluated[-1].number
            key = (
                result.cell.place,
                result.cell.row,
                config.run.method,
                result.cell.seed,
                round_number,
                domain,
                model,
            )
            matrix = evaluated[-1].confusion.get((domain, model))
            scores = None if matrix is None else class_scores([total for _, total in counts], matrix)
            for number, (name, pair) in enumerate(zip(config.data.classes, counts, strict=False)):
                beside = (None, None, None) if scores is None else _beside_recall(scores, number)
                yield (*key, name, *pair, *beside)


def _beside_recall(scores: ClassScores, number: int) -> tuple[float | None, float | None, float | None]:
    return scores.precision[number], scores.specificity[number], scores.f1[number]


def map_by_domain(
    findings: Findings, dataset: str, group: str, rows: Sequence[str], domains: Mapping[str, str]
) -> Iterator[Part]:
    """Yield the picture of these rows by domain; none where nothing is known. `domains` are their labels."""
    labels, values = list[str](), list[list[float | None]]()
    columns = (*domains, *SUMMARIES)
    for row in rows:
        found, note = over_seeds(findings.cells(dataset, row), "last"), ""
        if not found:
            found, note = over_seeds(findings.cells(dataset, row), "last", LOCAL_MODEL), LOCAL_NOTE
        if found:
            labels.append(findings.comparison.label_of_row(row) + note)
            values.append([found[column].mean if column in found else None for column in columns])
    if not values:
        return
    title = findings.heading(dataset, findings.comparison.title_of_group(group))
    worst = min(zip([line[-1] for line in values], labels, strict=True), key=lambda pair: pair[0] or 0.0)
    yield Drawing(
        name=drawing_name(dataset, group, DOMAINS, kind="map"),
        caption="Accuracy in percent by method and domain in the last round, mean over seeds.",
        alternative=f"Heat map of the accuracy of {len(labels)} rows by domain, with mean and worst; the lowest worst "
        f"domain is that of {worst[1]}, {100 * (worst[0] or 0.0):.0f} percent. The table of the last round has the numbers.",
        svg=heat_map([Panel(title, values)], lines=labels, columns=[*domains.values(), *SUMMARIES]),
        is_wide=True,
    )


def map_by_class(
    findings: Findings, dataset: str, group: str, rows: Sequence[str], domains: Mapping[str, str]
) -> Iterator[Part]:
    """Yield the picture of each class and domain, a panel for each of these rows; none where nothing is known."""
    panels, lowest = list[Panel](), list[tuple[float, str]]()
    classes: tuple[str, ...] = ()
    for row in rows:
        cells = findings.cells(dataset, row)
        recalls = _recalls(cells)
        if recalls:
            classes = tuple(map(str, cells[0].cell.federation.config.data.classes))
            name = findings.comparison.label_of_row(row)
            panels.append(
                Panel(name, [[recalls.get((domain, number)) for domain in domains] for number in range(len(classes))])
            )
            (domain, number), value = min(recalls.items(), key=lambda item: item[1])
            lowest.append((value, f"{name}: class {classes[number]} of {domains.get(domain, domain)}"))
    if not panels:
        return
    value, where = min(lowest)
    yield Drawing(
        name=drawing_name(dataset, group, CLASSES, kind="map"),
        caption="Accuracy in percent of each class and domain in the last evaluated round, mean over seeds; a - has no test "
        "image.",
        alternative=f"Heat maps of the accuracy of {len(classes)} classes in {len(domains)} domains, one for each of "
        f"{len(panels)} rows. The lowest is {100 * value:.0f} percent, {where}. classes.csv has the numbers.",
        svg=heat_map(panels, lines=classes, columns=[*domains.values()]),
        is_wide=True,
    )


def _recalls(cells: Sequence[CellResult]) -> Recalls:
    """Return the mean over seeds of each domain's and class's recall in the last evaluated round.

    It is that of the global model, or of the clients' own models where there is no global one.
    """
    for model in (GLOBAL_MODEL, LOCAL_MODEL):
        found: dict[tuple[str, int], list[float]] = {}
        for cell in cells:
            evaluated = [current.classes for current in cell.rounds if current.classes]
            for (domain, of_model), counts in evaluated[-1].items() if evaluated else ():
                for number, (correct, total) in enumerate(counts):
                    if of_model == model and total:
                        found.setdefault((domain, number), []).append(correct / total)
        if found:
            return {key: statistics.fmean(values) for key, values in found.items()}
    return {}
