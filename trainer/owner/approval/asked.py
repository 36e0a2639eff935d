"""What a run asks of a site, and what an approval of it is bound to. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.tensors import sha256_hex

MAX_DOCUMENT_BYTES = 3 << 20
"""Longest document of a run that is kept for its owner."""
FREE = ("name", "seed", "rounds")
"""Keys of `[run]` in which a matching run may differ from an approved one; of rounds it may have fewer, not more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run asks for.

    Attributes:
        document: Its configuration as canonical JSON.
        code: Version of fedplcc, of timm for a model of it, and SHA-256 of each other package that it uses, by name.
        model_bytes: Size of the model that the site was sent with the first task; 0 where it makes the first one.
        asked_at: When the site was first asked, in seconds since the epoch.
        started_by: Who began the run, in the aggregator's words; no approval is bound to it.
        torch: Version of torch at the site; no approval is bound to it, and each says it.
    """

    run_id: str
    document: str
    code: Mapping[str, str]
    model_bytes: int = 0
    asked_at: float = 0.0
    started_by: str = ""
    torch: str = ""

    @property
    def document_sha256(self) -> str:
        """SHA-256 of the document, computed here; no word of another process counts."""
        return sha256_hex(self.document.encode())

    @property
    def code_sha256(self) -> str:
        """SHA-256 of the names, versions and digests of all code."""
        return sha256_hex(canonical_json(dict(self.code)).encode())

    @property
    def terms_sha256(self) -> str:
        """SHA-256 of the document without the keys in `FREE`."""
        run = {key: value for key, value in self.config["run"].items() if key not in FREE}
        return sha256_hex(canonical_json({**self.config, "run": run}).encode())

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return int(self.config["run"]["rounds"])

    @property
    def config(self) -> dict[str, Any]:
        """The document's content."""
        return document_of(self.document)


def document_of(text: str) -> dict[str, Any]:
    """Return the content of a run's document.

    Raises:
        MalformedRequest: It is none, or is too long.
    """
    if len(text) > MAX_DOCUMENT_BYTES:
        raise MalformedRequest(f"the run's document has {len(text)} characters, and {MAX_DOCUMENT_BYTES} is the most")
    try:
        found = json.loads(text)
        _ = str(found["run"]["method"]), int(found["run"]["rounds"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise MalformedRequest("the run's document is no configuration") from None
    checked: dict[str, Any] = found
    return checked
