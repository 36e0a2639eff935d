"""Images built and containers run without a container engine: Debian roots by debootstrap, and Linux namespaces.

What tests/support/hosts/dockerfile.py read is done here the way an engine does it. A step and a container are process 1
of their own process namespace, see their own /proc, /dev and mounts, and know only the image's environment. A
container's root is read-only, as with `docker run --read-only --tmpfs /tmp`; what it keeps is in its volumes.

Nothing of this machine can be written from inside: what a build needs of it (package indexes, certificates, name servers)
is handed in as copies or as read-only mounts, and is no part of the image. Mounts are made in namespaces that end with
their processes, and processes end with the test that started them, however that ends.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Self

import pytest

from tests.support.federation.processes import eventually
from tests.support.hosts.dockerfile import PROXY_ARGUMENTS, Context, Copy, Image, MakeFolder, Plan, Run, Step
from tests.support.hosts.namespaces import Host

RELEASE = "bookworm"
STEP_S = 900.0
"""Longest time that one step of a build may take."""
HANDED_IN = "/run/from-host"
"""Where a build sees copies of this machine's files."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DISK_BYTES = 16 << 30
"""Most that roots and volumes may take; what is not used takes no room on this machine."""
TOOLS = ("debootstrap", "mkfs.ext4", "unshare", "nsenter", "setpriv", "chroot", "mount")
_DIE_WITH_TEST = ("setpriv", "--pdeathsig", "KILL")
"""In front of a command: it ends when the thread of the test that started it does."""
TAIL = 6000
"""Characters of a log that are shown when something fails."""


def need_debian_roots() -> None:
    """Skip the test that asks where no root can be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a Debian root can be made on Linux by root only")
    for tool in TOOLS:
        if shutil.which(tool) is None:
            pytest.skip(f"there is no command {tool}: apt-get install debootstrap e2fsprogs util-linux")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no namespaces of mounts and processes")


@dataclass(frozen=True, slots=True)
class FromHost:
    """What a build is given of this machine, as an engine gives it its proxies and name servers."""

    environment: Mapping[str, str]
    read_only: Mapping[str, Path] = field(default_factory=dict)
    """Paths inside, each with the path on this machine that is seen there."""

    @classmethod
    def gather(cls, folder: Path, versions: Mapping[str, str]) -> FromHost:
        """Copy what pip, apt and name resolution use here to a folder; pip takes these versions of packages if any."""
        folder.mkdir()
        shutil.copyfile("/etc/resolv.conf", folder / "resolv.conf")
        read_only = {"/etc/resolv.conf": folder / "resolv.conf", HANDED_IN: folder}
        environment = {name: value for name, value in os.environ.items() if name.upper() in PROXY_ARGUMENTS}
        # A cache would be written once and never read: nothing is built twice.
        environment["PIP_NO_CACHE_DIR"] = "1"
        (folder / "constraints.txt").write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        environment["PIP_CONSTRAINT"] = f"{HANDED_IN}/constraints.txt"
        for name, value in _pip_configuration().items():
            words = []
            for word in value.split():
                path = Path(word.removeprefix("file://"))
                if path.is_file():
                    shutil.copyfile(path, folder / path.name)
                    word = f"{HANDED_IN}/{path.name}"
                elif path.is_absolute() and path.is_dir():
                    # The pages of an index on disk refer to files beside it.
                    shown = path.parent if word.startswith("file://") and len(path.parts) > 2 else path
                    read_only[str(shown)] = shown
                words.append(word)
            environment[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(words)
        if lines := _apt_configuration():
            (folder / "apt.conf").write_text("\n".join(lines) + "\n")
            environment["APT_CONFIG"] = f"{HANDED_IN}/apt.conf"
        return cls(environment, read_only)


def _pip_configuration() -> dict[str, str]:
    """The options that pip has here, from its files and from the environment, which wins."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found = re.findall(r"^(:env:|global|user|site)\.([\w-]+)=(.*)$", listed.stdout, re.MULTILINE)
    ranked = sorted(found, key=lambda option: ("global", "user", "site", ":env:").index(option[0]))
    return {name: str(ast.literal_eval(value)) for _, name, value in ranked}


def _apt_configuration() -> list[str]:
    """The lines of apt's configuration that say how to reach a mirror."""
    if shutil.which("apt-config") is None:
        return []
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    return re.findall(r'^Acquire::https?::\S* ".+";$', dumped.stdout, re.MULTILINE)


