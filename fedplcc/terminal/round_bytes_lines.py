"""Bytes that a round moves, as lines of text: what is foreseen, and what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.filesize import decimal

from fedplcc.shared import documents
from fedplcc.shared.config.round_bytes import RoundBytes, measured_bytes


def foreseen_line(foreseen: RoundBytes | documents.RoundBytes) -> str:
    """The bytes that a round moves, of a client and of all."""
    most = "at most " if foreseen.is_bound else ""
    first = "" if foreseen.first_down == foreseen.down else f" ({decimal(foreseen.first_down)} in its first round)"
    received = _with_prototypes(decimal(foreseen.down) + first, foreseen.prototypes_down)
    sent = _with_prototypes(decimal(foreseen.up), foreseen.prototypes_up)
    who = "the client receives" if foreseen.clients == 1 else f"each of {foreseen.clients} clients receives"
    return f"a round: {who} {received} and sends {sent}; {most}{decimal(foreseen.all_up + foreseen.all_down)} in all"


def _with_prototypes(size: str, most: int) -> str:
    return f"{size} and at most {decimal(most)} of prototypes" if most else size


def measured_line(timing: Mapping[str, Any]) -> str | None:
    """The bytes that a committed round moved, by its line of timings.jsonl; None where no client tells."""
    measured = measured_bytes(timing)
    if measured is None:
        return None
    sent, received = measured
    clients = len(timing["clients"])
    who = f"{clients} client{'' if clients == 1 else 's'}"
    moved = f"received {decimal(received)} and sent {decimal(sent)}, {decimal(received + sent)} in all"
    return f"round {timing['round']}: {who} {moved}"
