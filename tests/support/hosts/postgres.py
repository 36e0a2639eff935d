"""A PostgreSQL server of the tests' own, from the Debian package: started once a session, with a new database for each test.

What is durable is left as it is by default. It sorts by the rules of a language, as most servers do. It will not run as
root, so there it runs as the user that its package made.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.support.federation.processes import eventually, free_port
from tests.support.hosts.memory_folder import memory_folder

USER, PASSWORD = "federation", "p@ss/w%rd: ü"
"""Characters that a URL must escape."""
OLDEST = 15.0
"""Since then a database may sort by ICU's rules whatever the machine's languages are."""
HOW_TO_INSTALL = f"PostgreSQL {OLDEST:.0f} or newer is not installed: apt-get install postgresql"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "min_wal_size": "8MB",
    "max_wal_size": "64MB",
    "max_connections": "60",
    "logging_collector": "off",
}


def binaries() -> Path | None:
    """The folder of the newest server that is installed, if one is."""
    found = {float(path.parts[-3]): path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")}
    newest = max(found, default=0.0)
    return found[newest] if newest >= OLDEST else None


class Server:
    """A server on a loopback port; `crash` and `start` are what a power cut does to it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self.port = free_port()
        self._account = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self._log = folder / "server.log"
        if os.geteuid() == 0:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        secret = folder / "password"
        secret.write_text(f"{PASSWORD}\n", encoding="utf-8")
        secret.chmod(0o644)
        arguments = ["--pgdata", str(folder / "data"), "--username", USER, "--pwfile", str(secret), "--wal-segsize=1"]
        arguments += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
        arguments += ["--locale-provider=icu", "--icu-locale=en", "--no-sync", "--no-instructions"]
        done = self._popen(programs / "initdb", *arguments).wait(120)
        assert done == 0, self.log()

    def start(self) -> None:
        """Start, or start again on the same port; returns once it answers."""
        flags = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        place = ("-D", str(self._folder / "data"), "-p", str(self.port), "-k", str(self._folder))
        self._process = self._popen(self._programs / "postgres", *place, *flags)

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                return False
            return True

        eventually(answers, "PostgreSQL answers")

    def stop(self) -> None:
        """End it as an operator does: open transactions are rolled back, connections are cut."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it at once, without a checkpoint; its next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement outside any transaction; returns its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self, options: str = "") -> Iterator[str]:
        """The URL of a new database, which goes again."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        try:
            yield self.url(name)
        finally:
            with suppress(psycopg.OperationalError):  # a test may leave the server away
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _popen(self, program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        # Not `user=` of Popen: that forks for real, which a process with gRPC's threads in it does not survive.
        number = str(self._account.pw_uid), str(self._account.pw_gid)
        as_user = ["setpriv", "--reuid", number[0], "--regid", number[1], "--clear-groups"] if os.geteuid() == 0 else []
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*as_user, str(program), *arguments],
                cwd=self._folder,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C of the tests is not the server's
            )


@contextmanager
def a_server() -> Iterator[Server]:
    """A server for as long as the block lasts; the test is skipped where none is installed."""
    programs = binaries()
    if programs is None:
        pytest.skip(HOW_TO_INSTALL)
    with memory_folder() as folder:
        server = Server(Path(folder), programs)
        try:
            server.start()
            yield server
        finally:
            server.crash()
