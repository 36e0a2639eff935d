"""Kill every process at every failpoint, and compare what comes out with the undisturbed run.

    python -m tests.chaos.sweep
    python -m tests.chaos.sweep --aggregation

A small federation of real processes (an aggregator, two trainers with torch, a gateway) does what people do with one
(scenarios.py), first undisturbed, to learn which failpoints are passed and how often. Then once for each failpoint: the
process that passes it dies there by SIGKILL, is started again, and what people download afterwards must have the hashes of
the undisturbed run. A failpoint that is passed several times has its turn at the first passing and, every few of them, at
one in the middle and at the last.

Every turn begins with an aggregator that is new to everything, and with trainers that are not. A failpoint that only a start
on a state directory in use passes has two deaths: one in the middle of a run, and one as the process starts again. One that
only a trainer's first start passes has it on a state directory that holds its identity alone, whose certificate is due.

With `--scenario NAME` only that scenario is done, and every failpoint that it passes has its turns there: for instance
`--scenario "train in stages"`.

With `--aggregation` the aggregator dies only while it aggregates a round of a method with server state, slots or arrays: at
every passing of every failpoint, from just before until the results have committed. A later round reads that state. With
`--scenario NAME` too, that scenario's aggregations alone.

All of them speak TLS, and the gateway asks for a key. In the last scenario (membership.py) a new aggregator makes its
authority, members join, renew, recover and are revoked, and roots and keys change; there it also dies at every commit.

The sweep also fails if a call that changes the disk has no failpoint, or a step or an RPC in the source was never passed
(durable_steps.py), but for the few that `NEVER_PASSED` explains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2, enrol_service_pb2, round_service_pb2, run_service_pb2
from tests.chaos import durable_steps, membership
from tests.chaos.armed_federation import ArmedFederation, ArmedProcess, Deaths, Order
from tests.chaos.scenarios import PATIENCE_S, WITH_SERVER_STATE, Operator, Outcome, Scenario, prepare
from tests.chaos.scenarios import SCENARIOS as RUNS
from tests.chaos.turns import AGGREGATING, IN_THE_RUN, Passings, Turn, plan, plan_aggregation, sample
from tests.support.federation.processes import eventually

SCENARIOS = (*RUNS, Scenario(name="members and keys", perform=membership.perform, is_new=True))
"""In the order in which a failpoint looks for the first that passes it."""

NEVER_PASSED: Mapping[str, str] = {
    "admin_socket.remove": "an orderly end, after which nothing happens any more",
    "admin_socket.remove_tree": "an orderly end, after which nothing happens any more",
    "trainer.state.mkdir": "the folder is there when a trainer has joined; tests/chaos/recorder.py makes it",
    "trainer.state.fsync_folder": "the folder is there when a trainer has joined; tests/chaos/recorder.py makes it",
    "endpoint.remove": "an orderly end, after which nothing happens any more",
    "migration.copy.remove": "a database of an older revision: tests/unit/aggregator/store/test_revisions.py",
    "migration.copy.fsync": "a database of an older revision: tests/unit/aggregator/store/test_revisions.py",
    "migration.copy.rename": "a database of an older revision: tests/unit/aggregator/store/test_revisions.py",
    "migration.copy.fsync_folder": "a database of an older revision: tests/unit/aggregator/store/test_revisions.py",
    "upload.crowded_out.remove": "a client with 17 uploads at once: tests/unit/aggregator/store/test_blobs.py",
    "upload.expire.remove": "an upload left for hours: tests/unit/aggregator/coordinator/test_garbage.py",
    "upload.expire.remove_tree": "an upload left for hours: tests/unit/aggregator/coordinator/test_garbage.py",
    "reserve.remove": "a full disk: tests/chaos/test_full_disk.py",
    "upload.dropped.remove_tree": "a full disk, and a client in quarantine: tests/chaos/test_full_disk.py",
    "upload.withdrawn.remove": "a quarantine as an upload begins: tests/unit/aggregator/coordinator/test_space.py",
    "upload.damaged.remove": "an upload that the disk has changed: tests/unit/aggregator/coordinator/test_damage.py",
    "initial.expire.remove": "a model left for days: tests/unit/aggregator/coordinator/test_garbage.py",
    "trainer.policy.fsync": "a trainer with a policy: tests/unit/trainer/owner/test_in_force.py",
    "trainer.policy.fsync_folder": "a trainer with a policy: tests/unit/trainer/owner/test_in_force.py",
    "trainer.policy.remove": "a trainer that had a policy: tests/unit/trainer/owner/test_in_force.py",
    "trainer.policy.rename": "a trainer with a policy: tests/unit/trainer/owner/test_in_force.py",
    "trainer.policy.write": "a trainer with a policy: tests/unit/trainer/owner/test_in_force.py",
    "trainer.egress.remove": "thousands of rounds: tests/unit/trainer/owner/test_egress_log.py",
    **{
        f"trainer.egress.old.{step}": "thousands of rounds: tests/unit/trainer/owner/test_egress_log.py"
        for step in ("fsync", "fsync_folder", "link", "remove", "rename", "write")
    },
    "trainer.egress.reserve.remove": "a full disk: tests/unit/trainer/owner/test_egress_log.py",
    "trainer.privacy.budget.fsync": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.budget.fsync_folder": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.budget.rename": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.budget.write": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.folder.fsync_folder": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.folder.mkdir": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.limit.fsync": "a trainer with a limit: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.limit.fsync_folder": "a trainer with a limit: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.limit.rename": "a trainer with a limit: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.limit.write": "a trainer with a limit: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.secret.fsync": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.secret.fsync_folder": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.secret.rename": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    "trainer.privacy.secret.write": "a run with noise: tests/unit/trainer/privacy/test_budget.py",
    **{
        f"trainer.approval.{step}": "a site with a policy: tests/unit/trainer/owner/test_approval.py"
        for step in (
            "aside.fsync",
            "aside.fsync_folder",
            "aside.link",
            "aside.rename",
            "aside.write",
            "answered.fsync",
            "answered.fsync_folder",
            "answered.mkdir",
            "answered.rename",
            "answered.write",
            "asked.fsync",
            "asked.fsync_folder",
            "asked.mkdir",
            "asked.remove",
            "asked.rename",
            "asked.write",
            "decisions.fsync",
            "decisions.fsync_folder",
            "decisions.rename",
            "decisions.write",
            "folder.fsync_folder",
            "folder.mkdir",
            "page.fsync",
            "page.fsync_folder",
            "page.remove",
            "page.rename",
            "page.write",
            "secret.fsync",
            "secret.fsync_folder",
            "secret.rename",
            "secret.write",
            "told.fsync",
            "told.fsync_folder",
            "told.rename",
            "told.write",
        )
    },
    "weights.folder.mkdir": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.folder.fsync_folder": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.fsync_folder": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.tensors.write": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.tensors.fsync": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.tensors.rename": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.tensors.fsync_folder": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.tensors.remove": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.name.write": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.name.fsync": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.name.rename": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.name.fsync_folder": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "weights.name.remove": "an owner's command: tests/unit/trainer/weights/test_store.py",
    "belonging.write": "only with PostgreSQL: --store-url",
    "belonging.fsync": "only with PostgreSQL: --store-url",
    "belonging.rename": "only with PostgreSQL: --store-url",
    "belonging.fsync_folder": "only with PostgreSQL: --store-url",
}
"""Durable steps that no scenario comes to, and why, with what kills or fails them instead."""


@dataclass(slots=True)
class Result:
    """Result of a turn; `trouble` is empty if everything was as in the undisturbed run."""

    turn: Turn
    seconds: float = 0.0
    trouble: str = ""
    is_skipped: bool = False
    """Whether a later passing did not come again: how often a process beats or polls is a matter of time."""

    def __str__(self) -> str:
        verdict = f"FAILED: {self.trouble}" if self.trouble else "did not come again" if self.is_skipped else "equal"
        return f"{self.turn}  {self.seconds:5.1f} s  {verdict}"


class Sweep:
    """Deaths in one federation."""

    def __init__(self, federation: ArmedFederation) -> None:
        self._federation = federation
        self._num_performed = 0
        self._deaths = Deaths(0)
        self.undisturbed: dict[str, Outcome] = {}
        """What each scenario comes to, by its name; another federation's is the same."""

    def begin(self, *, is_brief: bool = False) -> Counter[str]:
        """Wait for the trainers, and make what scenarios need; says what a trainer's first start passed."""
        trainer, passed = self._federation.victims["trainer"], Counter[str]()

        def has_joined() -> bool:
            assert trainer.is_running, f"the trainer ended:\n{trainer.log()}"
            passed.update(trainer.passed())
            return "trainer.rpc.Join.after" in passed

        eventually(has_joined, "the trainer joins", PATIENCE_S)
        if not is_brief:
            with closing(self._operator()) as operator:
                prepare(operator, self._federation.folder)
            passed.update(trainer.passed())
        return passed

    def learn(self, scenarios: Sequence[Scenario], *, is_brief: bool = False) -> Passings:
        """Do every scenario undisturbed and count what is passed, then again with a death in the middle of each run.

        Args:
            scenarios: What people do.
            is_brief: Whether what only starts pass is left out.
        """
        passings, victims = Passings(), self._federation.victims
        passings.at_first_start["trainer"] = self.begin(is_brief=is_brief)
        for scenario in scenarios:
            self._forget_passed()
            self.undisturbed[scenario.name] = self._perform(scenario)
            for name, victim in victims.items():
                passings.in_scenario[scenario.name, name] = Counter(victim.passed())
        if is_brief:
            passings.at_first_start.clear()
            return passings
        for name, victim in victims.items():
            self._forget_passed()
            self._perform(scenarios[0], victim, [IN_THE_RUN[name]])
            names = victim.passed()
            passings.at_start[name] = Counter(names[names.index(IN_THE_RUN[name].point) + 1 :])
        return passings

    def learn_aggregation(self, scenario: Scenario) -> list[Turn]:
        """Do a scenario undisturbed, then with a death before its second aggregation; returns the deaths within that."""
        self.begin(is_brief=True)
        self.undisturbed[scenario.name] = self._perform(scenario)
        self._forget_passed()
        self._perform(scenario, self._federation.aggregator, [AGGREGATING])
        return plan_aggregation(self._federation.aggregator.passed(), scenario)

    def take(self, turn: Turn) -> Result:
        """Kill, start again, compare."""
        began, victim = time.monotonic(), self._federation.victims[turn.victim]
        result = Result(turn)
        try:
            if turn.which == "first start":
                victim.wipe()
            outcome = self._perform(turn.scenario, victim, turn.orders)
            if outcome != self.undisturbed[turn.scenario.name]:
                result.trouble = f"another ending: {outcome}, undisturbed {self.undisturbed[turn.scenario.name]}"
            elif self._deaths.are_too_few and turn.which in ("middle", "last"):
                result.is_skipped = True
            else:
                result.trouble = self._deaths.trouble
        except AssertionError as error:
            result.trouble = f"{error}\n{self._federation.logs()}"
            for trainer in self._federation.trainers.values():  # whatever it was, the next turn shall not have it
                trainer.wipe()
                trainer.start()
        result.seconds = time.monotonic() - began
        return result

    def _perform(self, scenario: Scenario, victim: ArmedProcess | None = None, orders: Sequence[Order] = ()) -> Outcome:
        """Do what people do, with an aggregator that is new to everything: so it passes the same failpoints each time."""
        federation = self._federation
        federation.renew_aggregator(is_new=scenario.is_new)
        with ExitStack() as stack:
            if victim is not None and victim is not federation.aggregator:
                federation.aggregator.start()
                # A trainer whose first renewal finds nobody tries again after minutes.
                operator = stack.enter_context(closing(self._operator()))
                self._deaths = stack.enter_context(federation.killing(victim, orders))
            else:
                self._deaths = stack.enter_context(federation.killing(federation.aggregator, orders))
                operator = stack.enter_context(closing(self._operator()))
            return scenario.perform(operator, federation.folder)

    def _operator(self) -> Operator:
        self._num_performed += 1
        name = f"operator-{self._num_performed}"
        return Operator(self._federation.url, name, membership.new_key(self._federation.aggregator.state))

    def _forget_passed(self) -> None:
        for victim in self._federation.victims.values():
            victim.passed()