def _mirror() -> list[str]:
    """The Debian mirror that this machine uses, as debootstrap's last argument; without one it takes Debian's own."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    match = re.search(r"^(?:URIs:|deb)\s(?:.*\s)?(https?://\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
    return [match[1]] if match else []


class Disk:
    """A file system in one file, which this machine does not see mounted; used in a `with` block.

    It is mounted in a namespace of mounts that a process holds: without that process there is nothing to unmount and nothing
    to delete, where deleting the fifty thousand files of two roots one by one takes minutes on some disks.
    """

    def __init__(self, folder: Path) -> None:
        self._file, self._mount_point = folder / "disk.img", folder / "disk"
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._mount_point.mkdir()
        with self._file.open("wb") as file:
            file.truncate(DISK_BYTES)
        # Without a journal: what is on it is never needed after a crash.
        options = ["-q", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1"]
        subprocess.run(["mkfs.ext4", *options, str(self._file)], check=True)
        script = 'mount -o loop,noatime "$0" "$1" && echo mounted && exec sleep infinity'
        holding = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
        command = [*_DIE_WITH_TEST, *holding, str(self._file), str(self._mount_point)]
        self._holder = subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        is_mounted = self._holder.stdout.readline() == "mounted\n"
        self._file.unlink()  # who has it mounted keeps it; so its room is free at the latest when the test is killed
        if not is_mounted:
            _, refusal = self._holder.communicate()
            self._mount_point.rmdir()
            pytest.skip(f"this machine mounts no file as a disk: {refusal.strip()}")
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._holder is not None
        left = [] if self._holder.poll() is not None else self.processes()
        self._holder.kill()
        self._holder.communicate()
        self._mount_point.rmdir()
        assert not left, f"processes outlived their container: {left}"

    @property
    def path(self) -> Path:
        """The disk as seen from this machine."""
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root", *self._mount_point.parts[1:])

    @property
    def command_prefix(self) -> tuple[str, ...]:
        """What makes a command see the disk; the process keeps its id, and ends with the test."""
        assert self._holder is not None
        return (*_DIE_WITH_TEST, "nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt")

    def processes(self) -> list[int]:
        """Ids of this machine's processes whose root is on the disk."""
        device, found = self.path.stat().st_dev, []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(entry / "root").st_dev == device:
                        found.append(int(entry.name))
        return found


def on_disk(path: Path) -> Path:
    """A path as a process sees it for which the disk is mounted."""
    parts = path.parts
    return Path("/", *parts[4:]) if parts[1:2] == ("proc",) and parts[3:4] == ("root",) else path


def make_debian(folder: Path, disk: Disk, log: Path) -> None:
    """Make a minimal Debian, which is what the image debian:bookworm-slim is."""
    command = ["debootstrap", "--variant=minbase", RELEASE, str(on_disk(folder)), *_mirror()]
    isolated = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    _run_logged([*disk.command_prefix, *isolated, *command], log, "debootstrap")
    # The official images tell dpkg not to wait for the disk after every file.
    (folder / "etc/dpkg/dpkg.cfg.d/docker-apt-speedup").write_text("force-unsafe-io\n")


def build(
    plans: Mapping[str, Plan],
    context: Context,
    disk: Disk,
    logs: Path,
    from_host: FromHost,
    timings: dict[str, float],
) -> dict[str, Built]:
    """Build the images of several Dockerfiles on one base; steps that they begin with alike are done once.

    Args:
        plans: By name.
        context: What COPY copies from.
        disk: For roots and caches.
        logs: Folder of what the steps print.
        from_host: What the steps are given of this machine.
        timings: Is told the seconds of every step.
    """
    logs.mkdir()
    base = Builder(disk.path / "base", disk, logs, from_host, context, timings)
    with _timed(timings, "debootstrap"):
        make_debian(base.root, disk, logs / "debootstrap.log")
    num_shared = 0
    for steps in zip(*(plan.steps for plan in plans.values()), strict=False):
        if any(step != steps[0] for step in steps):
            break
        base.do(steps[0])
        num_shared += 1
    roots = {name: disk.path / name for name in plans}
    *copies, last = roots.values()
    with _timed(timings, "copies of the base"):
        for root in copies:
            subprocess.run(["cp", "-a", str(base.root), str(root)], check=True)
        base.root.rename(last)

    def finish(name: str) -> Built:
        builder = Builder(roots[name], disk, logs, from_host, context, timings)
        for step in plans[name].steps[num_shared:]:
            builder.do(step)
        return Built(roots[name], plans[name].image, disk)

    # Side by side, as engines build images: while one waits for the network, the other unpacks.
    with ThreadPoolExecutor(len(plans)) as pool:
        return dict(zip(plans, pool.map(finish, plans), strict=True))


