"""SHA256SUMS, and a signature of it by a key that the releaser names, in OpenSSH's format.

Who verifies needs `ssh-keygen` and `sha256sum` and nothing of this project; docs/release.md has the lines.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from release.building import digest
from release.project import Refused

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "fedplcc-release"
"""What a signature is for: one that was made of the same bytes for another purpose does not verify."""
SIGN_S = 300.0
"""Longest time of a signature: a person may have to touch a token or type a passphrase."""


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of each file of a folder, in the format of sha256sum."""
    sums = folder / SUMS
    lines = [
        f"{digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name not in (SUMS, SIGNATURE)
    ]
    sums.write_text("".join(lines), encoding="ascii")
    return sums


def fingerprint_of(key: Path) -> str:
    """Return the fingerprint of a key.

    Raises:
        Refused: There is no such key.
    """
    if not key.is_file():
        raise Refused(f"there is no key {key}: make one with ssh-keygen -t ed25519, or name another by --key")
    return _ssh_keygen("-l", "-f", str(key)).split()[1]


def sign(sums: Path, key: Path) -> None:
    """Sign the sums, and check the signature.

    Args:
        sums: The file of sums; the signature is written beside it.
        key: A private key, or a public one whose private key an agent or a token has.

    Raises:
        Refused: The key does not sign.
    """
    signature = sums.with_name(SIGNATURE)
    signature.unlink(missing_ok=True)
    _ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(sums))
    with sums.open("rb") as file:
        _ssh_keygen("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature), stdin=file.fileno())


def _ssh_keygen(*arguments: str, stdin: int = subprocess.DEVNULL) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments], stdin=stdin, capture_output=True, text=True, timeout=SIGN_S, check=False
        )
    except FileNotFoundError:
        raise Refused("there is no ssh-keygen, which signs: install OpenSSH's client") from None
    if done.returncode != 0:
        raise Refused(f"ssh-keygen {' '.join(arguments[:2])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
