"""`fedplcc run edit`: keep the list of runs in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.gateway_calls import Yes, ask_gateway, require_yes
from fedplcc.command.run.choosing import RunIds
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import InvalidConfig

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import DeletedRun, Run

EDIT_EXAMPLES = examples(
    "fedplcc run edit scans-97f12353 --tag paper --untag draft",
    "fedplcc run edit scans-97f12353 --notes 'scanner 2 was off'",
    "fedplcc run edit scans-97f12353 scans-0c41d7e2 --delete",
)


@explains_errors
def edit(
    *,
    runs: RunIds,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to add; repeatable.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="A tag to take away; repeatable.")] = None,
    notes: Annotated[str | None, typer.Option(help="The notes from now on, plain text; '' for none.")] = None,
    archive: Annotated[
        bool | None,
        typer.Option(
            "--archive/--unarchive",
            help="Leave runs that have ended out of lists, or take them back; nothing of them is lost.",
        ),
    ] = None,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete",
            help="Delete runs that have ended, with every model that no other run needs. Their lines stay: fedplcc run list "
            "--show deleted.",
        ),
    ] = False,
    yes: Yes = False,
    way: Way,
    as_json: bool,
) -> None:
    """Change tags and notes of runs, leave runs out of lists, or delete them; `fedplcc run status` shows them.

    With --json there is a line for each run.
    """
    is_changed = bool(tag or untag) or notes is not None or archive is not None
    if delete and is_changed:
        raise InvalidConfig("--delete leaves nothing to change: give it alone")
    if delete:
        _delete(runs, yes=yes, way=way, as_json=as_json)
        return
    if not is_changed:
        raise InvalidConfig("name what to change: --tag, --untag, --notes, --archive, --unarchive or --delete")

    async def change_one(there: AsyncGateway, run_id: str) -> Run:
        tags: list[str] | None = None
        if tag or untag:
            found = await there.get_run(run_id)
            wanted = (set(found.tags) | set(tag or ())) - set(untag or ())
            tags = None if wanted == set(found.tags) else sorted(wanted)
            if tags is None and notes is None and archive is None:
                return found
        return await there.update_run(run_id, tags=tags, notes=notes, is_archived=archive)

    async def change(there: AsyncGateway) -> None:
        for run_id in dict.fromkeys(runs):
            run = await change_one(there, run_id)
            print(run.model_dump_json() if as_json else _sentence_of(run), flush=True)

    ask_gateway(way, change)


def _delete(runs: RunIds, *, yes: bool, way: Way, as_json: bool) -> None:
    from fedplcc.doctor.findings import in_bytes

    named = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs"
    lost = "Models, prototypes and metrics are lost for good."
    require_yes(f"Delete {named}? {lost}", yes=yes, what="delete")

    def print_deleted(deleted: DeletedRun) -> None:
        sentence = f"run {deleted.run_id} is deleted: {in_bytes(deleted.freed_bytes)} are free again"
        print(deleted.model_dump_json() if as_json else sentence, flush=True)

    async def delete(there: AsyncGateway) -> None:
        for run_id in dict.fromkeys(runs):
            print_deleted(await there.delete_run(run_id))

    ask_gateway(way, delete)


def _sentence_of(run: Run) -> str:
    tags = f"the tags {' '.join(run.tags)}" if run.tags else "no tags"
    archived = ", is archived" if run.is_archived else ""
    return f"run {run.run_id} has {tags}, {'notes' if run.notes else 'no notes'}{archived}"
