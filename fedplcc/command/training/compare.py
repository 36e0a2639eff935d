"""`fedplcc compare`: training of methods x seeds x data sets from one file, and the report of them."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command import completion
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.command.training.tracking import Log, check_trackers
from fedplcc.interruption import Interrupted, interruptible
from fedplcc.shared.errors import InvalidConfig
from fedplcc.terminal.names import named_few

# What loads numpy or gRPC is imported where it is needed, so that --help answers at once.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplcc.comparison.file import Comparison
    from fedplcc.comparison.plan import Cell

EXAMPLES = examples(
    "fedplcc compare --config compare.toml --out results --jobs 2",
    "fedplcc compare --config compare.toml --only fedplcc --seeds 0,1 --dry-run",
    "fedplcc compare --config compare.toml --out results --report-only",
)
DEFAULT_FILE = Path("compare.toml")
FOLDERS = Path("fedplcc-comparisons")
"""Default folder of comparisons, below the present folder."""


@explains_errors
def compare(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File with [compare], [datasets.NAME] and [rows.NAME]; compare.toml if not given.", dir_okay=False
        ),
    ] = None,
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
        typer.Option(metavar="ROW", help="Train and draw this row, or DATASET/ROW, now; may be given more than once."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="SEED,...", help="Train and draw these seeds now; seeds that the file lacks are added."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="Device of every client: auto, cpu, cuda or cuda:N.", autocompletion=completion.devices),
    ] = "auto",
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Train nothing; write the report of what is there.")
    ] = False,
    log: Log = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Train and write nothing: say what would run, and what is there already."),
    ] = False,
    as_json: bool,
) -> int:
    """Train methods beside each other, over seeds and data sets, and write a report of them.

    One file names the data sets, the rows (a method and what it changes) and the seeds. Each cell of that table is a
    simulation in a folder of its own; those that are there are not trained again. The report comes as CSV, Markdown and one
    HTML page: accuracy by domain with mean and standard deviation over seeds, curves, bytes, seconds.
    """
    from fedplcc.comparison.file import read_comparison
    from fedplcc.comparison.plan import plan
    from fedplcc.comparison.reading import strays
    from fedplcc.comparison.report.writing import REPORT_PAGE, summary
    from fedplcc.comparison.running import train_missing, write_report
    from fedplcc.comparison.sweep.point_check import require_points
    from fedplcc.comparison.sweep.search import search
    from fedplcc.runs.atomic_file import make_folder
    from fedplcc.runs.changed_files import runs_of_other_files
    from fedplcc.runs.initial_model import doubts
    from fedplcc.runs.readiness import idle_settings
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    config = _chosen_file(config)
    if log:
        check_trackers(log)
    comparison = read_comparison(config)
    folder = out or FOLDERS / comparison.compare.name
    chosen_rows, chosen_seeds = only or (), _numbers(seeds)
    # Mistakes come before any folder.
    cells = plan(comparison, config, folder, only=chosen_rows, seeds=chosen_seeds)
    require_points(comparison, config)
    said = {doubt for cell in cells for doubt in doubts(cell.federation)}
    for doubt in sorted(said.union(idle_settings(cell.federation for cell in cells))):
        say(doubt)
    if dry_run:
        return _foresee(comparison, config, folder, cells, only=chosen_rows, as_json=as_json)
    if report_only and not folder.is_dir():
        raise InvalidConfig(f"there is no folder {folder} to report on; name it with --out, or leave out --report-only")
    make_folder(folder)
    console = console_for(json=as_json, outlasts_reader=True)
    train = partial(
        train_missing, console=console, jobs=jobs, device=device, interruptible=interruptible, on_trouble=say
    )
    found = search(comparison, config, folder, only=chosen_rows, train=None if report_only else train)
    known = found.names_without_cells
    cells = plan(found.comparison, config, folder, only=chosen_rows, seeds=chosen_seeds, also_known=known)
    was_interrupted = found.was_interrupted or (not report_only and train(cells, folder, log=log or ()))
    findings, names = write_report(found, config, cells, folder)
    whole = [each.cell for each in findings.whole]
    if older := runs_of_other_files((cell.name, cell.federation, cell.folder) for cell in whole):
        say(
            f"files of clients have changed since cells began, or were linked: {named_few(older)} are of what they "
            "were, and cells that are trained now of others; remove the folders of those to train them anew"
        )
    console.print(
        f"{len(findings.whole)} of {len(cells)} cells are in the report: {folder / REPORT_PAGE} ({len(names)} files)"
    )
    if others := strays(folder, cells):
        console.print(
            f"not in the report, because {config} has no such data set, row or seed now: {named_few(others)} "
            "(seeds are added with --seeds)"
        )
    if as_json:
        print(canonical_json(summary(folder, findings)), flush=True)
    if was_interrupted:
        raise Interrupted("interrupted; what was committed is kept: the same command goes on from there")
    untrained = [] if report_only else [each for each in findings.missing if each.cell.is_chosen]
    by_reason: dict[str, list[str]] = {}
    for each in untrained:
        by_reason.setdefault(each.reason, []).append(each.cell.name)
    for reason, cell_names in by_reason.items():
        say(f"{named_few(cell_names)}: {reason}")
    unchosen = {} if report_only else found.wanted(chosen_rows)
    for (dataset, row), why in unchosen.items():
        say(f"{dataset}/{row}: {why}")
    return ExitCode.FAILED if untrained or unchosen else ExitCode.OK


def _foresee(
    comparison: Comparison, file: Path, folder: Path, cells: Sequence[Cell], *, only: Sequence[str], as_json: bool
) -> int:
    """Print what would be trained; returns the exit code, which tells of data that cannot be opened."""
    from fedplcc.comparison.report.writing import read_failures
    from fedplcc.comparison.training import problems_of_cells, sentences_of
    from fedplcc.comparison.untrained import trials_left, untrained
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    failures = read_failures(folder) if folder.is_dir() else {}
    found = untrained(cells, failures, trials=trials_left(comparison, folder, only))
    wanted = [cell for row in found.rows for cell in row.trainable]
    problems = problems_of_cells(wanted)
    for sentence in sentences_of(wanted, problems):
        say(sentence)
    code = ExitCode.USAGE if problems else ExitCode.OK
    if as_json:
        print(canonical_json({"config": str(file), "directory": str(folder), **found.as_json()}))
        return code
    console = console_for(json=False)
    console.print(f"{file}: {sum(len(row.cells) for row in found.rows)} cells; results in {folder}")
    for line in found.lines():
        console.print(line)
    console.print("nothing was written")
    return code


def _chosen_file(file: Path | None) -> Path:
    """The given file, or `compare.toml` of the present folder."""
    chosen = file or DEFAULT_FILE
    if not chosen.exists():
        named = f"there is no file {chosen};" if file else f"there is no {chosen} here; name a file with --config, or"
        raise InvalidConfig(f"{named} write one with: fedplcc config init --comparison {shlex.quote(str(chosen))}")
    return chosen


def _numbers(text: str | None) -> list[int]:
    """Return the seeds of a text such as 0,1,2."""
    try:
        numbers = [] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if any(not 0 <= number < 2**31 for number in numbers):
        raise InvalidConfig(
            f"--seeds {text}: write whole numbers from 0, with commas between them, such as --seeds 0,1,2"
        )
    return numbers
