"""Routes of the console: the page at `/`, its files below `/console/`.

The page loads files by a version, the hash of all files. Browsers keep such files for ever and fetch only the page again;
modules of two versions never meet. Files without a version are revalidated at every load; the answer is 304 without a body
if they have not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fedplcc.gateway.console.files import INDEX, ConsoleFile, console_files, imported_by, version_of
from fedplcc.gateway.http.described.api_page import api_page
from fedplcc.gateway.http.described.operations import Operations

OPERATIONS = Operations("console", is_listed=False)
FIRST_VIEW = ("app.js", "overview/overview.js")
"""Modules of the first page of most visits."""
SOON = ("run/run.js",)
"""Modules of the next page of most visits; other pages load their modules when they open."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Text cannot become markup or a script by mistake: the browser refuses innerHTML and its kin.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content security policy: the page loads from this gateway and talks to this gateway only."""
ASK_AGAIN = "no-cache"
KEEP = "public, max-age=31536000, immutable"
"""Cache-Control of files with a version, which never change."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


@OPERATIONS.add("GET", "/", calls_aggregator=False, has_head=True)
async def get_page(request: Request) -> Response:
    """Return the console's page."""
    return _respond(request, _page(), {"Cache-Control": ASK_AGAIN, "Link": _preload()})


@OPERATIONS.add("GET", "/docs", calls_aggregator=False, has_head=True)
async def get_api_page(request: Request) -> Response:
    """Return the page of the API, made of the OpenAPI document."""
    state = request.app.state
    document = request.app.openapi()
    made_for, page = getattr(state, "api_page", (None, None))
    if page is None or made_for != state.described_for:
        content = api_page(document, f"console/{_version()}/").encode()
        state.api_page = (state.described_for, page := ConsoleFile(INDEX, content))
    return _respond(request, page, {"Cache-Control": ASK_AGAIN})


@OPERATIONS.add("GET", "/console/{file_path:path}", calls_aggregator=False, has_head=True)
async def get_console_file(request: Request, file_path: str) -> Response:
    """Return a file of the console by NAME or VERSION/NAME; names of files below `static`, with slashes."""
    name = file_path.removeprefix(f"{_version()}/")
    found = _files().get(name)
    if found is None:
        raise HTTPException(404)
    return _respond(request, found, {"Cache-Control": ASK_AGAIN if name == file_path else KEEP})


@cache
def _files() -> Mapping[str, ConsoleFile]:
    return console_files()


@cache
def _version() -> str:
    return version_of(_files())


@cache
def _page() -> ConsoleFile:
    """Return the page with the version in the paths of its files."""
    content = _files()[INDEX].content.replace(b'"console/', f'"console/{_version()}/'.encode())
    return ConsoleFile(INDEX, content)


@cache
def _preload() -> str:
    """Return the Link header: the browser fetches these modules at once, before it reads any import.

    Each comes with all that it imports before the next one: the start of the console, which asks for what any page shows,
    must not wait for the modules of a page.
    """
    links: dict[str, str] = {}
    for name in (*FIRST_VIEW, *SOON):
        priority = "" if name in FIRST_VIEW else "; fetchpriority=low"
        for needed in imported_by(_files(), name):
            links.setdefault(needed, f"<console/{_version()}/{needed}>; rel=modulepreload{priority}")
    return ", ".join(links.values())


def _respond(request: Request, file: ConsoleFile, extra: Mapping[str, str]) -> Response:
    headers = {**HEADERS, "ETag": file.etag, **extra}
    if _is_known(request, file.etag):
        return Response(status_code=304, headers=headers)
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", "") and len(file.compressed) < len(content):
        content, headers["Content-Encoding"] = file.compressed, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)


def _is_known(request: Request, etag: str) -> bool:
    """Whether the browser has the file; entity tags are compared weakly (RFC 9110, 13.1.2)."""
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    return etag.removeprefix("W/") in known
