import asyncio
import gzip
import posixpath
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fedplcc.gateway.app import create_app
from fedplcc.gateway.console.files import INDEX, MEDIA_TYPES, ConsoleFile, console_files, imported_by, version_of
from fedplcc.gateway.console.routes import FIRST_VIEW, HEADERS, POLICY
from fedplcc.shared.config.settings import GatewaySettings

FILES = console_files()
VERSION = version_of(FILES)
MODULES = {name: file.content.decode() for name, file in FILES.items() if name.endswith(".js")}
STYLES = {name: file.content.decode() for name, file in FILES.items() if name.endswith(".css")}
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""")
IMPORT_AT_ONCE = re.compile(r"""from\s+["'](\.{1,2}/[^"']+)["']""")


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(GatewaySettings(insecure=True))


def ask(app: FastAPI, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def exchange() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080") as client:
            return await client.request(method, path, headers={"Accept-Encoding": "identity", **headers})

    return asyncio.run(exchange())


def imports_of(name: str, pattern: re.Pattern[str]) -> set[str]:
    """Names of the modules that a module imports."""
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in pattern.findall(MODULES[name])
    }


class Markup(HTMLParser):
    """What a page consists of: its elements with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Any] = []
        self.code, self._within = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style"):
            self.code += data.strip()


PAGE = Markup(FILES[INDEX].content.decode())


def test_the_page_is_served_and_may_load_from_here_only(app: FastAPI) -> None:
    answer = ask(app, "/")
    assert answer.status_code == 200
    assert answer.text.replace(f"console/{VERSION}/", "console/").encode() == FILES[INDEX].content
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert {policy[name] for name in ("frame-ancestors", "base-uri", "form-action", "trusted-types")} == {"'none'"}
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("word", ["unsafe", "http:", "https:", "data:", "blob:", "*"])
def test_nothing_loosens_the_policy(word: str) -> None:
    assert word not in POLICY


