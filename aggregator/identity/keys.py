"""Keys of people and programs, sessions of browsers, and sessions of people who signed on: made, looked up, revoked.

Every key that holds is in memory, without its secret: a lookup reads no disk, so it may run on the event loop. Each change
is one transaction; a lock makes changes follow each other. Sessions of people are in memory alone: what they may do is the
provider's word, which nobody can ask for again after a restart.
"""

from __future__ import annotations

import hmac
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fedplcc.aggregator.identity.console_codes import ConsoleCodes
from fedplcc.aggregator.store.base import KEY, PERSON, SESSION, ApiKey, Store, Transaction
from fedplcc.shared.errors import FailedPrecondition, MalformedRequest, NotFound, ResourceExhausted, SignOnEnded
from fedplcc.shared.identity.api_keys import EVERY_SCOPE, Scope, key_invalid, new_api_key, parse_api_key
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.tensors import sha256_hex

DAY_S = 86_400.0
KEY_S = 90 * DAY_S
"""Life of a key that asks for no other."""
SHORTEST_S, LONGEST_S = 60.0, 365 * DAY_S
SESSION_S = 12 * 3600.0
"""Longest life of a browser's session."""
MOST_KEYS = 10_000
"""Most keys and sessions that hold at a time."""
KEPT_S = 90 * DAY_S
"""Longest time for which the row of an ended key is kept; the audit has the history."""
MOST_ENDED = 10_000
"""Most rows of ended keys: a session ends with every visit."""
MOST_PEOPLE, MOST_OF_A_PERSON = 500, 16
"""Most sessions of people at a time, and of one person, of whom another one ends the oldest."""
MOST_TOLD = 1_000
"""Most ended sessions of people whose end is told to who shows them."""
MAX_LABEL = 64
KEY_ID = re.compile(r"[0-9a-f]{12}")
SILENT = "the provider of the sign-on has not answered for too long"
"""Why a session of a person ends that nobody confirms."""
_NO_SECRET = "0" * 64
"""Stands for the SHA-256 of an unknown key, so that its refusal takes as long."""

Record = Callable[[Transaction, str, str], None]
"""Adds a call that was done (its method, its target) to the audit, in the call's own transaction."""
KeysListener = Callable[[Collection[str]], None]
"""Called with the ids of keys that were revoked."""
log = get_logger("fedplcc.aggregator.identity")


@dataclass(frozen=True, slots=True)
class _Held:
    """A key in memory, and what its callers are."""

    key: ApiKey
    principal: Principal
    good_until: float = math.inf
    """Until when, of the steady clock, it holds unless the provider confirms it; of people alone."""


