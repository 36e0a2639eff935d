"""A key with its certificate, given to a TLS context from memory."""

from __future__ import annotations

import os
import ssl


def load_pair(context: ssl.SSLContext, key_pem: bytes, chain_pem: bytes) -> None:
    """Give a context a key and its certificate. The ssl module reads them from a file only, so the file is one in memory.

    Raises:
        ssl.SSLError, ValueError: They do not belong together, are not in PEM, or the key has a password.
    """
    file = os.memfd_create("certificate")
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(key_pem + b"\n" + chain_pem)
        # Without this password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")  # nosec B106 # no secret
    finally:
        os.close(file)
