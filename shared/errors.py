"""Tree of the errors that cross process boundaries.

Each class has a `code`, a `reason` in UPPER_SNAKE_CASE and a sentence
for the user. `shared/wire/statuses.py` maps errors to statuses and back, `gateway/http/problem.py` to problem
documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedplcc.shared.codes import Code


class FedplccError(Exception):
    """Root of the tree. `detail` is a sentence for the user, `metadata` holds facts for programs as text."""

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, detail: str, **metadata: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.metadata: Mapping[str, str] = {key: str(value) for key, value in metadata.items()}


class InvalidArgument(FedplccError):
    """The request is wrong, whatever the state; sending it again does not help."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"


class InvalidConfig(InvalidArgument):
    """A run configuration with an unknown key, an unknown name or a value out of range."""

    reason = "INVALID_CONFIG"


class InvalidData(InvalidArgument):
    """A client's data set that cannot be read or does not fit the run's data contract."""

    reason = "INVALID_DATA"


class InvalidModel(InvalidArgument):
    """A model specification that gives no usable model."""

    reason = "INVALID_MODEL"


class MalformedUpdate(InvalidArgument):
    """An update whose tensors, prototypes or counts break the contract. `metadata["check"]` names the check."""

    reason = "MALFORMED_UPDATE"


class UpdateNormExceeded(MalformedUpdate):
    """A model or a prototype beyond the run's norm limit.

    `metadata["check"]` is "norm" (distance from the round's global model, `admission.max_update_norm`) or
    "prototype_norm" (distance from 0, `admission.max_prototype_norm`).
    """

    reason = "UPDATE_NORM_EXCEEDED"


class PublicDataDiffers(MalformedUpdate):
    """An update of a client whose public images are not the run's. `metadata["check"]` is "public_data"."""

    reason = "PUBLIC_DATA_DIFFERS"


class MalformedRequest(InvalidArgument):
    """A message with a missing or impossible field."""

    reason = "MALFORMED_REQUEST"


class BlobCorrupt(InvalidArgument):
    """Received bytes do not have the SHA-256 that was announced."""

    reason = "BLOB_CORRUPT"


class BlobIncomplete(BlobCorrupt):
    """The sender's stream ended before the last byte; what arrived is kept, and another stream may send the rest."""

    reason = "BLOB_INCOMPLETE"


class ChunkOutOfOrder(InvalidArgument):
    """A chunk does not begin where the bytes received so far end."""

    reason = "CHUNK_OUT_OF_ORDER"


class Unauthenticated(FedplccError):
    """No client id or no instance token."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class CertificateExpired(Unauthenticated):
    """The caller's certificate is past its end; it can be renewed."""

    reason = "CERTIFICATE_EXPIRED"


class CertificateRevoked(Unauthenticated):
    """The caller's certificate was revoked; only another invitation admits it again."""

    reason = "CERTIFICATE_REVOKED"


class KeyInvalid(Unauthenticated):
    """No such key. One answer for an unknown, an expired and a revoked one."""

    reason = "KEY_INVALID"


class SignOnEnded(KeyInvalid):
    """A person's session that single sign-on opened has ended; the sentence says why."""

    reason = "SIGN_ON_ENDED"


class SignOnRefused(Unauthenticated):
    """A person's sign-on is refused. `metadata["check"]` names what is wrong: "state", "nonce", "issuer" and so on."""

    reason = "SIGN_ON_REFUSED"


class Forbidden(FedplccError):
    """The caller is known, and may not do this."""

    code = Code.PERMISSION_DENIED
    reason = "FORBIDDEN"


class RoleForbidden(Forbidden):
    """Certificates of this role may not make this call."""

    reason = "ROLE_FORBIDDEN"


class IdentityMismatch(Forbidden):
    """The call names another client than the caller's certificate, or another domain than its invitation."""

    reason = "IDENTITY_MISMATCH"


class ScopeMissing(Forbidden):
    """The key has not the scope of this call. `metadata["scope"]` names it."""

    reason = "SCOPE_MISSING"


class InvitationInvalid(Forbidden):
    """No such invitation. One answer for an unknown and an expired one."""

    reason = "INVITATION_INVALID"


class NotAMember(FedplccError):
    """The client has not joined, its lease ran out, or the run's roster does not name it."""

    code = Code.PERMISSION_DENIED
    reason = "NOT_A_MEMBER"


