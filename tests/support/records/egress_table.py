"""Table of what leaves a site: each field of each request that a trainer fills.

docs/privacy.md shows it. test_egress_table.py reads the messages' descriptors: a field without a row fails it, and a row
without a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MadeOf(StrEnum):
    """Sources of a field."""

    TRAINING_IMAGES = "training images"
    TEST_IMAGES = "test images"
    LABEL_COUNTS = "numbers of images"
    MODEL = "model"
    MACHINE = "machine"
    IDENTITY = "identity"
    RUN = "the run's document"
    TRANSPORT = "transport"


class AtSite(StrEnum):
    """Parts of a field in a run of `privacy.claim = "site"`."""

    NO_PART = "no image has a part in it"
    PUBLIC = "as it is: numbers of images are public"
    KIND = "as it is: a problem's kind and what to do"
    RELEASE = "the release with noise, charged to the budget"
    WITHHELD = "left out, or zero"
    REDUCED = "without what images have a part in"
    NOT_COVERED = "of test images, which no claim covers"


@dataclass(frozen=True, slots=True)
class Row:
    """A row: some fields of some requests, each field of each request.

    Attributes:
        fields: Fields of their requests; those of a message within a message after a dot.
        policy: Key of the owner's policy that withholds them, or forbids the run that asks for them; empty where none does.
        at_site: What becomes of them where the claim covers all that is made of training images.
    """

    requests: tuple[str, ...]
    fields: tuple[str, ...]
    made_of: tuple[MadeOf, ...]
    policy: str = ""
    at_site: AtSite = AtSite.NO_PART


_UPLOADS = ("GetUploadStatus", "UploadModel", "UploadPrototypes")

TABLE = (
    Row(
        ("Join", "SyncRound", "Heartbeat", "DownloadBlob", "CommitUpdate", "ReportEvaluation"),
        ("client_id", "instance_token"),
        (MadeOf.IDENTITY,),
    ),
    Row(("Join",), ("domain", "display_name", "model_kind"), (MadeOf.IDENTITY,)),
    Row(("Join", "CommitUpdate"), ("num_examples",), (MadeOf.LABEL_COUNTS,), at_site=AtSite.PUBLIC),
    Row(
        ("Join",),
        ("class_counts.class_name", "class_counts.num_examples"),
        (MadeOf.LABEL_COUNTS,),
        policy="leaves.class_counts",
        at_site=AtSite.WITHHELD,
    ),
    Row(("Join",), ("smallest_side",), (MadeOf.TRAINING_IMAGES,), at_site=AtSite.WITHHELD),
    Row(
        ("Join",),
        ("environment.packages", "environment.cpu", "environment.device", "environment.platform", "version"),
        (MadeOf.MACHINE,),
    ),
    Row(
        ("SyncRound",),
        (
            *("poll.known.run_id", "poll.known.round", "poll.known.kind", "poll.known.times_asked", "poll.hold"),
            *("inline_blobs.max_bytes", "inline_blobs.held_sha256s"),
        ),
        (MadeOf.TRANSPORT,),
    ),
    Row(("DownloadBlob",), ("sha256", "offset_bytes"), (MadeOf.TRANSPORT,)),
    Row(("Heartbeat",), ("activity", "run_id", "round", "is_leaving"), (MadeOf.TRANSPORT,)),
    Row(("Heartbeat",), ("progress",), (MadeOf.LABEL_COUNTS, MadeOf.MACHINE), at_site=AtSite.PUBLIC),
    Row(
        ("Heartbeat",),
        ("readings",),
        (MadeOf.MACHINE, MadeOf.TRAINING_IMAGES),
        policy="leaves.readings",
        at_site=AtSite.REDUCED,
    ),
    Row(("Heartbeat",), ("log_level",), (MadeOf.TRANSPORT,)),
    Row(
        ("Heartbeat",),
        (
            *(f"log_lines.{name}" for name in ("time", "level", "event", "run_id", "round", "facts")),
            "log_lines_left_out",
        ),
        (MadeOf.TRAINING_IMAGES, MadeOf.MACHINE),
        policy="leaves.logs",
        at_site=AtSite.WITHHELD,
    ),
    Row(
        ("Heartbeat",),
        ("problem.reason", "problem.hint", "problem.is_fatal"),
        (MadeOf.TRAINING_IMAGES, MadeOf.MACHINE),
        at_site=AtSite.KIND,
    ),
    Row(("Heartbeat",), ("problem.detail",), (MadeOf.TRAINING_IMAGES, MadeOf.MACHINE), at_site=AtSite.WITHHELD),
    Row(_UPLOADS, ("header.client_id", "header.instance_token"), (MadeOf.IDENTITY,)),
    Row(_UPLOADS, ("header.run_id", "header.round", "header.blob.role"), (MadeOf.RUN,)),
    Row(_UPLOADS, ("header.blob.size_bytes",), (MadeOf.RUN, MadeOf.TRAINING_IMAGES)),
    Row(("UploadModel", "UploadPrototypes"), ("chunk.offset_bytes",), (MadeOf.TRANSPORT,)),
    Row(
        ("GetUploadStatus",),
        ("header.blob.sha256",),
        (MadeOf.MODEL, MadeOf.TRAINING_IMAGES),
        policy="leaves.models",
        at_site=AtSite.RELEASE,
    ),
    Row(
        ("UploadModel",),
        ("header.blob.sha256", "chunk.data"),
        (MadeOf.MODEL, MadeOf.TRAINING_IMAGES),
        policy="leaves.models",
        at_site=AtSite.RELEASE,
    ),
    Row(
        ("UploadPrototypes",),
        ("header.blob.sha256", "chunk.data"),
        (MadeOf.TRAINING_IMAGES,),
        policy="leaves.class_counts",
        at_site=AtSite.WITHHELD,
    ),
    Row(("CommitUpdate", "ReportEvaluation"), ("run_id", "round"), (MadeOf.RUN,)),
    Row(
        ("CommitUpdate",),
        ("payload.tensor_groups.role", "payload.prototype_sets.role", "payload.encoded.role"),
        (MadeOf.RUN,),
    ),
    Row(
        ("CommitUpdate",),
        ("payload.tensor_groups.size_bytes", "payload.prototype_sets.size_bytes", "payload.encoded.size_bytes"),
        (MadeOf.RUN, MadeOf.TRAINING_IMAGES),
    ),
    Row(
        ("CommitUpdate",),
        ("payload.tensor_groups.sha256", "payload.encoded.sha256", "inline_blobs"),
        (MadeOf.MODEL, MadeOf.TRAINING_IMAGES),
        policy="leaves.models",
        at_site=AtSite.RELEASE,
    ),
    Row(
        ("CommitUpdate",),
        ("payload.prototype_sets.sha256",),
        (MadeOf.TRAINING_IMAGES,),
        policy="leaves.class_counts",
        at_site=AtSite.WITHHELD,
    ),
    Row(
        ("CommitUpdate",),
        ("payload.scalars", "payload.int_lists", "payload.metadata"),
        (MadeOf.TRAINING_IMAGES, MadeOf.RUN),
        at_site=AtSite.REDUCED,
    ),
    Row(
        ("CommitUpdate",),
        ("class_counts",),
        (MadeOf.LABEL_COUNTS,),
        policy="leaves.class_counts",
        at_site=AtSite.WITHHELD,
    ),
    Row(("CommitUpdate",), ("num_excluded",), (MadeOf.TRAINING_IMAGES,), at_site=AtSite.WITHHELD),
    Row(
        ("CommitUpdate",),
        ("losses",),
        (MadeOf.TRAINING_IMAGES, MadeOf.MODEL),
        policy="leaves.losses",
        at_site=AtSite.WITHHELD,
    ),
    Row(
        ("CommitUpdate", "ReportEvaluation"),
        ("timings",),
        (MadeOf.MACHINE, MadeOf.TRAINING_IMAGES),
        policy="leaves.readings",
        at_site=AtSite.REDUCED,
    ),
    Row(("ReportEvaluation",), ("counts.set_name", "counts.model"), (MadeOf.RUN,)),
    Row(
        ("ReportEvaluation",),
        (
            *("counts.correct", "counts.total", "counts.confusion"),
            *("counts.histograms.of_class", "counts.histograms.of_others"),
            *("counts.histograms.confidence", "counts.histograms.confidence_correct"),
        ),
        (MadeOf.TEST_IMAGES, MadeOf.MODEL),
        policy="leaves.scores",
        at_site=AtSite.NOT_COVERED,
    ),
    Row(("Enrol",), ("invitation_id", "secret", "certificate_request"), (MadeOf.IDENTITY,)),
    Row(("BeginRecovery",), ("certificate",), (MadeOf.IDENTITY,)),
    Row(("FinishRecovery",), ("certificate", "challenge", "signature", "certificate_request"), (MadeOf.IDENTITY,)),
    Row(("RenewCertificate",), ("certificate_request",), (MadeOf.IDENTITY,)),
)

OF_NO_DATA = frozenset({MadeOf.IDENTITY, MadeOf.RUN, MadeOf.TRANSPORT})
"""Sources of requests that the log of what left has no line of: who calls, and what it was told itself."""