def test_every_file_is_served_with_its_type_and_the_same_headers(app: FastAPI) -> None:
    assert len(FILES) > 10
    for name, file in FILES.items():
        answer = ask(app, f"/console/{name}")
        assert (answer.status_code, answer.content) == (200, file.content), name
        assert answer.headers["content-type"] == MEDIA_TYPES["." + name.rpartition(".")[2]]
        assert {key: answer.headers[key] for key in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-cache", "it is asked whether it is still right"


def test_what_the_page_names_is_kept_for_ever(app: FastAPI) -> None:
    page = ask(app, "/")
    assert page.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
    assert len(named) > 4
    for path in named:
        answer = ask(app, f"/{path}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert answer.content == FILES[path.removeprefix(f"console/{VERSION}/")].content


def test_another_content_is_another_version() -> None:
    one = {"a.js": ConsoleFile("a.js", b"1"), "b.js": ConsoleFile("b.js", b"2")}
    assert version_of(one) == version_of(dict(one))
    others = [
        {**one, "b.js": ConsoleFile("b.js", b"3")},
        {**one, "c.js": ConsoleFile("c.js", b"")},
        {"a.js": one["a.js"], "c.js": one["b.js"]},
    ]
    assert len({version_of(found) for found in (one, *others)}) == 4


def test_what_the_browser_has_is_not_sent_again(app: FastAPI) -> None:
    first = ask(app, "/console/app.js")
    for known in (first.headers["etag"], first.headers["etag"].removeprefix("W/"), f'"other", {first.headers["etag"]}'):
        again = ask(app, "/console/app.js", **{"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert again.headers["content-security-policy"] == POLICY
    assert ask(app, "/console/app.js", **{"If-None-Match": '"other"'}).status_code == 200
    page = ask(app, "/")
    assert ask(app, "/", **{"If-None-Match": page.headers["etag"]}).status_code == 304


def test_another_content_has_another_tag() -> None:
    assert ConsoleFile("a.js", b"1").etag == ConsoleFile("b.js", b"1").etag != ConsoleFile("a.js", b"2").etag


def test_files_are_compressed_for_who_takes_it(app: FastAPI) -> None:
    answer = ask(app, "/console/styles/console.css", **{"Accept-Encoding": "br, gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.content == FILES["styles/console.css"].content
    assert (
        int(answer.headers["content-length"]) == len(gzip.compress(answer.content, mtime=0)) < len(answer.content) / 2
    )
    assert answer.headers["vary"] == "Accept-Encoding"
    plain = ask(app, "/console/styles/console.css")
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] == answer.headers["etag"]


def test_the_first_view_is_small() -> None:
    styles = [name for name in STYLES if f'"console/{name}"' in FILES[INDEX].content.decode()]
    assert len(styles) > 5
    names = [INDEX, *imported_by(FILES, *FIRST_VIEW), *styles]
    assert sum(len(FILES[name].compressed) for name in names) < 50_000, "bytes, compressed"


def test_the_browser_is_told_at_once_of_every_module_of_the_first_view_and_later_of_those_of_a_run(
    app: FastAPI,
) -> None:
    links = [link.strip().split("; ") for link in ask(app, "/").headers["link"].split(",")]
    assert {tuple(link[1:]) for link in links} == {("rel=modulepreload",), ("rel=modulepreload", "fetchpriority=low")}
    told = [link[0].removeprefix(f"<console/{VERSION}/").removesuffix(">") for link in links]
    urgent = [name for name, link in zip(told, links, strict=True) if len(link) == 2]
    assert urgent == told[: len(urgent)], "a page that is not asked for must not hold up the one that is"
    start = imported_by(FILES, "app.js")
    assert told[: len(start) + 1] == [*start, "overview/overview.js"], "the start of the console waits for no page"
    assert "run/run.js" in told[len(urgent) :]
    assert len(set(told)) == len(told) > 5
    for among in (urgent, told):
        for name in among:
            assert imports_of(name, IMPORT_AT_ONCE) <= set(among), name


def test_asking_without_wanting_the_body_is_answered(app: FastAPI) -> None:
    answer = ask(app, "/", method="HEAD")
    assert (answer.status_code, int(answer.headers["content-length"])) == (200, len(ask(app, "/").content))


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/nothing.js",
        "/console/../app.py",
        "/console/%2e%2e/routes.py",
        "/console/..%2froutes.py",
        "/console/static/app.js",
        "/console/lib",
        "/console/lib/",
        "/console/lib/%2e%2e/app.js",
        "/console/lib/..%2f..%2froutes.py",
        "/console/lib//dom.js",
        "/console//lib/dom.js",
        "/console/%2e/app.js",
        "/console/lib%5cdom.js",
        "/console/dom.js",
        f"/console/{VERSION}/lib/%2e%2e/app.js",
        f"/console/{VERSION}//app.js",
        f"/console/lib/{VERSION}/dom.js",
        f"/console/{'0' * 16}/app.js",
        f"/console/{VERSION}/",
        f"/console/{VERSION}/nothing.js",
        f"/console/{VERSION}/../app.py",
        f"/console/{VERSION}/{VERSION}/app.js",
        "/console/jsconfig.json",
        "/console/app.js%00.css",
        "/console/APP.JS",
        "/app.js",
        "/index.html",
    ],
)
def test_nothing_else_is_served(app: FastAPI, path: str) -> None:
    answer = ask(app, path)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


def test_files_are_counted_as_one_route_and_are_not_part_of_the_api(app: FastAPI) -> None:
    for name in ("app.js", "lib/dom.js", f"{VERSION}/styles/console.css"):
        ask(app, f"/console/{name}")
    registry = app.state.services.metrics.registry
    labels = {"route": "/console/{file_path:path}", "method": "GET", "status": "200"}
    assert registry.get_sample_value("fedplcc_http_requests_total", labels) >= 3
    routes = {s.labels["route"] for m in registry.collect() for s in m.samples if "route" in s.labels}
    assert {route for route in routes if route.startswith("/console")} == {"/console/{file_path:path}"}
    assert not [path for path in app.openapi()["paths"] if path == "/" or path.startswith("/console")]


def test_the_page_holds_no_code_of_its_own() -> None:
    assert PAGE.code == ""
    for tag, attributes in PAGE.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)


# What the browser would find out too late


def test_what_the_page_loads_is_there_and_is_found_below_a_prefix_too() -> None:
    loaded = [
        attributes[name]
        for tag, attributes in PAGE.elements
        for name in ("src", "href")
        if name in attributes and not attributes[name].startswith("#")
    ]
    assert set(loaded) >= {"console/app.js", "console/styles/console.css", "console/icon.svg"}
    linked = {"docs"}
    loaded = [path for path in loaded if path not in linked]
    assert [path for path in loaded if not path.startswith("console/")] == []
    assert [path for path in loaded if path.removeprefix("console/") not in FILES] == []
    of_the_api = {"styles/api.css"}
    assert set(STYLES) - of_the_api == {path.removeprefix("console/") for path in loaded if path.endswith(".css")}


def test_every_module_that_is_imported_is_there_and_every_one_that_is_there_is_imported() -> None:
    imported = {other for name in MODULES for other in imports_of(name, IMPORT)}
    assert imported | {"app.js"} == set(MODULES)


FOLDERS = (
    ("",),
    ("overview", "compare", "messages"),
    ("run", "start"),
    ("classes", "stages"),
    ("clients", "charts", "map"),
    ("lib",),
)
"""Folders of the console, from the top: a module imports from its own folder and from those of later rows."""


def test_imports_between_folders_point_one_way() -> None:
    rows = {folder: row for row, folders in enumerate(FOLDERS) for folder in folders}
    assert set(rows) == {posixpath.dirname(name) for name in MODULES}
    for name in MODULES:
        own = posixpath.dirname(name)
        for other in imports_of(name, IMPORT):
            folder = posixpath.dirname(other)
            assert folder == own or rows[folder] > rows[own], f"{name} imports {other}"


READERS_OF_MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function"


def test_no_module_reads_text_as_markup_or_talks_to_somebody_else() -> None:
    for name, text in MODULES.items():
        assert text.startswith("// @ts-check\n/**\n"), f"{name}: its types are checked, and it says what it is"
        code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert re.findall(READERS_OF_MARKUP, code) == [], name
        assert set(re.findall(r"https?://[^\s\"'`]+", code)) <= {"http://www.w3.org/2000/svg"}, name


NAMED_CALLBACK = re.compile(r"\.(?:map|flatMap|filter|forEach|some|every|find\w*)\(\s*(?!Boolean\b)[\w.#]+\s*[,)]")
"""A function that is handed to an array's method by its name: it gets the index and the whole array too."""


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("axis.ticks.map(formatTick)", True),
        ("points.filter(this.#isOn).length", True),
        ("rows.forEach(\n  write,\n)", True),
        ("texts.map(parseInt)", True),
        ("axis.ticks.map((tick) => formatTick(tick))", False),
        ("parts.filter(Boolean).sort(byName)", False),
    ],
)
def test_a_function_by_name_is_found_wherever_an_index_would_be_its_second_argument(text: str, is_found: bool) -> None:
    assert (NAMED_CALLBACK.search(text) is not None) is is_found


