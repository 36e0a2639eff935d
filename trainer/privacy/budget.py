"""A client's privacy budget over all runs, and the key of its noise.

    FOLDER/budget.json    every release that was charged; replaced whole before the first byte of a release leaves
    FOLDER/secret         32 random bytes, made once and readable to this user alone
    FOLDER/limit.json     the limit that the trainer was last started with, for who looks at the budget

A release is charged under a name that its key, run, round and exact sums give it. So one that is made again, after a crash
or because its answer was lost, costs nothing; it has the same bytes. A file that is missing or damaged is no empty one, and
one that lacks a release of which the site's log of what left or the aggregator knows is an older copy: the client then makes
no release. Nothing that the aggregator says allows one.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import FedplccError, StoreUnavailable
from fedplcc.shared.privacy.guarantee import DEFAULT_DELTA, composed, epsilon_of, mu_of
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import CommittedRelease

PRIVACY_FOLDER = "privacy"
"""Folder below a trainer's state directory."""
BUDGET, SECRET, LOCK, LIMIT = "budget.json", "secret", "lock", "limit.json"
VERSION = 1
KEY_BYTES = 32
MAX_CHARGES = 100_000
"""Most releases of a client; a budget that holds more is none."""
_SLACK = 1 + 1e-9
"""Share of mu by which rounding may exceed the limit."""

log = get_logger("fedplcc.trainer.privacy.budget")
_FAILS = "what this client has spent of its privacy cannot be kept"


class BudgetSpent(FedplccError):
    """A release would exceed what the owner of the site allows over all runs; nothing was trained or sent."""

    code = Code.FAILED_PRECONDITION
    reason = "BUDGET_SPENT"


