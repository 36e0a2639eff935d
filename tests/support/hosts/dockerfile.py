"""A Dockerfile read to a plan: every step in order, and how a container of the image starts.

What a Docker engine would do is worked out here without doing anything; tests/support/hosts/debian_root.py does it. The
words are those of the Dockerfile reference. Whatever of it is not known here is an error, so that no step can be passed
over in silence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

SHELL = ("/bin/sh", "-c")
"""What runs a command that is not written as a JSON list."""
BASE_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""Environment of the Debian, Ubuntu and NVIDIA base images, as far as it matters here."""
PROXY_ARGUMENTS = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"})
"""Build arguments that need no ARG, in capitals or not."""


class DockerfileError(Exception):
    """The file says something that Docker would refuse, or that is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run a command in the image that has been built so far."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    user: str
    workdir: str
    caches: tuple[str, ...] = ()
    """Folders that are kept from build to build and are no part of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy files of the context; the content of a folder, not the folder."""

    sources: tuple[str, ...]
    destination: str
    """Absolute; ends with a slash if it is a folder."""
    owner: str = "0:0"
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    """Make a folder where there is none."""

    path: str
    owner: str = "0:0"


Step = Run | Copy | MakeFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The engine's health check of a container."""

    argv: tuple[str, ...]
    interval: timedelta = timedelta(seconds=30)
    timeout: timedelta = timedelta(seconds=30)
    start_period: timedelta = timedelta(0)
    start_interval: timedelta = timedelta(seconds=5)
    retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image's settings for its containers."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    user: str = "0:0"
    workdir: str = "/"
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "SIGTERM"
    health_check: HealthCheck | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The command line of a container that is started with these arguments, or without."""
        if self.entrypoint[:2] == SHELL:
            return self.entrypoint  # a shell's command takes no arguments
        return (*self.entrypoint, *(arguments or self.command))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A Dockerfile with its build arguments filled in."""

    base: str
    steps: tuple[Step, ...]
    image: Image


