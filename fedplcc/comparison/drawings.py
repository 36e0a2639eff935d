"""The report's drawings, and the pictures that lie in cells' folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fedplcc.comparison.curves import accuracy_drawing
from fedplcc.comparison.document import Drawing, Heading, Paragraph, Part, Picture
from fedplcc.comparison.findings import Findings
from fedplcc.comparison.outcomes import MEAN, WORST, curve
from shared.types import LOCAL_MODEL

TITLES = {MEAN: "Mean over domains", WORST: "Worst domain"}
"""What is drawn of each group of rows, by its column."""


def curve_drawings(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Mean and worst domain of these rows over the rounds, a drawing each; of local models where there is no global one."""
    comparison = findings.comparison
    place = {row: number for number, row in enumerate(comparison.rows_of(dataset))}
    for column, title in TITLES.items():
        curves, looks = {}, {}
        for row in rows:
            cells, name = findings.cells(dataset, row), comparison.label_of_row(row)
            found = curve(cells, column)
            if not found:
                found, name = curve(cells, column, LOCAL_MODEL), f"{name} (local models)"
            if found:
                curves[name], looks[name] = found, place[row]
        if not curves:
            continue
        label = comparison.label_of_dataset(dataset)
        of_what = findings.heading(dataset, comparison.title_of_group(group))
        try:
            svg = accuracy_drawing(curves, title=f"{of_what}, {title.lower()}", looks=looks)
        except ImportError:
            yield Paragraph("The accuracy curves are not drawn: matplotlib is not installed (pip install matplotlib).")
            return
        ends = "; ".join(f"{row} {100 * list(found.values())[-1].mean:.1f}" for row, found in curves.items())
        yield Drawing(
            name=drawing_name(dataset, group, column),
            caption=f"{title} over the rounds; the band is one standard deviation over seeds on either side, and a line "
            "without one is of a single seed.",
            alternative=f"{title} of the accuracy on {label} over the rounds. In the last round, in percent: {ends}.",
            svg=svg,
        )


def drawing_name(dataset: str, group: str, column: str) -> str:
    """The name of a drawing's file: no other drawing of a report has it, and it does not depend on what else there is.

    Hyphens within names are doubled. As names begin with a letter or a digit, an odd number of them is between two names.
    """
    return f"curves-{'-'.join(name.replace('-', '--') for name in (dataset, group, column))}.svg"


def drawing_patterns(datasets: Iterable[str]) -> list[str]:
    """Patterns of the files that drawings of any group on these data sets have."""
    return [drawing_name(dataset, "*", column) for dataset in datasets for column in TITLES]


def cell_pictures(findings: Findings, dataset: str) -> Iterator[Part]:
    """Pictures of the cells that have any: those in the folder `pictures` of each."""
    comparison = findings.comparison
    cells = [cell for row in comparison.rows_of(dataset) for cell in findings.cells(dataset, row) if cell.pictures]
    if cells:
        yield Heading(3, findings.heading(dataset, "Pictures"))
    for cell in cells:
        for picture in cell.pictures:
            which = f"{comparison.label_of_row(cell.cell.row)}, seed {cell.cell.seed}"
            path = f"{cell.cell.name}/{picture.path.parent.name}/{picture.path.name}"
            try:
                content = picture.path.read_bytes()
            except OSError as error:
                yield Paragraph(
                    f"{which}: {path} cannot be read ({error.strerror}); see that it can be read, or remove it."
                )
                continue
            yield Picture(
                path=path,
                caption=f"{which}: {picture.caption}",
                alternative=f"{which}: {picture.alternative}",
                content=content,
            )
