"""`fedplcc compare`: methods x seeds x data sets from one file, trained and told side by side."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc import completion
from fedplcc.examples import examples
from fedplcc.exit_codes import ExitCode, explains_errors, say
from fedplcc.interruption import Interrupted, interruptible
from shared.errors import FedplccError, InvalidConfig

# What loads numpy or gRPC is imported where it is needed, so that --help answers at once.
if TYPE_CHECKING:
    from rich.console import Console

    from fedplcc.comparison.plan import Cell
    from fedplcc.comparison.reading import CellResult

EXAMPLES = examples(
    "fedplcc compare --config compare.toml --out results --jobs 2",
    "fedplcc compare --config compare.toml --only fedplcc --seeds 0,1",
    "fedplcc compare --config compare.toml --out results --report-only",
)
FOLDERS = Path("fedplcc-comparisons")
"""Where comparisons are put if nobody says where, below the present folder."""


@explains_errors
def compare(
    config: Annotated[
        Path,
        typer.Option(help="File with [compare], [datasets.NAME] and [rows.NAME].", dir_okay=False, show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the cells and the report; fedplcc-comparisons/NAME if not given. The same command on the same "
            "folder goes on where it stopped.",
            file_okay=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Cells that are trained at a time, each in a process of its own.", min=1, max=256)
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ROW", help="Train this row, or DATASET/ROW, now; may be given more than once."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="SEED,...", help="Train these seeds now; seeds that the file lacks are added.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="Device of every client: auto, cpu, cuda or cuda:N.", autocompletion=completion.devices),
    ] = "auto",
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Train nothing; write the report of what is there.")
    ] = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Draw each row's first seed as well: a map of features and prototypes, and the sizes of clusters.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="End with one JSON object as the last line of stdout; the rest goes to stderr."),
    ] = False,
) -> int:
    """Train methods beside each other, over seeds and data sets, and write a report of them.

    One file names the data sets, the rows (a method and what it changes) and the seeds. Each cell of that table is a
    simulation in a folder of its own; those that are there are not trained again. The report comes as CSV, Markdown and one
    HTML page: accuracy by domain with mean and standard deviation over seeds, curves, bytes, seconds, published numbers.
    """
    from fedplcc.atomic_file import make_folder
    from fedplcc.comparison.data_check import what_cannot_be_opened
    from fedplcc.comparison.file import read_comparison
    from fedplcc.comparison.plan import plan
    from fedplcc.comparison.report import Findings
    from fedplcc.comparison.writing import (
        REPORT_PAGE,
        read_cells,
        read_failures,
        summary,
        write_failures,
        write_findings,
    )
    from fedplcc.progress import console_for
    from shared.run_config import canonical_json

    if pictures:
        _check_that_pictures_can_be_drawn()
    comparison = read_comparison(config)
    folder = out or FOLDERS / comparison.compare.name
    cells = plan(comparison, config, folder, only=only or (), seeds=_numbers(seeds))
    make_folder(folder)
    console = console_for(json=as_json)
    failures, was_interrupted = read_failures(folder), False
    chosen = {cell.name for cell in cells if cell.is_chosen}
    if not report_only:
        _, absent = read_cells(cells, {})
        to_train = [each.cell for each in absent if each.cell.is_chosen and each.can_be_trained]
        console.print(f"{len(to_train)} of {len(chosen)} cells are to be trained; results in {folder}")
        failures = {name: why for name, why in failures.items() if name not in chosen}
        for sentence in what_cannot_be_opened(to_train).values():
            say(sentence)  # now, where somebody is still looking; the other data sets are trained all the same
        if to_train:
            new, was_interrupted = _trained(to_train, console, jobs=jobs, device=device)
            failures |= new
        write_failures(folder, failures)

    def told() -> tuple[Findings, list[str]]:
        results, missing = read_cells(cells, failures)
        findings = Findings(comparison=comparison, file=config, results=results, missing=missing)
        return findings, write_findings(folder, findings)

    findings, names = told()
    # The report is there before anything is drawn: whoever interrupts that has it all the same.
    if pictures and not was_interrupted and _drawn(findings.results, console, device=device):
        findings, names = told()
    results, missing = findings.results, findings.missing
    console.print(
        f"{len(results)} of {len(cells)} cells are in the report: {folder / REPORT_PAGE} ({len(names)} files)"
    )
    if as_json:
        print(canonical_json(summary(folder, findings)), flush=True)
    if was_interrupted:
        raise Interrupted("interrupted; what was committed is kept: the same command goes on from there")
    untrained = [each for each in missing if each.cell.name in chosen]
    if report_only or not untrained:
        return ExitCode.OK
    for each in untrained:
        say(f"{each.cell.name}: {each.reason}")
    return ExitCode.FAILED


def _trained(cells: Sequence[Cell], console: Console, *, jobs: int, device: str) -> tuple[dict[str, str], bool]:
    """Why cells could not be trained, by their names, and whether somebody interrupted."""
    from fedplcc.comparison.running import train
    from fedplcc.comparison.telling import CellsShown

    with CellsShown(console, total=len(cells)) as shown, interruptible() as wished:
        failures = train(cells, shown, jobs=jobs, device=device, should_stop=wished.is_set)
        return failures, wished.is_set()


def _drawn(results: Sequence[CellResult], console: Console, *, device: str) -> int:
    """Draw the first seed of each row on each data set where that has no pictures yet; returns of how many."""
    from fedplcc.comparison.reading import PICTURES
    from shared.config import limit_threads

    firsts: dict[tuple[str, str], CellResult] = {}
    for result in results:
        firsts.setdefault((result.cell.dataset, result.cell.row), result)
    to_draw = [result.cell for result in firsts.values() if not _is_drawn(result)]
    if to_draw:
        limit_threads(to_draw[0].federation.config.training.threads)  # torch looks when it loads, which is below
        from fedplcc.pictures.cell import pictures_for_cell
    for cell in to_draw:
        console.print(f"{cell.name}: drawing")
        try:
            pictures_for_cell(cell.folder, cell.folder / PICTURES, device=device)
        except FedplccError as error:
            say(f"{cell.name} has no pictures: {error.detail}")
    return len(to_draw)


def _is_drawn(result: CellResult) -> bool:
    """Whether all of a cell's pictures are there."""
    from fedplcc.pictures import CLUSTERS, MAP

    wanted = {MAP, CLUSTERS} if result.cell.federation.config.algorithm.has_prototypes else {MAP}
    return wanted <= {picture.path.name for picture in result.pictures}


def _check_that_pictures_can_be_drawn() -> None:
    """Say that a package is missing before a night of training, and not after it."""
    for package in ("matplotlib", "sklearn"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def _numbers(text: str | None) -> list[int]:
    """Seeds from 0,1,2."""
    try:
        numbers = [] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if any(not 0 <= number < 2**31 for number in numbers):
        raise InvalidConfig(
            f"--seeds {text}: write whole numbers from 0, with commas between them, such as --seeds 0,1,2"
        )
    return numbers
