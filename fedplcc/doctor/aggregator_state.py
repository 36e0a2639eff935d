"""The examination of an aggregator's state directory, also while the aggregator runs; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from fedplcc.aggregator.garbage.rules import Keep, all_runs, needed_blobs, rounds_of
from fedplcc.aggregator.histories.best_rounds import find_best
from fedplcc.aggregator.rounds.events import STATUS_EVENTS
from fedplcc.aggregator.rounds.machine.run_facts import last_committed
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.files import BlobFiles, sha256_of
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.aggregator.store.database.engines.connections import database_errors
from fedplcc.aggregator.store.database.row_check import damaged_rows
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import SQLITE
from fedplcc.doctor.database import server
from fedplcc.doctor.derived_rows import contradicting_rows
from fedplcc.doctor.findings import Finding, Subject, in_bytes, ok, problem, warning
from fedplcc.doctor.recorded_times import recorded_times
from fedplcc.doctor.state_folder import aggregator_state, open_secrets, room
from fedplcc.doctor.trainer_state import examine_trainer_state, is_trainer_state
from fedplcc.shared.errors import FedplccError, RowCorrupt
from fedplcc.shared.identity.audit_chain import verify
from fedplcc.shared.reasons import RowDamaged
from fedplcc.shared.types import Event, EventQuery, Round, RoundPhase, Run, RunStatus, state_blobs
from fedplcc.state.audit import entries_of, sentence_of_damage, unrecorded
from fedplcc.state.backup import MANIFEST
from fedplcc.state.snapshot import require_state, snapshot

LEAST = Keep(models=1, prototypes=0, updates=0)
"""The least that any garbage collection keeps."""
MOST_NAMED = 5
"""Findings of one kind that are named; others are counted."""
PAGE = 1000
RESTORE = "restore a backup of the state directory"


def examine_state(subject: Subject) -> Iterator[Finding]:
    """All findings in a state directory."""
    state = subject.state
    yield from open_secrets(state)
    if is_trainer_state(state):
        yield from examine_trainer_state(state)
        return
    try:
        require_state(state, subject.database_url)
        yield from room(subject, state)
        yield from aggregator_state(subject)
        yield from server(subject)
        with no_collection(state), snapshot(state, subject.database_url) as store:
            yield from recorded_times(subject, store)
            yield from damaged(store)
            yield from blobs(state, store)
            yield from needed(store)
            yield from sequence(store)
            yield from runs(store)
            yield from audit(store)
            yield from leftovers(state, store)
    except FedplccError as error:
        yield problem(
            "state", error.detail if ":" in error.detail or ";" in error.detail else f"{error.detail}: {RESTORE}"
        )


def damaged(store: SqlStore) -> Iterator[Finding]:
    """Check the digest of every row."""
    with database_errors("cannot read the database"), store.database.engine.connect() as connection:
        found = list(damaged_rows(connection))
        contradicting = [] if found else list(contradicting_rows(connection))
    if found:
        named = [f"{'/'.join(map(str, row.key))} of {row.table}{_of_run(row.run_id)}" for row in found]
        yield problem("rows", f"damaged, {_several(named)}: their runs wait; {RESTORE}, or stop them")
    elif contradicting:
        yield problem("rows", f"damaged, {_several(contradicting)}: {RESTORE}")
    else:
        yield ok("rows", "each with its digest")


def _of_run(run_id: str) -> str:
    return f" (run {run_id})" if run_id else ""


def whole_runs(store: Store) -> Iterator[Run]:
    """Runs without a damaged row that matters; `damaged` names the others."""
    return (run for run in all_runs(store) if not isinstance(run.reason, RowDamaged))


def blobs(state: Path, store: Store) -> Iterator[Finding]:
    """Check that every blob in the database is on the disk with its size and SHA-256."""
    files, damaged = BlobFiles(state), []
    num_blobs = num_bytes = 0
    for sha256, size_bytes in named(store):
        num_blobs, num_bytes = num_blobs + 1, num_bytes + size_bytes
        why = _damage(files.path(sha256), sha256, size_bytes)
        if why:
            damaged.append(f"{sha256[:12]} ({_uses(store, sha256)}) {why}")
    if damaged:
        yield problem("blobs", f"{_several(damaged)}; {RESTORE}, or copy the files with these names from one")
    else:
        yield ok("blobs", f"{num_blobs:,} of {in_bytes(num_bytes)}, each with its size and SHA-256")


def named(store: Store) -> Iterator[tuple[str, int]]:
    """Every blob in the database, with its size in bytes."""
    page = store.list_blobs(limit=PAGE)
    while page:
        yield from page
        page = store.list_blobs(after=page[-1][0], limit=PAGE)


def needed(store: Store) -> Iterator[Finding]:
    """Check that the database has each run's first and last model, and all blobs that its open round needs."""
    missing, num_collected = [], 0
    for run in whole_runs(store):
        with suppress(RowCorrupt):
            known = rounds_of(store, run, LEAST)
            gone = [
                sha256
                for sha256 in needed_blobs(run, known, LEAST, find_best(store, run.run_id))
                if store.find_blob(sha256) is None
            ]
            if gone:
                names = ", ".join(sorted(sha256[:12] for sha256 in gone)[:MOST_NAMED])
                missing.append(f"run {run.run_id} lacks {names}")
            models = [each.model for each in committed_rounds(store, run.run_id) if each.model is not None]
            num_collected += sum(store.find_blob(model.sha256) is None for model in models)
    if missing:
        yield problem("models", f"the database lacks blobs that runs need: {_several(missing)}; {RESTORE}")
    elif num_collected:
        yield ok(
            "models", f"rows name the first and last ones and what open rounds need; {num_collected:,} were collected"
        )
    else:
        yield ok("models", "rows name those of all committed rounds")