def uncovered(passed: set[str]) -> list[str]:
    """What has no failpoint, or has one that was never passed, of all changes of the disk and all RPCs in the source."""
    found = [f"changes the disk without a failpoint: {call}" for call in durable_steps.unwatched()]
    for step, where in durable_steps.steps().items():
        if step not in NEVER_PASSED and f"{step}.before" not in passed:
            found.append(f"durable step never passed: {step} ({where})")
    for service in (round_service_pb2, run_service_pb2, admin_service_pb2, enrol_service_pb2):
        (descriptor,) = service.DESCRIPTOR.services_by_name.values()
        sides = ("aggregator", "trainer") if descriptor.name == "RoundService" else ("aggregator",)
        for side in sides:
            for method in descriptor.methods:
                if f"{side}.rpc.{method.name}.before" not in passed:
                    found.append(f"RPC never passed: {side}.rpc.{method.name}")
    return found


def take_all(turns: Sequence[Turn], sweeps: Sequence[Sweep], *, is_brief: bool) -> list[Result]:
    """Take every turn in whichever federation is free, and say what it came to."""
    waiting = deque(turns)
    results: list[Result] = []

    def work(sweep: Sweep) -> None:
        if not sweep.undisturbed:
            sweep.begin(is_brief=is_brief)
            sweep.undisturbed = sweeps[0].undisturbed
        while waiting:
            results.append(sweep.take(waiting.popleft()))
            print(results[-1], flush=True)

    with ThreadPoolExecutor(len(sweeps)) as pool:
        for done in [pool.submit(work, sweep) for sweep in sweeps]:
            done.result()
    return results


