"""A lane's place in the history, kept durably: what was delivered up to where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process import disk

MAX_PLACE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Every event up to a number is done with."""

    federation: str
    after: int
    delivered: str = ""
    """Kind of the last message that was delivered."""
    delivered_at: float = 0.0
    """When, in seconds since 1970; 0 for never."""


def read_place(path: Path) -> Place | None:
    """Return the place that a file keeps; None where there is none.

    Raises:
        InvalidConfig: The file cannot be read.
    """
    try:
        with disk.open_regular(path) as file:
            found = json.loads(file.read(MAX_PLACE_BYTES))
        place = Place(**found)
        if not isinstance(place.after, int) or place.after < 0 or not isinstance(place.federation, str):
            raise ValueError("it holds no place")
        return Place(place.federation, place.after, str(place.delivered), float(place.delivered_at))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InvalidConfig(
            f"{path} cannot be read: {error}; move it away, and its receiver is told of what happens from then on"
        ) from error


def keep_place(path: Path, place: Place) -> None:
    """Keep a place; when this returns it survives a power cut.

    Raises:
        OSError: The disk refuses; the place before is unchanged.
    """
    disk.make_state_folder(path.parent, "message.folder")
    disk.replace_file(path, json.dumps(asdict(place)).encode(), "message.place", mode=0o600)
