"""Random damage to a chain of the audit is found, and its first place is named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fedplcc.shared.identity.audit_chain import EMPTY, AuditEntry, AuditHead, AuditRecord, chained, head_of, verify

_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
_RECORDS = st.builds(
    AuditRecord,
    time=st.floats(0, 4e9),
    caller=_TEXTS,
    credential=_TEXTS,
    method=_TEXTS,
    target=_TEXTS,
    outcome=st.sampled_from(("done", "refused")),
    reason=_TEXTS,
    address=_TEXTS,
    request_id=_TEXTS,
    count=st.integers(1, 2**63 - 1),
)
_COLUMNS = ("caller", "credential", "method", "target", "outcome", "reason", "address", "request_id", "hash")


@st.composite
def chains(draw: st.DrawFn, least: int = 1) -> list[AuditEntry]:
    entries, head = [], EMPTY
    for record in draw(st.lists(_RECORDS, min_size=least, max_size=12)):
        entries.append(chained(record, head))
        head = head_of(entries[-1])
    return entries


def first_named(entries: Sequence[AuditEntry], witness: Sequence[AuditHead] = ()) -> int:
    """The number of the first damage."""
    return min((each.number for each in verify(entries, witness).damages), default=sys.maxsize)


@given(chains())
def test_a_whole_chain_is_found_whole_by_any_witness(chain: list[AuditEntry]) -> None:
    assert verify(chain, [EMPTY, *map(head_of, chain)]).damages == ()


@given(chains(), st.data())
def test_a_flipped_character_is_named(chain: list[AuditEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    column = data.draw(st.sampled_from(_COLUMNS))
    text: str = getattr(chain[place], column)
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.characters(exclude_categories=["Cs"])) + text[at + 1 :]
    assume(changed != text)
    damaged = [*chain[:place], _with(chain[place], column, changed), *chain[place + 1 :]]
    assert first_named(damaged) == place + 1


@given(chains(), st.data())
def test_a_changed_number_of_a_column_is_named(chain: list[AuditEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    other = data.draw(st.integers(0, 2**63 - 1))
    assume(other != chain[place].count)
    assert first_named([*chain[:place], replace(chain[place], count=other), *chain[place + 1 :]]) == place + 1


@given(chains(least=2), st.data())
def test_removed_entries_before_the_end_are_named(chain: list[AuditEntry], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(chain) - 2))
    end = data.draw(st.integers(begin + 1, len(chain) - 1))
    assert first_named([*chain[:begin], *chain[end:]]) == begin + 1


@given(chains(), st.data())
def test_a_cut_tail_is_named_by_a_witness(chain: list[AuditEntry], data: st.DataObject) -> None:
    left = data.draw(st.integers(0, len(chain) - 1))
    kept = data.draw(st.integers(left, len(chain) - 1))
    assert verify(chain[:left]).damages == ()
    assert first_named(chain[:left], [head_of(chain[kept])]) == kept + 1


@given(chains(least=2), st.data())
def test_swapped_contents_are_named(chain: list[AuditEntry], data: st.DataObject) -> None:
    one = data.draw(st.integers(0, len(chain) - 2))
    other = data.draw(st.integers(one + 1, len(chain) - 1))
    swapped = list(chain)
    swapped[one], swapped[other] = (
        replace(chain[other], number=one + 1),
        replace(chain[one], number=other + 1),
    )
    assert first_named(swapped) == one + 1


@given(chains(), _RECORDS, st.data())
def test_an_inserted_entry_is_named(chain: list[AuditEntry], record: AuditRecord, data: st.DataObject) -> None:
    """Who inserts knows the rule of the chain, and numbers the entries after it anew; but their hashes stay."""
    place = data.draw(st.integers(0, len(chain) - 1))
    before = EMPTY if place == 0 else head_of(chain[place - 1])
    forged = chained(record, before)
    later = [replace(entry, number=entry.number + 1) for entry in chain[place:]]
    assert first_named([*chain[:place], forged, *later]) == place + 2


@given(chains(), st.lists(_RECORDS, min_size=1, max_size=12), st.data())
def test_a_tail_that_was_written_anew_is_named_by_a_witness(
    chain: list[AuditEntry], records: list[AuditRecord], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    entries, head = chain[:place], EMPTY if place == 0 else head_of(chain[place - 1])
    for record in records:
        entries = [*entries, chained(record, head)]
        head = head_of(entries[-1])
    assume(entries[place] != chain[place])
    assert verify(entries).damages == ()
    assert verify(entries, map(head_of, chain)).num_damages == len(chain) - place


def _with(entry: AuditEntry, column: str, text: str) -> AuditEntry:
    changed: dict[str, Any] = {column: text}
    return replace(entry, **changed)
