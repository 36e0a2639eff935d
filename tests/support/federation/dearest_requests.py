"""Requests of a member that cost a server the most for their size, which is about the largest."""

from __future__ import annotations

from functools import lru_cache

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2

NESTED = 2_300_000
"""Empty messages of two bytes each."""
PACKED = 4_600_000
"""Numbers of one byte each."""


@lru_cache(maxsize=1)
def dearest_join() -> bytes:
    """4 MiB of empty entries, two bytes each."""
    return b"\x2a\x00" * (2 << 20)


@lru_cache(maxsize=1)
def dearest_commits() -> tuple[bytes, ...]:
    """Commits of 4.6 MB in all: of empty blobs, of losses, of a list of numbers, of bytes. Who sends them is to be added."""
    blobs = b"\x0a\x00" * NESTED  # Payload.tensor_groups
    losses = {f"loss {number}": 1.0 for number in range(60_000)}
    return tuple(
        round_pb2.CommitUpdateRequest(run_id="run", round=1, num_examples=12).SerializeToString() + more
        for more in (
            _field("payload", blobs),
            round_pb2.CommitUpdateRequest(losses=losses, timings=losses).SerializeToString(),
            round_pb2.CommitUpdateRequest(class_counts=[1] * PACKED).SerializeToString(),
            round_pb2.CommitUpdateRequest(inline_blobs=[b"x" * (255 << 10)] * 18).SerializeToString(),
        )
    )


def _field(name: str, content: bytes) -> bytes:
    """A nested message as on the wire, made of bytes: as objects its parts would take gigabytes."""
    number = round_pb2.CommitUpdateRequest.DESCRIPTOR.fields_by_name[name].number
    size, rest = b"", len(content)
    while rest > 0x7F:
        size += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return bytes([number << 3 | 2]) + size + bytes([rest]) + content
