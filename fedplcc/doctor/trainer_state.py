"""The examination of a trainer's state directory, also while the trainer runs; it changes nothing.

Damage there loses no result: the trainer trains a damaged update again, and a damaged client state (MOON's) begins anew. But
the run then has other bytes than an undisturbed one, and the disk may be failing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedplcc.aggregator.store.blobs.files import sha256_of
from fedplcc.doctor.findings import Finding, ok, warning
from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.trainer.app import STATES_FOLDER
from fedplcc.trainer.instance import TOKEN_FILE
from fedplcc.trainer.owner.approval.deciding import rule_of, waiting
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.in_force import policy_in_force
from fedplcc.trainer.owner.policy import read_policy
from fedplcc.trainer.owner.policy_text import policy_sentences
from fedplcc.trainer.task.manifest import manifest_in


def is_trainer_state(state: Path) -> bool:
    """Whether this is a trainer's state directory."""
    return (state / TOKEN_FILE).is_file()


def examine_trainer_state(state: Path) -> Iterator[Finding]:
    """Check the SHA-256 of each kept update and client state, for every client of the trainer; say its policy."""
    yield _policy(state)
    folders = sorted(path for path in (state / STATES_FOLDER).glob("*") if path.is_dir())
    if not folders:
        yield ok("trainer", "it keeps no finished update and no client state")
    for folder in folders:
        yield _examined(folder)
    yield _approvals(state)


def _approvals(state: Path) -> Finding:
    """The finding about whose yes a run needs here."""
    kept = Kept(state)
    try:
        rule, decisions, num = rule_of(kept), kept.decisions(), len(waiting(kept))
    except FedplccError as error:
        return warning("approval", error.detail)
    if decisions.notice:
        return warning("approval", decisions.notice)
    if rule is None:
        return ok(
            "approval",
            "without a policy (--policy FILE) the trainer takes part in every run that names it, and nobody here is asked",
        )
    waits = f"; {num} wait for it: fedplcc site pending --state-dir {state}" if num else ""
    return ok("approval", f'approve = "{rule}", and {len(decisions.standing())} approvals of the owner hold{waits}')


def _policy(state: Path) -> Finding:
    """The finding on the policy that the trainer started with last, and on its file as it is now."""
    try:
        known = policy_in_force(state)
        if known is None:
            return ok("policy", "the trainer has no policy: whoever may start runs decides what it takes part in")
        now = read_policy(known.file)
    except InvalidConfig as error:
        return warning("policy", f"{error.detail}; until it is mended the trainer does not start again")
    if now != known.policy:
        return warning("policy", f"{known.file} has changed since the trainer started; it holds from its next start on")
    return ok("policy", f"{known.file} is in force: {' '.join(policy_sentences(now))}")


def _examined(folder: Path) -> Finding:
    """The finding for one client."""
    try:
        kept = manifest_in(folder)
    except FileNotFoundError:
        return ok("trainer", f"client {folder.name}: no finished update and no client state")
    except (OSError, ValueError) as error:
        return warning(
            "trainer",
            f"{folder / 'manifest.json'} cannot be read ({error}): the trainer trains its update again, and client states "
            "begin anew",
        )
    damaged = sorted(name for name in kept.sha256s if not _is_whole(folder / name, name))
    if damaged:
        return warning(
            "trainer",
            f"{len(damaged)} of {len(kept.sha256s)} files in {folder} are gone or damaged ({', '.join(damaged)[:80]}): what "
            "they held is trained again or begins anew; look at the disk",
        )
    staged = "no finished update" if kept.staged is None else f"the update of round {kept.staged.round}"
    return ok(
        "trainer",
        f"client {folder.name}: {staged} and client states of {len(kept.promoted)} runs, each file with its SHA-256",
    )


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        return path.is_file() and sha256_of(path) == sha256
    except OSError:
        return False
