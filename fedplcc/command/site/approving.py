"""`fedplcc site pending`, `approve` and `reject`: the owner's decisions about runs, at the trainer's host."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.site.state_dir import TrainerStateDir, client_of, trainer_folder
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.trainer.owner.approval.kept import Kept

PENDING_EXAMPLES = examples("fedplcc site pending", "fedplcc site pending --all", "fedplcc site pending --json")
APPROVE_EXAMPLES = examples("fedplcc site approve digits-0f3a --document SHA256")
REJECT_EXAMPLES = examples(
    "fedplcc site reject digits-0f3a", 'fedplcc site reject digits-0f3a --reason "not for this study"'
)

RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit and for those who run it; it leaves this site.")]


@explains_errors
def pending(
    *,
    decided: Annotated[
        bool, typer.Option("--all", help="Also runs that were decided: what, when, by whom and why, the newest first.")
    ] = False,
    state_dir: TrainerStateDir = None,
    as_json: bool,
) -> None:
    """Show what each run asks for that waits for your approval, in words.

    It reads the state directory of the trainer on this host and talks to nobody.
    """
    from fedplcc.trainer.owner.approval import deciding
    from fedplcc.trainer.owner.approval.decisions import Ruling
    from fedplcc.trainer.owner.approval.words import lines_of, sentence_of

    kept = _kept(state_dir)
    found, rule = deciding.waiting(kept), deciding.rule_of(kept)
    asking = {facts["run_id"] for facts in found}
    approved = sorted(
        each.run_id for each in kept.decisions().standing() if each.document and each.run_id not in asking
    )
    if as_json:
        told = {"approve": rule, "pending": found, "approved": approved, "notice": kept.decisions().notice}
        print(json.dumps({**told, "decided": deciding.decided(kept)} if decided else told, indent=2))
        return
    if notice := kept.decisions().notice:
        print(notice)
    for facts in found:
        for heading, words in lines_of(facts):
            print(printable(f"{heading + ':':<19}{words}"))
        print(f"fedplcc site approve {facts['run_id']} --document {facts['document_sha256']}\n")
    if not found and rule is None:
        print("no run waits: this trainer has no policy, so runs need no approval (--policy FILE)")
    elif not found:
        print(f'no run waits for approval (approve = "{rule}")')
    if decided:
        for each in deciding.decided(kept):
            print(printable(f"{each['run_id']}: {sentence_of(each)}"))
            if each["ruling"] != Ruling.APPROVED:
                document = each["document_sha256"] or deciding.NO_DOCUMENT
                print(f"  to take it back: fedplcc site approve {each['run_id']} --document {document}")
    elif approved:
        print(f"approved: {', '.join(approved)}")


@explains_errors
def approve(
    run_id: RunId,
    *,
    document: Annotated[
        str,
        typer.Option(
            metavar="SHA256", help="The document that you read, as 'pending' shows it: another one is not approved."
        ),
    ],
    state_dir: TrainerStateDir = None,
) -> None:
    """Approve a run as it asks now: its document, and the code that it uses. A change of either needs a new approval.

    The trainer goes on within a heartbeat. Nobody else can give this approval.
    """
    from fedplcc.trainer.owner.approval import deciding

    kept = _kept(state_dir)
    before = kept.decisions().of(run_id)
    made = deciding.approve(kept, run_id, document)
    if made == before:
        print(f"run {run_id} was approved already: document {made.document}")
        return
    if made.document:
        print(f"run {run_id} is approved: document {made.document}, code {made.code}")
    else:
        print(f"the no to run {run_id} is taken back: it waits or goes on as any other")
    if before is not None and before.ruling is not made.ruling:
        client = client_of(kept.folder.parent)
        print(
            "this client takes part again from the next round on; where those who run it have retired it, they admit it: "
            f"fedplcc run client admit {run_id} {client}"
        )


@explains_errors
def reject(run_id: RunId, *, reason: Reason = "", state_dir: TrainerStateDir = None) -> None:
    """Say no to a run: nothing is read for one that waits, and this site's part in one that is under way ends.

    Its task is cancelled within a heartbeat, and the client leaves the run. What it has sent before stays in the run's
    models. It works without a policy too.
    """
    from fedplcc.trainer.owner.approval import deciding
    from fedplcc.trainer.owner.approval.decisions import Ruling

    kept = _kept(state_dir)
    is_known = _is_known(kept, run_id)
    if deciding.refuse(kept, run_id, reason).ruling is Ruling.REJECTED:
        print(f"run {run_id} is rejected: this client leaves it")
        return
    if not is_known:
        say(
            f"no run {run_id} waits, and nothing that left this site was for it: see that this is its id ('fedplcc site "
            "pending' and 'site log' have those of this site); the decision holds should it ask"
        )
    print(f"this site's part in run {run_id} is withdrawn: the trainer ends it within a heartbeat")


def _is_known(kept: Kept, run_id: str) -> bool:
    from fedplcc.trainer.owner.egress.log import lines_in

    if kept.decisions().of(run_id) is not None:
        return True
    with suppress(OSError):
        return any(line is not None and line.run == run_id for line in lines_in(kept.folder.parent))
    return True


def _kept(state_dir: Path | None) -> Kept:
    from fedplcc.trainer.owner.approval.kept import Kept

    return Kept(trainer_folder(state_dir))
