"""Rows of a group that chooses, ranked by accuracy on validation images, as parts of a report. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedplcc.comparison.outcomes import MEAN, SUMMARIES, VIEWS, WORST, View, outcome, over_seeds, ranks, spread
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import NOTHING, accuracy_value, counted, in_words, score_in_words
from fedplcc.comparison.round_values import under
from fedplcc.shared.types import VALIDATION_SET

RULE = "the mean of the mean over domains and the worst domain, averaged over the seeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A row that a group chooses among, on a data set.

    Attributes:
        cells: Its trained cells with a seed of the file.
        scores: Mean of the mean over domains and the worst domain, by seed; fractions.
        rank: 1 for the highest mean of scores; None while a seed of the file is missing.
    """

    row: str
    cells: Sequence[CellResult]
    scores: Mapping[int, float]
    rank: int | None = None


def candidates(findings: Findings, dataset: str, group: str) -> list[Candidate]:
    """Return the rows of a group that chooses, in the order of the file; seeds that the file does not name are left out."""
    comparison = findings.comparison
    section, seeds = comparison.groups[group], comparison.seeds_of(dataset)
    found = list[Candidate]()
    for row in comparison.groups_of(dataset)[group]:
        cells = [cell for cell in findings.cells(dataset, row) if cell.cell.seed in seeds]
        scores = _scores(cells, section.view, under(section.model, VALIDATION_SET))
        found.append(Candidate(row=row, cells=cells, scores=scores))
    whole = {each.row: statistics.fmean(each.scores.values()) for each in found if len(each.scores) == len(seeds)}
    rank = ranks(whole)
    return [replace(each, rank=rank.get(each.row)) for each in found]


def candidate_tables(findings: Findings, dataset: str, group: str, domains: Mapping[str, str]) -> Iterator[Part]:
    """Yield the ranks of a group that chooses, the best row, and the accuracies on validation images by domain."""
    comparison = findings.comparison
    section, label = comparison.groups[group], comparison.label_of_dataset(dataset)
    found = candidates(findings, dataset, group)
    seeds = comparison.seeds_of(dataset)
    yield Paragraph(
        f"Accuracy in percent on validation images, which are never trained on; the rule is {RULE}. No test number of these "
        "rows is in this report."
    )
    having = [each for each in found if each.cells]
    if not having:
        return
    view = VIEWS[section.view]
    model = under(section.model, VALIDATION_SET)
    score = score_in_words(findings, dataset, [each.row for each in having], model)
    which = f"{view[:1].lower() + view[1:]}, {in_words(model)}{score}, {label}"
    spreads = {each.row: over_seeds(each.cells, section.view, model) for each in having}
    yield Table(
        caption=f"Rank by {RULE}, {which}",
        heads=("", "rank", "mean of both", *SUMMARIES, "seeds"),
        lines=tuple(
            Line(
                comparison.label_of_row(each.row),
                (
                    Value(NOTHING if each.rank is None else str(each.rank), is_best=each.rank == 1),
                    accuracy_value(spread([*each.scores.values()]), None),
                    *(accuracy_value(spreads[each.row].get(column), None) for column in SUMMARIES),
                    Value(f"{len(each.scores)} of {len(seeds)}"),
                ),
            )
            for each in having
        ),
    )
    yield Paragraph(_verdict(findings, found))
    yield Table(
        caption=f"By domain, {which}",
        heads=("", *domains.values(), *SUMMARIES),
        lines=tuple(
            Line(
                comparison.label_of_row(each.row),
                tuple(accuracy_value(spreads[each.row].get(column), None) for column in (*domains, *SUMMARIES)),
            )
            for each in having
        ),
    )


def _scores(cells: Sequence[CellResult], view: View, model: str) -> dict[int, float]:
    """Return the mean of mean and worst domain of each seed that has both."""
    found = {}
    for cell in cells:
        seen = outcome(cell.rounds, view, model)
        mean, worst = (None, None) if seen is None else (seen.accuracy[MEAN], seen.accuracy[WORST])
        if mean is not None and worst is not None:
            found[cell.cell.seed] = (mean + worst) / 2
    return found


def _verdict(findings: Findings, found: Sequence[Candidate]) -> str:
    """Return the sentence on the best row, the first one of equals."""
    ranked, rows = sum(each.rank is not None for each in found), counted(len(found), "row")
    best = next((each for each in found if each.rank == 1), None)
    if best is None:
        return "No row has all seeds of the file yet, so none is ranked."
    name = findings.comparison.label_of_row(best.row)
    if ranked < len(found):
        return f"Best so far: {name}. Only {ranked} of {rows} have all seeds of the file; the others have no rank."
    return f"The best of {rows}: {name}."