@dataclass(frozen=True, slots=True)
class Built:
    """An image: its files and its configuration."""

    root: Path
    image: Image
    disk: Disk


class Builder:
    """Does the steps of a plan in a root."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        logs: Path,
        from_host: FromHost,
        context: Context,
        timings: dict[str, float],
    ) -> None:
        self.root = root
        self._disk, self._logs, self._from_host = disk, logs, from_host
        self._context, self._timings = context, timings

    def do(self, step: Step) -> None:
        """Do one step to its end."""
        match step:
            case Run():
                self._run(step)
            case Copy():
                self._copy(step)
            case MakeFolder():
                folder = inside(self.root, step.path)
                if not folder.is_dir():
                    folder.mkdir(parents=True)
                    os.chown(folder, *ids(self.root, step.owner))

    def _run(self, step: Run) -> None:
        title = f"{self.root.name}: RUN {step.argv[-1]}"
        binds = [Bind(path, source) for path, source in self._from_host.read_only.items()]
        for target in step.caches:
            cache = self._disk.path / "caches" / target.strip("/").replace("/", "-")
            cache.mkdir(parents=True, exist_ok=True)
            binds.append(Bind(target, cache, is_writable=True))
        made = [path for bind in reversed(binds) for path in _make_mount_point(self.root, bind)]
        environment = {"HOME": home(self.root, step.user), **step.environment, **self._from_host.environment}
        within = Inside(self.root, step.argv, step.user, step.workdir, environment, tuple(binds))
        with _timed(self._timings, title):
            _run_logged([*self._disk.command_prefix, *within.command], self._logs / f"{self.root.name}.log", title)
        for path in made:  # what was made only to be mounted on is no part of the image
            with contextlib.suppress(OSError):  # a step may have put something beside it
                path.rmdir() if path.is_dir() else path.unlink()

    def _copy(self, step: Copy) -> None:
        owner = ids(self.root, step.owner)
        for source in step.sources:
            for path, place in self._context.under(source):
                is_folder = step.destination.endswith("/") or (self._context.folder / source).is_dir()
                target = inside(self.root, str(PurePosixPath(step.destination, place if is_folder else "")))
                for parent in reversed(target.parents):
                    if not parent.exists():
                        parent.mkdir(mode=0o755)
                        os.chown(parent, *owner)
                shutil.copy(self._context.folder / path, target, follow_symlinks=False)
                os.chown(target, *owner, follow_symlinks=False)
                if step.mode is not None:
                    target.chmod(step.mode)


def ids(root: Path, owner: str) -> tuple[int, int]:
    """User and group id of USER[:GROUP], numbers or names of the image.

    Raises:
        AssertionError: The image has no such name.
    """
    user, _, group = owner.partition(":")
    users = {row[0]: (int(row[2]), int(row[3])) for row in _table(root / "etc/passwd")}
    groups = {row[0]: int(row[2]) for row in _table(root / "etc/group")}
    assert user.isdigit() or user in users, f"the image has no user {user}"
    assert not group or group.isdigit() or group in groups, f"the image has no group {group}"
    uid = int(user) if user.isdigit() else users[user][0]
    if group:
        return uid, int(group) if group.isdigit() else groups[group]
    return uid, dict(users.values()).get(uid, 0)


def home(root: Path, user: str) -> str:
    """The home folder of USER[:GROUP] in the image."""
    uid, _ = ids(root, user)
    return next((row[5] for row in _table(root / "etc/passwd") if int(row[2]) == uid), "/")


def _table(file: Path) -> list[list[str]]:
    return [line.split(":") for line in file.read_text().splitlines() if line] if file.exists() else []


def inside(root: Path, path: str) -> Path:
    """A path of the image on this machine; refused where a link of the image could lead out of it."""
    target = root
    for part in PurePosixPath(path.lstrip("/")).parts:
        assert part != "..", path
        target = target / part
        assert not target.is_symlink(), f"{path} goes through the link {target}"
    return target


@dataclass(frozen=True, slots=True)
class Bind:
    """Something of this machine that is seen inside."""

    path: str
    source: Path
    is_writable: bool = False


def _make_mount_point(root: Path, bind: Bind) -> list[Path]:
    """Make what a mount needs to lie on; returns what was not there before, innermost first."""
    target = inside(root, bind.path)
    missing = [path for path in (target, *target.parents) if not path.exists()]
    if missing:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if bind.source.is_dir() else target.touch()
    return missing


# The outer namespace of processes belongs to root and so keeps the wish to end with its parent, which the kernel forgets for
# a process that changes its user; whatever is in it ends with it. In the inner one the command is process 1.
_OUTER = ("unshare", "--pid", "--fork", "--kill-child")
_INNER = ("unshare", "--mount", "--propagation=private", "--uts", "--ipc", "--pid", "--fork", "sh", "-c")


@dataclass(frozen=True, slots=True)
class Inside:
    """A command as process 1 inside a root."""

    root: Path
    argv: Sequence[str]
    user: str
    workdir: str
    environment: Mapping[str, str]
    binds: Sequence[Bind] = ()
    is_read_only: bool = False

    @property
    def command(self) -> list[str]:
        """The command line on this machine; its process is two levels above the one inside."""
        return [*_OUTER, *_INNER, self._script()]

    def _script(self) -> str:
        root = shlex.quote(str(on_disk(self.root)))
        lines = ["set -e", f"mount --bind {root} {root}", f"cd {root}"]
        for bind in self.binds:
            source, target = shlex.quote(str(on_disk(bind.source))), shlex.quote(bind.path.lstrip("/"))
            lines.append(f"mount --bind {source} {target}")
            if not bind.is_writable:
                lines.append(f"mount -o remount,bind,ro {target}")
        if self.is_read_only:
            lines += ["mount -o remount,bind,ro .", "mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp"]
        lines += [
            "mount -t proc -o nosuid,nodev,noexec proc proc",
            "mount -t tmpfs -o mode=755,nosuid tmpfs dev",
            *(f"touch dev/{name} && mount --bind /dev/{name} dev/{name}" for name in DEVICES),
            "mkdir dev/shm && mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm",
            "ln -s /proc/self/fd dev/fd",
            *(f"ln -s /proc/self/fd/{number} dev/std{name}" for number, name in enumerate(("in", "out", "err"))),
            f"exec {shlex.join(in_root(self.root, self.argv, self.user, self.workdir, self.environment))}",
        ]
        return "\n".join(lines)


def in_root(
    root: Path, argv: Sequence[str], user: str, workdir: str, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The command line that becomes `argv` inside a root, with this environment and no other."""
    uid, gid = ids(root, user)
    variables = (f"{name}={value}" for name, value in environment.items())
    becoming = ("chroot", f"--userspec=+{uid}:+{gid}", f"--groups={gid}", str(on_disk(root)))
    return (*becoming, "/usr/bin/env", "-i", f"--chdir={workdir}", *variables, *argv)