def read_plan(text: str, arguments: Mapping[str, str] | None = None) -> Plan:
    """Read a Dockerfile.

    Args:
        text: The file's content.
        arguments: Build arguments by name.

    Raises:
        DockerfileError: With the line: an unknown instruction or option, a wrong form, a build argument without ARG.
    """
    reader = _Reader(dict(arguments or {}))
    for number, name, rest in instructions(text):
        try:
            reader.read(name, rest)
        except DockerfileError as error:
            raise DockerfileError(f"line {number}: {error}") from None
    return reader.plan()


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name in capitals and the rest of every instruction, with continued lines joined.

    Raises:
        DockerfileError: A parser directive that changes how the file is read.
    """
    if re.match(r"#\s*(escape|check)\s*=", text, re.IGNORECASE):
        raise DockerfileError("line 1: parser directives are not known")
    start, joined = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (joined and not line.strip()):
            continue  # comments and empty lines may stand within a continued instruction
        start = start if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1]
            continue
        joined += line
        if joined.strip():
            name, _, rest = joined.strip().partition(" ")
            yield start, name.upper(), rest.strip()
        joined = ""
    if joined:
        raise DockerfileError(f"line {start}: the last line is to be continued")


class _Reader:
    """Takes one instruction after another."""

    def __init__(self, arguments: dict[str, str]) -> None:
        self._given = arguments
        self._used: set[str] = set()
        self._global_args: dict[str, str] = {}
        self._args: dict[str, str] = {
            name: value for name, value in arguments.items() if name.upper() in PROXY_ARGUMENTS
        }
        self._used |= self._args.keys()
        self._base: str | None = None
        self._image = Image()
        self._steps: list[Step] = []

    def plan(self) -> Plan:
        if self._base is None:
            raise DockerfileError("there is no FROM")
        if unknown := sorted(self._given.keys() - self._used):
            raise DockerfileError(f"build argument {unknown[0]} has no ARG")
        return Plan(base=self._base, steps=tuple(self._steps), image=self._image)

    def read(self, name: str, rest: str) -> None:
        read = getattr(self, f"_{name.lower()}", None) if name in _KNOWN else None
        if read is None:
            raise DockerfileError(f"instruction {name} is not known")
        if self._base is None and name not in ("ARG", "FROM"):
            raise DockerfileError(f"{name} before FROM")
        if not rest:
            raise DockerfileError(f"{name} needs an argument")
        read(rest)

    @property
    def _variables(self) -> dict[str, str]:
        """What may be named in this place; the environment wins over build arguments."""
        if self._base is None:
            return self._global_args
        return {**self._args, **self._image.environment}

    def _expanded(self, text: str) -> str:
        return "".join(_words_of(text, self._variables, split=False))

    def _words(self, text: str) -> list[str]:
        return _words_of(text, self._variables, split=True)

    def _arg(self, rest: str) -> None:
        for word in self._words(rest):
            name, has_default, default = word.partition("=")
            args = self._args if self._base is not None else self._global_args
            self._used.add(name)
            if name in self._given:
                args[name] = self._given[name]
            elif has_default:
                args[name] = default
            elif self._base is not None and name in self._global_args:
                args[name] = self._global_args[name]

    def _from(self, rest: str) -> None:
        if self._base is not None:
            raise DockerfileError("builds of several stages are not known")
        words = self._words(rest)
        if len(words) != 1:
            raise DockerfileError("FROM is known with an image alone")
        self._base = words[0]

    def _env(self, rest: str) -> None:
        self._image = replace(self._image, environment={**self._image.environment, **self._pairs(rest)})

    def _label(self, rest: str) -> None:
        self._image = replace(self._image, labels={**self._image.labels, **self._pairs(rest)})

    def _pairs(self, rest: str) -> dict[str, str]:
        pairs = {}
        for word in self._words(rest):
            name, equals, value = word.partition("=")
            if not name or not equals:
                raise DockerfileError(f"{word!r} is not NAME=VALUE")
            pairs[name] = value
        return pairs

    def _run(self, rest: str) -> None:
        flags, command = _flags(rest)
        caches = []
        for name, value in flags:
            mount = dict(part.partition("=")[::2] for part in value.split(","))
            if name != "mount" or mount.get("type") != "cache" or mount.keys() - {"type", "target", "id", "sharing"}:
                raise DockerfileError(f"--{name}={value} is not known")
            if not mount.get("target", "").startswith("/"):
                raise DockerfileError("a cache needs an absolute target")
            caches.append(mount["target"])
        if command.startswith("<<"):
            raise DockerfileError("here-documents are not known")
        image = self._image
        step = Run(
            argv=_argv(command),
            environment={**self._args, **image.environment},
            user=image.user,
            workdir=image.workdir,
            caches=tuple(caches),
        )
        self._steps.append(step)

    def _copy(self, rest: str) -> None:
        flags, files = _flags(rest)
        owner, mode = "0:0", None
        for name, value in flags:
            if name == "chown":
                owner = self._expanded(value)
            elif name == "chmod" and re.fullmatch(r"[0-7]{3,4}", value):
                mode = int(value, 8)
            else:
                raise DockerfileError(f"--{name}={value} is not known")
        listed = _json_list(files)
        words = [self._expanded(word) for word in listed] if listed is not None else self._words(files)
        if len(words) < 2:
            raise DockerfileError("COPY needs sources and a destination")
        *sources, destination = words
        if len(sources) > 1 and not destination.endswith("/"):
            raise DockerfileError("several sources need a destination that ends with /")
        target = self._absolute(destination) + ("/" if destination.endswith("/") else "")
        self._steps.append(Copy(sources=tuple(sources), destination=target, owner=owner, mode=mode))

    def _user(self, rest: str) -> None:
        self._image = replace(self._image, user=self._expanded(rest))

    def _workdir(self, rest: str) -> None:
        self._image = replace(self._image, workdir=self._absolute(self._expanded(rest)))
        self._steps.append(MakeFolder(path=self._image.workdir))

    def _volume(self, rest: str) -> None:
        listed = _json_list(rest)
        paths = [self._absolute(path) for path in (self._words(rest) if listed is None else listed)]
        self._image = replace(self._image, volumes=(*self._image.volumes, *paths))
        self._steps += [MakeFolder(path=path) for path in paths]

    def _expose(self, rest: str) -> None:
        ports = self._words(rest)
        for port in ports:
            if not re.fullmatch(r"\d{1,5}(/(tcp|udp))?", port):
                raise DockerfileError(f"{port!r} is no port")
        self._image = replace(self._image, ports=(*self._image.ports, *ports))

    def _stopsignal(self, rest: str) -> None:
        self._image = replace(self._image, stop_signal=self._expanded(rest))

    def _healthcheck(self, rest: str) -> None:
        flags, command = _flags(rest)
        if command.upper() == "NONE" and not flags:
            self._image = replace(self._image, health_check=None)
            return
        word, _, argv = command.partition(" ")
        if word.upper() != "CMD" or not argv.strip():
            raise DockerfileError("HEALTHCHECK needs CMD and a command, or NONE")
        options: dict[str, Any] = {}
        for name, value in flags:
            if name in ("interval", "timeout", "start-period", "start-interval"):
                options[name.replace("-", "_")] = _duration(value)
            elif name == "retries" and value.isdigit() and int(value) > 0:
                options[name] = int(value)
            else:
                raise DockerfileError(f"--{name}={value} is not known")
        self._image = replace(self._image, health_check=HealthCheck(argv=_argv(argv.strip()), **options))

    def _entrypoint(self, rest: str) -> None:
        self._image = replace(self._image, entrypoint=_argv(rest))

    def _cmd(self, rest: str) -> None:
        self._image = replace(self._image, command=_argv(rest))

    def _absolute(self, path: str) -> str:
        return os.path.normpath(PurePosixPath(self._image.workdir, path))


_KNOWN = frozenset(
    {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM"}
    | {"HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)


def _flags(text: str) -> tuple[list[tuple[str, str]], str]:
    """Options in front, and what follows them."""
    flags = []
    while match := re.match(r"--([a-z-]+)=(\S*)\s*", text):
        flags.append((match[1], match[2]))
        text = text[match.end() :]
    if text.startswith("--"):
        raise DockerfileError(f"{text.split()[0]} is not known")
    return flags, text


def _json_list(text: str) -> list[str] | None:
    """The words of a JSON list; None if it is none, and then Docker takes the text for a shell's."""
    try:
        words = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _argv(text: str) -> tuple[str, ...]:
    words = _json_list(text)
    return (*SHELL, text) if words is None else tuple(words)


