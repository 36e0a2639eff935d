"""`fedplcc state replay`: a committed round computed again from its stored updates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.command.state.database_url import DatabaseUrl

STATE_DIR = Path("fedplcc-state/aggregator")
EXAMPLES = examples("fedplcc state replay digits-0f3a2b1c --round 30")


@explains_errors
def replay(
    *,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)],
    number: Annotated[int, typer.Option("--round", metavar="T", help="The round, from 1 on.", show_default=False)],
    state_dir: Annotated[
        Path, typer.Option("--state-dir", help="The aggregator's state directory.", file_okay=False)
    ] = STATE_DIR,
    database_url: DatabaseUrl = None,
    allow_method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method of another package that the run may name, repeatable: package.module or the name of an entry "
            "point. It is imported.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    as_json: bool,
) -> int:
    """Compute a round's global model, prototypes and server state again from the stored updates, and compare their SHA-256.

    The exit code is 0 if all are equal, 1 if they are not, and 5 if the updates were collected.
    """
    import json

    from fedplcc.shared.methods import add_methods
    from fedplcc.state.replay import Collected
    from fedplcc.state.replay import replay as replayed

    add_methods(allow_method or ())
    try:
        found = replayed(state_dir, run_id, number, url=database_url)
    except Collected as error:
        say(error.detail)
        return ExitCode.COLLECTED
    pairs = {
        name: (recorded, found.computed[name]) for name, recorded in found.recorded.items() if name in found.computed
    }
    if as_json:
        rows = {
            name: {"recorded": recorded.sha256, "computed": computed.sha256}
            for name, (recorded, computed) in pairs.items()
        }
        document = {
            "run_id": run_id,
            "round": number,
            "is_equal": found.is_equal,
            "clients": list(found.clients),
            **rows,
        }
        print(json.dumps(document, indent=2))
    else:
        for name, (recorded, computed) in pairs.items():
            same = recorded.sha256 == computed.sha256
            print(f"{name}: {computed.sha256}, {'as recorded' if same else f'but {recorded.sha256} was recorded'}")
        verdict = "equal" if found.is_equal else "NOT equal"
        print(f"round {number} of {run_id} from {len(found.clients)} updates: {verdict}")
    if not found.is_equal and not as_json:
        say(
            "another version computed the round, or its record was changed; 'fedplcc doctor STATE_DIR' looks at the rest"
        )
    return ExitCode.OK if found.is_equal else ExitCode.FAILED
