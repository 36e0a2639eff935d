"""Every field that a trainer sends has a row in the table of what leaves a site, and every row a field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2, enrol_service_pb2, round_service_pb2
from fedplcc.shared.gen.fedplcc.v1.round_service_pb2 import HeartbeatRequest
from fedplcc.trainer.aggregator.egress_gate import messages_of
from fedplcc.trainer.owner.policy import Leaves
from tests.support import ROOT
from tests.support.records import egress_table as table
from tests.support.records.egress_table import OF_NO_DATA, Row

DOCUMENT = ROOT / "docs" / "privacy.md"
OF_MEMBERS = ("RenewCertificate",)
"""RPCs of AdminService that a trainer calls."""


def by_field() -> Mapping[str, Row]:
    """The row of each field, named REQUEST.FIELD."""
    found: dict[str, Row] = {}
    for row in table.TABLE:
        for name in (f"{request}.{field}" for request in row.requests for field in row.fields):
            if name in found:
                raise ValueError(f"{name} has two rows")
            found[name] = row
    return found


def in_markdown() -> Iterator[str]:
    """The lines of the table for docs/privacy.md."""
    yield "| requests | fields | made of | policy | at claim `site` |"
    yield "|---|---|---|---|---|"
    for row in table.TABLE:
        names = ", ".join(f"`{field}`" for field in row.fields)
        policy = f"`{row.policy}`" if row.policy else ""
        yield f"| {', '.join(row.requests)} | {names} | {', '.join(row.made_of)} | {policy} | {row.at_site.value} |"


def requests() -> dict[str, Any]:
    """The message of each RPC that a trainer calls, by the RPC."""
    (rounds,) = round_service_pb2.DESCRIPTOR.services_by_name.values()
    (enrolment,) = enrol_service_pb2.DESCRIPTOR.services_by_name.values()
    (admin,) = admin_service_pb2.DESCRIPTOR.services_by_name.values()
    methods = (*rounds.methods, *enrolment.methods, *(admin.methods_by_name[name] for name in OF_MEMBERS))
    return {method.name: method.input_type for method in methods}


def fields_of(message: Any, path: str) -> Iterator[str]:
    """Every field of a message and of those within it; a map, and a message that is not ours, is one field."""
    for field in message.fields:
        inner, name = field.message_type, f"{path}.{field.name}"
        is_ours = inner is not None and inner.full_name.startswith("fedplcc.") and not inner.GetOptions().map_entry
        if is_ours:
            yield from fields_of(inner, name)
        else:
            yield name


def differences(messages: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Fields without a row, and rows without a field."""
    found = {name for request, message in messages.items() for name in fields_of(message, request)}
    rows = set(by_field())
    return found - rows, rows - found


def test_every_field_of_every_request_has_a_row_and_every_row_a_field() -> None:
    assert differences(requests()) == (set(), set())


def test_a_field_that_is_planted_deep_within_a_request_is_found_and_so_is_one_that_is_gone() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in _files(round_service_pb2.DESCRIPTOR, {}).values():
        planted = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(planted)
        for message in planted.message_type:
            if message.name == "ScoreHistograms":
                message.field.add(name="pixels", number=99, type="TYPE_BYTES", label="LABEL_REPEATED")
            if message.name == "ClassCount":
                del message.field[1:]
        pool.Add(planted)
    changed = {**requests()}
    for name in ("Join", "ReportEvaluation"):
        changed[name] = pool.FindMessageTypeByName(f"fedplcc.v1.{name}Request")
    assert differences(changed) == (
        {"ReportEvaluation.counts.histograms.pixels"},
        {"Join.class_counts.num_examples"},
    )


def _files(file: Any, found: dict[str, Any]) -> dict[str, Any]:
    for dependency in file.dependencies:
        _files(dependency, found)
    return found | {file.name: file} if not found.setdefault(file.name, file) else found


def test_two_rows_of_one_field_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "TABLE", (*table.TABLE, table.TABLE[0]))
    with pytest.raises(ValueError, match="has two rows"):
        by_field()


def test_what_says_anything_of_the_site_has_a_line_in_its_log_and_nothing_else_has() -> None:
    (service,) = round_service_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods:
        rows = [row for name, row in by_field().items() if name.partition(".")[0] == method.name]
        says = any(set(row.made_of) - OF_NO_DATA for row in rows)
        request: Any = getattr(round_service_pb2, method.input_type.name)()
        if method.name == "Heartbeat":
            assert messages_of("Heartbeat", request, b"") == ()
            request.readings["unreadable_files"] = 1.0
        assert bool(messages_of(method.name, request, b"")) == says, method.name


def test_a_trainer_opens_connections_only_where_the_gate_is_around_them() -> None:
    opening = re.compile(r"open_channel|open_aio_channel|secure_channel|^import (?:socket|ssl|httpx)", re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainer").rglob("*.py")
        if opening.search(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "trainer/aggregator/round_service.py",
        "trainer/data/sets/torchvision_sets.py",  # public sets, before any run
    }


def test_readings_of_speed_make_one_line_and_others_one_for_each_value() -> None:
    def named(**readings: float) -> str:
        (message,) = messages_of("Heartbeat", HeartbeatRequest(readings=readings), b"")
        return message.name

    assert named(batch_seconds=1.0) == named(batch_seconds=2.0)
    assert named(batch_seconds=1.0) != named(batch_seconds=1.0, data_seconds=1.0)
    assert named(unreadable_files=1.0) != named(unreadable_files=2.0)
    assert named(of_a_later_version=1.0) != named(of_a_later_version=2.0)


def test_the_document_shows_the_table() -> None:
    wanted = "\n".join(in_markdown())
    assert wanted in DOCUMENT.read_text(), f"docs/privacy.md has:\n\n{wanted}\n"


def test_every_key_that_keeps_something_at_the_site_has_a_row() -> None:
    assert {row.policy for row in table.TABLE if row.policy} == {f"leaves.{key}" for key in Leaves.model_fields}
