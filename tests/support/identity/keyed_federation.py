"""An aggregator over TLS and a gateway that asks for keys, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from aggregator.identity.authority import Authority
from shared.identity.certificates import key_to_pem, new_key
from shared.identity.credentials import IDENTITY_FILE, Credentials
from shared.identity.names import Identity, Role
from shared.wire.tls import ClientTls
from tests.support.federation.processes import Federation


def issued(authority: Authority, role: Role, name: str) -> Credentials:
    key = new_key()
    certificate = authority.issue_client(Identity(authority.federation, role, name), key.public_key(), 3600.0)
    return Credentials(key_to_pem(key), certificate.chain_pem, authority.roots_pem)


class Keyed(Federation):
    """A federation over TLS whose gateway asks for keys."""

    def begin(self, *flags: str) -> None:
        state = self.folder / "aggregator"
        state.mkdir(mode=0o700)
        self.authority = Authority.open(state)
        gateway = self.folder / "fedplcc-state" / "gateway"
        gateway.mkdir(parents=True, mode=0o700)
        issued(self.authority, Role.GATEWAY, "console").save(gateway / IDENTITY_FILE)
        self.tls = ClientTls(lambda: issued(self.authority, Role.MONITOR, "watch"))
        self.start_aggregator("--enrol-port", "0", *flags)
        self.start_gateway()

    def command(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder / "user")}
        return subprocess.run(
            [sys.executable, "-m", "fedplcc", *arguments],
            cwd=self.folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    def owner(self, *arguments: str) -> str:
        done = self.command(*arguments, "--state-dir", str(self.folder / "aggregator"))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def new_key(self, *scopes: str) -> tuple[str, dict[str, str]]:
        text = self.owner("key", "create", "a test", *(part for scope in scopes for part in ("--scope", scope)))
        return text.split("_")[1], {"Authorization": f"Bearer {text}"}

    def code(self) -> str:
        return self.owner("console", "--no-browser", "--gateway", self.gateway_url).partition("#code=")[2]
