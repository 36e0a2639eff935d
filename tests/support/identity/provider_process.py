"""A provider process that a package ships (oidc-provider-mock) on loopback, and browsers that sign on at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx

from tests.support.federation.ports import free_port
from tests.support.federation.processes import Process, eventually

CLIENT = "fedplcc-tests"
ADA = {"name": "Ada Lovelace", "roles": ["operators"]}


class ProviderProcess:
    """The process."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.issuer = f"http://127.0.0.1:{free_port()}"
        port = self.issuer.rpartition(":")[2]
        self.process = Process("provider", folder, ["oidc_provider_mock", "--port", port, *flags])
        self.http = httpx.Client(base_url=self.issuer, trust_env=False, timeout=30)

    def start(self) -> None:
        self.process.start()
        eventually(self._answers, "the provider answers")

    def _answers(self) -> bool:
        try:
            return self.http.get("/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        if self.process.is_running:
            self.process.kill()
        self.http.close()

    def flags(self, secret_file: Path) -> tuple[str, ...]:
        """Settings of an aggregator whose people sign on here."""
        secret_file.touch(0o600)
        secret_file.write_text("a secret of the client\n")
        roles = ("--sso-role", "operators=run", "--sso-role", "readers=read")
        client = ("--sso-client-id", CLIENT, "--sso-secret-file", str(secret_file))
        return ("--sso-issuer", self.issuer, "--sso-name", "University login", *client, *roles)

    def set_user(self, subject: str, claims: dict[str, Any]) -> None:
        """Make a person, or change what the provider says of one."""
        assert self.http.put(f"/users/{subject}", json=claims).status_code == 204

    def way_back(self, address: str, subject: str) -> str:
        """Let a person sign on at the address where a browser was led to; returns the one that it is sent back to."""
        answer = self.http.post(address, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        return urljoin(self.issuer, answer.headers["location"])


def sign_on(browser: httpx.Client, provider: ProviderProcess, subject: str) -> httpx.Response:
    """Sign on with a browser of the gateway; returns the gateway's answer to the way back."""
    led = browser.get("/v1/sign-on/start")
    assert led.status_code == 303, led.text
    return browser.get(provider.way_back(led.headers["location"], subject))
