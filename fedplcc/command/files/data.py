"""`fedplcc data describe`: look at data sets, and download those of torchvision."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.shared.errors import InvalidConfig

# A command imports modules with numpy or torch itself, so that --help answers at once.


class Fetchable(StrEnum):
    """Data sets that torchvision downloads."""

    mnist = "mnist"
    usps = "usps"
    svhn = "svhn"
    fashionmnist = "fashionmnist"
    cifar10 = "cifar10"
    cifar100 = "cifar100"


EXAMPLES = examples(
    "fedplcc data describe folder:/data/scans --check --plot sheet.png",
    "fedplcc data describe 'part:0/10:dirichlet(alpha=0.5,seed=0):cifar10:/data'",
    "fedplcc data describe cifar10:/data --fetch",
)


@explains_errors
def describe(
    *,
    spec: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="Data specification, as a trainer takes it: folder:PATH, mnist:PATH, ..."),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Read every image; the exit code is 1 if one cannot be read.")
    ] = False,
    test_every: Annotated[
        int, typer.Option(help="The run's data.test_every, for folders without train/ and test/.", min=2, max=1000)
    ] = 5,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw some images of each class on one sheet, a PNG file that only you may read; nothing of it is sent.",
            dir_okay=False,
        ),
    ] = None,
    fetch: Annotated[
        bool,
        typer.Option(
            "--fetch",
            help="Download NAME:PATH with torchvision first, where it is not there: mnist, usps, svhn, fashionmnist, "
            "cifar10 or cifar100. Trainers never download.",
        ),
    ] = False,
    as_json: bool,
) -> int:
    """Describe a data set: its classes, the number of images of each, and their sizes.

    Classes must be those of the run's data.classes, by name. Files are counted, not opened, unless --check is given.
    """
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for
    from fedplcc.trainer.data.survey import survey

    if fetch:
        _download(spec)
    with _shown_reading() as on_read:
        found = survey(spec, read_all=check, test_every=test_every, on_read=on_read if check else None)
    console = console_for(json=as_json)
    if plot is not None:
        from fedplcc.pictures.contact_sheet import contact_sheet

        _write_for_owner(plot, contact_sheet(spec, test_every))
    for line in found.lines():
        console.print(line)
    if as_json:
        print(canonical_json(found.as_json()))
    if check and found.unreadable:
        say(f"{len(found.unreadable)} of {found.num_looked_at} images cannot be read; a trainer leaves them out")
        return ExitCode.FAILED
    return ExitCode.OK


def _write_for_owner(path: Path, content: bytes) -> None:
    """Write a file that nobody else on this machine may read."""
    from fedplcc.runs.atomic_file import atomic_file

    with atomic_file(path, option="--plot") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)


def _download(spec: str) -> None:
    """Download the public data set of a specification NAME:PATH; archives that lie in place are only unpacked."""
    from fedplcc.trainer.data.sets.torchvision_sets import fetch

    name, _, path = spec.partition(":")
    if name not in [*Fetchable] or not path:
        raise InvalidConfig(f"--fetch downloads NAME:PATH with NAME one of {', '.join(Fetchable)}, not {spec}")
    with redirect_stdout(sys.stderr):  # torchvision prints the mirrors that it tries
        fetch(name, Path(os.path.expanduser(path)))


@contextmanager
def _shown_reading() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while images are read, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from fedplcc.terminal.progress import shows_bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not shows_bars(console)) as shown:
        task = shown.add_task("reading images", total=None)
        yield lambda count, total: shown.update(task, completed=count, total=total)
