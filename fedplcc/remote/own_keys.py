"""The keys of this user, one for each gateway, in a file that nobody else reads."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from fedplcc.runs.atomic_file import disk_errors
from shared.errors import InvalidConfig
from shared.process import disk

KEYS_FILE = "keys.json"
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
MAX_BYTES = 1 << 20


def user_folder() -> Path:
    """Return this user's folder of fedplcc; it may not exist."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
    return base / "fedplcc"


def key_for(url: str) -> str:
    """Return the key for a gateway at a URL; empty if there is none.

    Raises:
        InvalidConfig: Others may read the file, or it is damaged.
    """
    return _read().get(url.rstrip("/"), "")


def keep_key(url: str, key: str) -> Path:
    """Keep the key for a gateway at a URL, in place of an older one; returns the file.

    Raises:
        InvalidConfig: Others may read the file that is there, or it is damaged.
        StoreUnavailable: The folder cannot be written.
    """
    return write_private(KEYS_FILE, json.dumps(_read() | {url.rstrip("/"): key}, indent=2).encode() + b"\n")


def write_private(name: str, data: bytes) -> Path:
    """Replace a file in the user's folder; only the user may read it.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    path = user_folder() / name
    with disk_errors(path, option="XDG_CONFIG_HOME"):
        path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        disk.replace_file(path, data, "user", mode=PRIVATE_FILE)
    return path


def _read() -> dict[str, str]:
    path = user_folder() / KEYS_FILE
    try:
        with path.open("rb") as file:
            others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077
            data = file.read(MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror or error}") from error
    if others:
        raise InvalidConfig(f"others may read the keys in {path}; make it private: chmod 600 {path}")
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found.values()):
        raise InvalidConfig(f"{path} is damaged; remove it and run 'fedplcc login' again")
    return found
