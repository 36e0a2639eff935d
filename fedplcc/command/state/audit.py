"""`fedplcc state audit`: who changed what, who was refused, and whether the record of it is whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.state.database_url import DatabaseUrl

if TYPE_CHECKING:
    from fedplcc.shared.identity.audit_chain import AuditEntry

EXAMPLES = examples(
    "fedplcc state audit fedplcc-state/aggregator",
    "fedplcc state audit fedplcc-state/aggregator --verify",
    "fedplcc state audit fedplcc-state/aggregator --witness ann-audit-heads",
)


@explains_errors
def audit(
    state_dir: Annotated[
        Path, typer.Argument(metavar="STATE_DIR", help="The aggregator's state directory.", show_default=False)
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every entry's hash; exit code 1 if one does not hold.")
    ] = False,
    witness: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A copy of a trainer's file audit-heads, which also shows whether the end was cut off or written anew; "
            "may be given several times, and implies --verify.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=1_000_000, help="Entries to show, the newest.")] = 50,
    database_url: DatabaseUrl = None,
) -> int:
    """Show an aggregator's audit, or check it: every change and every refusal, each entry chained to the one before."""
    from fedplcc.shared.identity import audit_chain
    from fedplcc.state.audit import entries_of, sentence_of_damage, unrecorded, witnessed
    from fedplcc.state.snapshot import snapshot
    from fedplcc.terminal.printable import printable

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