def committed_rounds(store: Store, run_id: str) -> Iterator[Round]:
    """A run's committed rounds, in order."""
    return (each for each in all_rounds(store, run_id) if each.phase is RoundPhase.COMMITTED)


def all_rounds(store: Store, run_id: str) -> Iterator[Round]:
    """A run's rounds, in order."""
    page = store.list_rounds(run_id, limit=PAGE)
    while page:
        yield from page
        page = store.list_rounds(run_id, after=page[-1].number, limit=PAGE)


def sequence(store: Store) -> Iterator[Finding]:
    """Check that the events' numbers have no gap."""
    expected, holes, count = 1, [], 0
    known, gone = {*store.run_ids(), *store.deleted_runs()}, dict[str, int]()
    for event in history(store):
        if event.run_id and event.run_id not in known:
            gone[event.run_id] = gone.get(event.run_id, 0) + 1
        if event.sequence != expected:
            holes.append(f"{expected} to {event.sequence - 1}")
        expected, count = event.sequence + 1, count + 1
    if gone:
        lost = [f"{run_id} with {num_events:,} events" for run_id, num_events in gone.items()]
        yield problem("history", f"runs are missing, {_several(lost)}: somebody changed the database; {RESTORE}")
    if holes:
        yield problem("history", f"events are missing, {_several(holes)}: somebody changed the database; {RESTORE}")
    else:
        yield ok("history", f"{count:,} events without a gap")


def history(store: Store, run_id: str = "") -> Iterator[Event]:
    """All events in order, of one run if given."""
    page = store.list_events(EventQuery(run_id=run_id, limit=PAGE))
    while page:
        yield from page
        page = store.list_events(EventQuery(run_id=run_id, after=page[-1].sequence, limit=PAGE))


