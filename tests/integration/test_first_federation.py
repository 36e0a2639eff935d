"""A stranger's first federation: the README's own lines, over TLS, from nothing to results, with no file of another host."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.toml_text import toml_tables
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation, Process, eventually, free_port


class Stranger:
    """Somebody with a terminal on each host; every host is a folder."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder = federation, folder
        self.typed: list[tuple[str, ...]] = []
        """Commands in order, without their options."""
        self.environment = {"XDG_CONFIG_HOME": str(folder / "user")}

    def host(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def type(self, host: str, *arguments: str, given: str = "") -> str:
        self.typed.append(command_of(arguments))
        done = typed(*arguments, cwd=self.host(host), environment=self.environment, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, host: str, *arguments: str) -> Process:
        self.typed.append(command_of(arguments))
        process = Process(f"{host}-{arguments[0]}", self.host(host), ["fedplcc", *arguments])
        self.federation.processes[process.name] = process
        process.start()
        return process


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(arguments[:2] if arguments[0] in ("run", "config", "client") else arguments[:1])


def commands_of(text: str) -> list[tuple[str, ...]]:
    """The commands of a text that begin with fedplcc, without their options."""
    return [command_of(found.split()) for found in re.findall(r"\bfedplcc ((?:run |config |client )?[a-z]+)", text)]


def lines_of_the_readme() -> list[tuple[str, ...]]:
    """The commands below "Deploy it"."""
    return commands_of((ROOT / "README.md").read_text(encoding="utf-8").partition("## Deploy it")[2].split("```")[1])


def lines_of_the_tutorial() -> list[tuple[str, ...]]:
    """The commands in the blocks of the deployer's tutorial."""
    text = (ROOT / "docs" / "tutorials" / "deployer.md").read_text(encoding="utf-8")
    return commands_of("".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))


def endpoint(state: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((state / "endpoint.json").read_text())
    except FileNotFoundError:
        return None
    return found if (state / "gateway.join").exists() else None


@pytest.mark.slow
def test_a_stranger_goes_from_nothing_to_results_over_tls(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    tiny_federation.write_data(data)
    values = tiny_federation.document(data, run={"rounds": 2})
    expected = tiny_federation.simulated(tmp_path / "reference", values)
    with Federation(tmp_path) as federation:
        stranger = Stranger(federation, tmp_path)
        stranger.type("hub", "doctor")
        stranger.start("hub", "aggregator", "--port", "0", "--enrol-port", "0", "--metrics-port", "off")
        state = tmp_path / "hub" / "fedplcc-state" / "aggregator"
        found = eventually(lambda: endpoint(state), "the aggregator invites its gateway")
        url = f"http://127.0.0.1:{free_port()}"
        gateway = ("--port", url.rpartition(":")[2], "--aggregator", f"127.0.0.1:{found['port']}")
        stranger.start("hub", "gateway", *gateway)
        eventually(lambda: not (state / "gateway.join").exists() or None, "the gateway has joined")
        stranger.type("hub", "login", "--gateway", url)
        stranger.type("hub", "console", "--no-browser", "--gateway", url)
        for name in tiny_federation.CLIENTS:
            line = stranger.type("hub", "invite", name, "--domain", name)
            stranger.type(name, "join", given=line)
            stranger.start(name, "trainer", "--data", f"npz:{data}/{name}.npz", "--device", "cpu")
        stranger.type("hub", "config", "init", "run.toml")
        (tmp_path / "hub" / "run.toml").write_text(toml_tables(tiny_federation.run_document(values)))
        stranger.type("hub", "config", "check", "run.toml")
        stranger.type("hub", "run", "start", "--config", "run.toml", "--gateway", url)
        stranger.type("hub", "run", "watch", "--gateway", url)
        stranger.type("hub", "run", "fetch", "--gateway", url, "--out", "results")
        lines = (tmp_path / "hub" / "results" / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["model_sha256"] == expected[-1]["model_sha256"]
        told = lines_of_the_readme()
        assert [line for line in told if line not in stranger.typed] == [], "every command of the README was typed"
        assert len(told) >= 11
        assert "1 completed" in stranger.type("hub", "run", "list", "--gateway", url)
        stranger.type("hub", "state", "backup", str(state), "backup")
        stranger.type("hub", "doctor", str(state))
        held = stranger.type("hub", "client", "list")
        assert [line.split()[:2] for line in held.splitlines()] == [
            ["client", "left"],
            ["client", "right"],
            ["gateway", "gateway"],
        ]
        audit = stranger.type("hub", "state", "audit", str(state))
        for done in ("CreateInvitation", "Enrol", "CreateKey", "Join", "CreateRun"):
            assert done in audit, audit
        assert "whole by their hashes" in stranger.type("hub", "state", "audit", str(state), "--verify")
        heads = tmp_path / "left" / "fedplcc-state" / "trainer" / "audit-heads"
        assert "whole" in stranger.type("hub", "state", "audit", str(state), "--verify", "--witness", str(heads))
        told = lines_of_the_tutorial()
        assert [line for line in told if line not in stranger.typed] == [], "every command of the tutorial was typed"
        assert len(told) >= 16
