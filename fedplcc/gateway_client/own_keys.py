"""The keys of this user, one for each gateway, in a file that nobody else reads."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from fedplcc.runs.atomic_file import disk_errors
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process import disk

KEYS_FILE = "keys.json"
ROOTS_FILE = "gateway-roots.json"
"""Roots that gateways are checked against, in PEM by URL."""
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
    return _read(KEYS_FILE).get(url.rstrip("/"), "")


def roots_for(url: str) -> str:
    """Return the roots, in PEM, that a gateway at a URL is checked against; empty for the system's store.

    Raises:
        InvalidConfig: Others may change the file, or it is damaged.
    """
    return _read(ROOTS_FILE).get(url.rstrip("/"), "")


def keep_key(url: str, key: str, roots_pem: str = "") -> Path:
    """Keep the key for a gateway at a URL and its roots, in place of older ones; returns the file of the key.

    Raises:
        InvalidConfig: Others may read the file that is there, or it is damaged.
        StoreUnavailable: The folder cannot be written.
    """
    _change(ROOTS_FILE, url, roots_pem)
    return _change(KEYS_FILE, url, key)


def forget_key(url: str) -> None:
    """Forget the key for a gateway at a URL, and its roots.

    Raises:
        InvalidConfig: Others may read the file that is there, or it is damaged.
        StoreUnavailable: The folder cannot be written.
    """
    _change(KEYS_FILE, url, "")
    _change(ROOTS_FILE, url, "")


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


def _change(name: str, url: str, value: str) -> Path:
    """Write a URL's value into a file, or remove the URL where it is empty; one process at a time does."""
    path = user_folder() / name
    if not value and not path.exists():
        return path
    with disk_errors(path, option="XDG_CONFIG_HOME"):
        path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        with disk.locked(path.parent):
            before = _read(name)
            after = {known: kept for known, kept in before.items() if known != url.rstrip("/")}
            if value:
                after[url.rstrip("/")] = value
            return path if before == after else write_private(name, json.dumps(after, indent=2).encode() + b"\n")


def _read(name: str) -> dict[str, str]:
    path = user_folder() / name
    try:
        with disk.open_regular(path) as file:
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
