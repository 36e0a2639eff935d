"""Seeds of everything random in a trainer, each derived from named parts, never from a shared stream.

So the draws of one purpose never change those of another, and a restarted process draws the same.
"""

from __future__ import annotations

import hashlib
import json


def derive_seed(*parts: str | int) -> int:
    """Return a 63-bit seed that is a function of the parts and their order alone.

    Args:
        parts: Purpose of the seed, for example `("batches", seed, client_id, round)`. The text "1" and the number 1 are
            different parts.
    """
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