class Container:
    """A process of an image on a host of a test's network."""

    def __init__(
        self,
        name: str,
        built: Built,
        host: Host,
        logs: Path,
        arguments: Sequence[str],
        *,
        data: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
        volumes: Sequence[str] = (),
        entrypoint: Sequence[str] | None = None,
        user: str = "",
        workdir: str = "",
    ) -> None:
        """Prepare a container.

        Args:
            name: Of the container and of its volumes' folder.
            built: The image.
            host: Whose network it has.
            logs: Folder of its log.
            arguments: In the place of the image's CMD; none leave it.
            data: Paths inside, each with the folder that is mounted there read-only.
            environment: More variables, or others than the image's.
            volumes: Named volumes as Compose writes them, VOLUME:PATH or VOLUME:PATH:ro; every container that names one sees
                the same. A volume of the image that is not among them is this container's own.
            entrypoint: In the place of the image's ENTRYPOINT.
            user: In the place of the image's USER.
            workdir: In the place of the image's WORKDIR.
        """
        self.name, self.host, self.log_file = name, host, logs / f"{name}.log"
        self._built, self._data, self._arguments = built, dict(data or {}), tuple(arguments)
        self._user, self._workdir = user or built.image.user, workdir or built.image.workdir
        standard = {"HOME": home(built.root, self._user), "HOSTNAME": name}
        self._environment = {**standard, **built.image.environment, **(environment or {})}
        self._entrypoint = entrypoint
        every_volume = built.disk.path / "volumes"
        own = {path: every_volume / name / path.strip("/").replace("/", "-") for path in built.image.volumes}
        named = {path: every_volume / volume for volume, path, *_how in (each.split(":") for each in volumes)}
        self.volumes = own | named
        """Folder of each volume, by its path inside."""
        self._read_only = {each.split(":")[1] for each in volumes if each.endswith(":ro")}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, or start again on the same volumes."""
        assert self._process is None or self._process.poll() is not None, f"{self.name} runs already"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def run(self, given: str = "", timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run to its own end, as `docker run --rm --interactive` does; it reads what is given."""
        reading, writing = os.pipe()
        try:
            os.write(writing, given.encode())  # shorter than a pipe holds
            # As runc does: the user inside may open /dev/stdin, which on Linux is a right of the pipe's owner.
            os.fchown(reading, *ids(self._built.root, self._user))
            os.close(writing)
            return subprocess.run(
                self._command(), cwd="/", stdin=reading, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        finally:
            os.close(reading)

    def _command(self) -> list[str]:
        root, image = self._built.root, self._built.image
        for path, volume in self.volumes.items():
            if not volume.exists():  # a new volume begins with what the image has there, owner and mode included
                volume.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", str(inside(root, path)), str(volume)], check=True)
        binds = [Bind(path, source) for path, source in self._data.items()]
        writable = self.volumes.keys() - self._read_only
        binds += [Bind(path, volume, is_writable=path in writable) for path, volume in self.volumes.items()]
        for bind in binds:
            _make_mount_point(root, bind)
        argv = image.argv(*self._arguments) if self._entrypoint is None else (*self._entrypoint, *self._arguments)
        within = Inside(root, argv, self._user, self._workdir, self._environment, binds, is_read_only=True)
        return [*self.host.command_prefix, *self._built.disk.command_prefix, *within.command]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """This machine's id of the container's process 1."""
        return eventually(self._find_pid, f"{self.name} has its process", 20)

    def _find_pid(self) -> int | None:
        assert self.is_running, f"{self.name} ended:\n{self.log()[-TAIL:]}"
        assert self._process is not None
        pid = self._process.pid
        for _level in range(2):
            try:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                return None
            if not children:
                return None
            pid = int(children[0])
        # Before it has changed its root it is the shell that makes the mounts, and then for a moment env.
        try:
            is_inside = Path(f"/proc/{pid}/root").samefile(self._built.root)
            return pid if is_inside and not os.readlink(f"/proc/{pid}/exe").endswith("/env") else None
        except OSError:
            return None

    def status(self) -> dict[str, str]:
        """What the kernel says of process 1."""
        rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (row.partition(":") for row in rows)}

    def execute(self, argv: Sequence[str], timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside beside process 1, as `docker exec` does."""
        root = self._built.root
        entering = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        command = in_root(root, argv, self._user, self._workdir, self._environment)
        return subprocess.run([*entering, *command], capture_output=True, text=True, timeout=timeout_s, cwd="/")

    def check_health(self) -> int:
        """Run the image's HEALTHCHECK once; returns its exit code, 0 for healthy."""
        check = self._built.image.health_check
        assert check is not None, f"the image of {self.name} has no HEALTHCHECK"
        return self.execute(check.argv, timeout_s=check.timeout.total_seconds() + 20).returncode

    def stop(self) -> int:
        """Send the image's stop signal and wait for the end, however busy the machine is; returns the exit code."""
        assert self._process is not None
        os.kill(self.pid, signal.Signals[self._built.image.stop_signal])
        return self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for its own end; returns the exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it, if it runs, with everything in it."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


def _run_logged(command: Sequence[str], log: Path, title: str) -> None:
    with log.open("ab") as file:
        file.write(f"\n=== {title}\n".encode())
        file.flush()
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, timeout=STEP_S
        )
    assert done.returncode == 0, f"{title}: exit code {done.returncode}\n{log.read_text(errors='replace')[-TAIL:]}"


@contextlib.contextmanager
def _timed(timings: dict[str, float], title: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    timings[title] = time.monotonic() - begin