class ClaimNotKept(FedplccError):
    """The run claims more than this site's settings hold; nothing was trained or sent."""

    code = Code.FAILED_PRECONDITION
    reason = "CLAIM_NOT_KEPT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One release.

    Attributes:
        name: Hexadecimal digest that only the holder of the key can make of the release.
        mu: Its cost in Gaussian differential privacy.
        clip: C.
        noise: z.
        run_hash: SHA-256 of the run's configuration.
    """

    name: str
    mu: float
    clip: float
    noise: float
    run_hash: str
    run_id: str
    round: int
    claim: str


_CHARGES = TypeAdapter(tuple[Charge, ...])


class Budget:
    """The releases of one client, in a folder that nothing else uses. Several processes may use it one after another."""

    def __init__(
        self,
        folder: Path,
        *,
        epsilon: float | None = None,
        delta: float = DEFAULT_DELTA,
        logged: Callable[[], int] = lambda: 0,
    ) -> None:
        """Prepare; nothing is read or made before it is needed.

        Args:
            folder: Need not exist.
            epsilon: Most that all releases together may come to with this delta; None for no limit.
            delta: Delta of the limit, and of what is told.
            logged: Returns the least number of releases that the log of what left the site knows of.
        """
        self._folder, self.limit, self.delta, self._logged = folder, epsilon, delta, logged
        self._committed: CommittedRelease | None = None
        self._named: str | None = None

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All releases up to now, in their order.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        with disk.told_without_paths(_FAILS):
            if not self._folder.exists():
                return ()
            return self._read()

    @property
    def spent_epsilon(self) -> float:
        """Epsilon of all releases together, with the budget's delta."""
        return epsilon_of(self.delta, composed(each.mu for each in self.charges))

    def told_epsilon(self) -> float | None:
        """Return the same for people; None where the record cannot be read, or no bound holds."""
        try:
            spent = self.spent_epsilon
        except StoreUnavailable:
            return None
        return _finite(spent)

    def num_told(self) -> int:
        """Return the number of releases for the log of what leaves; 0 where the record cannot be read."""
        try:
            return len(self.charges)
        except StoreUnavailable:
            return 0

    def saw(self, release: CommittedRelease | None) -> None:
        """Take the last release of the client that the aggregator has; any thread may call it."""
        self._committed = release

    def by_run(self) -> list[dict[str, Any]]:
        """Return what the releases of each run came to, in the order of their first ones.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        found: dict[str, list[Charge]] = {}
        for each in self.charges:
            found.setdefault(each.run_id, []).append(each)
        return [
            {
                "run": run_id,
                "claim": charges[0].claim,
                "rounds": [each.round for each in charges],
                "epsilon": _finite(epsilon_of(self.delta, composed(each.mu for each in charges))),
            }
            for run_id, charges in found.items()
        ]

    def keep_limit(self) -> None:
        """Keep the limit beside the record, for `of_trainer`; a client that never had one has no folder for it.

        Raises:
            StoreUnavailable: It cannot be kept.
        """
        path, content = self._folder / LIMIT, canonical_json({"epsilon": self.limit, "delta": self.delta}).encode()
        with disk.told_without_paths(_FAILS):
            if self.limit is None and not path.exists():
                return
            with self._held():
                if not path.exists() or disk.read_regular(path) != content:
                    disk.replace_file(path, content, "trainer.privacy.limit", mode=0o600)

    @classmethod
    def of_trainer(cls, state_dir: Path, *, logged: Callable[[], int] = lambda: 0) -> Self:
        """Return the budget in a trainer's state directory, with the limit that it was last started with.

        Raises:
            StoreUnavailable: The limit cannot be read.
        """
        folder = state_dir / PRIVACY_FOLDER
        with disk.told_without_paths(_FAILS):
            try:
                kept = json.loads(disk.read_regular(folder / LIMIT))
                epsilon, delta = None if kept["epsilon"] is None else float(kept["epsilon"]), float(kept["delta"])
                if not 0 < (1.0 if epsilon is None else epsilon) < math.inf or not 0 < delta < 1:
                    raise ValueError("no limit has such numbers")
                return cls(folder, epsilon=epsilon, delta=delta, logged=logged)
            except FileNotFoundError:
                return cls(folder, logged=logged)
            except (ValueError, KeyError, TypeError):
                raise StoreUnavailable(
                    "what the budget of this client is limited to is damaged; start its trainer"
                ) from None

    def check(self, mu: float, run_hash: str, round: int) -> None:
        """Refuse a release that the budget has no room for, before anything is read for it.

        One that was charged already passes: if its sums are the same, it costs nothing.

        Raises:
            BudgetSpent: There is no room.
            StoreUnavailable: The budget cannot be read, or is an older copy.
        """
        charges = self.charges
        self.check_newest(charges)
        if not any((each.run_hash, each.round) == (run_hash, round) for each in charges):
            self._check_room(charges, mu)

    def charge(self, charge: Charge, *, most_of_run: int) -> None:
        """Charge a release, durably; the same one again changes nothing.

        Args:
            most_of_run: Most releases of its run, for which the run's epsilon is.

        Raises:
            BudgetSpent: There is no room for it.
            ClaimNotKept: The run has all its releases: a round of another model or other images is one more.
            DiskFull, StoreUnavailable: It cannot be kept, or what is kept is an older copy.
        """
        with self._held():
            known = self._read()
            self.check_newest(known)
            if any(each.name == charge.name for each in known):
                return
            made = sum(each.run_id == charge.run_id for each in known)
            if made >= most_of_run:
                raise ClaimNotKept(
                    f"round {charge.round} would be release {made + 1} of the {most_of_run} that the run's epsilon is for; "
                    "begin a new run"
                )
            self._check_room(known, charge.mu)
            if len(known) >= MAX_CHARGES:
                raise BudgetSpent(f"this client has made {len(known)} releases, and {MAX_CHARGES} is the most")
            self._write((*known, charge))
        log.info(
            "privacy_charged",
            run_id=charge.run_id,
            round=charge.round,
            claim=charge.claim,
            mu=round(charge.mu, 6),
            epsilon=round(self.spent_epsilon, 6),
            delta=self.delta,
        )

    def key(self) -> bytes:
        """Return the secret of the client's noise; it is made before the first release.

        With another one the same sums would leave again with other noise.

        Raises:
            StoreUnavailable: It cannot be read or made, or is damaged.
        """
        with self._held():
            charges, path = self._read(), self._folder / SECRET
            if not path.exists() and charges:
                raise StoreUnavailable(f"the secret of this client's noise is gone: {_RESTORE}")
            if not path.exists():
                disk.replace_file(path, secrets.token_bytes(KEY_BYTES), "trainer.privacy.secret", mode=0o600)
            found = disk.read_regular(path)
            named = _name_of(found)
            is_other = (
                bool(charges) and json.loads(disk.read_regular(self._folder / BUDGET)).get("secret", named) != named
            )
        if len(found) != KEY_BYTES:
            raise StoreUnavailable(
                f"the secret of this client's noise has {len(found)} bytes, not {KEY_BYTES}: {_RESTORE}"
            )
        if is_other:
            raise StoreUnavailable(f"the secret of this client's noise is not that of its releases: {_RESTORE}")
        self._named = named
        return found

    def check_newest(self, charges: tuple[Charge, ...]) -> None:
        """Refuse a record that lacks a release which is known to have left: whoever goes on from it forgets what was spent.

        Raises:
            StoreUnavailable: It is such an older copy.
        """
        num, last = self._logged(), self._committed
        if num > len(charges):
            raise StoreUnavailable(f"{_OLDER}: it has {len(charges)} of the {num} that egress.jsonl counts; {_RESTORE}")
        if last is not None and (last.config_hash, last.round) not in {(each.run_hash, each.round) for each in charges}:
            raise StoreUnavailable(
                f"{_OLDER}: it lacks that of round {last.round} of run {last.run_id[:128]!a}, which the aggregator has; "
                f"{_RESTORE}"
            )

    def _check_room(self, charges: tuple[Charge, ...], mu: float) -> None:
        if self.limit is None:
            return
        after = composed([*(each.mu for each in charges), mu])
        if after > mu_of(self.limit, self.delta) * _SLACK:
            spent = epsilon_of(self.delta, composed(each.mu for each in charges))
            raise BudgetSpent(
                f"this release would bring what the client has spent from epsilon {_told(spent)} to "
                f"{_told(epsilon_of(self.delta, after))}, and its owner allows {self.limit:g} (delta {self.delta:g})"
            )

    @property
    def _is_new(self) -> bool:
        """Whether nothing was ever kept here: a record that is missing beside something else was lost."""
        return not any((self._folder / name).exists() for name in (BUDGET, SECRET, LIMIT))

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Within the block no other process changes the files, which are there."""
        with disk.told_without_paths(_FAILS):
            disk.make_state_folder(self._folder, "trainer.privacy.folder")
            with disk.locked(self._folder / LOCK):
                if self._is_new:
                    self._write(())
                yield

    def _read(self) -> tuple[Charge, ...]:
        path = self._folder / BUDGET
        if self._is_new:
            return ()
        try:
            document = json.loads(disk.read_regular(path))
            content = document["charges"]
            if document["version"] != VERSION or sha256_hex(canonical_json(content).encode()) != document["sha256"]:
                raise ValueError("not as it was written")
            return _CHARGES.validate_python(content)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            raise StoreUnavailable(
                f"the record of what this client has spent is missing or damaged: {_RESTORE}"
            ) from None

    def _write(self, charges: tuple[Charge, ...]) -> None:
        content = _CHARGES.dump_python(charges, mode="json")
        document = {
            "version": VERSION,
            "charges": content,
            "sha256": sha256_hex(canonical_json(content).encode()),
            "secret": self._named or self._named_secret(),
        }
        disk.replace_file(
            self._folder / BUDGET, canonical_json(document).encode(), "trainer.privacy.budget", mode=0o600
        )

    def _named_secret(self) -> str | None:
        """A digest that names the secret and does not tell it; None before there is one."""
        path = self._folder / SECRET
        return _name_of(disk.read_regular(path)) if path.exists() else None


_RESTORE = "put the folder `privacy` of its state directory back from a copy; until then it makes no release"
_OLDER = "the record of what this client has spent is an older copy, without its last releases"


def _name_of(secret: bytes) -> str:
    return sha256_hex(b"secret of the noise" + secret)


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _told(epsilon: float) -> str:
    return "beyond all bounds" if math.isinf(epsilon) else f"{epsilon:.3g}"
