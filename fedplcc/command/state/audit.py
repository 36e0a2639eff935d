"""`fedplcc state audit`: who changed what, who was refused, and whether the record and the rounds hold."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.state.database_url import DatabaseUrl
from fedplcc.shared.errors import InvalidConfig
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.shared.identity.audit_chain import AuditEntry

EXAMPLES = examples(
    "fedplcc state audit fedplcc-state/aggregator",
    "fedplcc state audit fedplcc-state/aggregator --replay digits-0f3a --round 9",
    "fedplcc state audit fedplcc-state/aggregator --witness ann-audit-heads",
)


@explains_errors
def audit(
    *,
    state_dir: Annotated[Path, typer.Argument(metavar="STATE_DIR", help="The aggregator's state directory.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every entry's hash; exit code 1 if one does not hold.")
    ] = False,
    witness: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A copy of a trainer's file audit-heads, which also shows whether the end was cut off or written anew; "
            "may be given several times, and implies --verify.",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=1_000_000, help="Entries to show, the newest.")] = 50,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Instead, compute --round of this run again from its stored updates and compare the SHA-256 of model, "
            "prototypes and server state. The exit code is 1 if they differ, 5 if the updates were collected.",
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--round", metavar="T", help="With --replay: the round, from 1 on."),
    ] = None,
    allow_method: Annotated[
        list[str] | None,
        typer.Option(
            help="With --replay: method of another package that the run may name, repeatable: package.module or the name "
            "of an entry point. It is imported.",
            metavar="NAME",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: bool,
) -> int:
    """Show an aggregator's audit, check it, or compute a round again.

    The audit has every change and every refusal, each entry chained to the one before. --json is for --replay.
    """
    if (replay is None) != (number is None):
        raise InvalidConfig("--replay RUN and --round T belong together: give both, or neither")
    if replay is not None and number is not None:
        from fedplcc.command.state.replay import replay_round

        methods = allow_method or ()
        return replay_round(state_dir, replay, number, database_url=database_url, allow_method=methods, as_json=as_json)
    from fedplcc.shared.identity import audit_chain
    from fedplcc.state.audit import entries_of, sentence_of_damage, unrecorded, witnessed
    from fedplcc.state.snapshot import snapshot

    heads = [head for file in witness or () for head in witnessed(file)]
    with snapshot(state_dir, database_url) as store:
        if not verify and not witness:
            for entry in store.list_audit(after=max(0, store.audit_head().number - last), limit=last):
                print(printable(line_of(entry)))
            return ExitCode.OK
        found = audit_chain.verify(entries_of(store), heads)
        missing = unrecorded(store)
    for sentence in missing[: audit_chain.MOST_DAMAGES]:
        print(printable(sentence))
    for damage in found.damages:
        print(sentence_of_damage(damage))
    if found.num_damages > len(found.damages):
        print(f"and {found.num_damages - len(found.damages):,} more")
    if found.num_damages or missing:
        return ExitCode.FAILED
    by = f" and {len(heads):,} heads that sites kept" if witness else ""
    print(f"{found.num_entries:,} entries, whole by their hashes{by}; head {found.head.number} {found.head.hash}")
    return ExitCode.OK


def line_of(entry: AuditEntry) -> str:
    """An entry on one line, for people."""
    try:
        time = datetime.fromtimestamp(entry.time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError):
        time = f"{entry.time} s"
    done = entry.outcome if not entry.reason else f"{entry.outcome} {entry.reason}"
    rest = (
        f"{name} {value}"
        for name, value in (
            ("credential", entry.credential),
            ("from", entry.address),
            ("request", entry.request_id),
            ("times", entry.count if entry.count != 1 else ""),
        )
        if value
    )
    return "  ".join((f"{entry.number:>6}", time, entry.caller, entry.method, entry.target, done, *rest))
