"""A federation whose owner types the commands that make keys and open the console."""

from __future__ import annotations

import subprocess

from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation
from tests.support.identity.issued import issued as issued


class Keyed(Federation):
    """An aggregator, a gateway, and their owner's commands."""

    def begin(self, *flags: str) -> None:
        self.start_aggregator(*flags)
        self.start_gateway()

    def command(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"XDG_CONFIG_HOME": str(self.folder / "user")}
        return typed(*arguments, cwd=self.folder, environment=environment, given=given)

    def owner(self, *arguments: str) -> str:
        done = self.command(*arguments, "--state-dir", str(self.state))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def new_key(self, *scopes: str) -> tuple[str, dict[str, str]]:
        text = self.owner("key", "create", "a test", *(part for scope in scopes for part in ("--scope", scope)))
        return text.split("_")[1], {"Authorization": f"Bearer {text}"}

    def code(self) -> str:
        return self.owner("console", "--no-browser", "--gateway", self.gateway_url).partition("#code=")[2]
