"""Serving the console: the page at `/`, what it loads below `/console/`.

Browsers keep the files and ask with each load whether they are still right, so that a page and its modules always come from
one version; who has them is answered with 304 and no body.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.console.files import INDEX, ConsoleFile, console_files

PAGE_PATH = "/"
FILES_PATH = "/console/{file_name}"
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
"""What the page may do: load from this gateway, talk to this gateway, and nothing else."""
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


async def get_page(request: Request) -> Response:
    """Show the console."""
    found = _files()
    modules = (name for name in found if name.endswith(".js"))
    # The browser asks for all modules at once, not for each when it has read the one that imports it.
    links = ", ".join(f"<console/{name}>; rel=modulepreload" for name in modules)
    return _respond(request, found[INDEX], {"Link": links})


async def get_console_file(request: Request, file_name: str) -> Response:
    """Fetch a part of the console."""
    found = _files().get(file_name)
    if found is None:
        raise HTTPException(404)
    return _respond(request, found)


@cache
def _files() -> Mapping[str, ConsoleFile]:
    return console_files()


def _respond(request: Request, file: ConsoleFile, extra: Mapping[str, str] | None = None) -> Response:
    headers = {**HEADERS, "ETag": file.etag, **(extra or {})}
    if _is_known(request, file.etag):
        return Response(status_code=304, headers=headers)
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", "") and len(file.compressed) < len(content):
        content, headers["Content-Encoding"] = file.compressed, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)


def _is_known(request: Request, etag: str) -> bool:
    """Whether the browser has it: entity tags are compared weakly (RFC 9110, 13.1.2)."""
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    return etag.removeprefix("W/") in known