class Keys:
    """Use cases of keys, for any number of threads."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        record: Record = lambda _transaction, _method, _target: None,
    ) -> None:
        """Load the keys that hold.

        Args:
            clock: The time in seconds since the epoch.
            steady: A clock in seconds that nobody sets, for console codes.
            record: Adds a change to the audit.

        Raises:
            StoreUnavailable, RowCorrupt: The store cannot be read.
        """
        self._store, self._clock, self._record = store, clock, record
        self._lock = threading.Lock()
        self._codes, self._steady = ConsoleCodes(steady), steady
        self._ended: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Of sessions of people that have ended, by id: the SHA-256 of the secret, and why."""
        self._on_revoked: list[KeysListener] = []
        self._held = {key.key_id: _held(key) for key in store.list_keys(ending_after=clock(), limit=MOST_KEYS)}

    def on_revoked(self, listener: KeysListener) -> None:
        """Call this function, from any thread, after keys were revoked."""
        self._on_revoked.append(listener)

    # Lookups, which read memory only

    def principal_of(self, text: str) -> Principal:
        """Return who calls with a key: its id and scopes.

        Raises:
            KeyInvalid: It is malformed, unknown, expired or revoked; one answer for all.
            SignOnEnded: It is a person's session, and has ended; told to who holds its secret alone.
        """
        key_id, secret = parse_api_key(text)
        held, (ended, why) = self._held.get(key_id), self._ended.get(key_id, (_NO_SECRET, ""))
        expected = ended if held is None else held.key.secret_sha256
        is_it = hmac.compare_digest(expected, sha256_hex(secret))
        if is_it and held is None and why:
            raise SignOnEnded(f"{why}; sign on again")
        if held is None or not is_it:
            raise key_invalid()
        if held.key.expires_at <= self._clock():
            raise (
                key_invalid()
                if held.key.kind != PERSON
                else SignOnEnded("the provider's token has ended; sign on again")
            )
        if self._steady() >= held.good_until:
            raise SignOnEnded(f"{SILENT}; sign on again")
        return held.principal

    def find(self, key_id: str) -> ApiKey | None:
        """Return a key that holds."""
        held = self._held.get(key_id)
        return held.key if held is not None and held.key.expires_at > self._clock() else None

    def list(self) -> list[ApiKey]:
        """Return the keys and sessions that hold, newest first."""
        now = self._clock()
        keys = [held.key for held in tuple(self._held.values()) if held.key.expires_at > now]
        return sorted(keys, key=lambda key: (-key.created_at, key.key_id))

    def makers(self) -> Mapping[str, str]:
        """Return who made each key and opened each session, by its id, whether the maker's own key holds or not.

        Raises:
            StoreUnavailable: The audit cannot be read.
        """
        sessions = {key.key_id: key.label for key in self.list() if key.kind == SESSION}
        return {**self._store.key_makers(), **sessions}

    # Changes

    def create(self, label: str, scopes: Collection[Scope], valid_s: float = KEY_S) -> tuple[ApiKey, str]:
        """Make a key; returns it and its text, which is nowhere else.

        Raises:
            MalformedRequest: The label, the scopes or the time is outside its bounds.
            ResourceExhausted: `MOST_KEYS` hold.
        """
        if not 1 <= len(label) <= MAX_LABEL or not label.isprintable():
            raise MalformedRequest(f"label: it is not 1 to {MAX_LABEL} printable characters")
        if not scopes:
            raise MalformedRequest(f"scopes: name at least one of {', '.join(Scope)}")
        if not SHORTEST_S <= valid_s <= LONGEST_S:  # false for NaN too
            raise MalformedRequest(f"valid_s: it is not {SHORTEST_S:.0f} to {LONGEST_S:.0f} seconds")
        now = self._clock()
        return self._add(KEY, label, scopes, now, now + valid_s, "CreateKey")

    def revoke(self, key_id: str) -> None:
        """Revoke a key, with all sessions and console codes that go back to it; once revoked it stays so.

        Raises:
            NotFound: There is no such key.
        """
        with self._lock:
            held = self._held.get(key_id)
            is_person = held is not None and held.key.kind == PERSON
            stored = self._store.find_key(key_id) if KEY_ID.fullmatch(key_id) and not is_person else None
            found = held.key if held is not None and is_person else stored
            if found is None:
                raise NotFound(f"there is no key {key_id[:100]!r}")
            if found.revoked_at is not None:
                return
            sessions = self._opened_by(key_id)
            now = self._clock()
            with self._store.transaction() as transaction:
                for key in (found, *sessions):
                    if key.kind != PERSON:
                        transaction.save_key(replace(key, revoked_at=now))
                self._record(transaction, "RevokeKey", key_id)
            ended = {key_id, *(key.key_id for key in sessions)}
            for each in ended:
                self._codes.forget_of(each)
            self._held = {name: held for name, held in self._held.items() if name not in ended}
        self._tell(ended)

    # Sessions of people

    def sign_on(self, person: str, scopes: Collection[Scope], ends_at: float, good_s: float) -> tuple[ApiKey, str]:
        """Open a session of a person; returns it and its text.

        Args:
            person: Name and subject, as the audit shows them.
            ends_at: When the provider's token ends, in seconds since the epoch; the session ends within `SESSION_S`.
            good_s: Seconds for which it holds unless `confirm` says so again.

        Raises:
            ResourceExhausted: `MOST_PEOPLE` or `MOST_KEYS` hold.
        """
        for oldest in self.of_people(person)[MOST_OF_A_PERSON - 1 :]:
            self.sign_off(oldest.key_id, f"the same person has signed on {MOST_OF_A_PERSON} times since")
        if len(self.of_people()) >= MOST_PEOPLE:
            raise ResourceExhausted(f"{MOST_PEOPLE} people are signed on; try again when one has signed off")
        now = self._clock()
        return self._add(PERSON, person, scopes, now, min(now + SESSION_S, ends_at), "SignOn", good_s=good_s)

    def confirm(self, key_id: str, scopes: Collection[Scope], ends_at: float, good_s: float) -> bool:
        """Note what a person may do from now on; returns whether the session still holds."""
        with self._lock:
            held = self._held.get(key_id)
            if held is None:
                return False
            told = _told(scopes)
            ends_at = min(held.key.created_at + SESSION_S, ends_at)
            if told != held.key.scopes:
                with self._store.transaction() as transaction:
                    self._record(transaction, "ChangeSignOn", f"{key_id} {','.join(told)}")
            again = _held(replace(held.key, scopes=told, expires_at=ends_at), self._steady() + good_s)
            self._held = {**self._held, key_id: again}
        if told != held.key.scopes:
            self._tell({key_id})
        return True

    def sign_off(self, key_id: str, why: str) -> None:
        """End a session of a person, who is told why."""
        with self._lock:
            held = self._held.get(key_id)
            if held is None:
                return
            with self._store.transaction() as transaction:
                self._record(transaction, "EndSignOn", key_id)
            self._ended[key_id] = held.key.secret_sha256, why
            if len(self._ended) > MOST_TOLD:
                self._ended.popitem(last=False)
            self._held = {name: other for name, other in self._held.items() if name != key_id}
        self._tell({key_id})

    def of_people(self, person: str | None = None) -> Sequence[ApiKey]:
        """Return the sessions of people, or of one, whatever that one is called meanwhile, newest first."""
        people = [key for key in self.list() if key.kind == PERSON]
        return people if person is None else [key for key in people if _subject(key.label) == _subject(person)]

    def _tell(self, ended: Collection[str]) -> None:
        for listener in self._on_revoked:
            try:
                listener(ended)
            except Exception:
                log.exception("revocation_listener_crashed")

    def _opened_by(self, key_id: str) -> Sequence[ApiKey]:
        """Return the sessions that a key opened, those that these opened, and so on: a session's label is its maker."""
        opened: dict[str, ApiKey] = {}
        makers = [key_id]
        while makers:
            caller = Principal(key_id=makers.pop()).caller
            for name, held in self._held.items():
                if held.key.kind == SESSION and held.key.label == caller and name not in opened:
                    opened[name] = held.key
                    makers.append(name)
        return tuple(opened.values())

    def create_console_code(self, maker: Principal) -> str:
        """Make a code that opens the console once, within `console_codes.CODE_S`.

        The code is no mutation of the store, so the session that it gives is what the audit records.

        Raises:
            FailedPrecondition: A person asks who signed on: the code's session would outlive what the provider says.
        """
        if maker.person:
            raise FailedPrecondition("a person's session opens no other; sign on in the browser")
        with self._lock:
            return self._codes.make(maker)

    def redeem_console_code(self, code: str) -> tuple[ApiKey, str]:
        """Make a session for a code; returns it and its text.

        Raises:
            KeyInvalid: The code is unknown, given or ended, or the key that made it does not hold any more.
            ResourceExhausted: `MOST_KEYS` hold.
        """
        now = self._clock()
        with self._lock:
            maker = self._codes.take(code)
        parent = None if maker is None else self.find(maker.key_id)
        if maker is None or (maker.key_id and parent is None):
            raise key_invalid()
        ends_at = now + SESSION_S if parent is None else min(now + SESSION_S, parent.expires_at)
        scopes = EVERY_SCOPE if maker.is_owner or maker.is_anyone else maker.scopes
        return self._add(SESSION, maker.caller, scopes, now, ends_at, "RedeemConsoleCode", maker.key_id)

    def _add(
        self,
        kind: str,
        label: str,
        scopes: Collection[Scope],
        now: float,
        ends_at: float,
        method: str,
        parent: str = "",
        good_s: float = math.inf,
    ) -> tuple[ApiKey, str]:
        """Make and keep a key; a session's parent must still hold in the same step, as a revocation ends its sessions."""
        with self._lock:
            if parent and parent not in self._held:
                raise key_invalid()
            if len(self._held) >= MOST_KEYS:
                self._held = {name: held for name, held in self._held.items() if held.key.expires_at > now}
            if len(self._held) >= MOST_KEYS:
                raise ResourceExhausted(f"{MOST_KEYS} keys hold; revoke those that nobody needs: fedplcc key list")
            key_id, secret, text = new_api_key()
            key = ApiKey(
                key_id=key_id,
                secret_sha256=sha256_hex(secret),
                kind=kind,
                label=label,
                scopes=_told(scopes),
                created_at=now,
                expires_at=ends_at,
            )
            with self._store.transaction() as transaction:
                transaction.forget_ended_keys(now, now - KEPT_S, MOST_ENDED)
                if kind != PERSON:
                    transaction.save_key(key)
                self._record(transaction, method, key_id)
            self._held = {**self._held, key_id: _held(key, self._steady() + good_s)}
        return key, text


def _held(key: ApiKey, good_until: float = math.inf) -> _Held:
    scopes = frozenset(Scope(scope) for scope in key.scopes)
    person = key.label if key.kind == PERSON else ""
    return _Held(key, Principal(key_id=key.key_id, person=person, scopes=scopes), good_until)


def _subject(person: str) -> str:
    return person.rpartition("<")[2]


def _told(scopes: Collection[Scope]) -> tuple[str, ...]:
    return tuple(scope.value for scope in Scope if scope in scopes)