def runs(store: Store) -> Iterator[Finding]:
    """Check each run against its history."""
    count, wrong = 0, []
    for run in whole_runs(store):
        count += 1
        with suppress(RowCorrupt):
            wrong += [f"run {run.run_id}: {why}" for why in contradictions(store, run)]
    if wrong:
        yield problem("runs", f"the history contradicts the database, {_several(wrong)}; {RESTORE}")
    else:
        yield ok("runs", f"{count:,}, each as its history says")


def audit(store: Store) -> Iterator[Finding]:
    """Check that the audit's entries hold by their hashes, and that what was made is in it."""
    found = verify(entries_of(store))
    sentences = [*(sentence_of_damage(damage) for damage in found.damages), *unrecorded(store)]
    if sentences:
        named = _several(sentences)
        yield problem("audit", f"{named}: somebody changed the database; {RESTORE}")
    else:
        yield ok(
            "audit",
            f"{found.num_entries:,} entries, each with its hash; 'fedplcc state audit --witness' checks the end",
        )


def contradictions(store: Store, run: Run) -> Iterator[str]:
    """Contradictions between a run's history and its row and rounds."""
    events = list(history(store, run.run_id))
    if not events or events[0].type != "run_created":
        yield "its history does not begin with its creation"
    statuses = {name: status for status, name in STATUS_EVENTS.items()} | {"run_resumed": RunStatus.RUNNING}
    recorded = [statuses[event.type] for event in events if event.type in statuses]
    status = recorded[-1] if recorded else RunStatus.PENDING
    if status is not run.status:
        yield f"it is {run.status} and was last said to be {status}"
    opened = [event.round for event in events if event.type == "round_opened"]
    if opened != list(range(len(opened))):
        yield "its rounds did not open one after the other"
    if (opened[-1] if opened else -1) != run.round_number:
        yield f"its latest round is {run.round_number}, and {opened[-1] if opened else 'none'} was the last said to open"
    committed = [event.round for event in events if event.type == "round_committed"]
    last = last_committed(run)
    if committed != list(range(0 if last is None else last + 1)):
        yield f"rounds that were said to commit are not 0 to {last}" if last is not None else "no round has committed"
    yield from _of_rounds(store, run, events)


def _of_rounds(store: Store, run: Run, events: Sequence[Event]) -> Iterator[str]:
    """Updates and reports of each round: in the history and in the store."""
    sent = {what: _senders(events, what) for what in TAKEN_BACK}
    numbers = [each.number for each in all_rounds(store, run.run_id)]
    if numbers != list(range(len(numbers))) or len(numbers) != run.round_number + 1:
        yield "rounds are missing in the database"
    for number in numbers:
        whole = store.find_round(run.run_id, number)
        if whole is None:
            continue
        for what, found in (("update_committed", whole.updates), ("evaluation_reported", whole.evaluations)):
            said = sent[what].get(number, set())
            if set(found) != said:
                yield f"round {number} has {len(found)} and its history {len(said)} of {what}"
        if whole.phase is RoundPhase.COMMITTED and whole.model is None:
            yield f"round {number} has committed without a model"


TAKEN_BACK = {"update_committed": ("update_damaged", "update_removed"), "evaluation_reported": ("report_removed",)}
"""Events that say that an update or a report was counted, each with those that take it back."""


def _senders(events: Sequence[Event], what: str) -> dict[int, set[str]]:
    """Clients whose update or report was counted and not taken back, by round."""
    found: dict[int, set[str]] = {}
    for event in events:
        if event.type == what:
            found.setdefault(event.round, set()).add(event.client_id)
        elif event.type in TAKEN_BACK[what]:
            found.setdefault(event.round, set()).discard(event.client_id)
    return found