def report(results: Sequence[Result], missing: Sequence[str], *, seconds: float) -> int:
    """Say what came out; returns the exit code."""
    for line in missing:
        print(f"NOT COVERED: {line}")
    taken = [result for result in results if not result.is_skipped]
    equal = [result for result in taken if not result.trouble]
    print(
        f"{len({result.turn.point for result in taken})} crash points, {len(taken)} turns, "
        f"{sum(len(result.turn.orders) for result in equal)} kills: {len(equal)} ended in the undisturbed bytes, "
        f"{len(taken) - len(equal)} did not; {len(results) - len(taken)} later passings did not come again; "
        f"{len(missing)} not covered; {seconds:.0f} s"
    )
    return 0 if taken and len(taken) == len(equal) and not missing else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep; returns 1 if anything came out otherwise than undisturbed, or has no failpoint."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--scenario",
        choices=[scenario.name for scenario in SCENARIOS],
        help="this scenario only, every failpoint of it",
    )
    parser.add_argument(
        "--quick", action="store_true", help="the first scenario only, or the named one, and each failpoint once"
    )
    parser.add_argument(
        "--aggregation", action="store_true", help="only deaths within an aggregation with server state, every one"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="take N turns, spread over all; always the same ones")
    parser.add_argument("--points", nargs="+", metavar="GLOB", help="take only the turns of failpoints of these names")
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="federations beside each other; 2 if not given"
    )
    parser.add_argument(
        "--store-url", default="", metavar="URL", help="a PostgreSQL database to empty; SQLite if not given"
    )
    parser.add_argument(
        "--list", action="store_true", help="kill nobody: say which turns there are, and what none covers"
    )
    options = parser.parse_args(arguments)
    began = time.monotonic()
    named = [scenario for scenario in SCENARIOS if scenario.name == options.scenario]
    is_brief = bool(named) or options.quick or options.aggregation
    scenarios = named or (SCENARIOS[:1] if options.quick else SCENARIOS)
    with ExitStack() as started:

        def start() -> Sweep:
            folder = started.enter_context(tempfile.TemporaryDirectory(prefix="sweep-"))
            return Sweep(started.enter_context(ArmedFederation(Path(folder), options.store_url)))

        first = start()
        passings = Passings() if options.aggregation else first.learn(scenarios, is_brief=is_brief)
        print(f"{len(passings.all())} failpoints are passed; learnt in {time.monotonic() - began:.0f} s", flush=True)
        turns = (
            [turn for scenario in named or WITH_SERVER_STATE for turn in first.learn_aggregation(scenario)]
            if options.aggregation
            else plan(passings, scenarios)
        )
        if options.points:
            turns = [turn for turn in turns if any(fnmatch(turn.point, glob) for glob in options.points)]
        if options.quick:
            turns = [turn for turn in turns if turn.which == "first"]
        if options.sample:
            turns = sample(turns, options.sample)
        if options.list:
            print(*turns, *uncovered(passings.all()), sep="\n")
            return 0
        num_others = 0 if options.store_url else min(options.workers, len(turns)) - 1  # there is one database
        results = take_all(turns, [first, *(start() for _ in range(num_others))], is_brief=is_brief)
    is_whole = not (options.points or is_brief)
    return report(results, uncovered(passings.all()) if is_whole else [], seconds=time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
