"""A page of a site's owner on loopback: the runs that wait, and the decisions about them.

It listens on 127.0.0.1 alone. Every request carries a secret that is made when the trainer starts and stands in a file that
only its user reads: no other user of the host can ask, and no page of another site can, since nothing is kept in a cookie.
A request under another name than that of loopback is refused, so that no name that somebody points to 127.0.0.1 is an
address of the page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlencode

from fedplcc.shared.errors import FedplccError, StoreUnavailable
from fedplcc.shared.process.metrics import MetricsServer, serve_pages
from fedplcc.trainer.owner.approval import deciding
from fedplcc.trainer.owner.approval.decisions import Ruling
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.approval.words import lines_of, sentence_of

HOST = "127.0.0.1"
MAX_FORM_BYTES = 8192
"""Largest form that is read."""
MAX_FIELDS = 16
MAX_SHOWN = 100
"""Most decided runs on the page, the newest."""
_STYLE = "body{font:16px sans-serif;max-width:60em;margin:2em auto}th{text-align:left;vertical-align:top;width:9em}"
_STYLE_SHA256 = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_SHA256}'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)


@dataclass(frozen=True, slots=True)
class OwnersPage:
    """A page that is served."""

    server: MetricsServer
    kept: Kept

    @property
    def port(self) -> int:
        """Port that it listens at."""
        return self.server.port

    def close(self) -> None:
        """Stop serving, and remove the address."""
        self.server.close()
        with suppress(StoreUnavailable):
            self.kept.say_page(None)


def serve_page(kept: Kept, port: int) -> OwnersPage:
    """Serve the page from a thread, and keep its address in the state directory; port 0 takes any free one.

    Raises:
        InvalidConfig: The port is taken.
        StoreUnavailable: Its address cannot be kept.
    """
    page = _Page(kept, secrets.token_urlsafe(32))
    served = OwnersPage(serve_pages(page, HOST, port, what="the owner's page"), kept)
    page.names = frozenset(f"{name}:{served.port}" for name in (HOST, "localhost"))
    try:
        kept.say_page(f"http://{HOST}:{served.port}/?{urlencode({'token': page.token})}")
    except StoreUnavailable:
        served.server.close()
        raise
    return served


class _Page:
    """The WSGI application."""

    def __init__(self, kept: Kept, token: str) -> None:
        self._kept, self.token = kept, token
        self.names: frozenset[str] = frozenset()
        """Values of Host that are answered."""

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, headers, text = self._answer(environ)
        start_response(f"{status.value} {status.phrase}", [*HEADERS, *headers])
        return [text.encode()]

    def _answer(self, environ: Mapping[str, Any]) -> tuple[HTTPStatus, list[tuple[str, str]], str]:
        method = environ.get("REQUEST_METHOD")
        if environ.get("HTTP_HOST") not in self.names:
            return HTTPStatus.MISDIRECTED_REQUEST, [], _whole("<p>This page answers under 127.0.0.1 alone.</p>")
        if environ.get("PATH_INFO") != "/":
            return HTTPStatus.NOT_FOUND, [], _whole("<p>There is one page: /</p>")
        if method not in ("GET", "POST"):
            return HTTPStatus.METHOD_NOT_ALLOWED, [("Allow", "GET, POST")], _whole("<p>GET or POST.</p>")
        form = _form(environ) if method == "POST" else _fields(str(environ.get("QUERY_STRING", "")))
        if form is None:
            return HTTPStatus.BAD_REQUEST, [], _whole("<p>That is no form of this page.</p>")
        if not hmac.compare_digest(form.get("token", "").encode(), self.token.encode()):
            where = "<p>The address of this page has a secret; it stands in the trainer's state directory: approval/page</p>"
            return HTTPStatus.FORBIDDEN, [], _whole(where)
        if method == "GET":
            return self._shown(form.get("said", "")[:200])
        if environ.get("HTTP_ORIGIN", "null") not in ("null", *(f"http://{name}" for name in self.names)):
            return HTTPStatus.FORBIDDEN, [], _whole("<p>A page of another site sent this.</p>")
        try:
            said = self._decided(form)
        except FedplccError as error:
            return self._shown(error.detail, HTTPStatus.CONFLICT)
        return HTTPStatus.SEE_OTHER, [("Location", f"/?{urlencode({'token': self.token, 'said': said})}")], ""

    def _decided(self, form: Mapping[str, str]) -> str:
        run_id, reason = form.get("run", ""), form.get("reason", "")
        match form.get("ruling"):
            case "approve" if form.get("document"):
                made = deciding.approve(self._kept, run_id, form["document"])
            case "reject" | "withdraw":
                made = deciding.refuse(self._kept, run_id, reason)
            case _:
                return "nothing was decided"
        return f"run {made.run_id} is {made.ruling.value}"

    def _shown(self, said: str, status: HTTPStatus = HTTPStatus.OK) -> tuple[HTTPStatus, list[tuple[str, str]], str]:
        try:
            decisions, waiting = self._kept.decisions(), deciding.waiting(self._kept)
        except FedplccError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, [], _whole(_paragraph(error.detail))
        parts = [_paragraph(text) for text in (said, decisions.notice) if text]
        for facts in waiting:
            rows = "".join(
                f"<tr><th>{html.escape(name)}</th><td>{html.escape(words)}</td></tr>" for name, words in lines_of(facts)
            )
            fields = {"run": facts["run_id"], "document": facts["document_sha256"]}
            parts.append(f"<table>{rows}</table>" + self._buttons(fields, "approve", "reject") + "<hr>")
        parts += [] if waiting else ["<p>No run waits for approval.</p>"]
        asking = {facts["run_id"] for facts in waiting}
        decided = [each for each in deciding.decided(self._kept) if each["run_id"] not in asking]
        parts += ["<h2>Decided</h2>"] if decided else []
        for each in decided[:MAX_SHOWN]:
            fields = {"run": each["run_id"], "document": each["document_sha256"]}
            is_approved = each["ruling"] == Ruling.APPROVED.value
            button = "withdraw" if is_approved else "approve" if each["document_sha256"] else None
            parts.append(_paragraph(f"{each['run_id']}: {sentence_of(each)}"))
            parts += [self._buttons(fields, button)] if button else []
        if len(decided) > MAX_SHOWN:
            parts.append(_paragraph(f"and {len(decided) - MAX_SHOWN:,} older ones: fedplcc site pending --all"))
        return status, [], _whole("".join(parts))

    def _buttons(self, fields: Mapping[str, str], *rulings: str) -> str:
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">'
            for name, value in {"token": self.token, **fields}.items()
        )
        buttons = "".join(f'<button name="ruling" value="{each}">{each}</button> ' for each in rulings)
        reason = '<label>reason <input name="reason" maxlength="500" size="40"></label> '
        return f'<form method="post" action="/">{hidden}{reason}{buttons}</form>'


def _form(environ: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the fields of a form; None if it is none, or too long."""
    if str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    length = str(environ.get("CONTENT_LENGTH", ""))
    if not (length.isascii() and length.isdecimal()) or int(length) > MAX_FORM_BYTES:
        return None
    try:
        return _fields(environ["wsgi.input"].read(int(length)).decode("ascii"))
    except UnicodeDecodeError:
        return None


def _fields(text: str) -> dict[str, str] | None:
    try:
        return {name: values[-1] for name, values in parse_qs(text[:MAX_FORM_BYTES], max_num_fields=MAX_FIELDS).items()}
    except ValueError:
        return None


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _whole(body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Runs at this site</title><style>{_STYLE}</style>'
        f"</head><body><h1>Runs at this site</h1>{body}</body></html>"
    )
