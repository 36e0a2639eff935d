"""`fedplcc site log`: what left this site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.command.site.state_dir import TrainerStateDir, trainer_folder

if TYPE_CHECKING:
    from fedplcc.trainer.owner.egress.log import Line

EXAMPLES = examples("fedplcc site log", "fedplcc site log --run digits-0f3a --last 500", "fedplcc site log --json")


@explains_errors
def log(
    *,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only messages of this run.", show_default=False)
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=1_000_000, help="Lines to show, the newest.")] = 50,
    state_dir: TrainerStateDir = None,
    as_json: bool,
) -> int:
    """Show what left this site: every join, upload, commit, report and problem, oldest first.

    Each line was on the disk before the message left. The SHA-256 is of the message's bytes, of an upload those of its blob.
    The exit code is 1 if a line is damaged.
    """
    import json
    from collections import deque
    from dataclasses import asdict

    from fedplcc.shared.errors import StoreUnavailable
    from fedplcc.terminal.printable import printable
    from fedplcc.trainer.owner.egress.log import lines_in

    folder, num_damaged = trainer_folder(state_dir), 0
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