def leftovers(state: Path, store: Store) -> Iterator[Finding]:
    """Files that are not in the database: left by a crash, or uploads in progress."""
    for folder, text in FOLDERS.items():
        if not (state / folder).is_dir():
            finding = problem if folder == "blobs" else ok
            yield finding("state", f"the folder {folder} is gone: {text}")
    names = {sha256 for sha256, _size in named(store)}
    unnamed = [(name, size) for name, size in BlobFiles(state).files() if name not in names]
    if unnamed:
        size = in_bytes(sum(size for _name, size in unnamed))
        yield ok("leftovers", f"{len(unnamed):,} blobs of {size} that no row names; the next collection removes them")
    for folder, text in (
        ("incoming", "uploads that go on, or that nobody goes on with; these are removed after days"),
        ("staging", "files that are being written, or that a crash left; these are removed at the next start"),
    ):
        files = list(_sizes(state / folder))
        if files:
            yield ok("leftovers", f"{len(files):,} files of {in_bytes(sum(files))} in {folder}: {text}")
    yield from _holders(state / "incoming")
    if (state / MANIFEST).is_file():
        yield ok("leftovers", f"it is what 'fedplcc state backup' made: {MANIFEST} belongs to it")
    foreign = sorted(
        path.name for path in state.iterdir() if path.name not in KNOWN and not path.name.startswith(SQLITE)
    )
    if foreign:
        yield warning("leftovers", f"files that are not the aggregator's, {_several(foreign)}: move them elsewhere")


def _holders(incoming: Path) -> Iterator[Finding]:
    """The clients whose uploads take most of the disk."""
    clients = {path.name: sum(_sizes(path)) for path in incoming.iterdir()} if incoming.is_dir() else {}
    largest = sorted((name for name in clients if clients[name]), key=lambda name: (-clients[name], name))
    if largest:
        named = _several([f"{name} {in_bytes(clients[name])}" for name in largest])
        yield ok("uploads", f"held for clients until a commit stores them, largest first: {named}")


FOLDERS = {
    "blobs": f"the next start makes an empty one; {RESTORE}",
    "incoming": "clients send again what was in it, and the next start makes it; a backup has none",
    "staging": "the next start makes it; a backup has none",
}
"""Folders that an aggregator makes at its start, with what their loss means."""

KNOWN = (
    "blobs",
    "incoming",
    "staging",
    "initial",
    "lock",
    "committed",
    "collection.lock",
    "endpoint.json",
    "identity",
    "gateway.join",
    "admin.sock",
    "database.json",
    "reserve",
    MANIFEST,
)
"""Other files of a state directory than its database."""


def _sizes(folder: Path) -> Iterator[int]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:
            continue


def _damage(path: Path, sha256: str, size_bytes: int) -> str:
    try:
        found = path.stat().st_size
        if found != size_bytes:
            return f"has {found} bytes and not {size_bytes}"
        return "" if sha256_of(path) == sha256 else "does not have its SHA-256"
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _uses(store: Store, sha256: str) -> str:
    """The run and round of a blob, for people."""
    for run in whole_runs(store):
        with suppress(RowCorrupt):
            found = _use(store, run, sha256)
            if found:
                return found
    return "of no round"


def _use(store: Store, run: Run, sha256: str) -> str:
    for each in all_rounds(store, run.run_id):
        where = f"run {run.run_id}, round {each.number}"
        for kind, blob in (("model", each.model), ("prototypes", each.prototypes)):
            if blob is not None and blob.sha256 == sha256:
                return f"{where}, global {kind}"
        if any(blob.sha256 == sha256 for blob in state_blobs(each)):
            return f"{where}, server state"
        whole = store.find_round(run.run_id, each.number)
        for client_id, update in whole.updates.items() if whole is not None else ():
            if any(blob.sha256 == sha256 for blob in update.payload.blobs):
                return f"{where}, update of {client_id}"
    return ""


def _several(texts: Sequence[str]) -> str:
    """A few texts, and the number of the others."""
    more = len(texts) - MOST_NAMED
    return "; ".join(texts[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


CHECKS: tuple[Callable[[Subject], Iterable[Finding]], ...] = (examine_state,)
"""Checks of a state directory, for `examine`."""
