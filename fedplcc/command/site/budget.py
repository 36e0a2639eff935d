"""`fedplcc site budget`: what releases of this site's images have cost."""

from __future__ import annotations

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.site.state_dir import TrainerStateDir, trainer_folder

EXAMPLES = examples("fedplcc site budget", "fedplcc site budget --json")


@explains_errors
def budget(*, state_dir: TrainerStateDir = None, as_json: bool) -> int:
    """Show what releases with noise have cost this site over all runs, and its limit."""
    import json

    from fedplcc.terminal.printable import printable
    from fedplcc.trainer.privacy.budget import Budget

    kept = Budget.of_trainer(trainer_folder(state_dir))
    charges, spent = kept.charges, kept.told_epsilon()
    runs = kept.by_run()
    if as_json:
        told = {"epsilon": spent, "delta": kept.delta, "limit": kept.limit, "releases": len(charges), "runs": runs}
        print(json.dumps(told))
        return ExitCode.OK
    limit = "no limit" if kept.limit is None else f"limit {kept.limit:g}"
    print(f"epsilon {_told(spent)} of {len(charges):,} releases, delta {kept.delta:g}, {limit}")
    for each in runs:
        rounds = ", ".join(map(str, each["rounds"]))
        facts = f"epsilon {_told(each['epsilon'])}  claim {each['claim']}  rounds {rounds}"
        print(printable(f"{each['run']:<24} {facts}"))
    return ExitCode.OK


def _told(epsilon: float | None) -> str:
    return "beyond all bounds" if epsilon is None else f"{epsilon:.3g}"
