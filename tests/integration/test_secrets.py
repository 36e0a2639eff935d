"""Every secret of a whole session, made in real processes: nobody else may read its file, and it is nowhere else."""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedplcc.shared.config.toml_text import toml_tables
from fedplcc.shared.identity.certificates import key_from_pem, key_to_pem, new_key
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.wire.enrolling.enrolment import recover, renew
from tests.support.federation import tiny_federation
from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation, Process, eventually, free_port
from tests.support.hosts.seen_processes import SeenProcesses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WAIT_S = 300.0
WRONG_KEY = "fedpk_0123456789ab_" + "5" * 64 + "_00000000"
SECRET_FILES = (
    "hub/fedplcc-state/aggregator/identity",
    "hub/fedplcc-state/aggregator/identity/authority.json",
    "hub/fedplcc-state/aggregator/identity/identity.pem",
    "hub/fedplcc-state/aggregator/gateway.join",
    "hub/fedplcc-state/aggregator/admin.sock",
    "hub/fedplcc-state/gateway/identity.pem",
    "hub/user/fedplcc",
    "hub/user/fedplcc/keys.json",
    "hub/user/fedplcc/console.html",
    "hub/backup/identity",
    "hub/backup/identity/*",
    "*/fedplcc-state/trainer/identity.pem",
    "*/fedplcc-state/trainer/instance-token",
    "*/fedplcc-state/trainer/client-state/*/*",
    "*/fedplcc-state/trainer/egress.jsonl",
)
"""Files and folders that nobody but their owner may read, whatever the umask."""
OPEN_FILES = (
    "*/fedplcc-state",
    *(
        f"hub/fedplcc-state/aggregator{path}"
        for path in ("", "/lock", "/endpoint.json", "/committed", "/reserve", "/collection.lock", "/aggregator.sqlite*")
    ),
    *(f"hub/fedplcc-state/aggregator/{folder}*" for folder in ("blobs", "incoming", "initial", "staging")),
    "hub/fedplcc-state/gateway",
    "hub/fedplcc-state/gateway/lock",
    "*/fedplcc-state/trainer",
    "*/fedplcc-state/trainer/lock",
    "*/fedplcc-state/trainer/audit-heads",
    "*/fedplcc-state/trainer/egress.reserve",
    "*/fedplcc-state/trainer/client-state",
    "*/fedplcc-state/trainer/client-state/*",
    "hub/backup",
    *(f"hub/backup/{path}" for path in ("aggregator.sqlite", "backup.json", "blobs*", "initial*")),
    *(
        "hub/user",
        "hub/user/fedplcc/gateway-roots.json",
        "hub/user/matplotlib*",
        "hub/results*",
        "hub/run.toml",
        "*/*.log",
    ),
)
"""Everything else that commands and services make."""


Forms = Mapping[str, frozenset[bytes]]