class NotInCohort(NotAMember):
    """The client is not in this round's cohort."""

    reason = "NOT_IN_COHORT"


class ClientQuarantined(NotInCohort):
    """The client is excluded from this run until an operator releases it."""

    reason = "CLIENT_QUARANTINED"


class NotFound(FedplccError):
    """The requested thing does not exist."""

    code = Code.NOT_FOUND
    reason = "NOT_FOUND"


class RunNotFound(NotFound):
    """No run has this id."""

    reason = "RUN_NOT_FOUND"


class RunDeleted(RunNotFound):
    """The run was deleted. A list of deleted runs has its line."""

    reason = "RUN_DELETED"


class RoundNotFound(NotFound):
    """The run has no such committed round."""

    reason = "ROUND_NOT_FOUND"


class BlobNotFound(NotFound):
    """The blob is not stored, or not for this client."""

    reason = "BLOB_NOT_FOUND"


class ClientNotFound(NotFound):
    """No client of this id takes part in the run, or ever joined."""

    reason = "CLIENT_NOT_FOUND"


class NoPrototypes(NotFound):
    """The run's method has no prototypes."""

    reason = "NO_PROTOTYPES"


class AlreadyExists(FedplccError):
    """The name is taken."""

    code = Code.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"


class InvitationUsed(AlreadyExists):
    """Another key was certified with this invitation."""

    reason = "INVITATION_USED"


class ClientIdTaken(AlreadyExists):
    """Another trainer acts for this client, and its lease has not run out."""

    reason = "CLIENT_ID_TAKEN"


class UpdateConflict(AlreadyExists):
    """A different update of this client is already committed in this round."""

    reason = "UPDATE_CONFLICT"


class RequestIdReused(AlreadyExists):
    """The same request id came with another body."""

    reason = "REQUEST_ID_REUSED"


class FailedPrecondition(FedplccError):
    """The request does not fit the present state; fetch the state, then decide."""

    code = Code.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"


class VersionRefused(FailedPrecondition):
    """The caller's version of fedplcc is more than one minor version away; bring both to versions that work together."""

    reason = "VERSION_REFUSED"


class RoundClosed(FailedPrecondition):
    """The round does not accept this any more, or not yet."""

    reason = "ROUND_CLOSED"


class RunEnded(RoundClosed):
    """An update or a report for a run that has ended or is being stopped."""

    reason = "RUN_ENDED"


class StaleRound(RoundClosed):
    """An update or a report for an older round than the open one."""

    reason = "STALE_ROUND"


class FutureRound(RoundClosed):
    """An update or a report for a round that has not opened yet."""

    reason = "FUTURE_ROUND"


class LateUpdate(RoundClosed):
    """An update for the open round after its training phase."""

    reason = "LATE_UPDATE"


class LateReport(RoundClosed):
    """A report for the open round after its evaluation phase."""

    reason = "LATE_REPORT"


class EarlyReport(RoundClosed):
    """A report for the open round, which has no model to report on yet."""

    reason = "EARLY_REPORT"


class CodeNotAllowed(FailedPrecondition):
    """The run's document names code that the owner of a trainer's site did not list; nothing of it was imported."""

    reason = "CODE_NOT_ALLOWED"


class DataNotAllowed(FailedPrecondition):
    """The run needs public images, and the owner of a trainer's site named none; nothing was opened."""

    reason = "DATA_NOT_ALLOWED"


class WeightsMissing(FailedPrecondition):
    """The run names a backbone that the store of a trainer's site has not, or not with that SHA-256; none was used."""

    reason = "WEIGHTS_MISSING"


class ModelKindRefused(FailedPrecondition):
    """A client has its own kind of model and is asked into a run that averages models; nothing was built."""

    reason = "MODEL_KIND_REFUSED"


class UploadSuperseded(FailedPrecondition):
    """This stream of an upload has ended: another one has taken over, or the upload was removed; begin it again."""

    reason = "UPLOAD_SUPERSEDED"


class FirstModelDiffers(FailedPrecondition):
    """The run's first model, or a list of its tensors, is not what this client makes of specification and seed."""

    reason = "FIRST_MODEL_DIFFERS"


class UpdateLost(FailedPrecondition):
    """The aggregator asks for an update again that the client no longer has and cannot make again."""

    reason = "UPDATE_LOST"


