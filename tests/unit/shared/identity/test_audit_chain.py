"""A chain of the audit: what a verification finds and names, and the text of a witness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.identity import audit_chain
from fedplcc.shared.identity.audit_chain import EMPTY, head_of, heads_from_text, heads_to_text


def a_record(number: int) -> audit_chain.AuditRecord:
    return audit_chain.AuditRecord(
        time=1e9 + number, caller="owner", method="PauseRun", target=f"run-{number}", request_id="r"
    )


def a_chain(length: int) -> list[audit_chain.AuditEntry]:
    entries, head = [], audit_chain.EMPTY
    for number in range(1, length + 1):
        entries.append(audit_chain.chained(a_record(number), head))
        head = audit_chain.head_of(entries[-1])
    return entries


def test_a_whole_chain_has_no_damage() -> None:
    chain = a_chain(5)
    found = audit_chain.verify(chain, [audit_chain.EMPTY, audit_chain.head_of(chain[2]), audit_chain.head_of(chain[4])])
    assert (found.damages, found.num_entries, found.head) == ((), 5, audit_chain.head_of(chain[-1]))
    assert audit_chain.verify([]).head == audit_chain.EMPTY


def test_the_bytes_and_the_hash_of_an_entry_stay_as_they_are() -> None:
    entry = audit_chain.chained(a_record(1), audit_chain.EMPTY)
    assert audit_chain.canonical_bytes(entry, 1) == (
        b'{"address":"","caller":"owner","count":1,"credential":"","method":"PauseRun","number":1,"outcome":"done",'
        b'"reason":"","request_id":"r","target":"run-1","time":1000000001.0}'
    )
    assert entry.hash == "4e593820edd5010c8f14445a56c9a2162d7eff13840baf6f8fe28eec5137a875"


@pytest.mark.parametrize(
    "change",
    [
        {"time": 3.0},
        {"caller": "nobody"},
        {"credential": "ab"},
        {"method": "StopRun"},
        {"target": "run-x"},
        {"outcome": "refused"},
        {"reason": "KEY_INVALID"},
        {"address": "10.0.0.9"},
        {"request_id": ""},
        {"count": 2},
        {"hash": "0" * 64},
    ],
    ids=lambda change: str(next(iter(change))),
)
def test_a_change_of_any_column_is_named(change: dict[str, object]) -> None:
    chain = a_chain(5)
    chain[2] = replace(chain[2], **change)  # type: ignore[arg-type]
    assert audit_chain.verify(chain).damages[0] == audit_chain.Damage(audit_chain.DamageKind.CHANGED, 3, 3)


def test_removed_entries_are_named() -> None:
    chain = a_chain(6)
    assert audit_chain.verify([*chain[:1], *chain[3:]]).damages == (
        audit_chain.Damage(audit_chain.DamageKind.REMOVED, 2, 3),
    )
    assert audit_chain.verify(chain[1:]).damages == (audit_chain.Damage(audit_chain.DamageKind.REMOVED, 1, 1),)


def test_a_removed_entry_is_found_when_the_others_are_numbered_anew() -> None:
    chain = a_chain(4)
    renumbered = [chain[0], replace(chain[2], number=2), replace(chain[3], number=3)]
    assert audit_chain.verify(renumbered).damages[0] == audit_chain.Damage(audit_chain.DamageKind.CHANGED, 2, 2)


def test_swapped_entries_are_named() -> None:
    chain = a_chain(4)
    contents = [chain[0], replace(chain[2], number=2), replace(chain[1], number=3), chain[3]]
    assert [each.number for each in audit_chain.verify(contents).damages][:2] == [2, 3]
    moved = [chain[0], chain[2], chain[1], chain[3]]
    assert audit_chain.Damage(audit_chain.DamageKind.INSERTED, 2, 2) in audit_chain.verify(moved).damages


def test_an_inserted_entry_is_named() -> None:
    chain = a_chain(3)
    assert audit_chain.verify([*chain[:2], chain[0], chain[2]]).damages[0] == audit_chain.Damage(
        audit_chain.DamageKind.INSERTED, 1, 1
    )
    forged = replace(chain[2], number=4)
    assert audit_chain.verify([*chain, forged]).damages == (audit_chain.Damage(audit_chain.DamageKind.CHANGED, 4, 4),)


def test_a_cut_tail_is_found_by_a_witness_alone() -> None:
    chain = a_chain(5)
    witness = [audit_chain.head_of(chain[1]), audit_chain.head_of(chain[4])]
    assert audit_chain.verify(chain[:3]).damages == ()
    assert audit_chain.verify(chain[:3], witness).damages == (audit_chain.Damage(audit_chain.DamageKind.CUT, 5, 5),)
    assert audit_chain.verify([], witness).num_damages == 2


def test_a_chain_that_was_written_anew_is_found_by_a_witness_alone() -> None:
    chain, head = a_chain(5), audit_chain.EMPTY
    anew = []
    for number in range(1, 7):
        anew.append(audit_chain.chained(replace(a_record(number), caller="nobody"), head))
        head = audit_chain.head_of(anew[-1])
    assert audit_chain.verify(anew).damages == ()
    assert audit_chain.verify(anew, [audit_chain.head_of(chain[3])]).damages == (
        audit_chain.Damage(audit_chain.DamageKind.REWRITTEN, 4, 4),
    )


def test_values_that_were_never_written_are_damage_and_no_error() -> None:
    chain = a_chain(3)
    for odd in ({"time": float("nan")}, {"time": "x"}, {"caller": b"x"}, {"hash": None}, {"hash": 7}):
        damaged = [chain[0], replace(chain[1], **odd), chain[2]]
        assert audit_chain.verify(damaged).damages[0] == audit_chain.Damage(audit_chain.DamageKind.CHANGED, 2, 2)


def test_a_verification_names_a_bounded_number_of_damages() -> None:
    chain = [replace(entry, hash="0" * 64) for entry in a_chain(3 * audit_chain.MOST_DAMAGES)]
    found = audit_chain.verify(chain, [audit_chain.AuditHead(10**6, "0" * 64)])
    assert len(found.damages) == audit_chain.MOST_DAMAGES
    assert found.num_damages == 3 * audit_chain.MOST_DAMAGES + 1


def test_the_text_of_a_witness_comes_back() -> None:
    heads = [EMPTY, *map(head_of, a_chain(3))]
    assert heads_from_text(heads_to_text(heads)) == heads


@pytest.mark.parametrize("text", ["1\n", "1 xy\n", "x " + "0" * 64, f"1 {'0' * 64} more", "9" * 19 + " " + "0" * 64])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedRequest):
        audit_chain.heads_from_text(text)


def test_a_long_text_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="at most 256 lines"):
        audit_chain.heads_from_text(audit_chain.heads_to_text([audit_chain.EMPTY] * 257))


def test_a_head_from_another_process_is_checked() -> None:
    assert audit_chain.checked_head(0, "0" * 64) == audit_chain.EMPTY
    for number, text in ((-1, "0" * 64), (1, "0" * 63), (1, "A" * 64), (2**64, "0" * 64)):
        with pytest.raises(MalformedRequest) as refused:
            audit_chain.checked_head(number, text)
        assert refused.value.metadata["field"] == "audit_head"
