"""Search: every field that a member sends in RoundService, and the decision that it enters; one in no row is found."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, ServiceDescriptor

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2

ROOT = Path(__file__).parents[4]
UNIT = "tests/unit/aggregator"
LIAR = f"{UNIT}/servicer/test_one_liar.py"

NONE = "none"
"""The field enters no decision about others: it is shown, or measured, or names what the sender itself is given."""
SENDER = "who acts: a certificate, and a token of one instance"
WHERE = "which run and round the message is for"
BLOB = "which bytes: SHA-256 and size are checked before they count"
WEIGHT = "the weight of the sender's update in the global model"
MODEL = "the global model"
PROTOTYPES = "the global prototypes"
ACCURACY = "patience, the best round and what is shown as accuracy"
WAITING = "whether a round waits for the sender"
RECIPE = "the recipe that a person is offered for a new run, with the name of the client that decides"

HELD: dict[str, tuple[str, ...]] = {
    SENDER: ("tests/integration/test_strangers.py",),
    WHERE: (f"{UNIT}/coordinator/test_commits.py",),
    BLOB: (f"{UNIT}/coordinator/test_commits.py", f"{UNIT}/coordinator/test_checked_once.py"),
    WEIGHT: (f"{UNIT}/computation/test_update_limits.py", f"{UNIT}/coordinator/test_growth.py", LIAR),
    MODEL: (f"{UNIT}/coordinator/test_far_updates.py", f"{UNIT}/coordinator/test_doubted_model.py", LIAR),
    PROTOTYPES: (f"{UNIT}/computation/test_update_limits.py", LIAR),
    ACCURACY: (
        f"{UNIT}/coordinator/test_commits.py::test_the_totals_of_a_run_are_those_of_the_first_report",
        f"{UNIT}/coordinator/test_large_shares.py",
        LIAR,
    ),
    RECIPE: ("tests/unit/fedplcc/command/test_config.py",),
    WAITING: (
        f"{UNIT}/coordinator/test_far_updates.py::test_a_run_whose_clients_cannot_train_says_who_since_when_and_why",
    ),
}
"""What holds where one of four lies in such a field: tests."""

FIELDS = {
    SENDER: "*.client_id *.instance_token",
    WHERE: "*.run_id *.round TaskKey.kind TaskKey.times_asked",
    BLOB: """
        BlobHeader.blob BlobRef.role BlobRef.sha256 BlobRef.size_bytes Chunk.offset_bytes Chunk.data
        CommitUpdateRequest.inline_blobs *.header *.chunk
        """,
    WEIGHT: """
        JoinRequest.num_examples JoinRequest.class_counts JoinRequest.domain ClassCount.class_name
        ClassCount.num_examples CommitUpdateRequest.num_examples
        """,
    MODEL: """
        JoinRequest.model_kind CommitUpdateRequest.payload Payload.tensor_groups Payload.encoded Payload.scalars
        Payload.ScalarsEntry.key Payload.ScalarsEntry.value Payload.int_lists Payload.IntListsEntry.key
        Payload.IntListsEntry.value IntList.values
        """,
    PROTOTYPES: "Payload.prototype_sets CommitUpdateRequest.class_counts CommitUpdateRequest.num_excluded",
    ACCURACY: """
        ReportEvaluationRequest.counts EvaluationCounts.set_name EvaluationCounts.model EvaluationCounts.correct
        EvaluationCounts.total
        """,
    WAITING: """
        HeartbeatRequest.activity HeartbeatRequest.progress HeartbeatRequest.is_leaving HeartbeatRequest.problem
        ClientProblem.reason ClientProblem.is_fatal
        """,
    RECIPE: "JoinRequest.smallest_side",
    NONE: """
        HeartbeatRequest.log_level HeartbeatRequest.log_lines HeartbeatRequest.log_lines_left_out LogLine.time
        LogLine.level LogLine.event LogLine.facts LogLine.FactsEntry.key LogLine.FactsEntry.value
        JoinRequest.environment JoinRequest.version JoinRequest.display_name Environment.packages
        Environment.PackagesEntry.key Environment.PackagesEntry.value Environment.cpu Environment.device
        Environment.platform SyncRoundRequest.poll SyncRoundRequest.inline_blobs Poll.known Poll.hold
        InlineBlobs.max_bytes InlineBlobs.held_sha256s HeartbeatRequest.readings HeartbeatRequest.ReadingsEntry.key
        HeartbeatRequest.ReadingsEntry.value ClientProblem.detail ClientProblem.hint DownloadBlobRequest.sha256
        DownloadBlobRequest.offset_bytes Payload.metadata Payload.MetadataEntry.key Payload.MetadataEntry.value
        CommitUpdateRequest.losses CommitUpdateRequest.LossesEntry.key CommitUpdateRequest.LossesEntry.value
        EvaluationCounts.confusion EvaluationCounts.histograms ScoreHistograms.of_class ScoreHistograms.of_others
        ScoreHistograms.confidence ScoreHistograms.confidence_correct *.timings CommitUpdateRequest.TimingsEntry.key
        CommitUpdateRequest.TimingsEntry.value ReportEvaluationRequest.TimingsEntry.key
        ReportEvaluationRequest.TimingsEntry.value
        """,
}
DECISIONS = {decision: tuple(names.split()) for decision, names in FIELDS.items()}
"""Each field by the decision that it enters; `*` stands for any message."""


def fields_of(message: Descriptor, known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a message and of all of ours within it, as (message, field); protobuf's own types are values."""
    if message.full_name in known or not message.full_name.startswith("fedplcc."):
        return
    known.add(message.full_name)
    name = message.full_name.removeprefix("fedplcc.v1.")
    for field in message.fields:
        yield name, field.name
        if field.message_type is not None:
            yield from fields_of(field.message_type, known)


