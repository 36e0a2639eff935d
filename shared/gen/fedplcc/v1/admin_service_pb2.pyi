from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as _enrol_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RenewCertificateRequest(_message.Message):
    __slots__ = ("certificate_request",)
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    certificate_request: bytes
    def __init__(self, certificate_request: _Optional[bytes] = ...) -> None: ...

class RenewCertificateResponse(_message.Message):
    __slots__ = ("issued",)
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    issued: _enrol_service_pb2.IssuedCertificate
    def __init__(self, issued: _Optional[_Union[_enrol_service_pb2.IssuedCertificate, _Mapping]] = ...) -> None: ...

class GetCallerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCallerResponse(_message.Message):
    __slots__ = ("caller", "label", "scopes", "expires_at", "federation", "roots_pem")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    ROOTS_PEM_FIELD_NUMBER: _ClassVar[int]
    caller: str
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    expires_at: float
    federation: str
    roots_pem: str
    def __init__(self, caller: _Optional[str] = ..., label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., expires_at: _Optional[float] = ..., federation: _Optional[str] = ..., roots_pem: _Optional[str] = ...) -> None: ...

class CreateInvitationRequest(_message.Message):
    __slots__ = ("role", "name", "domain", "valid_s", "replaces")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    VALID_S_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    domain: str
    valid_s: float
    replaces: bool
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ..., domain: _Optional[str] = ..., valid_s: _Optional[float] = ..., replaces: bool = ...) -> None: ...

class CreateInvitationResponse(_message.Message):
    __slots__ = ("invitation_id", "secret", "certificate_sha256", "expires_at")
    INVITATION_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    invitation_id: str
    secret: bytes
    certificate_sha256: bytes
    expires_at: float
    def __init__(self, invitation_id: _Optional[str] = ..., secret: _Optional[bytes] = ..., certificate_sha256: _Optional[bytes] = ..., expires_at: _Optional[float] = ...) -> None: ...

class ListCertificatesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeldCertificate(_message.Message):
    __slots__ = ("serial", "role", "name", "issued_at", "not_after", "revoked_at")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    serial: str
    role: str
    name: str
    issued_at: float
    not_after: float
    revoked_at: float
    def __init__(self, serial: _Optional[str] = ..., role: _Optional[str] = ..., name: _Optional[str] = ..., issued_at: _Optional[float] = ..., not_after: _Optional[float] = ..., revoked_at: _Optional[float] = ...) -> None: ...

class ListCertificatesResponse(_message.Message):
    __slots__ = ("certificates",)
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    certificates: _containers.RepeatedCompositeFieldContainer[HeldCertificate]
    def __init__(self, certificates: _Optional[_Iterable[_Union[HeldCertificate, _Mapping]]] = ...) -> None: ...

class RevokeHolderRequest(_message.Message):
    __slots__ = ("role", "name")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RevokeHolderResponse(_message.Message):
    __slots__ = ("revoked",)
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    revoked: int
    def __init__(self, revoked: _Optional[int] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("label", "scopes", "valid_s")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    VALID_S_FIELD_NUMBER: _ClassVar[int]
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    valid_s: float
    def __init__(self, label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., valid_s: _Optional[float] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("key_id", "label", "scopes", "created_at", "expires_at", "kind", "maker")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MAKER_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    created_at: float
    expires_at: float
    kind: str
    maker: str
    def __init__(self, key_id: _Optional[str] = ..., label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., created_at: _Optional[float] = ..., expires_at: _Optional[float] = ..., kind: _Optional[str] = ..., maker: _Optional[str] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: Key
    text: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("key_id",)
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    def __init__(self, key_id: _Optional[str] = ...) -> None: ...

class RevokeKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevokeOwnKeyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevokeOwnKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateConsoleCodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateConsoleCodeResponse(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: str
    def __init__(self, code: _Optional[str] = ...) -> None: ...

class RedeemConsoleCodeRequest(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: str
    def __init__(self, code: _Optional[str] = ...) -> None: ...

class RedeemConsoleCodeResponse(_message.Message):
    __slots__ = ("text", "expires_at")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    text: str
    expires_at: float
    def __init__(self, text: _Optional[str] = ..., expires_at: _Optional[float] = ...) -> None: ...

class BrowserSignOn(_message.Message):
    __slots__ = ("redirect_uri",)
    REDIRECT_URI_FIELD_NUMBER: _ClassVar[int]
    redirect_uri: str
    def __init__(self, redirect_uri: _Optional[str] = ...) -> None: ...

class TerminalSignOn(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignOnCode(_message.Message):
    __slots__ = ("handle", "state", "code")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    state: str
    code: str
    def __init__(self, handle: _Optional[str] = ..., state: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class SignOnPoll(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    def __init__(self, handle: _Optional[str] = ...) -> None: ...

class SignOnRequest(_message.Message):
    __slots__ = ("address", "browser", "terminal", "finish", "poll")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BROWSER_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    address: str
    browser: BrowserSignOn
    terminal: TerminalSignOn
    finish: SignOnCode
    poll: SignOnPoll
    def __init__(self, address: _Optional[str] = ..., browser: _Optional[_Union[BrowserSignOn, _Mapping]] = ..., terminal: _Optional[_Union[TerminalSignOn, _Mapping]] = ..., finish: _Optional[_Union[SignOnCode, _Mapping]] = ..., poll: _Optional[_Union[SignOnPoll, _Mapping]] = ...) -> None: ...

class SignOnResponse(_message.Message):
    __slots__ = ("name", "url", "user_code", "handle", "interval_s", "text", "expires_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    USER_CODE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    user_code: str
    handle: str
    interval_s: float
    text: str
    expires_at: float
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., user_code: _Optional[str] = ..., handle: _Optional[str] = ..., interval_s: _Optional[float] = ..., text: _Optional[str] = ..., expires_at: _Optional[float] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("after", "page_size")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    after: int
    page_size: int
    def __init__(self, after: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("number", "time", "caller", "credential", "method", "target", "outcome", "reason", "address", "request_id", "count", "hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: float
    caller: str
    credential: str
    method: str
    target: str
    outcome: str
    reason: str
    address: str
    request_id: str
    count: int
    hash: str
    def __init__(self, number: _Optional[int] = ..., time: _Optional[float] = ..., caller: _Optional[str] = ..., credential: _Optional[str] = ..., method: _Optional[str] = ..., target: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., address: _Optional[str] = ..., request_id: _Optional[str] = ..., count: _Optional[int] = ..., hash: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class RotateAuthorityRequest(_message.Message):
    __slots__ = ("is_finish",)
    IS_FINISH_FIELD_NUMBER: _ClassVar[int]
    is_finish: bool
    def __init__(self, is_finish: bool = ...) -> None: ...

class RotateAuthorityResponse(_message.Message):
    __slots__ = ("roots_sha256",)
    ROOTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    roots_sha256: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, roots_sha256: _Optional[_Iterable[str]] = ...) -> None: ...

class RefusedRequests(_message.Message):
    __slots__ = ("reason", "limit", "address", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    limit: str
    address: str
    count: int
    def __init__(self, reason: _Optional[str] = ..., limit: _Optional[str] = ..., address: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class ReportRefusalsRequest(_message.Message):
    __slots__ = ("refusals",)
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[RefusedRequests]
    def __init__(self, refusals: _Optional[_Iterable[_Union[RefusedRequests, _Mapping]]] = ...) -> None: ...

class ReportRefusalsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
