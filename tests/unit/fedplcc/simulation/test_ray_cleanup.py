"""The rest of a Ray cluster whose owner is killed: its processes, known by their open files, are ended and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedplcc.simulation import ray_cleanup

WAIT_S = 60.0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_has_a_file_open_in_the_folder_ends_with_the_owner_and_the_folder_goes(tmp_path: Path) -> None:
    folder, neighbour = tmp_path / "cluster", tmp_path / "cluster-of-others"
    for path in (folder, neighbour):
        path.mkdir()
        (path / "log").touch()
    command = [sys.executable, "-I", "-S", ray_cleanup.__file__, str(folder)]
    with (
        holding(folder / "log") as left,
        holding(neighbour / "log") as other,
        subprocess.Popen(command, stdin=subprocess.PIPE) as watching,
    ):
        assert watching.stdin is not None
        assert watching.poll() is None
        watching.stdin.close()  # as the kernel does when the owner is killed
        assert watching.wait(WAIT_S) == 0
        assert left.wait(WAIT_S) == -9
        assert not folder.exists()
        assert other.poll() is None
        assert neighbour.exists()
        other.kill()


def holding(file: Path) -> subprocess.Popen[str]:
    """A process that has a file open until it is killed."""
    program = "import sys\nwith open(sys.argv[1]) as file:\n    print('open', flush=True)\n    sys.stdin.read()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process
