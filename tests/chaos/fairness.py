"""A hostile run beside an honest one: the honest one ends in its undisturbed bytes and at most twice its time.

    python -m tests.chaos.fairness           # every attack at full size; exits 1 on a violation

The hostile member has a run of its own on the same aggregator: prototypes that make FINCH* as slow as can be, floods of
refused updates, uploads that stand still, polls without a pause. Afterwards an operator pauses, resumes and stops the
hostile run and quarantines its member.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from tests.chaos.hostile import (
    MALLORY,
    Attack,
    CostlyClient,
    Outcome,
    expected_lines,
    honest_run,
    honest_trainers,
    steer,
)
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, Process, eventually
from tests.support.identity.issued import OperatorTls, identity_tls

KEY = "FAIRNESS_KEY"
"""Environment variable with the key by which an attacker begins its run."""
ROUNDS, POLLERS, ROWS, DIM = 20, 50, 4096, 512


def costly_clustering(attack: Attack) -> None:
    """Prototypes that are almost equal: each pair must be compared exactly."""
    attack.grpc.perform(attack.begin_run())


def refused_updates(attack: Attack) -> None:
    """Updates that are refused, one after the other."""
    attack.floods_with_refused_updates(attack.begin_run("fedavg"))


def stalled_uploads(attack: Attack) -> None:
    """As many uploads as a client may have, none of which goes on."""
    attack.stalls_uploads(attack.begin_run("fedavg"))


def polls(attack: Attack) -> None:
    """Requests for runs and signs of life without a pause."""
    attack.begin_run("fedavg")
    attack.polls(POLLERS)


ATTACKS: Mapping[str, Callable[[Attack], None]] = {
    "costly clustering": costly_clustering,
    "refused updates": refused_updates,
    "stalled uploads": stalled_uploads,
    "polls": polls,
}


def run(
    folder: Path, attacks: Sequence[str], *, rounds: int = ROUNDS, rows: int = ROWS, dim: int = DIM
) -> list[Outcome]:
    """Carry out the honest run by itself and beside each attack."""
    lines = expected_lines(folder, rounds)
    outcomes = []
    size = ("--rows", str(rows), "--dim", str(dim))
    with Federation(folder) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.5", "--lease-heartbeats", "20")
        control = RunControl(federation.address, tls=federation.operator_tls)
        with honest_trainers(federation):
            undisturbed_s, _ = honest_run(control, rounds)
            for name in attacks:
                begun = folder / "begun"
                begun.unlink(missing_ok=True)
                # A process of its own: the honest trainers are threads of this one.
                folders = {MALLORY: Role.CLIENT, "tests": Role.GATEWAY}
                for member, role in folders.items():
                    federation.identity_file(role, member, folder / member)
                arguments = ("--attack", name, "--address", federation.address, "--begun", str(begun), *size)
                attacker = federation.processes["attacker"] = Process(
                    "attacker", folder, ("tests.chaos.fairness", *arguments)
                )
                attacker.environment = {KEY: federation.key}
                attacker.start()
                run_id = eventually(lambda begun=begun: _read(begun), "the attack has begun")  # type: ignore[misc]
                seconds, found = honest_run(control, rounds)
                steered_s = steer(control, run_id)
                attacker.kill()
                outcomes.append(Outcome(name, undisturbed_s, seconds, found == lines, steered_s))
        control.close()
    return outcomes


def _read(begun: Path) -> str | None:
    return begun.read_text() if begun.exists() else None


def attack(name: str, address: str, begun: Path, *, rows: int, dim: int) -> None:
    """Attack until this process is killed; writes the id of the hostile run to a file once it has begun."""
    folder = begun.parent
    gateway = Credentials.load(folder / "tests" / IDENTITY_FILE)
    control = RunControl(address, tls=OperatorTls(lambda: gateway, os.environ[KEY]))
    client = CostlyClient(MALLORY)
    client.rows, client.dim, client.counts = rows, dim, (rows, 0, 0)
    with Attack(address, control, client, identity_tls(folder / MALLORY / IDENTITY_FILE)) as attack:
        ATTACKS[name](attack)
        partial = begun.with_suffix(".part")
        partial.write_text(attack.run_id)
        partial.rename(begun)
        signal.pause()


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the attacks, print what came of them, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fairness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--dim", type=int, default=DIM)
    for name in ("--attack", "--address", "--begun"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    if options.attack:
        attack(options.attack, options.address, Path(options.begun), rows=options.rows, dim=options.dim)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), list(ATTACKS), rounds=options.rounds, rows=options.rows, dim=options.dim)
    violations = [sentence for outcome in outcomes for sentence in outcome.violations(is_timed=True)]
    for outcome in outcomes:
        steered = ", ".join(f"{action} {seconds:.2f} s" for action, seconds in outcome.steered_s.items())
        print(f"{outcome.attack}: {outcome.seconds:.1f} s, by itself {outcome.undisturbed_s:.1f} s; {steered}")
    for violation in violations:
        print(f"violation: {violation}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
