"""`fedplcc site policy init` and `check`: write the policy of a site's owner, and say what it allows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say

if TYPE_CHECKING:
    from fedplcc.trainer.owner.policy import Policy

DEFAULT = Path("policy.toml")
INIT_EXAMPLES = examples("fedplcc site policy init", "fedplcc site policy init north.toml")
CHECK_EXAMPLES = examples(
    "fedplcc site policy check policy.toml",
    "fedplcc site policy check policy.toml --run run.toml",
)
PolicyFile = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE]", help="File of the policy; policy.toml if not given.", dir_okay=False, show_default=False
    ),
]


@explains_errors
def init(*, file: PolicyFile = DEFAULT) -> None:
    """Write a policy in which every key is explained and none but `approve` is in force.

    Nothing is overwritten. Without # a line is in force; the trainer reads the file when it starts with --policy FILE.
    """
    from fedplcc.shared.errors import InvalidConfig
    from fedplcc.trainer.owner.policy_text import policy_template

    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(policy_template())
    except FileExistsError:
        raise InvalidConfig(f"{file} is there already, and nothing was written; name another file") from None
    except OSError as error:
        raise InvalidConfig(f"cannot write {file}: {error.strerror or error}") from error
    print(f"wrote {file}; edit it, then: fedplcc site policy check {file}", file=sys.stderr)


@explains_errors
def check(
    *,
    file: PolicyFile = DEFAULT,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Configuration of a run: say whether the policy lets the site take part, and what forbids it; the exit "
            "code is then 1.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: bool,
) -> int:
    """Say in sentences what a policy allows, or what is wrong with its file.

    With --run also whether a run passes. What depends on the site's images is not looked at: a trainer leaves out what is
    below a threshold, whatever the run.
    """
    import json

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
    """Return why a run does not pass.

    Raises:
        InvalidConfig: The run's configuration is wrong.
    """
    from fedplcc.runs.configuration_check import judge
    from fedplcc.runs.initial_model import anchored
    from fedplcc.shared.config.run import read_document
    from fedplcc.shared.errors import InvalidConfig
    from fedplcc.trainer.owner.refusals import refusals

    verdict = judge(anchored(read_document(run), run.parent))
    if verdict.federation is None:
        raise InvalidConfig(f"{run}: {'; '.join(verdict.problems)}")
    return [each.sentence for each in refusals(policy, verdict.federation.config)]
