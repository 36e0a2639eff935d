"""The tests' own reading of Dockerfiles and .dockerignore, against what the Dockerfile reference says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.hosts.dockerfile import (
    Context,
    Copy,
    DockerfileError,
    Image,
    MakeFolder,
    Run,
    instructions,
    read_plan,
)

FROM = "FROM debian:bookworm-slim\n"


def image(text: str, **arguments: str) -> Image:
    return read_plan(FROM + text, arguments).image


def step(text: str, **arguments: str) -> Any:
    """The last step."""
    return read_plan(FROM + text, arguments).steps[-1]


def test_lines_are_joined_comments_dropped_and_names_written_in_any_case() -> None:
    text = "# a comment\nfrom a\nRUN one \\\n  # within\n\n  && two\n\nUser me\n"
    assert list(instructions(text)) == [(2, "FROM", "a"), (3, "RUN", "one   && two"), (8, "USER", "me")]


def test_a_full_file_becomes_a_plan() -> None:
    plan = read_plan(
        """
        ARG BASE=debian
        ARG TAG=bookworm
        FROM ${BASE}:$TAG
        ARG TAG
        ARG VERSION=1 REVISION
        ENV HOME_OF="/srv/a b" PATH=/opt/bin:$PATH \\
            NAME='$kept'
        WORKDIR /srv
        COPY --chown=10001:10001 --chmod=640 a.txt b/ ./files/
        RUN --mount=type=cache,target=/var/cache/pip,sharing=locked pip install "x==${VERSION}"
        USER app
        WORKDIR data
        RUN ["touch", "/srv/$TAG"]
        VOLUME /srv/data
        EXPOSE 80 53/udp
        STOPSIGNAL SIGINT
        HEALTHCHECK --interval=1m30s --timeout=500ms --start-period=2s --retries=5 CMD ["ask", "me"]
        ENTRYPOINT ["run"]
        CMD ["it", "all"]
        LABEL org.version="${VERSION}" org.revision=${REVISION:-none}
        """,
        {"VERSION": "2"},
    )
    assert plan.base == "debian:bookworm"
    path = "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": path, "HOME_OF": "/srv/a b", "NAME": "$kept"}
    inside = {"TAG": "bookworm", "VERSION": "2", **environment}
    assert plan.steps == (
        MakeFolder(path="/srv"),
        Copy(sources=("a.txt", "b/"), destination="/srv/files/", owner="10001:10001", mode=0o640),
        Run(
            argv=("/bin/sh", "-c", 'pip install "x==${VERSION}"'),
            environment=inside,
            user="0:0",
            workdir="/srv",
            caches=("/var/cache/pip",),
        ),
        MakeFolder(path="/srv/data"),
        Run(argv=("touch", "/srv/$TAG"), environment=inside, user="app", workdir="/srv/data"),
        MakeFolder(path="/srv/data"),
    )
    check = plan.image.health_check
    assert check is not None
    assert (check.argv, check.interval, check.timeout, check.start_period, check.retries) == (
        ("ask", "me"),
        timedelta(seconds=90),
        timedelta(seconds=0.5),
        timedelta(seconds=2),
        5,
    )
    assert plan.image.environment == environment, "build arguments are not the containers' business"
    assert (plan.image.user, plan.image.workdir, plan.image.volumes) == ("app", "/srv/data", ("/srv/data",))
    assert (plan.image.ports, plan.image.stop_signal) == (("80", "53/udp"), "SIGINT")
    assert plan.image.labels == {"org.version": "2", "org.revision": "none"}
    assert plan.image.argv() == ("run", "it", "all")
    assert plan.image.argv("other") == ("run", "other")


def test_an_entrypoint_of_the_shell_form_takes_no_arguments() -> None:
    assert image('ENTRYPOINT serve --all\nCMD ["x"]').argv("y") == ("/bin/sh", "-c", "serve --all")
    assert image("CMD serve").argv() == ("/bin/sh", "-c", "serve")
    assert image("CMD [serve]").argv() == ("/bin/sh", "-c", "[serve]"), "what is no JSON is a shell's"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$A", "a"),
        ("${A}b", "ab"),
        ("x$NONE", "x"),
        ("${NONE:-d$A}", "da"),
        ("${A:-d}", "a"),
        ("${A:+set}", "set"),
        ("${NONE:+set}", ""),
        (r"\$A", "$A"),
        ('"$A \\" \\$A"', 'a " $A'),
        ("'$A'", "$A"),
        (r"a\ b", "a b"),
        ('""', ""),
    ],
)
def test_variables_and_quotes_are_read_as_docker_does(written: str, value: str) -> None:
    assert image(f"ENV A=a\nENV B={written}").environment["B"] == value


def test_the_environment_wins_over_a_build_argument_and_pairs_see_what_was_before_their_line() -> None:
    assert step("ARG A=1\nENV A=2\nRUN true").environment["A"] == "2"
    assert image("ENV A=1\nENV A=2 B=$A").environment["B"] == "1"


def test_arguments_before_from_are_forgotten_unless_they_are_named_again() -> None:
    text = "ARG A=1\nFROM x:$A\n"
    assert "A" not in _last_run(text + "RUN true").environment
    assert _last_run(text + "ARG A\nRUN true").environment["A"] == "1"
    assert _last_run(text + "ARG A=3\nRUN true").environment["A"] == "3"
    assert _last_run(text + "ARG A=3\nRUN true", A="4").environment["A"] == "4"
    assert "B" not in _last_run(text + "ARG B\nRUN true").environment, "no default and not given: not set"


def _last_run(text: str, **arguments: str) -> Run:
    last = read_plan(text, arguments).steps[-1]
    assert isinstance(last, Run)
    return last


def test_proxies_need_no_arg_and_reach_commands_only() -> None:
    plan = read_plan(FROM + "RUN true", {"http_proxy": "http://proxy:1"})
    assert isinstance(plan.steps[0], Run)
    assert plan.steps[0].environment["http_proxy"] == "http://proxy:1"
    assert "http_proxy" not in plan.image.environment


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM a\nADD x y", "line 2: instruction ADD is not known"),
        ('FROM a\nSHELL ["bash"]', "instruction SHELL is not known"),
        ("FROM a\nONBUILD RUN x", "instruction ONBUILD is not known"),
        ("FROM a\nRUMM x", "instruction RUMM is not known"),
        ("FROM a\nPLAN x", "instruction PLAN is not known"),
        ("FROM a AS b", "FROM is known with an image alone"),
        ("FROM a\nFROM b", "several stages"),
        ("RUN x", "RUN before FROM"),
        ("# syntax=docker/dockerfile:1\nARG A", "there is no FROM"),
        ("# escape=`\nFROM a", "parser directives"),
        ("FROM a\nRUN --mount=type=secret,id=x true", "--mount=type=secret,id=x is not known"),
        ("FROM a\nRUN --mount=type=cache,target=/x,uid=1 true", "is not known"),
        ("FROM a\nRUN --mount=type=cache true", "absolute target"),
        ("FROM a\nRUN --network=none true", "--network=none is not known"),
        ("FROM a\nRUN <<EOF\ntrue\nEOF", "here-documents"),
        ("FROM a\nRUN", "RUN needs an argument"),
        ("FROM a\nRUN true \\", "continued"),
        ("FROM a\nCOPY x", "sources and a destination"),
        ("FROM a\nCOPY x y z", "ends with /"),
        ("FROM a\nCOPY --from=b x y", "--from=b is not known"),
        ("FROM a\nCOPY --link x y", "--link is not known"),
        ("FROM a\nCOPY --chmod=u+x x y", "--chmod=u+x is not known"),
        ("FROM a\nENV A b", "not NAME=VALUE"),
        ("FROM a\nEXPOSE http", "is no port"),
        ("FROM a\nHEALTHCHECK CMD", "needs CMD"),
        ("FROM a\nHEALTHCHECK --retries=0 CMD x", "--retries=0 is not known"),
        ("FROM a\nHEALTHCHECK --interval=5 CMD x", "is no duration"),
        ('FROM a\nLABEL a="b', "cannot read"),
    ],
)
def test_what_is_not_known_is_an_error_and_never_passed_over(text: str, words: str) -> None:
    with pytest.raises(DockerfileError) as refused:
        read_plan(text)
    assert words in str(refused.value)


def test_a_build_argument_that_the_file_does_not_have_is_an_error() -> None:
    with pytest.raises(DockerfileError, match="TORCH has no ARG"):
        read_plan(FROM, {"TORCH": "1"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ("a.py", "b/a.py", "b/c/d.txt", "b/c/e.pyc", ".git/x", "README.md", "docs/README.md", "b/link.py")
    for name in names[:-1]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b/link.py").symlink_to("a.py")
    return tmp_path


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([".git"], "README.md a.py b/a.py b/c/d.txt b/c/e.pyc b/link.py docs/README.md"),
        (["*", "!b", "**/*.pyc"], "b/a.py b/c/d.txt b/link.py"),
        (["*", "!b/c/d.txt"], "b/c/d.txt"),
        (["# no rule", "", "/b/", "*.md", ".git"], "a.py docs/README.md"),
        (["**/README.md", ".git", "b"], "a.py"),
        (["**", "!**/*.py"], "a.py b/a.py b/link.py"),
        (["!a.py", "*"], ""),
        (["[ab].py", "b/?.py", ".git", "docs", "*.md"], "b/c/d.txt b/c/e.pyc b/link.py"),
    ],
)
def test_dockerignore_keeps_out_what_its_last_fitting_rule_says(folder: Path, rules: list[str], left: str) -> None:
    assert Context(folder, rules).files() == left.split()


def test_sources_are_folders_or_files_of_the_context(folder: Path) -> None:
    context = Context(folder, [".git"])
    assert context.under("b/c") == [("b/c/d.txt", "d.txt"), ("b/c/e.pyc", "e.pyc")]
    assert context.under("/b/a.py") == [("b/a.py", "a.py")]
    assert ("docs/README.md", "docs/README.md") in context.under(".")
    for outside in (".git", "none", "../x", "b/*.py"):
        with pytest.raises(DockerfileError):
            context.under(outside)


def test_an_image_of_this_project_is_built_from_the_package_alone() -> None:
    files = Context(ROOT).files()
    assert {file.partition("/")[0] for file in files} == {
        *("README.md", "LICENSE", "pyproject.toml"),
        *("aggregator", "fedplcc", "gateway", "shared", "trainer"),
    }
    assert not [file for file in files if "__pycache__" in file]
