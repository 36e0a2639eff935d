"""Messages to people: what is told, how it is signed, what a file of receivers may say, and what a receiver may do."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from fedplcc.gateway.messages import mail, undelivered, webhook
from fedplcc.gateway.messages.attempt import attempt
from fedplcc.gateway.messages.couriers import Couriers
from fedplcc.gateway.messages.mail import letter_of
from fedplcc.gateway.messages.message import MessageKind, kind_of, message_id, message_of
from fedplcc.gateway.messages.place import Place, keep_place, read_place
from fedplcc.gateway.messages.receivers import Mail, Receiver, Receivers, Webhook, read_receivers
from fedplcc.gateway.messages.undelivered import Undelivered
from fedplcc.gateway.messages.webhook import signed_headers
from fedplcc.gateway.messages.worst_domain import Course, after_round
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.names import Role
from fedplcc.shared.types import Event
from tests.support.federation.certificates import TestAuthority
from tests.support.hosts.message_receivers import closed_port, mail_host, status, webhook_host

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAILED = Event(type="run_failed", run_id="scans-1f0c", round=3, data={"reason": "no quorum"}, sequence=7, time=1e9)


def written(folder: Path, *lines: str) -> Path:
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    file = folder / "messages.toml"
    file.write_text("\n".join(lines))
    return file


def read(folder: Path, *lines: str) -> Receivers:
    return read_receivers(written(folder, *lines), asks_keys=False)


def to_webhook(folder: Path, url: str) -> Receiver:
    lines = ("[receivers.ops]", 'kind = "webhook"', f'url = "{url}"', 'secret_file = "secret"')
    return read(folder, *lines).by_name["ops"]


def to_mail(folder: Path, port: int, *lines: str) -> Receiver:
    lines = (
        "[receivers.ops]",
        'kind = "mail"',
        'host = "127.0.0.1"',
        f"port = {port}",
        'tls = "off"',
        'from = "fedplcc@example.org"',
        'to = ["ops@example.org", "lead@example.org"]',
        *lines,
    )
    return read(folder, *lines).by_name["ops"]


def tried(receiver: Receiver) -> str:
    """Why an attempt failed; empty where it did not."""
    message = message_of(MessageKind.RUN_FAILED, FAILED)
    try:
        asyncio.run(attempt(receiver, message_id("", receiver.name, message), message))
    except Undelivered as error:
        return error.detail
    return ""


def test_the_signature_is_the_published_one_of_standard_webhooks() -> None:
    secret = base64.b64decode(SECRET.removeprefix("whsec_"))
    body = b'{"test": 2432232314}'
    headers = signed_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_an_event_has_one_id_for_each_receiver_and_another_than_every_other_event() -> None:
    def named(federation: str = "f", receiver: str = "r", event: Event = FAILED) -> str:
        return message_id(federation, receiver, message_of(MessageKind.RUN_FAILED, event))

    others = [replace(FAILED, sequence=8), replace(FAILED, run_id="b"), replace(FAILED, time=1e9 + 1e-3)]
    names = [named(), named("g"), named(receiver="s"), *(named(event=event) for event in others)]
    assert len(set(names)) == len(names)
    assert named() == names[0]


def test_a_sentence_keeps_what_another_process_wrote_short_and_on_one_line() -> None:
    event = replace(FAILED, data={"reason": "a\r\nBcc: x@example.org\x1b[2J" + "y" * 10_000})
    message = message_of(MessageKind.RUN_FAILED, event)
    assert message.sentence.isprintable()
    assert len(message.sentence) < 600
    assert message.document["type"] == "run_failed"
    assert message.document["timestamp"] == "2001-09-09T01:46:40+00:00"
    assert message.document["data"]["run_id"] == "scans-1f0c"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("AWAITS_APPROVAL", MessageKind.APPROVAL_WANTED),
        ("RUN_APPROVED", None),
        ("DISK_FULL", MessageKind.CLIENT_PROBLEM),
    ],
)
def test_what_an_owner_decided_is_no_problem(reason: str, kind: MessageKind | None) -> None:
    assert kind_of(Event(type="client_problem", client_id="a", data={"reason": reason})) is kind


def test_a_worst_domain_falls_once_until_it_has_risen() -> None:
    course, falls = Course(), []
    for worst in (0.5, 0.8, 0.76, 0.74, 0.7, 0.78, 0.6):
        course, has_fallen = after_round(course, worst, points=5.0)
        falls.append(has_fallen)
    assert falls == [False, False, False, True, False, False, True]
    assert course.best == 0.8


def test_a_mail_has_the_same_id_and_no_header_of_another_process(tmp_path: Path) -> None:
    receiver = to_mail(tmp_path, 25)
    assert isinstance(receiver.choice, Mail)
    event = replace(FAILED, data={"reason": "Köln x\r\nBcc: victim@example.org\r\n\r\nhidden"})
    message = message_of(MessageKind.RUN_FAILED, event)
    first, again = (bytes(letter_of(receiver.choice, "msg_1", message)) for _ in range(2))
    assert first == again
    assert first.isascii()
    letter = email.message_from_bytes(first, policy=email.policy.SMTP)
    assert letter["Message-ID"] == "<msg_1@example.org>"
    assert letter["Subject"] == "fedplcc: run failed, scans-1f0c"
    assert letter["To"] == "ops@example.org, lead@example.org"
    assert "Bcc" not in letter
    assert "failed: Köln x" in letter.get_content()
    with pytest.raises(ValueError, match="linefeed"):
        letter_of(receiver.choice, "msg_1\r\nBcc: x@example.org", message)


WEBHOOK = ("[receivers.ops]", 'kind = "webhook"', 'secret_file = "secret"')
MAIL = ("[receivers.ops]", 'kind = "mail"', 'from = "a@example.org"', 'to = ["b@example.org"]')


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "receivers is missing"),
        (("[receivers]",), "receivers"),
        (("receivers = 3 4",), "TOML"),
        ((*WEBHOOK, 'url = "http://example.org/x"'), "https://HOST/PATH"),
        ((*WEBHOOK, 'url = "https://user:word@example.org/x"'), "without a user"),
        ((*WEBHOOK, f'url = "http://example.org/{SECRET}"'), "https://HOST/PATH"),
        ((*WEBHOOK, 'url = "https://example.org/"', f'secret = "{SECRET}"'), "receivers.ops.webhook.secret"),
        ((*WEBHOOK, 'url = "ftp://127.0.0.1/x"'), "https://HOST/PATH"),
        ((*WEBHOOK, 'url = "https://example.org/"', "away_s = 0"), "away_s"),
        ((*WEBHOOK, 'url = "https://example.org/"', 'events = ["run_done"]'), "events"),
        ((*WEBHOOK, 'url = "https://example.org/"', 'evnts = ["run_failed"]'), "evnts"),
        ((*WEBHOOK, 'url = "https://example.org/"', 'ca_file = "missing.pem"'), "ca_file"),
        ((*MAIL, 'host = "mail.example.org"', 'tls = "off"'), "loopback"),
        ((*MAIL, 'host = "mail.example.org"', 'user = "me"'), "belong together"),
        ((*MAIL, 'host = "mail.example.org"', 'to = ["a@b.org\\r\\nx"]'), "overwrite"),
        (("[receivers.ops]", 'kind = "pager"'), "pager"),
        (("[receivers.'no name']", 'kind = "webhook"', 'url = "https://a.org/"', 'secret_file = "secret"'), "name"),
    ],
)
def test_a_file_that_says_what_it_may_not_is_refused_by_name(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said) as refused:
        read(tmp_path, *lines)
    assert SECRET not in refused.value.detail


@pytest.mark.parametrize(
    "secret", ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA", "whsec_?", "whsec_A\nwhsec_B"]
)
def test_a_secret_that_signs_nothing_is_refused_and_not_said(tmp_path: Path, secret: str) -> None:
    file = written(tmp_path, *WEBHOOK, 'url = "https://example.org/"')
    (tmp_path / "secret").write_text(secret)
    with pytest.raises(InvalidConfig) as refused:
        read_receivers(file, asks_keys=False)
    assert not secret or secret not in refused.value.detail


def test_a_secret_that_others_can_read_and_a_missing_key_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, *WEBHOOK, 'url = "https://example.org/"')
    with pytest.raises(InvalidConfig, match="key_file is missing"):
        read_receivers(file, asks_keys=True)
    (tmp_path / "secret").chmod(0o604)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        read_receivers(file, asks_keys=False)


def test_a_receiver_shows_no_secret(tmp_path: Path) -> None:
    receivers = read(tmp_path, *WEBHOOK, 'url = "https://example.org/hidden"')
    assert "hidden" not in repr(receivers)
    assert "MfKQ9r8" not in repr(receivers)
    assert repr(receivers.by_name["ops"].secret) not in repr(receivers)


def test_patterns_choose_runs_and_clients(tmp_path: Path) -> None:
    lines = (*WEBHOOK, 'url = "https://example.org/"', 'runs = ["scans-*"]', 'clients = ["north"]')
    choice = read(tmp_path, *lines).by_name["ops"].choice
    assert choice.wants(MessageKind.RUN_FAILED, FAILED)
    assert not choice.wants(MessageKind.RUN_FAILED, replace(FAILED, run_id="Scans-2"))
    assert not choice.wants(MessageKind.CLIENT_PROBLEM, FAILED)
    lost = Event(type="client_lost", client_id="north")
    assert choice.wants(MessageKind.CLIENT_AWAY, lost)
    assert not choice.wants(MessageKind.CLIENT_AWAY, replace(lost, client_id="south"))


def test_a_place_is_kept_and_damage_is_told(tmp_path: Path) -> None:
    file, place = tmp_path / "messages" / "ops.json", Place("f", 7, "run_failed", 2.5)
    assert read_place(file) is None
    keep_place(file, place)
    assert read_place(file) == place
    for damage in ("", "[]", "{}", '{"federation": "f", "after": -1}', '{"federation": "f", "after": "7"}', "[" * 9000):
        file.write_text(damage)
        with pytest.raises(InvalidConfig, match="move it away"):
            read_place(file)


def test_no_two_lanes_keep_their_places_in_one_file(tmp_path: Path) -> None:
    names = ("ops", "ops.away", "ops.now", "ops.away.json")
    lines = [(f"[receivers.'{name}']", *WEBHOOK[1:], 'url = "https://example.org/"') for name in names]
    couriers = Couriers(
        read(tmp_path, *(line for each in lines for line in each)),
        tmp_path,
        source=lambda: ("f", None),
        counted=lambda _outcome: None,
    )
    files = [lane._file for _receiver, lanes in couriers.receivers for lane in lanes]
    assert len(set(files)) == len(files) == 2 * len(names)


def test_a_webhook_is_called_with_a_signature_of_what_it_gets(tmp_path: Path) -> None:
    with webhook_host() as host:
        receiver = to_webhook(tmp_path, host.url)
        assert tried(receiver) == ""
    (call,) = host.calls
    signed = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode() + call.body
    expected = base64.b64encode(hmac.new(receiver.secret, signed, hashlib.sha256).digest()).decode()
    assert call.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(call.headers["webhook-timestamp"]) - time.time()) < 3600
    assert json.loads(call.body)["data"]["sentence"] == "Run scans-1f0c failed: no quorum"


def endless(out: BinaryIO) -> None:
    out.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(1 << 20):
        out.write(b"X-More: " + b"x" * 1000 + b"\r\n")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (status("500 no"), "HTTP status 500"),
        (status("410 gone"), "HTTP status 410"),
        (b"", "the connection broke off: RemoteProtocolError"),
        (b"220 mail.example.org\r\n", "the connection broke off: RemoteProtocolError"),
        (endless, "the connection broke off: RemoteProtocolError"),
    ],
)
def test_a_webhook_that_refuses_or_talks_nonsense_has_not_taken_the_message(
    tmp_path: Path, answer: bytes | Callable[[BinaryIO], None], failure: str
) -> None:
    with webhook_host() as host:
        if isinstance(answer, bytes):
            host.says(answer)
        else:
            host.answer = answer
        found = tried(to_webhook(tmp_path, host.url))
    assert found == failure
    assert len(host.calls) == 1


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with webhook_host() as other, webhook_host() as host:
        host.says(status("307 elsewhere", f"Location: {other.url}"))
        assert tried(to_webhook(tmp_path, host.url)) == "HTTP status 307: redirects are not followed"
        assert other.calls == []
    assert len(host.calls) == 1


def test_the_body_of_an_answer_is_not_read(tmp_path: Path) -> None:
    written = []

    def huge(out: BinaryIO) -> None:
        out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        for _ in range(1024):
            out.write(b"x" * (1 << 20))
            written.append(1)

    with webhook_host() as host:
        host.answer = huge
        assert tried(to_webhook(tmp_path, host.url)) == ""
    assert len(written) < 64


def test_a_slow_receiver_has_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (webhook, mail):
        monkeypatch.setattr(module, "SEND_S", 0.2)
    enough = threading.Event()

    def drip(out: BinaryIO) -> None:
        while not enough.wait(0.02):
            out.write(b"2")

    with webhook_host() as host, mail_host() as server:
        host.answer = server.greeting = drip
        assert tried(to_webhook(tmp_path, host.url)) == "no answer in time"
        assert tried(to_mail(tmp_path, server.port)).startswith("the connection failed")
        enough.set()
    assert undelivered.SEND_S == 20.0


def test_nobody_listens(tmp_path: Path) -> None:
    assert tried(to_webhook(tmp_path, f"http://127.0.0.1:{closed_port()}/")).startswith("no connection")
    assert tried(to_mail(tmp_path, closed_port())) == "the connection failed: ConnectionRefusedError"


def test_a_mail_is_taken_or_the_server_says_no(tmp_path: Path) -> None:
    with mail_host() as host:
        assert tried(to_mail(tmp_path, host.port)) == ""
        host.verdict = b"552 too large\r\n"
        assert tried(to_mail(tmp_path, host.port)) == "the server answered 552"
        first, second = host.letters
        assert first == second
        assert b"Run scans-1f0c failed: no quorum." in first
        host.greeting = lambda out: _lines(out, 1 << 20)
        assert tried(to_mail(tmp_path, host.port)) == "the connection failed: SMTPServerDisconnected"


def _lines(out: Any, count: int) -> None:
    for _ in range(count):
        out.write(b"220-and more\r\n")


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """TLS of a server at localhost, whose authority is in authority.pem."""
    authority = TestAuthority()
    held = authority.issue(Role.AGGREGATOR, "aggregator", dns_names=("localhost",))
    (tmp_path / "server.pem").write_bytes(held.key_pem + held.chain_pem)
    (tmp_path / "authority.pem").write_bytes(authority.roots_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


def test_a_webhook_is_called_over_tls_by_the_authority_that_its_table_names_alone(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    with webhook_host(tls) as host:
        lines = (*WEBHOOK, f'url = "{host.url}"')
        assert "certificate verify failed" in tried(read(tmp_path, *lines).by_name["ops"])
        assert host.calls == []
        assert tried(read(tmp_path, *lines, 'ca_file = "authority.pem"').by_name["ops"]) == ""
        other = host.url.replace("localhost", "127.0.0.1")
        named = read(tmp_path, *WEBHOOK, f'url = "{other}"', 'ca_file = "authority.pem"').by_name["ops"]
        assert "certificate verify failed" in tried(named)
    assert len(host.calls) == 1


@pytest.mark.parametrize("way", ["starttls", "implicit"])
def test_a_mail_goes_over_tls_to_the_server_that_the_certificate_names(
    tmp_path: Path, tls: ssl.SSLContext, way: str
) -> None:
    with mail_host(tls, is_implicit=way == "implicit") as host:
        lines = (*MAIL, f"port = {host.port}", f'tls = "{way}"', 'ca_file = "authority.pem"')
        wrong = read(tmp_path, *lines, 'host = "127.0.0.1"').by_name["ops"]
        assert "certificate verify failed" in tried(wrong)
        assert host.letters == []
        assert tried(read(tmp_path, *lines, 'host = "localhost"').by_name["ops"]) == ""
    assert len(host.letters) == 1


def test_a_server_without_starttls_gets_no_message(tmp_path: Path) -> None:
    with mail_host() as host:
        receiver = to_mail(tmp_path, host.port)
        safe = receiver.choice.model_copy(update={"tls": "starttls"})
        assert tried(replace(receiver, choice=safe)) == "the connection failed: SMTPNotSupportedError"
        assert host.letters == []
    assert not isinstance(safe, Webhook)
