"""Groups of a comparison's rows: the section `[groups.NAME]`, and what a group that chooses asks of its rows. Pure.

[groups.candidates]
choose = "validation"              # rank the rows by validation images, and tell no test number of them

[rows.wide]
method = "fedplcc"
group = "candidates"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fedplcc.comparison.sweep.section import as_list, each_once
from fedplcc.shared.config.sections import Name, Section, unknown

DEFAULT_GROUP = "methods"
"""Group of a row that names none."""
Texts = Annotated[tuple[str, ...], BeforeValidator(as_list), Field(strict=False)]
"""One text, or a list of them."""
Names = Annotated[tuple[Name, ...], BeforeValidator(as_list), AfterValidator(each_once), Field(strict=False)]
"""One name, or a list of them without repetitions."""


class GroupSection(Section):
    """`[groups.NAME]`: title and notes of a group of rows, and whether it chooses among them."""

    title: str | None = None
    notes: Texts = ()
    datasets: Names | None = None
    """Data sets whose part of the report shows the group; if not set, all on which any of its rows is trained."""
    choose: Literal["validation"] | None = None
    """Whether the report ranks the rows by validation images and has no test number of them: by the mean of the mean over
    domains and the worst domain, over the file's seeds. On a data set its rows have the same images of clients, the same
    rule for validation images, and the same evaluation.every and evaluation.last."""
    view: Literal["last", "best", "last5", "last10"] = "last10"
    """Rounds whose accuracy on validation images ranks, where the group chooses."""
    model: Literal["global", "local"] = "global"
    """Model whose accuracy ranks, where the group chooses: the global one, or each client's own on its own images. A row
    without it has no rank."""


def choosing(groups: Iterable[str], sections: Mapping[str, Any]) -> list[str]:
    """Return those of a row's groups that choose; `sections` are the groups' records or their tables."""
    found = []
    for name in groups:
        section = sections.get(name)
        choose = section.get("choose") if isinstance(section, Mapping) else getattr(section, "choose", None)
        if choose is not None:
            found.append(name)
    return found


def choice_problems(
    groups: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]], baselines: Iterable[str]
) -> Iterator[str]:
    """Yield what would show a test number of a row that a group chooses among, or might by a slip; in tables by name."""
    for name, table in groups.items():
        for key in ("view", "model"):
            if key in table and table.get("choose") is None:
                yield f'groups.{name}.{key}: only a group that chooses has one; set choose = "validation", or leave it out'
    must_be_declared, declared = bool(choosing(groups, groups)), {*groups, DEFAULT_GROUP}
    for name, table in rows.items():
        listed = as_list(table.get("group", DEFAULT_GROUP))
        named = [each for each in listed if isinstance(each, str)] if isinstance(listed, list | tuple) else []
        for each in named if must_be_declared else ():
            if each not in declared:  # a misspelt name would be a group of its own, which shows test numbers
                why = "a group beside one that chooses needs a table"
                yield f"rows.{name}.group: {unknown('group', each, declared)} ({why})"
        hiding = choosing(named, groups)
        if not hiding:
            continue
        why = f"group {hiding[0]!r} chooses on validation images, and no test number of its rows is told"
        if others := [each for each in named if each in declared and each not in hiding]:
            yield f"rows.{name}.group: {why}; leave out {others[0]!r}, which would show them"
        if name in baselines:
            yield f"compare.baseline: row {name!r}: {why}; name another row, or none"