def unlisted(service: ServiceDescriptor) -> list[str]:
    """Return the fields of a service's requests that stand in no row of the table."""
    listed, known = {name for names in DECISIONS.values() for name in names}, set[str]()
    found = (each for method in service.methods for each in fields_of(method.input_type, known))
    return sorted(
        f"{message}.{field}"
        for message, field in found
        if f"{message}.{field}" not in listed and f"*.{field}" not in listed
    )


def the_service() -> ServiceDescriptor:
    return round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]


def test_every_field_that_a_member_sends_has_its_decision() -> None:
    assert unlisted(the_service()) == []


def test_the_table_names_each_field_once_and_no_field_that_is_not_there(covered: Callable[[str], None]) -> None:
    names = [name for rows in DECISIONS.values() for name in rows]
    assert len(names) == len(set(names))
    known = set[str]()
    there = {each for method in the_service().methods for each in fields_of(method.input_type, known)}
    exact = {f"{message}.{field}" for message, field in there}
    assert {name for name in names if not name.startswith("*.")} <= exact
    assert {name[2:] for name in names if name.startswith("*.")} <= {field for _, field in there}
    covered(f"{len(there)} fields of {len(known)} messages")


@pytest.mark.parametrize("decision", [each for each in DECISIONS if each != NONE])
def test_every_decision_has_tests_of_what_holds_where_a_member_lies(decision: str) -> None:
    for held in HELD[decision]:
        path, _, name = held.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        functions = [each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        assert name in functions if name else any(each.startswith("test_") for each in functions)


def test_a_planted_field_is_found() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="planted.proto", package="fedplcc.v1", syntax="proto3")
    inner = file.message_type.add(name="Boost")
    inner.field.add(name="factor", number=1, type="TYPE_DOUBLE", label="LABEL_OPTIONAL")
    request = file.message_type.add(name="CommitUpdateRequest")
    request.field.add(name="run_id", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    request.field.add(
        name="boost", number=2, type="TYPE_MESSAGE", type_name=".fedplcc.v1.Boost", label="LABEL_OPTIONAL"
    )
    service = file.service.add(name="RoundService")
    service.method.add(
        name="CommitUpdate", input_type=".fedplcc.v1.CommitUpdateRequest", output_type=".fedplcc.v1.CommitUpdateRequest"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    planted = pool.FindServiceByName("fedplcc.v1.RoundService")
    assert unlisted(planted) == ["Boost.factor", "CommitUpdateRequest.boost"]