def _duration(text: str) -> timedelta:
    units = {"h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
    if not re.fullmatch(r"(\d+(ms|[hms]))+", text):
        raise DockerfileError(f"{text!r} is no duration")
    return timedelta(**{units[unit]: int(number) for number, unit in re.findall(r"(\d+)(ms|[hms])", text)})


_TOKEN = re.compile(
    r"""\\(?P<escaped>.)
      | '(?P<single>[^']*)'
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | \$(?P<name>[A-Za-z_]\w*)
      | \$\{(?P<braced>[A-Za-z_]\w*)(?:(?P<operator>:[-+])(?P<word>[^}]*))?\}
      | (?P<space>\s+)
      | (?P<plain>[^\\'"$\s]+)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""\\(?P<escaped>["\\$])|(?P<variable>\$\{[^}]*\}|\$[A-Za-z_]\w*)|(?P<plain>.)""", re.DOTALL)


def _words_of(text: str, variables: Mapping[str, str], *, split: bool) -> list[str]:
    """Words with quotes taken off and variables filled in; one that is not set is empty."""
    words: list[str] = []
    current: str | None = None
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DockerfileError(f"cannot read {text[position:]!r}")
        position = match.end()
        if match["space"] is not None and split:
            if current is not None:
                words.append(current)
            current = None
            continue
        current = (current or "") + _value(match, variables)
    return words if current is None else [*words, current]


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["double"] is not None:
        parts = _QUOTED.finditer(match["double"])
        return "".join(
            "".join(_words_of(part["variable"], variables, split=False)) if part["variable"] else _plain(part)
            for part in parts
        )
    name = match["name"] or match["braced"]
    if name is None:
        return next(match[group] for group in ("escaped", "single", "space", "plain") if match[group] is not None)
    value = variables.get(name, "")
    if match["operator"] is None:
        return value
    word = "".join(_words_of(match["word"], variables, split=False))
    return (value or word) if match["operator"] == ":-" else (word if value else "")


def _plain(part: re.Match[str]) -> str:
    return part["escaped"] if part["escaped"] is not None else part["plain"]


class Context:
    """The files of a folder that a build sees: all but those that its .dockerignore keeps out."""

    def __init__(self, folder: Path, ignore: Sequence[str] | None = None) -> None:
        """Open a folder; `ignore` are the lines of a .dockerignore, by default those of the folder's own."""
        self.folder = folder
        file = folder / ".dockerignore"
        if ignore is None:
            ignore = file.read_text().splitlines() if file.exists() else []
        self._rules = [_rule(line.strip()) for line in ignore if line.strip() and not line.startswith("#")]
        self._has_exceptions_anywhere = any(
            keeps and pattern.startswith(("*", "?", "[")) for keeps, pattern, _ in self._rules
        )

    def files(self) -> list[str]:
        """Paths of all files and links, sorted, relative to the folder."""
        return sorted(self._walk(""))

    def under(self, source: str) -> list[tuple[str, str]]:
        """The files that a source of COPY names: each path with its place below the destination.

        Raises:
            DockerfileError: There is none, or the source is a pattern or outside of the context.
        """
        path = os.path.normpath(source.lstrip("/"))
        if path.startswith("..") or re.search(r"[*?\[]", path):
            raise DockerfileError(f"source {source!r} is not known: write a file or a folder of the context")
        if path == ".":
            return [(name, name) for name in self.files()]
        inside = [(name, name[len(path) + 1 :]) for name in self.files() if name.startswith(f"{path}/")]
        if not inside and path in self.files():
            inside = [(path, PurePosixPath(path).name)]
        if not inside:
            raise DockerfileError(f"{source!r} is not in the context")
        return inside

    def _walk(self, folder: str) -> Iterator[str]:
        for entry in os.scandir(self.folder / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_out = self._is_out(path)
            if entry.is_dir(follow_symlinks=False):
                if not is_out or self._may_keep_within(path):
                    yield from self._walk(path)
            elif not is_out:
                yield path

    def _is_out(self, path: str) -> bool:
        """Whether the last rule that fits the path, or a folder that it is in, keeps it out."""
        parts = path.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        is_out = False
        for keeps, _pattern, expression in self._rules:
            if is_out == keeps and any(expression.fullmatch(prefix) for prefix in prefixes):
                is_out = not keeps
        return is_out

    def _may_keep_within(self, folder: str) -> bool:
        return self._has_exceptions_anywhere or any(
            keeps and pattern.startswith(f"{folder}/") for keeps, pattern, _ in self._rules
        )


def _rule(line: str) -> tuple[bool, str, re.Pattern[str]]:
    """Whether a line of .dockerignore keeps files in, its pattern, and the expression of paths that it fits."""
    keeps = line.startswith("!")
    pattern = os.path.normpath(line.removeprefix("!").strip().lstrip("/"))
    expression = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|\\.|.", pattern):
        expression += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
            token, token if token.startswith("[") and len(token) > 1 else re.escape(token.removeprefix("\\"))
        )
    return keeps, pattern, re.compile(expression)
