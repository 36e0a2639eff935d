"""The policy that a trainer started with, kept in its state directory for who examines that; it decides nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.config.sections import validate
from fedplcc.shared.errors import FedplccError, InvalidConfig, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.trainer.owner.policy import MAX_POLICY_BYTES, Policy

KEPT = "policy.json"
"""File in the state directory; there is none where a trainer never had a policy."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy, and the file that it was read from."""

    file: Path
    policy: Policy


def keep_policy(folder: Path, file: Path | None, policy: Policy) -> None:
    """Keep the policy that a trainer starts with; without one what was kept goes.

    Raises:
        StoreUnavailable: It cannot be kept.
    """
    kept = folder / KEPT
    try:
        if file is not None:
            document = {"file": str(file.absolute()), "policy": policy.model_dump(mode="json", exclude_defaults=True)}
            disk.replace_file(kept, canonical_json(document).encode(), "trainer.policy", mode=0o600)
        elif kept.exists():
            disk.remove(kept, "trainer.policy")
    except OSError as error:
        raise StoreUnavailable(disk.why_unusable(folder, error)) from error


def policy_in_force(folder: Path) -> InForce | None:
    """Return the policy that the trainer of a state directory started with last; None where it had none.

    Raises:
        InvalidConfig: What is kept cannot be read.
    """
    try:
        document = json.loads(disk.read_regular(folder / KEPT, 2 * MAX_POLICY_BYTES))
        return InForce(Path(document["file"]), validate(Policy, document["policy"], ""))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, FedplccError) as error:
        raise InvalidConfig(f"{folder / KEPT} cannot be read: {error}") from error
