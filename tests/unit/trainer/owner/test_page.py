"""The owner's page: who may ask it, and what it decides."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process import metrics
from fedplcc.shared.types import BlobRef, Payload
from fedplcc.trainer.owner.approval import deciding
from fedplcc.trainer.owner.approval.decisions import Ruling
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.approval.page import MAX_FORM_BYTES, OwnersPage, serve_page
from fedplcc.trainer.owner.approval.words import lines_of
from fedplcc.trainer.owner.in_force import keep_policy
from fedplcc.trainer.owner.policy import Policy
from tests.unit.trainer.owner.test_approval import a_task, refused

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    keep_policy(tmp_path, tmp_path / "policy.toml", Policy())
    kept = Kept(tmp_path)
    refused(kept, a_task())
    return kept


@pytest.fixture
def page(kept: Kept) -> Iterator[OwnersPage]:
    page = serve_page(kept, 0)
    yield page
    page.close()


@pytest.fixture
def token(page: OwnersPage) -> str:
    file = page.kept.folder / "page"
    assert file.stat().st_mode & 0o777 == 0o600
    address = urlsplit(file.read_text().strip())
    assert (address.hostname, address.port) == ("127.0.0.1", page.port)
    return address.query.removeprefix("token=")


def ask(
    page: OwnersPage, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name: value for name, value in answer.getheaders()}
    finally:
        connection.close()


def post(page: OwnersPage, headers: dict[str, str] | None = None, **fields: str) -> tuple[int, str, dict[str, str]]:
    return ask(page, "POST", "/", urlencode(fields), **{**FORM, **(headers or {})})


def test_it_shows_what_waits_and_decides_it(kept: Kept, page: OwnersPage, token: str) -> None:
    status, text, headers = ask(page, "GET", f"/?token={token}")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "a model trained on its images" in text
    document = str(re.findall(r'name="document" value="([0-9a-f]{64})"', text)[0])
    changed = post(page, token=token, run="run-1", ruling="approve", document="0" * 64)
    assert (changed[0], "nothing was approved" in changed[1]) == (409, True)
    assert post(page, token=token, run="run-1", ruling="approve")[0] == 303
    assert not kept.decisions().entries, "without the document that was shown nothing is approved"
    status, _, headers = post(page, token=token, run="run-1", ruling="approve", document=document)
    assert (status, headers["Location"].startswith("/?")) == (303, True)
    assert refused(kept, a_task()) is None
    status, text, _ = ask(page, "GET", headers["Location"])
    assert "run run-1 is approved" in text
    assert 'value="withdraw"' in text
    assert post(page, token=token, run="run-1", ruling="withdraw", reason="<script>")[0] == 303
    assert [each.ruling for each in kept.decisions().entries] == [Ruling.APPROVED, Ruling.WITHDRAWN]
    refused(kept, a_task("run-2"))
    assert post(page, token=token, run="run-2", ruling="reject")[0] == 303
    assert deciding.waiting(kept) == []
    text = ask(page, "GET", f"/?token={token}")[1]
    assert re.search(rf"run-2: rejected [-0-9: ]+ UTC by user {os.getuid()}<", text)
    assert re.search(r"run-1: withdrawn [-0-9: ]+ UTC by user \d+: &lt;script&gt;<", text)
    assert 'value="approve"' in text
    assert post(page, token=token, run="run-1", ruling="approve", document=document)[0] == 303
    assert refused(kept, a_task()) is None
    assert post(page, token=token, run="../x<script>", ruling="reject")[1].count("<script>") == 0


@pytest.mark.parametrize(
    ("status", "headers", "fields"),
    [
        (403, {}, {"token": "another"}),
        (403, {}, {}),
        (421, {"Host": "evil.example:80"}, {}),
        (421, {"Host": "127.0.0.1"}, {}),
        (403, {"Origin": "https://evil.example"}, {"token": None}),
        (400, {"Content_Type": "text/plain"}, {"token": None}),
        (400, {}, {"token": None, "reason": "x" * MAX_FORM_BYTES}),
        (400, {}, {"token": None, **{f"field{number}": "x" for number in range(20)}}),
    ],
    ids=[
        "another secret",
        "no secret",
        "a name that points here",
        "another port",
        "another origin",
        "no form",
        "a long form",
        "many fields",
    ],
)
def test_it_decides_nothing_for_others(
    kept: Kept, page: OwnersPage, token: str, status: int, headers: dict[str, str], fields: dict[str, str | None]
) -> None:
    (facts,) = deciding.waiting(kept)
    asked = {"run": "run-1", "ruling": "approve", "document": facts["document_sha256"]}
    given = {name: token if value is None else value for name, value in fields.items()}
    answered, text, _ = post(page, headers, **asked, **given)
    assert (answered, facts["document_sha256"] in text) == (status, False)
    assert not kept.decisions().entries
    assert ask(page, "GET", "/")[0] == 403
    assert ask(page, "GET", f"/?token={token}", Host=f"evil.example:{page.port}")[0] == 421
    assert ask(page, "PUT", f"/?token={token}")[0] == 405
    assert ask(page, "GET", f"/other?token={token}")[0] == 404


def test_it_listens_on_loopback_alone_and_its_address_goes_with_it(kept: Kept) -> None:
    page = serve_page(kept, 0)
    assert page.server.server.server_address[0] == "127.0.0.1"
    with pytest.raises(InvalidConfig, match="choose another port"):
        serve_page(kept, page.port)
    first = (kept.folder / "page").read_text()
    page.close()
    assert not (kept.folder / "page").exists()
    again = serve_page(kept, 0)
    assert (kept.folder / "page").read_text().partition("?")[2] != first.partition("?")[2], "another secret each time"
    again.close()


@pytest.mark.parametrize("said", ["", "GET / HT", "POST / HTTP/1.1\r\n{}\r\nrun"], ids=["nothing", "half", "no body"])
def test_connections_that_ask_nothing_never_keep_the_owner_out(page: OwnersPage, token: str, said: str) -> None:
    headers = {**FORM, "Host": f"127.0.0.1:{page.port}", "Content-Length": "9"}
    begun = said.format("".join(f"{name}: {value}\r\n" for name, value in headers.items())).encode()
    with ExitStack() as opened:
        for _ in range(3 * metrics.MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", page.port))).sendall(begun)
        assert ask(page, "GET", f"/?token={token}")[0] == 200


def test_a_caller_that_sends_a_byte_now_and_then_is_cut_off_too(
    page: OwnersPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 1.0)
    with socket.create_connection(("127.0.0.1", page.port), timeout=0.2) as slow:
        for _ in range(50):
            try:
                slow.sendall(b"G")
                assert slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break
        else:
            pytest.fail("it is still heard after 10 s")


def test_a_run_is_no_in_words_with_sizes_where_they_are_known(kept: Kept) -> None:
    blob = BlobRef(role="model", sha256="0" * 64, size_bytes=1000)
    refused(kept, a_task("run-2", payload=Payload(tensor_groups=(blob,))))
    (facts,) = [each for each in deciding.waiting(kept) if each["run_id"] == "run-2"]
    words = dict(lines_of(facts))
    assert "a model trained on its images (1,000 bytes)" in words["leaves each round"]
    assert words["leaves in all"] == "3 times that, the models 3,000 bytes"
    noisy = {"releases": 3, "epsilon": 3.0, "delta": 1e-5}
    said = {claim: dict(lines_of({**facts, **noisy, "claim": claim}))["claim"] for claim in ("prototypes", "site")}
    promised = "epsilon 3 at delta 1e-05 for 3 releases"
    assert said["site"] == f"site: {promised}"
    assert said["prototypes"].startswith(f"prototypes: {promised}; of what has noise alone, nothing is promised")
    assert facts["document_sha256"] == words["document"]
