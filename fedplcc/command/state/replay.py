"""`fedplcc state audit --replay`: a committed round computed again from its stored updates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedplcc.command.exit_codes import ExitCode, say


def replay_round(
    state_dir: Path, run_id: str, number: int, *, database_url: str | None, allow_method: Sequence[str], as_json: bool
) -> int:
    """Compute a round's results again from the stored updates, compare their SHA-256, and return the exit code."""
    from fedplcc.shared.methods import add_methods
    from fedplcc.state.replay import Collected
    from fedplcc.state.replay import replay as replayed

    add_methods(allow_method)
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
