"""`fedplcc site log`: what left this site, and what releases of its images have cost."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.command.site.state_dir import TrainerStateDir, trainer_folder
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.trainer.owner.egress.log import Line

EXAMPLES = examples("fedplcc site log", "fedplcc site log --run digits-0f3a --last 500", "fedplcc site log --budget")


@explains_errors
def log(
    *,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only messages of this run.")] = None,
    last: Annotated[int, typer.Option(min=1, max=1_000_000, help="Lines to show, the newest.")] = 50,
    budget: Annotated[
        bool,
        typer.Option("--budget", help="Show what releases with noise have cost over all runs, and the limit, instead."),
    ] = False,
    state_dir: TrainerStateDir = None,
    as_json: bool,
) -> int:
    """Show what left this site: every join, upload, commit, report and problem, oldest first.

    Each line was on the disk before the message left. The SHA-256 is of the message's bytes, of an upload those of its blob.
    The exit code is 1 if a line is damaged.
    """
    from fedplcc.trainer.owner.egress.log import lines_in

    folder, num_damaged = trainer_folder(state_dir), 0
    if budget:
        if run is not None:
            raise InvalidConfig("--budget has every run: leave out --run")
        _show_budget(folder, as_json=as_json)
        return ExitCode.OK
    shown: deque[Line] = deque(maxlen=last)
    try:
        for line in lines_in(folder):
            if line is None:
                num_damaged += 1
            elif run is None or line.run == run:
                shown.append(line)
    except OSError as error:
        raise StoreUnavailable(f"cannot read what left this site: {error.strerror or error}") from error
    for line in shown:
        print(json.dumps(asdict(line)) if as_json else printable(_sentence(line)))
    if not shown and not as_json:
        print("nothing left this site" if run is None else f"nothing left this site for the run {printable(run)}")
    if num_damaged:
        say(f"{num_damaged:,} lines in {folder} are damaged")
        return ExitCode.FAILED
    return ExitCode.OK


def _sentence(line: Line) -> str:
    """A line for people."""
    what = f"{line.what} ({', '.join(line.roles)})" if line.roles else line.what
    of = "" if not line.run else f"run {line.run}  round {line.round}  claim {line.claim}"
    spent = "" if not line.epsilon else f"epsilon {line.epsilon:.3g}"
    return "  ".join(filter(None, (line.time, what, of, f"{line.bytes:,} bytes", line.sha256, spent)))


def _show_budget(folder: Path, *, as_json: bool) -> None:
    """Show what releases with noise have cost a site over all runs, and its limit."""
    from fedplcc.trainer.owner.egress.log import most_releases
    from fedplcc.trainer.privacy.budget import Budget

    num_left = most_releases(folder)  # first: a release is charged before it leaves
    kept = Budget.of_trainer(folder, logged=lambda: num_left)
    charges, spent = kept.charges, kept.told_epsilon()
    kept.check_newest(charges)
    runs = kept.by_run()
    if as_json:
        told = {"epsilon": spent, "delta": kept.delta, "limit": kept.limit, "releases": len(charges), "runs": runs}
        print(json.dumps(told))
        return
    limit = "no limit" if kept.limit is None else f"limit {kept.limit:g}"
    print(f"epsilon {_told(spent)} of {len(charges):,} releases, delta {kept.delta:g}, {limit}")
    for each in runs:
        rounds = ", ".join(map(str, each["rounds"]))
        facts = f"epsilon {_told(each['epsilon'])}  claim {each['claim']}  rounds {rounds}"
        print(printable(f"{each['run']:<24} {facts}"))


def _told(epsilon: float | None) -> str:
    return "beyond all bounds" if epsilon is None else f"{epsilon:.3g}"
