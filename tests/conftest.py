"""Settings of all tests: hypothesis without deadlines (the machine is shared), one way to get real processes, which tests a
command runs, and the slow files first, so that of two workers neither waits for the other at the end.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from structlog.contextvars import clear_contextvars

from fedplcc.shared.process.log import OUR_LOGGERS
from tests.support.federation.forked_workers import use_forked_workers
from tests.support.federation.processes import TOLD, Federation
from tests.support.hosts.memory_folder import memory_folder
from tests.support.hosts.postgres import Server, a_server
from tests.support.made_once import make_once
from tests.support.parts import SHARDS, Part, part_of, shard_of

settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")
make_once()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted; what they print themselves is lost where files run beside each other."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name == TOLD:
                terminalreporter.write_line(f"{report.location[0]}: {value}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fedplcc")
    group.addoption("--part", choices=[*Part], help="tests to run; all those that are named, else those without `full`")
    group.addoption("--shard", type=int, choices=range(1, SHARDS + 1), help=f"run one of {SHARDS} shares of them alone")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose before workers start: they are given the options, but named all folders."""
    if config.option.part is None:
        names = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        config.option.part = part_of(is_named=names or bool(config.option.keyword or config.option.markexpr))


def pytest_report_header(config: pytest.Config) -> str:
    shard = config.option.shard
    return f"part: {config.option.part}" + (f", shard {shard} of {SHARDS}" if shard else "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, shard = Part(config.option.part), config.option.shard

    def runs(item: pytest.Item) -> bool:
        return part.has(is_full=item.get_closest_marker("full") is not None) and shard in (None, shard_of(item.nodeid))

    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = sorted(filter(runs, items), key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage when all files are collected: what they load stays, and searching it took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@contextmanager
def _logs_as_they_were() -> Iterator[None]:
    """Take back what a command sets up in this process: it logs to the stream that CliRunner closes, errors alone."""
    root, loggers = logging.getLogger(), [logging.getLogger(name) for name in ("", *OUR_LOGGERS)]
    handlers, levels = list(root.handlers), [logger.level for logger in loggers]
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def logs_of_a_module() -> Iterator[None]:
    """Nothing that a module's own fixtures set up outlives it."""
    with _logs_as_they_were():
        yield


@pytest.fixture(autouse=True)
def logs_of_a_test() -> Iterator[None]:
    """Nothing that a test sets up outlives it."""
    clear_contextvars()
    with _logs_as_they_were():
        yield


@pytest.fixture
def covered(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says at the end what a search went over."""
    return partial(record_property, TOLD)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder in memory: what a power cut leaves is tried elsewhere."""
    with memory_folder() as name:
        yield Path(name)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """Real processes on loopback, ended with the test; their logs are shown if it fails."""
    with Federation(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Workers of simulations and comparisons are forks, where a test is not about how they start and end."""
    with pytest.MonkeyPatch.context() as patch:
        use_forked_workers(patch)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server for all tests of a session; they are skipped where none is installed."""
    with a_server() as server:
        yield server


@pytest.fixture
def database_url(postgres: Server) -> Iterator[str]:
    """The URL of a new database."""
    with postgres.database() as url:
        yield url