class RunIsOpen(FailedPrecondition):
    """The run has not ended: it can be neither archived nor deleted. Stop it first."""

    reason = "RUN_IS_OPEN"


class ClientInOpenRun(FailedPrecondition):
    """The client takes part in a run that has not ended. `metadata["run_id"]` names one."""

    reason = "CLIENT_IN_OPEN_RUN"


class InvalidTransition(FailedPrecondition):
    """The run's status does not allow this."""

    reason = "INVALID_TRANSITION"


class ResourceExhausted(FedplccError):
    """A limit is reached."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "RESOURCE_EXHAUSTED"


class BlobTooLarge(ResourceExhausted):
    """The blob is larger than the aggregator accepts."""

    reason = "BLOB_TOO_LARGE"


class ChunkTooLarge(ResourceExhausted):
    """The chunk is larger than the aggregator accepts."""

    reason = "CHUNK_TOO_LARGE"


class TooManyOpenRuns(ResourceExhausted):
    """As many runs as the aggregator allows have not ended."""

    reason = "TOO_MANY_OPEN_RUNS"


class TooManyCalls(ResourceExhausted):
    """The caller calls more often than is allowed. `metadata["retry_after_s"]` says when it may again."""

    reason = "TOO_MANY_CALLS"


class TooManyRequests(ResourceExhausted):
    """The gateway refuses more requests of this address or key. `metadata["retry_after_s"]` says for how long."""

    reason = "TOO_MANY_REQUESTS"


class Overloaded(ResourceExhausted):
    """Too many requests; try again later."""

    reason = "OVERLOADED"


class Unavailable(FedplccError):
    """A part of the system is away for now; try again with backoff."""

    code = Code.UNAVAILABLE
    reason = "UNAVAILABLE"


class StoreUnavailable(Unavailable):
    """The aggregator cannot write to its disk or database."""

    reason = "STORE_UNAVAILABLE"


class DiskFull(StoreUnavailable):
    """The disk has no room for data that a process must keep."""

    reason = "DISK_FULL"


class SignOnUnavailable(Unavailable):
    """The provider of single sign-on does not answer, or answers what no provider should."""

    reason = "SIGN_ON_UNAVAILABLE"


class AggregatorUnavailable(Unavailable):
    """No aggregator answers at the address."""

    reason = "AGGREGATOR_UNAVAILABLE"


class TlsFailed(AggregatorUnavailable):
    """Something answers at the address, and TLS with it fails; the sentence says why."""

    reason = "TLS_FAILED"


class PinMismatch(TlsFailed):
    """What answers is not the aggregator of the invitation."""

    reason = "PIN_MISMATCH"


class TransferIdle(FedplccError):
    """The peer sent or read nothing for too long; received bytes are kept, and the transfer can resume after them."""

    code = Code.DEADLINE_EXCEEDED
    reason = "TRANSFER_IDLE"


class PayloadCorrupt(FedplccError):
    """Stored bytes do not match their SHA-256; an operator must look."""

    code = Code.DATA_LOSS
    reason = "PAYLOAD_CORRUPT"


class RowCorrupt(PayloadCorrupt):
    """A row of the database does not have its digest; an operator must look. The metadata name table and key."""

    reason = "ROW_CORRUPT"


class Internal(FedplccError):
    """A bug. The public text is fixed."""

    code = Code.INTERNAL
    reason = "INTERNAL"


def _descendants(root: type[FedplccError]) -> list[type[FedplccError]]:
    return [root, *(found for child in root.__subclasses__() for found in _descendants(child))]


BY_REASON: Mapping[str, type[FedplccError]] = {kind.reason: kind for kind in reversed(_descendants(FedplccError))}
"""Error class by reason. The root and `Internal` share INTERNAL, which maps to `Internal`."""
BY_REASON = {**BY_REASON, Internal.reason: Internal}


def from_reason(reason: str, detail: str, metadata: Mapping[str, str], code: int) -> FedplccError:
    """Return the error that a peer raised; an unknown reason gives the class of its code."""
    kind = BY_REASON.get(reason)
    if kind is None:
        kind = next((found for found in _BY_CODE if found.code == code), Internal)
    error = kind(detail)
    error.metadata = dict(metadata)  # not as keywords: the peer chose the names
    return error


_BY_CODE = (
    InvalidArgument,
    Unauthenticated,
    NotAMember,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
    TransferIdle,
    PayloadCorrupt,
)