def test_no_function_gets_an_index_for_an_argument_of_its_own() -> None:
    assert {name: text for name, text in MODULES.items() if NAMED_CALLBACK.search(text)} == {}


@pytest.mark.parametrize("name", sorted(STYLES))
def test_no_style_loads_from_elsewhere(name: str) -> None:
    assert "@import" not in STYLES[name]
    assert "url(" not in STYLES[name]


@pytest.mark.parametrize("name", sorted(STYLES))
def test_styles_use_no_colour_but_the_tokens(name: str) -> None:
    _, _, rules = STYLES[name].partition("*::before") if name == "styles/console.css" else ("", "", STYLES[name])
    used = set(re.findall(r"var\((--[a-z0-9-]+)", rules))
    literal = set(re.findall(r"#[0-9a-fA-F]{3,8}\b|rgb\([^)]*\)", re.sub(r"#[a-z][a-z-]*\s*[{,]", "", rules)))
    assert literal == set(), "a colour that is no token has no value for the dark"
    defined = set(re.findall(r"(--[a-z0-9-]+)\s*:", STYLES["styles/console.css"] + STYLES[name]))
    set_by_modules = set(re.findall(r"[\"'](--[a-z0-9-]+)[\"']", "".join(MODULES.values())))
    assert used <= defined | set_by_modules


def test_every_colour_has_a_value_for_light_and_for_dark() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", STYLES["styles/console.css"], flags=re.DOTALL)[:2]

    def colours(text: str) -> set[str]:
        return set(re.findall(r"(--[a-z0-9-]+): *(?:#|rgb|none|0 )", text))

    assert colours(light) == colours(dark)
    assert len(colours(light)) > 25


def _linear(colour: str) -> tuple[float, float, float]:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("look", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_what_they_are_on(look: int) -> None:
    root = re.findall(r":root \{(.*?)\}", STYLES["styles/console.css"], flags=re.DOTALL)[look]
    token = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", root))
    for surface in ("page", "surface", "surface-sunk"):
        for text in ("text", "text-muted", "accent", "accent-strong", "good", "warning", "bad"):
            assert _contrast(token[text], token[surface]) >= 4.5, (text, surface)
        assert _contrast(token["line-strong"], token[surface]) >= 3, surface
    for tone in ("good", "warning", "bad", "info", "neutral"):
        assert _contrast(token[tone], token[f"{tone}-wash"]) >= 4.5, tone
        assert _contrast(token["text"], token[f"{tone}-wash"]) >= 4.5, tone
    assert _contrast(token["on-accent"], token["accent"]) >= 4.5
    for index in range(1, 11):
        assert _contrast(token[f"series-{index}"], token["surface"]) >= 3, f"series-{index}"
