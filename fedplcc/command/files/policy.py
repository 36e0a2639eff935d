"""The policy of a site's owner in `fedplcc config init --policy` and `config check`: its file, and what it allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedplcc.command.exit_codes import ExitCode, say
from fedplcc.shared.errors import InvalidConfig

if TYPE_CHECKING:
    from fedplcc.trainer.owner.policy import Policy

DEFAULT = Path("policy.toml")


def init_policy(file: Path) -> None:
    """Write a policy in which every key is explained and none but `approve` is in force; without # a line is.

    Raises:
        InvalidConfig: The file is there already.
        StoreUnavailable: It cannot be written.
    """
    from fedplcc.runs.atomic_file import write_new
    from fedplcc.trainer.owner.policy_text import policy_template

    write_new(file, policy_template())
    say(f"wrote {file}; edit it, then: fedplcc config check {file}")


def check_policy(file: Path, run: Path | None, *, as_json: bool) -> int:
    """Say in sentences what a policy allows, and whether the run of a configuration passes; returns the exit code.

    What depends on the site's images is not looked at: a trainer leaves out what is below a threshold, whatever the run.

    Raises:
        InvalidConfig: Either file is wrong.
    """
    from fedplcc.trainer.owner.policy import read_policy
    from fedplcc.trainer.owner.policy_text import policy_sentences

    policy = read_policy(file)
    found = [] if run is None else _forbidden(policy, run)
    if as_json:
        answer = {"policy": policy.model_dump(mode="json"), "allows": policy_sentences(policy)}
        print(json.dumps(answer if run is None else {**answer, "forbids": found}, indent=2))
    else:
        for sentence in policy_sentences(policy):
            print(sentence)
    for sentence in found:
        say(f"{run}: the policy forbids the run: {sentence}")
    if run is not None and not found and not as_json:
        print(f"{run}: the policy lets the site take part.")
    return ExitCode.FAILED if found else ExitCode.OK


def _forbidden(policy: Policy, run: Path) -> list[str]:
    """Return why a run does not pass."""
    from fedplcc.runs.configuration_check import judge
    from fedplcc.runs.initial_model import anchored
    from fedplcc.shared.config.run import read_document
    from fedplcc.trainer.owner.refusals import refusals

    verdict = judge(anchored(read_document(run), run.parent))
    if verdict.federation is None:
        raise InvalidConfig(f"{run}: {'; '.join(verdict.problems)}")
    return [each.sentence for each in refusals(policy, verdict.federation.config)]
