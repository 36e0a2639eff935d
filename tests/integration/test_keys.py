"""Keys, logins and the console of a real aggregator behind a real gateway, each a process of its own."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.federation import tiny_federation
from tests.support.identity.keyed_federation import Keyed

ORIGIN = {"X-Fedplcc-Console": "1"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.may_fork = False  # secrets are looked for in the processes' command lines
        federation.begin()
        yield federation


@pytest.fixture
def http(keyed: Keyed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed.gateway_url, timeout=None, trust_env=False) as client:
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def test_only_probes_files_and_descriptions_are_open(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    for path in paths:
        answer = http.get(path.replace("{run_id}", "r").replace("{code}", "INTERNAL"))
        if path in ("/livez", "/readyz", "/v1/problems", "/v1/problems/{code}", "/v1/sign-on"):
            assert answer.status_code == 200
        elif path not in ("/v1/console/sessions", "/v1/sign-on/terminal", "/v1/sign-on/terminal/poll"):
            assert refusal(answer) == (401, "KEY_INVALID"), path
            assert answer.headers["www-authenticate"] == 'Bearer realm="fedplcc"'
    assert http.get("/").status_code == 200


@pytest.mark.parametrize("key", ["fedpk_", "x" * 200, "fedpk_0123456789ab_" + "0" * 64 + "_00000000", "ü"])
def test_a_malformed_key_is_refused(http: httpx.Client, key: str) -> None:
    headers = [(b"Authorization", b"Bearer " + key.encode("latin-1"))]
    assert refusal(http.get("/v1/runs", headers=headers)) == (401, "KEY_INVALID")


def test_each_scope_allows_its_calls_and_those_below(keyed: Keyed, http: httpx.Client) -> None:
    calls = {
        "read": ("GET", "/v1/runs"),
        "results": ("GET", "/v1/runs/absent/model"),
        "run": ("POST", "/v1/runs/absent/stop"),
        "metrics": ("GET", "/metrics"),
    }
    ladder = ["read", "results", "run", "admin"]
    for held in (*ladder, "metrics"):
        _, headers = keyed.new_key(held)
        for wanted, (method, path) in calls.items():
            answer = http.request(method, path, headers=headers)
            may = held == wanted or (held in ladder and wanted in ladder and ladder.index(held) > ladder.index(wanted))
            if may:
                assert answer.status_code in (200, 404), (held, wanted, answer.text)
            else:
                assert refusal(answer) == (403, "SCOPE_MISSING"), (held, wanted)
                assert "insufficient_scope" in answer.headers["www-authenticate"]


def test_a_caller_learns_who_it_is(keyed: Keyed, http: httpx.Client) -> None:
    key_id, headers = keyed.new_key("read", "metrics")
    me = http.get("/v1/me", headers=headers).json()
    assert (me["caller"], me["label"], me["scopes"]) == (f"key:{key_id}", "a test", ["read", "metrics"])
    assert (me["federation"], me["is_insecure"]) == (keyed.authority.federation, False)
    assert (me["transport"], me["is_exposed"]) == ("http", False)


def test_commands_are_let_through_after_a_login(keyed: Keyed) -> None:
    arguments = ("run", "list", "--gateway", keyed.gateway_url)
    refused = keyed.command(*arguments)
    assert refused.returncode != 0
    assert "fedplcc login" in refused.stderr
    keyed.owner("login", "--gateway", keyed.gateway_url)
    assert keyed.command(*arguments).returncode == 0
    file = keyed.folder / "user" / "fedplcc" / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    assert "chmod 600" in keyed.command(*arguments).stderr
    file.unlink()


def test_a_key_that_was_handed_over_is_kept_from_stdin(keyed: Keyed) -> None:
    text = keyed.owner("key", "create", "handed over", "--scope", "read")
    done = keyed.command("login", "--stdin", "--gateway", keyed.gateway_url, given=text + "\n")
    assert done.returncode == 0, done.stderr
    assert text not in done.stdout + done.stderr
    assert keyed.command("run", "list", "--gateway", keyed.gateway_url).returncode == 0
    (keyed.folder / "user" / "fedplcc" / "keys.json").unlink()


def test_a_code_opens_one_session_in_a_cookie_that_scripts_cannot_read(keyed: Keyed, http: httpx.Client) -> None:
    code = keyed.code()
    answer = http.post("/v1/console/sessions", json={"code": code})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"fedplcc-{keyed.authority.federation}=fedpk_")
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" not in cookie.split("; ")  # plain text on loopback
    assert int(cookie.partition("Max-Age=")[2].partition(";")[0]) in range(12 * 3600 - 60, 12 * 3600 + 1)
    assert http.get("/v1/me").json()["label"] == "owner"
    assert refusal(http.post("/v1/runs/absent/stop")) == (403, "CROSS_ORIGIN")
    assert refusal(http.post("/v1/runs/absent/stop", headers=ORIGIN)) == (404, "RUN_NOT_FOUND")
    assert refusal(http.post("/v1/console/sessions", json={"code": code})) == (401, "KEY_INVALID")


def test_the_runs_of_a_key_are_stopped_by_one_command_and_no_others(
    keyed: Keyed, http: httpx.Client, data: Path
) -> None:
    document = tiny_federation.run_document(tiny_federation.document(data, run={"clients": ["nobody"]}))

    def begin(headers: dict[str, str]) -> str:
        return str(http.post("/v1/runs", json=document, headers=headers).json()["run_id"])

    (one, its), (two, others), (_, admins) = keyed.new_key("run"), keyed.new_key("run"), keyed.new_key("admin")
    runs, kept = [begin(its) for _ in range(3)], begin(others)
    keyed.owner("login", "--gateway", keyed.gateway_url)
    keyed.owner("key", "revoke", one, "--stop-runs", "--gateway", keyed.gateway_url)

    def status(run_id: str) -> str:
        return str(http.get(f"/v1/runs/{run_id}", headers=admins).json()["status"])

    assert {status(run_id) for run_id in runs} <= {"stopping", "stopped"}
    assert status(kept) == "pending"
    done = keyed.command("run", "stop", "--key", two, "--yes", "--gateway", keyed.gateway_url)
    assert done.returncode == 0, done.stderr
    assert kept in done.stdout
    assert status(kept) in ("stopping", "stopped")
    (keyed.folder / "user" / "fedplcc" / "keys.json").unlink()


def session_of(keyed: Keyed, http: httpx.Client) -> None:
    assert http.post("/v1/console/sessions", json={"code": keyed.code()}).status_code == 204


def test_a_session_that_is_ended_is_revoked_and_its_cookie_goes(keyed: Keyed, http: httpx.Client) -> None:
    session_of(keyed, http)
    cookie = dict(http.cookies)
    assert refusal(http.post("/v1/session/end")) == (403, "CROSS_ORIGIN")
    answer = http.post("/v1/session/end", headers=ORIGIN)
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert not http.cookies
    for name, value in cookie.items():
        http.cookies.set(name, value)
    assert refusal(http.get("/v1/me")) == (401, "KEY_INVALID")
    assert refusal(http.post("/v1/session/end", headers=ORIGIN)) == (401, "KEY_INVALID")


def test_the_streams_of_a_session_end_with_it_and_no_others(keyed: Keyed, http: httpx.Client, data: Path) -> None:
    _, other = keyed.new_key("run")
    document = tiny_federation.run_document(tiny_federation.document(data, run={"rounds": 2}))
    created = http.post("/v1/runs", json=json.loads(document) if isinstance(document, str) else document, headers=other)
    assert created.status_code == 202, created.text
    events = f"/v1/runs/{created.json()['run_id']}/events"
    accepts = {"Accept": "text/event-stream"}
    session_of(keyed, http)
    with (
        httpx.Client(base_url=keyed.gateway_url, timeout=None, trust_env=False) as stranger,
        stranger.stream("GET", events, headers={**other, **accepts}) as theirs,
        http.stream("GET", events, headers=accepts) as ours,
    ):
        lines, others = ours.iter_lines(), theirs.iter_lines()
        while not next(lines).startswith("event: "):
            pass
        assert http.post("/v1/session/end", headers=ORIGIN).status_code == 204
        assert "KEY_INVALID" in "".join(lines)
        assert stranger.post(f"/v1/runs/{created.json()['run_id']}/stop", headers=other).status_code == 200
        assert "event: end" in list(others)


def test_logout_revokes_the_kept_key_and_removes_it(keyed: Keyed, http: httpx.Client) -> None:
    keyed.owner("login", "--gateway", keyed.gateway_url)
    file = keyed.folder / "user" / "fedplcc" / "keys.json"
    headers = {"Authorization": f"Bearer {json.loads(file.read_text())[keyed.gateway_url]}"}
    assert http.get("/v1/runs", headers=headers).status_code == 200
    done = keyed.command("login", "--forget", "--gateway", keyed.gateway_url)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {}
    assert refusal(http.get("/v1/runs", headers=headers)) == (401, "KEY_INVALID")
    assert "there is no key" in keyed.command("login", "--forget", "--gateway", keyed.gateway_url).stderr


def test_a_logout_that_reaches_nobody_says_how_the_key_is_revoked(keyed: Keyed) -> None:
    nobody = "http://127.0.0.1:2"
    keyed.owner("login", "--gateway", nobody)
    done = keyed.command("login", "--forget", "--gateway", nobody)
    assert done.returncode == 3
    assert "fedplcc key revoke" in done.stderr
    assert json.loads((keyed.folder / "user" / "fedplcc" / "keys.json").read_text()) == {}