def forms_of_bytes(secret: bytes) -> frozenset[bytes]:
    """Raw, hexadecimal, base 32, and base 64 at any place within longer data."""
    assert len(secret) >= 16, "a shorter one would be found by chance"
    texts = [secret.hex(), secret.hex().upper(), base64.b32encode(secret).decode().rstrip("=")]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            # The first and the last characters also have bits of what stands beside the secret.
            coded = encode(bytes(shift) + secret).decode().rstrip("=")
            texts.append(coded[(4 * shift + 2) // 3 : -1])
    return frozenset({secret, *(text.encode() for text in texts)})


def forms_of_text(secret: str) -> frozenset[bytes]:
    """A secret that is handed over as text, as it stands."""
    assert len(secret) >= 16, "a shorter one would be found by chance"
    return frozenset({secret.encode()})


def forms_of_api_key(text: str) -> frozenset[bytes]:
    """The secret part of a key of people and programs; its id is none."""
    return forms_of_bytes(bytes.fromhex(text.split("_")[2])) | forms_of_text(text)


def forms_of_private_key(pem: bytes) -> frozenset[bytes]:
    """A private key: its number, and the lines of its file that only the number decides."""
    number = key_from_pem(pem).private_numbers().private_value.to_bytes(32, "big")
    lines = [line for line in pem.splitlines() if not line.startswith(b"-----")]
    # The first line has the kind of the key and the number; the others have the public key, which is no secret.
    return forms_of_bytes(number) | {lines[0]}


def found_in(data: bytes, secrets: Forms) -> set[str]:
    """Names of the secrets of which any form is in these bytes."""
    return {name for name, forms in secrets.items() if any(form in data for form in forms)}


@dataclass
class Session:
    """A hub and its sites, each a folder; what was said, and every secret that was made."""

    folder: Path
    federation: Federation
    seen: SeenProcesses
    secrets: dict[str, frozenset[bytes]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    """What everybody may read, by where it was."""
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions of files and folders that there were at any time."""

    @property
    def state(self) -> Path:
        return self.folder / "hub" / "fedplcc-state" / "aggregator"

    def type(
        self, host: str, *arguments: str, given: str = "", gives: str = "", is_seen: bool = False, **environment: str
    ) -> str:
        """Type a command; returns its output, which counts as read by everybody unless it gives a secret.

        One that is to be seen is a program of its own, whose arguments and environment everybody may read; others are forks.
        """
        folder = self.folder / host
        folder.mkdir(exist_ok=True)
        variables = {"XDG_CONFIG_HOME": str(self.folder / "hub" / "user"), **environment}
        if is_seen:
            with subprocess.Popen(
                [sys.executable, "-m", "fedplcc", *arguments],
                cwd=folder,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                output, errors = process.communicate(given)
            assert process.pid in self.seen.seen, "it was too short to be seen"
        else:
            done = typed(*arguments, cwd=folder, environment=variables, given=given)
            output, errors = done.stdout, done.stderr
        self.said[f"errors of {arguments} {len(self.said)}"] = errors
        if not gives:
            self.said[f"output of {arguments} {len(self.said)}"] = output
        self.note_modes()
        return output

    def start(self, host: str, *arguments: str) -> Process:
        """Start a service of a host."""
        folder = self.folder / host
        folder.mkdir(exist_ok=True)
        process = Process(f"{host}-{arguments[0]}", folder, ["fedplcc", *arguments])
        self.federation.processes[process.name] = process
        process.start()
        return process

    def note_modes(self) -> None:
        """Note the permissions of everything that is there now."""
        for path in self.folder.rglob("*"):
            try:
                self.modes[str(path.relative_to(self.folder))] = stat.S_IMODE(path.lstat().st_mode)
            except FileNotFoundError:
                continue  # a temporary file

    def endpoint(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.state / "endpoint.json").read_text())
        except FileNotFoundError:
            return None
        return found if (self.state / "gateway.join").exists() else None


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Session]:
    """A whole session, from the first start to a revocation, in processes whose umask hides nothing."""
    folder, before = tmp_path_factory.mktemp("session"), os.umask(0)
    try:
        with Federation(folder) as federation, SeenProcesses() as seen:
            session = Session(folder, federation, seen)
            _whole(session, data)
            yield session
    finally:
        os.umask(before)


def _whole(session: Session, data: Path) -> None:
    session.start("hub", "aggregator", "--port", "0", "--enrol-port", "0", "--metrics-port", "0")
    endpoint = eventually(session.endpoint, "the aggregator serves")
    session.note_modes()
    _keep_invitation(session, "the gateway's", (session.state / "gateway.join").read_text())
    url = f"http://127.0.0.1:{free_port()}"
    session.start("hub", "gateway", "--port", url.rpartition(":")[2], "--aggregator", f"127.0.0.1:{endpoint['port']}")
    eventually(lambda: not (session.state / "gateway.join").exists() or None, "the gateway has joined")
    gateway = ("--gateway", url)
    session.type("hub", "login", *gateway)
    keys = json.loads((session.folder / "hub" / "user" / "fedplcc" / "keys.json").read_text())
    session.secrets["the key of a login"] = forms_of_api_key(keys[url])
    for name in tiny_federation.CLIENTS:
        line = session.type("hub", "invite", name, "--domain", name, gives="an invitation")
        _keep_invitation(session, f"{name}'s", line)
        session.type(name, "join", given=line, is_seen=True)
        session.start(name, "trainer", "--data", f"npz:{data}/{name}.npz", "--device", "cpu", "--metrics-port", "0")
    values = tiny_federation.document(data, run={"rounds": 1})
    (session.folder / "hub" / "run.toml").write_text(toml_tables(tiny_federation.run_document(values)))
    session.type("hub", "run", "start", "--config", "run.toml", *gateway)
    session.type("hub", "run", "watch", *gateway)
    session.type("hub", "run", "fetch", *gateway, "--out", "results")
    _renew(session)
    _errors(session, gateway, url, line)
    _rest(session, gateway, url)
    session.type("hub", "client", "revoke", "right")
    right = session.federation.processes["right-trainer"]
    eventually(lambda: right.exit_code is not None, "the revoked trainer ends", WAIT_S)
    for arguments in (("client", "list"), ("key", "list"), ("state", "audit", str(session.state), "--verify")):
        session.type("hub", *arguments)
    session.type("hub", "doctor", str(session.state))
    session.type("hub", "state", "backup", str(session.state), "backup")
    _keep_private_keys(session)


def _keep_invitation(session: Session, whose: str, line: str) -> None:
    session.secrets[f"{whose} invitation"] = forms_of_bytes(InvitationCode.parse(line).secret) | forms_of_text(
        line.strip()
    )


def _renew(session: Session) -> None:
    """The first site's certificate is renewed, and recovered."""
    path = session.folder / tiny_federation.CLIENTS[0] / "fedplcc-state" / "trainer" / IDENTITY_FILE
    held = Credentials.load(path)
    renewed, recovered = new_key(), new_key()
    renew(held, renewed, held.address)
    recover(held, recovered)
    session.secrets["a renewed key"] = forms_of_private_key(key_to_pem(renewed))
    session.secrets["a recovered key"] = forms_of_private_key(key_to_pem(recovered))


def _errors(session: Session, gateway: tuple[str, str], url: str, line: str) -> None:
    """Mistakes with secrets: what is said of them must not repeat them."""
    wrong = line.strip()[:-1] + ("A" if line.strip()[-1] != "A" else "B")
    session.secrets["a mistyped invitation"] = forms_of_text(wrong)
    session.type("thief", "join", given=line)
    session.type("thief", "join", given=wrong)
    session.secrets["a key that nobody made"] = forms_of_api_key(WRONG_KEY)
    session.type("hub", "login", "--stdin", *gateway, given=f"{WRONG_KEY}\n")
    made = session.type(
        "hub", "key", "create", "a test", "--scope", "read", "--scope", "metrics", gives="a key"
    ).strip()
    session.secrets["a key"] = forms_of_api_key(made)
    mistyped = made[:-1] + ("0" if made[-1] != "0" else "1")
    session.secrets["a mistyped key"] = forms_of_text(mistyped)
    session.type("hub", "login", "--stdin", *gateway, given=f"{mistyped}\n")
    with httpx.Client(base_url=url, timeout=None, trust_env=False) as http:
        for key in (WRONG_KEY, mistyped):
            for sent in ({"Authorization": f"Bearer {key}"}, {"Authorization": key}, {"Cookie": f"fedplcc-f={key}"}):
                answer = http.get("/v1/runs", headers=sent)
                assert answer.status_code == 401
                session.said[f"refusal {len(session.said)}"] = f"{answer.text} {answer.headers}"
        answer = http.post("/v1/runs/absent/stop", headers={"Authorization": f"Bearer {made}"})
        assert answer.status_code == 403
        session.said["a missing scope"] = answer.text
        answer = http.post("/v1/console/sessions", json={"code": "w" * 40, "more": mistyped})
        session.said["a wrong code"] = answer.text


def _rest(session: Session, gateway: tuple[str, str], url: str) -> None:
    """Open the console, and read everything that REST and metrics say."""
    browser = session.folder / "browser.sh"
    browser.write_text("#!/bin/sh\nsleep 1\n")
    browser.chmod(0o755)
    session.type("hub", "console", *gateway, is_seen=True, BROWSER=f"{browser} %s")
    page = (session.folder / "hub" / "user" / "fedplcc" / "console.html").read_text()
    session.secrets["a code in a page"] = forms_of_text(page.partition("#code=")[2].partition('"')[0])
    code = session.type("hub", "console", "--no-browser", *gateway, gives="a code").partition("#code=")[2].strip()
    session.secrets["a code"] = forms_of_text(code)
    with httpx.Client(base_url=url, timeout=None, trust_env=False) as http:
        assert http.post("/v1/console/sessions", json={"code": code}).status_code == 204
        session.secrets["a console's session"] = forms_of_api_key(next(iter(http.cookies.values())))
        run_id = http.get("/v1/runs").json()["runs"][0]["run_id"]
        for path, described in http.get("/openapi.json").json()["paths"].items():
            if "get" in described and not path.endswith("/events"):
                filled = path.replace("{run_id}", run_id).replace("{code}", "KEY_INVALID").replace("{round}", "1")
                session.said[f"GET {path}"] = http.get(filled).text
        session.said["events"] = http.get(f"/v1/runs/{run_id}/events?after=0").text
        assert len([name for name in session.said if name.startswith("GET ")]) >= 10
    endpoint = json.loads((session.state / "endpoint.json").read_text())
    ports = [endpoint["metrics_port"]] + [
        line["port"]
        for name in tiny_federation.CLIENTS
        for line in map(json.loads, session.federation.processes[f"{name}-trainer"].log().splitlines())
        if line["event"] == "metrics_served"
    ]
    assert len(ports) == 3
    for port in ports:
        session.said[f"metrics {port}"] = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text


def _keep_private_keys(session: Session) -> None:
    authority = json.loads((session.state / "identity" / "authority.json").read_text())
    for number, signer in enumerate((*authority["roots"], authority["enrolment"])):
        session.secrets[f"the authority's key {number}"] = forms_of_private_key(signer["key"].encode())
    for path in session.folder.rglob(IDENTITY_FILE):
        key = path.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----")[2].partition(b"-----END PRIVATE KEY-----")[0]
        pem = b"-----BEGIN PRIVATE KEY-----" + key + b"-----END PRIVATE KEY-----\n"
        session.secrets[f"the key in {path.relative_to(session.folder)}"] = forms_of_private_key(pem)
    for path in session.folder.rglob("instance-token"):
        session.secrets[f"the token in {path.relative_to(session.folder)}"] = forms_of_text(path.read_text().strip())


def is_secret_file(path: str) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in SECRET_FILES)


def test_nobody_else_may_read_what_holds_secrets_and_every_file_is_known(session: Session) -> None:
    made = {path: mode for path, mode in session.modes.items() if path.split("/")[0] not in ("browser.sh", "thief")}
    unknown = {
        path
        for path in made
        if "/" in path and not is_secret_file(path) and not any(fnmatch.fnmatchcase(path, each) for each in OPEN_FILES)
    }
    assert unknown == set(), "say of each new file whether it holds a secret"
    readable = [f"{path}: {mode:o}" for path, mode in made.items() if is_secret_file(path) and mode & 0o077]
    assert readable == []
    for pattern in SECRET_FILES:
        assert fnmatch.filter(made, pattern), f"nothing was made as {pattern}"


def test_no_state_and_no_backup_is_open_to_others(session: Session) -> None:
    states = {
        path: mode for path, mode in session.modes.items() if path.split("/")[1:2] in (["fedplcc-state"], ["backup"])
    }
    assert len(states) > 20
    assert {path: f"{mode:o}" for path, mode in states.items() if mode & 0o027} == {}


def test_no_secret_is_where_others_may_read(session: Session) -> None:
    assert len(session.secrets) >= 20
    places: dict[str, bytes] = {name: text.encode() for name, text in session.said.items()}
    places |= {f"process {pid}": b"\0".join(sorted(read)) for pid, read in session.seen.seen.items()}
    for path in session.folder.rglob("*"):
        name = str(path.relative_to(session.folder))
        if path.is_file() and not is_secret_file(name):
            places[name] = path.read_bytes()
    found = {name: sorted(secrets) for name, data in places.items() if (secrets := found_in(data, session.secrets))}
    assert found == {}


def test_the_search_finds_what_is_there(session: Session) -> None:
    """Each secret that is kept in a private file is found there: the search knows its form."""
    kept = b"".join(
        path.read_bytes()
        for path in session.folder.rglob("*")
        if path.is_file() and is_secret_file(str(path.relative_to(session.folder)))
    )
    found = found_in(kept, session.secrets)
    assert {name for name in session.secrets if name.startswith(("the key in", "the token", "the authority"))} <= found
    assert {"the key of a login", "a code in a page"} <= found
    assert any(b"fedplcc\0join" in b"".join(read) for read in session.seen.seen.values())
