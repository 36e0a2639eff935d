from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetTimeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTimeResponse(_message.Message):
    __slots__ = ("time", "federation")
    TIME_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    time: float
    federation: str
    def __init__(self, time: _Optional[float] = ..., federation: _Optional[str] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("invitation_id", "secret", "certificate_request")
    INVITATION_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    invitation_id: str
    secret: bytes
    certificate_request: bytes
    def __init__(self, invitation_id: _Optional[str] = ..., secret: _Optional[bytes] = ..., certificate_request: _Optional[bytes] = ...) -> None: ...

class IssuedCertificate(_message.Message):
    __slots__ = ("chain_pem", "roots_pem", "federation", "role", "name", "domain", "port")
    CHAIN_PEM_FIELD_NUMBER: _ClassVar[int]
    ROOTS_PEM_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    chain_pem: str
    roots_pem: str
    federation: str
    role: str
    name: str
    domain: str
    port: int
    def __init__(self, chain_pem: _Optional[str] = ..., roots_pem: _Optional[str] = ..., federation: _Optional[str] = ..., role: _Optional[str] = ..., name: _Optional[str] = ..., domain: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class EnrolResponse(_message.Message):
    __slots__ = ("issued",)
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    issued: IssuedCertificate
    def __init__(self, issued: _Optional[_Union[IssuedCertificate, _Mapping]] = ...) -> None: ...

class BeginRecoveryRequest(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...

class BeginRecoveryResponse(_message.Message):
    __slots__ = ("challenge",)
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    challenge: bytes
    def __init__(self, challenge: _Optional[bytes] = ...) -> None: ...

class FinishRecoveryRequest(_message.Message):
    __slots__ = ("certificate", "challenge", "signature", "certificate_request")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    challenge: bytes
    signature: bytes
    certificate_request: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., challenge: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate_request: _Optional[bytes] = ...) -> None: ...

class FinishRecoveryResponse(_message.Message):
    __slots__ = ("issued",)
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    issued: IssuedCertificate
    def __init__(self, issued: _Optional[_Union[IssuedCertificate, _Mapping]] = ...) -> None: ...
